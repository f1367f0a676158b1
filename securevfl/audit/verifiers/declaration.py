"""Whether a run sends what the protocol declares, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from securevfl.audit.coalitions import may_see
from securevfl.audit.deviations import Deviation
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
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
        found = subject.comparison
        seen = [one for one in found.deviations if _bears(claim, protocol, one)]
        for one in seen[:1]:
            more = f" ({len(seen)} messages are not as declared)" if len(seen) > 1 else ""
            yield Evidence(self.name, "accuses", f"{one}{more}", "demonstration", 0.0)
        if seen:
            return
        if found.deviations:  # the adversary does not see them, and they may reach it by others
            text = f"others are sent what is not declared: {found.deviations[0]}"
            yield Evidence(self.name, "silent", text, "gap")
        if found.without_formula:
            kinds = ", ".join(sorted({repr(spec.kind) for spec in found.without_formula}))
            text = f"no formula says what must be in messages of the kinds {kinds}"
            yield Evidence(self.name, "silent", text, "gap")
        text = (
            f"a run with the protocol's own options: {found.messages} messages, each declared, "
            f"{found.computed} of them equal to their formula byte by byte"
        )
        idle = _not_exercised(protocol)
        if idle:
            text = f"nobody was late in the runs, so the options {', '.join(idle)} had no effect"
            yield Evidence(self.name, "silent", text, "gap")
        about = claim.strength in ("perfect", "computational") and not found.without_formula
        yield Evidence(self.name, "supports" if about else "silent", text)


def _not_exercised(protocol: Protocol) -> list[str]:
    """Options that are set and that only late or absent parties bring into play."""
    config = protocol.config
    fields = type(config).model_fields
    return [
        name
        for name in protocol.fault_options
        if fields[name].default is None and getattr(config, name) is not None
    ]


def _bears(claim: Claim, protocol: Protocol, deviation: Deviation) -> bool:
    return claim == AS_DECLARED or may_see(claim.against, protocol, deviation.key)
