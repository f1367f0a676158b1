"""The result of a verification: one verdict for each claim, and what leaks outside any claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from securevfl.privacy.claims import Claim

Verdict = Literal[
    "PROVED",
    "DP",
    "NOT PROVED",
    "NOT PROTECTED",
    "HYPOTHESES HOLD",
    "NO VIOLATION FOUND",
    "TESTED BUT NOT READ",
    "VIOLATED",
    "CONFIRMED OPEN",
    "NOT TESTED",
    "COULD NOT BE CHECKED",
]
Effect = Literal["supports", "accuses", "silent"]
# What a piece of evidence is worth to a verdict, besides its effect.
Bearing = Literal[
    "proof", "hypothesis", "test", "demonstration", "gap", "unread", "channel", "failure"
]

# Where several kinds of evidence meet, the strongest word that is true. docs/verification.md says
# of each what a reader may write in a paper.
PROVED: Verdict = "PROVED"
HOLDS: Verdict = "HYPOTHESES HOLD"
NOT_FOUND: Verdict = "NO VIOLATION FOUND"
NOT_READ: Verdict = "TESTED BUT NOT READ"
VIOLATED: Verdict = "VIOLATED"
OPEN: Verdict = "CONFIRMED OPEN"
NOT_TESTED: Verdict = "NOT TESTED"
UNCHECKED: Verdict = "COULD NOT BE CHECKED"


@dataclass(frozen=True)
class Evidence:
    """One thing that a verifier found out about a claim.

    Attributes
    ----------
    verifier : str
        Name of the verifier.
    effect : {"supports", "accuses", "silent"}
        Whether it speaks for the claim, against it, or neither. Of a claim that nothing is
        protected, "supports" means that the leak was demonstrated.
    text : str
        What was done and found.
    bearing : Bearing
        "proof": a condition of a written theorem. "hypothesis": one of a reduction to a primitive.
        "test": a test that did not reject. "demonstration": the secret itself, or its influence on
        the view. "gap": something that a proof needs and that was not shown; it forbids PROVED and
        HYPOTHESES HOLD. "unread": honest parties run code of others; it forbids NO VIOLATION FOUND
        as well, for tests say what code did and not what it does. "channel": something leaves a
        party, and nobody knows what it tells: NOT TESTED. "failure": the verifier ended in an
        error.
    p_value : float or None
        Of a test: probability of such evidence where the claim holds; 0 where values were
        recovered exactly. None where chance has no part.
    level : float
        Of a test: probability that it accuses a protocol that keeps the claim.
    """

    verifier: str
    effect: Effect
    text: str
    bearing: Bearing = "test"
    p_value: float | None = None
    level: float = 0.0


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim and what became of it.

    Attributes
    ----------
    claim : Claim
    verdict : Verdict
    evidence : tuple of Evidence
    failure_probability : float or None
        Of VIOLATED: the probability of such evidence where the claim holds. Of NO VIOLATION FOUND
        and TESTED BUT NOT READ: the probability that the tests would have accused a protocol that
        keeps the claim. None where chance has no part.
    """

    claim: Claim
    verdict: Verdict
    evidence: tuple[Evidence, ...]
    failure_probability: float | None = None

    @property
    def who(self) -> str:
        """Phrase of the adversary."""
        return self.claim.who

    @property
    def about(self) -> str:
        """The asset."""
        return self.claim.asset

    @property
    def notion(self) -> str:
        """The strength."""
        return self.claim.strength

    @property
    def source(self) -> str:
        """The claim's reason, and what the ideal output gives away."""
        return self.claim.source

    @property
    def words(self) -> str:
        """All evidence in one text."""
        return "; ".join(one.text for one in self.evidence)

    def to_dict(self) -> dict[str, Any]:
        """Content in JSON types; `evidence` is one text, `evidence_list` the single pieces."""
        return {
            **self.claim.to_dict(),
            "verdict": self.verdict,
            "evidence": self.words,
            "evidence_list": [asdict(one) for one in self.evidence],
            "failure_probability": self.failure_probability,
        }


@dataclass(frozen=True)
class Leakage:
    """Something that is revealed and that no claim denies.

    Attributes
    ----------
    who, what, evidence : str
    """

    who: str
    what: str
    evidence: str


@dataclass(frozen=True)
class Report:
    """All verdicts of a verification.

    Attributes
    ----------
    protocol : str
    parameters : mapping
        N, K, T, p and whatever else the verdicts depend on.
    claims : tuple of ClaimVerdict
    shown : tuple of Leakage
    not_covered : tuple of str
        What no verdict is about.
    ran : tuple of str
        The configurations that were run, each with what was changed to make it small. No verdict
        is about an option that none of them has.
    whole : bool
        Whether the configuration itself was run, on all its rows and for all its rounds. Where it
        was not, the verdicts are about small runs.
    library : str
        Version and hash of the library that judged.
    """

    protocol: str
    parameters: Mapping[str, Any]
    claims: tuple[ClaimVerdict, ...]
    shown: tuple[Leakage, ...]
    not_covered: tuple[str, ...]
    ran: tuple[str, ...] = ()
    whole: bool = True
    library: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Content in JSON types."""
        return {
            "protocol": self.protocol,
            "parameters": dict(self.parameters),
            "claims": [one.to_dict() for one in self.claims],
            "shown": [asdict(one) for one in self.shown],
            "not_covered": list(self.not_covered),
            "ran": list(self.ran),
            "whole": self.whole,
            "library": self.library,
        }

    def verdict(self, who: str, about: str) -> Verdict:
        """Verdict on one claim.

        Raises
        ------
        KeyError
            When the report has no such claim.
        """
        for one in self.claims:
            if (one.who, one.about) == (who, about):
                return one.verdict
        raise KeyError(f"no claim about {about} against {who}")


def conclude(claim: Claim, evidence: Iterable[Evidence]) -> ClaimVerdict:
    """Verdict that the evidence allows, and no stronger one.

    - Evidence against a claim decides, whatever speaks for it: VIOLATED.
    - A verifier that ended in an error leaves its question open: COULD NOT BE CHECKED.
    - Something that leaves a party and that nobody has looked at leaves the claim NOT TESTED.
    - A claim that nothing is protected is CONFIRMED OPEN by a demonstration.
    - PROVED needs a condition of a theorem that holds, and no gap; of a computational claim the
      conditions are hypotheses, and the primitive's own remains: HYPOTHESES HOLD.
    - Otherwise tests that did not reject give NO VIOLATION FOUND, and TESTED BUT NOT READ where
      they tested code of others, which may do something else in another run.
    """
    found = tuple(evidence)
    bearings = {one.bearing for one in found if one.effect != "accuses"}
    accusing = [one for one in found if one.effect == "accuses"]
    tests = [one for one in found if one.effect == "supports" and one.bearing == "test"]
    level = sum(one.level for one in tests)
    if claim.strength == "none":
        if any(one.bearing == "demonstration" and one.effect == "supports" for one in found):
            return ClaimVerdict(claim, OPEN, found)
        return ClaimVerdict(claim, UNCHECKED if "failure" in bearings else NOT_TESTED, found)
    if accusing:
        chance = min(1.0 if one.p_value is None else one.p_value for one in accusing)
        ordered = (*accusing, *(one for one in found if one.effect != "accuses"))
        return ClaimVerdict(claim, VIOLATED, ordered, chance)
    if "failure" in bearings:
        return ClaimVerdict(claim, UNCHECKED, found)
    if "channel" in bearings:
        return ClaimVerdict(claim, NOT_TESTED, found)
    if not bearings & {"gap", "unread"}:
        if "proof" in bearings and claim.strength in ("perfect", "undetermined"):
            return ClaimVerdict(claim, PROVED, found)
        if "hypothesis" in bearings and claim.strength == "computational":
            return ClaimVerdict(claim, HOLDS, found)
    if tests or bearings & {"proof", "hypothesis"}:
        word = NOT_READ if "unread" in bearings else NOT_FOUND
        return ClaimVerdict(claim, word, found, level or None)
    return ClaimVerdict(claim, NOT_TESTED, found)
