"""The statistical games on real runs, at 2^31-1 and at the configuration's own prime."""

from __future__ import annotations

from collections.abc import Iterable

from securevfl.audit.games.on_runs import TESTS, Size
from securevfl.audit.statistical import Outcome
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.audit.verifiers.coded import P31, CodedVerifier, coded
from securevfl.errors import ConfigurationError
from securevfl.privacy.adversary import (
    SERVER_ALONE,
    SERVER_AND_T_CLIENTS,
    T_CLIENTS,
    T_UPLOADS,
    Adversary,
)
from securevfl.privacy.claims import Claim

# Which games bear on claims against whom.
PLAYED: dict[Adversary, tuple[str, ...]] = {
    T_CLIENTS: ("equality", "span, clients"),
    T_UPLOADS: ("equality", "span, clients"),
    SERVER_ALONE: ("span, server", "ranks, server", "two samples"),
    SERVER_AND_T_CLIENTS: (
        "span, clients",
        "span, server",
        "ranks, server",
        "ranks, server + clients",
        "two samples",
    ),
}


class Games(CodedVerifier):
    """Plays distinguishing games between secrets with equal sums."""

    name = "games"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """A rejected test speaks against the claim; messages that are not uniform forbid PROVED."""
        names = [name for name in PLAYED[claim.against] if name in subject.tests]
        outcomes = [one for name in names for one in self._play(subject, name, claim.asset, level)]
        played = [one for one in outcomes if one is not None]
        for one in played:
            if one.rejected:
                text = f"{one.test}, {one.detail} (p {one.p_value:.2g})"
                yield Evidence(self.name, "accuses", text, "test", one.p_value, level)
        kept = [one for one in played if not one.rejected]
        if kept:
            text = (
                f"{len(kept)} statistical tests on real runs did not reject "
                f"(smallest p {min(o.p_value for o in kept):.2g}, level {level:g})"
            )
            least = min(one.p_value for one in kept)
            yield Evidence(self.name, "supports", text, "test", least, level * len(kept))
        if len(played) < len(outcomes):
            text = f"{len(outcomes) - len(played)} statistical tests have no sound small instance"
            yield Evidence(self.name, "silent", text, "gap")
        yield from self._uniformity(subject, level)

    def _uniformity(self, subject: Subject, level: float) -> Iterable[Evidence]:
        tried = self._play(subject, "uniformity", "features", level)
        for one in tried if "uniformity" in subject.tests else []:
            if one is not None and one.rejected:
                text = f"not all messages are uniform: {one.detail}"
                yield Evidence(self.name, "silent", text, "gap", one.p_value, level)

    def _play(self, subject: Subject, name: str, about: str, level: float) -> list[Outcome | None]:
        """A test at both primes; None where its instance is refused."""
        protocol = coded(subject)
        if name not in subject.tests:
            return []

        def play(prime: int) -> Outcome | None:
            subject.progress(f"{name}, {about}, p = {prime}")
            subject.note(f"game {name!r} about {about}, p = {prime}, on small instances")
            code, options = protocol.code, {"masked": protocol.masked}
            size = Size(code.segments, code.privacy, prime, options)
            try:
                return TESTS[name](type(protocol), size, about, level)
            except ConfigurationError:  # such as points that no sound code has
                return None

        primes = sorted({P31, protocol.code.field.modulus})
        return [subject.shared(f"{name} {about} {p}", lambda p=p: play(p)) for p in primes]  # type: ignore[misc]
