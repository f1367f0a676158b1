"""Verifier of the specification: formulas, code and field must be the library's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from securevfl.audit.following.library import foreign, unread
from securevfl.audit.following.sources import altered
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.models.user_code import OPTIONS
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.protocol import Protocol


class Specification:
    """Looks for what a protocol's class, and the parts that it computes with, define themselves."""

    name = "specification"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """All claims that something is protected, but those of the links."""
        return claim.strength != "none" and claim.against != OUTSIDER

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """A gap for what is not the library's."""
        found = own_words(subject)
        if found:
            yield Evidence(self.name, "silent", found, "gap")
            return
        others = [*unread(subject.protocol), *_options(subject.protocol, claim)]
        if others:
            text = (
                f"its parties run code that is not the library's and that was not read "
                f"({_some(others)}): what was checked is what it did in the runs that were made"
            )
            yield Evidence(self.name, "silent", text, "gap")
            return
        text = (
            "declaration, formulas, claims, code and field are the library's, and its functions, "
            "their defaults and the globals of its modules those of its files"
        )
        yield Evidence(self.name, "silent", text)


def _options(protocol: Protocol, claim: Claim) -> list[str]:
    """Options that name code of the user's, but for the server's own where it is the adversary."""
    names = OPTIONS if not claim.against.server else ("own_client",)
    return [f"the option {name}" for name in names if getattr(protocol.config, name, None)]


def own_words(subject: Subject) -> str:
    """The parts that are not the library's, in a sentence; empty where all are."""
    found = subject.shared("specification", lambda: sorted(set(foreign(subject.protocol))))
    if found:
        return f"what it is held against is its own and was not checked: {_some(found)}"
    _ = subject.run  # what parties replace, they have replaced then
    found = subject.changed()
    if found:
        return f"it computes with another thing than it is given: {_some(found)}"
    found = altered()
    words = "what the library's names stand for is not what its files say: "
    return words + _some(found) if found else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (" and more" if len(names) > 6 else "")
