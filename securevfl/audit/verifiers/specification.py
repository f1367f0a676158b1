"""Verifier of the specification: formulas, code and field must be the library's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from securevfl.audit.following.acts import text_of
from securevfl.audit.following.library import foreign, library_base, unread
from securevfl.audit.keyed.other_secrets import other_labels
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.engine.streams import SecretSeed
from securevfl.models.user_code import OPTIONS
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.protocol import Protocol

_TRIES = 3  # other labels that a description is held against


class Specification:
    """Looks for what a protocol's class, and the parts that it computes with, define themselves."""

    name = "specification"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """All claims that something is protected, but those of the links."""
        return claim.strength != "none" and claim.against != OUTSIDER

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Code that is not the library's, and that nobody has read."""
        if subject.lives:
            text = (
                "when its parties are made, run and forgotten, code that is not the library's does "
                f"more, and what that tells was not looked at: {_some(subject.lives)}"
            )
            yield Evidence(self.name, "silent", text, "channel")
        found = own_words(subject)
        if found:
            yield Evidence(self.name, "silent", found, "unread")
            for text in (_claimed_anew(subject.protocol, claim), _told(subject, claim)):
                if text:
                    yield Evidence(self.name, "silent", text, "channel")
            return
        others = [*unread(subject.protocol), *_options(subject.protocol, claim)]
        if others:
            text = (
                f"its parties run code that is not the library's and that was not read "
                f"({_some(others)}): what was checked is what it did in the runs that were made"
            )
            yield Evidence(self.name, "silent", text, "unread")
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


def _claimed_anew(protocol: Protocol, claim: Claim) -> str:
    """A claim that a class of others makes where the library's class says "none", in a sentence."""
    base = library_base(protocol)
    made = None if base is None else base(protocol.config, protocol.data, seed=protocol.seed)
    stated = () if made is None else made.claims
    none = {(one.against, one.asset) for one in stated if one.strength == "none"}
    if (claim.against, claim.asset) not in none:
        return ""
    return f"the library's {made.name if made else ''} says that nothing is protected here"


def _told(subject: Subject, claim: Claim) -> str:
    """A description that changes with what the claim is about; files of a run have it."""
    stream = np.random.Generator(np.random.Philox(subject.seed + 8))
    first = subject.instance()
    labels = first.data.train_labels
    columns = {n: stream.permutation(own) for n, own in enumerate(first.data.train)}
    for _ in range(_TRIES):
        if claim.asset == "labels":
            other = subject.instance(labels=other_labels(labels, stream))
        else:
            other = subject.instance(columns=columns, secrets=SecretSeed(subject.seed + 8))
        if text_of(other.describe()) != text_of(first.describe()):
            return f"what describes a run, and stands in its files, changes with the {claim.asset}"
    return ""


def own_words(subject: Subject) -> str:
    """The parts that are not the library's, in a sentence; empty where all are."""
    found = subject.shared("specification", lambda: sorted(set(foreign(subject.protocol))))
    if found:
        return f"what it is held against is its own and was not checked: {_some(found)}"
    _ = subject.run  # what parties replace, they have replaced then
    found = subject.altered
    words = "what the library's names stand for is not what its files say: "
    return words + _some(found) if found else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (" and more" if len(names) > 6 else "")
