"""Verifier of who wrote the code: what is not the library's was tested, and was not read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from securevfl.audit.code_of_others import own_code, own_parts
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.models.user_code import OPTIONS
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.protocol import Protocol


class CodeOfOthers:
    """Names what a protocol's class defines that is not the library's."""

    name = "code of others"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """All claims that something is protected, but those of the links."""
        return claim.strength != "none" and claim.against != OUTSIDER

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Code that nobody has read: no verdict endorses it."""
        found = own_words(subject.protocol)
        others = [*own_code(subject.protocol), *_options(subject.protocol, claim)]
        if found:
            yield Evidence(self.name, "silent", found, "unread")
        elif others:
            text = (
                f"its parties run code that is not the library's and that was not read "
                f"({_some(others)}): what was checked is what it did in the runs that were made"
            )
            yield Evidence(self.name, "silent", text, "unread")


def _options(protocol: Protocol, claim: Claim) -> list[str]:
    """Options that name code of the user's, but for the server's own where it is the adversary."""
    names = OPTIONS if not claim.against.server else ("own_client",)
    return [f"the option {name}" for name in names if getattr(protocol.config, name, None)]


def own_words(protocol: Protocol) -> str:
    """The parts that are not the library's, in a sentence; empty where all are."""
    found = own_parts(protocol)
    return (
        f"what it is held against is its own and was not checked: {_some(found)}" if found else ""
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (" and more" if len(names) > 6 else "")
