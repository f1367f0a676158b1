"""Verifier of declarations: a run sends what the protocol declares, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from securevfl.audit.coalitions import may_see
from securevfl.audit.columns.told_columns import is_secret
from securevfl.audit.deviations import Comparison, Deviation
from securevfl.audit.subject import Subject
from securevfl.audit.traffic.setting import ITSELF
from securevfl.audit.verdicts import Evidence
from securevfl.engine.network import name_of
from securevfl.privacy.adversary import OUTSIDER, Adversary
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.protocol import Protocol

#: The claim that every declaration makes, besides those of the card.
AS_DECLARED = Claim(
    Adversary(role="any party"),
    "messages",
    "perfect",
    "the protocol's declaration: which role sends which message to whom, how often, and what is in "
    "it",
)

_SMALL = "a small run"


class DeclaredMessages:
    """Compares the multiset of all messages of a recorded run with the declaration."""

    name = "declared messages"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """All claims that something is protected, but those of the links."""
        return claim.strength != "none" and claim.against != OUTSIDER

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """A message that is not as declared speaks against a claim whose adversary may see it."""
        protocol = subject.protocol
        if not protocol.messages:
            text = f"{protocol.name} declares no messages, so nothing could be compared"
            yield Evidence(self.name, "silent", text, "gap")
            return
        subject.progress("a run against the declaration")
        small = [(_SMALL, subject.comparison)]
        own = {_SMALL}
        yield from self._accusations(claim, protocol, small)  # whatever becomes of the settings
        own |= {one.setting.name for one in subject.settings if not one.setting.options}
        settings = [(one.setting.name, one.comparison) for one in subject.settings]
        yield from self._accusations(claim, protocol, settings)
        runs = small + settings
        yield from self._in_the_clear(claim, protocol, runs)
        if any(_bears(claim, protocol, one) for _, found in runs for one in found.deviations):
            return
        yield from self._gaps(runs, own)
        for one in subject.settings:
            if one.setting == ITSELF and one.ended:
                text = f"the configuration itself ended in round {one.rounds}: {one.ended}"
                yield Evidence(self.name, "silent", text, "gap")
        messages, computed = (
            sum(counts) for counts in zip(*((f.messages, f.computed) for _, f in runs), strict=True)
        )
        text = (
            f"{len(runs)} runs with the protocol's own options ({', '.join(n for n, _ in runs)}): "
            f"{messages} messages, each declared, {computed} of them equal to their formula byte "
            "by byte; formulas use the states of the senders"
        )
        whole = not any(found.without_formula for n, found in runs if n in own)
        about = claim.strength in ("perfect", "computational") and whole
        yield Evidence(self.name, "supports" if about else "silent", text)

    def _accusations(
        self, claim: Claim, protocol: Protocol, runs: Sequence[tuple[str, Comparison]]
    ) -> Iterator[Evidence]:
        """The first message of each run that is not as declared and that the adversary sees."""
        for name, found in runs:
            seen = [one for one in found.deviations if _bears(claim, protocol, one)]
            if seen:
                more = f" ({len(seen)} messages are not as declared)" if len(seen) > 1 else ""
                text = f"{name}: {seen[0]}{more}"
                yield Evidence(self.name, "accuses", text, "demonstration", 0.0)

    def _in_the_clear(
        self, claim: Claim, protocol: Protocol, runs: Sequence[tuple[str, Comparison]]
    ) -> Iterator[Evidence]:
        """The first run in which the adversary sees columns in the clear, with the message."""
        if claim.asset != "features" or not is_secret(claim):
            return
        seen = ((name, *one) for name, found in runs for one in found.clear
                if may_see(claim.against, protocol, one[0]))  # fmt: skip
        for name, key, n in seen:
            text = (
                f"{name}: round {key.round}: {key.kind!r} from {name_of(key.sender)} to "
                f"{name_of(key.receiver)} holds columns of client {n} in the clear"
            )
            yield Evidence(self.name, "accuses", text, "demonstration", 0.0)
            return

    def _gaps(self, runs: Sequence[tuple[str, Comparison]], own: set[str]) -> Iterator[Evidence]:
        """Gaps: undeclared messages to others, and messages that nothing could be compared with.

        Options that a setting adds may take formulas away; that is no gap of the configuration.
        """
        hidden = [one for _, found in runs for one in found.deviations]
        if hidden:  # the adversary does not see them, and they may reach it by others
            text = f"others are sent what is not declared: {hidden[0]}"
            yield Evidence(self.name, "silent", text, "gap")
        for name, found in runs:
            kinds = ", ".join(sorted(map(repr, found.without_formula)))
            text = f"no formula says what must be in messages of the kinds {kinds}"
            if kinds and name in own:
                yield Evidence(self.name, "silent", text, "gap")
                break
            if kinds:
                yield Evidence(self.name, "silent", f"{name}: {text}")
        forgotten = sum(found.forgotten for _, found in runs)
        if forgotten:
            text = f"{forgotten} messages depend on rounds or draws that no record holds"
            yield Evidence(self.name, "silent", text, "gap")


def _bears(claim: Claim, protocol: Protocol, deviation: Deviation) -> bool:
    return claim == AS_DECLARED or may_see(claim.against, protocol, deviation.key)
