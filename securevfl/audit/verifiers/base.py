"""The interface of a verifier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol as Interface
from typing import runtime_checkable

from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.protocol import Protocol


@runtime_checkable
class Verifier(Interface):
    """A test of claims, which must not change the parties of shared runs.

    Attributes
    ----------
    name : str
        Name in evidence and in the registry.
    """

    name: str

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Whether the verifier can examine a claim of a protocol."""

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Evidence for or against a claim to which the verifier applies.

        An exception is kept as evidence ("failure"), with what was yielded before. Without an
        accusation the verdict is COULD NOT BE CHECKED; a verdict by proof stays.

        Parameters
        ----------
        claim : Claim
            Claim to examine.
        subject : Subject
            Subject with recorded runs, which all verifiers share.
        seed : int
            Seed of the verifier's sampling.
        level : float
            Probability with which a test may accuse a claim that holds.
        """
