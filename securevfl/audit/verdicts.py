"""Result of a verification: a verdict for each claim, and leakage outside all claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from securevfl.privacy.claims import Claim

Verdict = Literal[
    "PROVED",
    "DP",
    "NOT PROTECTED",
    "NOT PROVED",
    "VIOLATED",
    "NOT TESTED",
    "COULD NOT BE CHECKED",
]
Effect = Literal["supports", "accuses", "silent"]
Bearing = Literal["proof", "test", "gap", "failure"]


@dataclass(frozen=True)
class Evidence:
    """One finding of a verifier about a claim.

    Attributes
    ----------
    verifier : str
        Name of the verifier.
    effect : {"supports", "accuses", "silent"}
        Whether the finding supports the claim, contradicts it, or neither.
    text : str
        Description of the test and its result.
    bearing : Bearing
        "proof": a condition of a written theorem that holds or not. "test": a test that rejected or
        not. "gap": a missing condition of a proof. "failure": the verifier raised an error.
    p_value : float or None
        For a test: probability of such evidence if the claim holds; 0 if values were recovered
        exactly. None if no chance is involved.
    level : float
        For a test: probability that it rejects a true claim.
    """

    verifier: str
    effect: Effect
    text: str
    bearing: Bearing = "test"
    p_value: float | None = None
    level: float = 0.0


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim with its verdict and evidence.

    Attributes
    ----------
    claim : Claim
        Claim that was judged.
    verdict : Verdict
        Verdict on the claim.
    evidence : tuple of Evidence
        Evidence for and against the claim.
    failure_probability : float or None
        For VIOLATED: probability of such evidence if the claim holds. None if no chance is
        involved.
    """

    claim: Claim
    verdict: Verdict
    evidence: tuple[Evidence, ...]
    failure_probability: float | None = None

    @property
    def who(self) -> str:
        """Phrase for the adversary, such as "the server"."""
        return self.claim.who

    @property
    def about(self) -> str:
        """The asset that the claim protects: features, model, labels or messages."""
        return self.claim.asset

    @property
    def notion(self) -> str:
        """Strength of the claim, such as "computational"."""
        return self.claim.strength

    @property
    def source(self) -> str:
        """Text of the claim's reason (theorem, section) and of what the ideal output reveals."""
        return self.claim.source

    @property
    def words(self) -> str:
        """Texts of all pieces of evidence, joined by semicolons."""
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
    """Information that a role learns, and that no claim denies.

    Attributes
    ----------
    who, what, evidence : str
        Role that learns it, content, and how it is known.
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
        Name of the protocol.
    parameters : mapping
        N, K, T, p and other parameters on which the verdicts depend.
    claims : tuple of ClaimVerdict
        Verdicts on the claims.
    shown : tuple of Leakage
        Content that roles learn outside any claim.
    not_covered : tuple of str
        Matters that no verdict covers.
    ran : tuple of str
        Descriptions of the proved traces. Verdicts do not cover options that none of them has.
    library : str
        Version and hash of the library that gave the verdicts.
    """

    protocol: str
    parameters: Mapping[str, Any]
    claims: tuple[ClaimVerdict, ...]
    shown: tuple[Leakage, ...] = ()
    not_covered: tuple[str, ...] = ()
    ran: tuple[str, ...] = ()
    library: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The report in JSON types."""
        return {
            "protocol": self.protocol,
            "parameters": dict(self.parameters),
            "claims": [one.to_dict() for one in self.claims],
            "shown": [asdict(one) for one in self.shown],
            "not_covered": list(self.not_covered),
            "ran": list(self.ran),
            "library": self.library,
        }

    def verdict(self, who: str, about: str) -> Verdict:
        """Verdict on one claim.

        KeyError if the report has no such claim.
        """
        for one in self.claims:
            if (one.who, one.about) == (who, about):
                return one.verdict
        raise KeyError(f"no claim about {about} against {who}")


def conclude(claim: Claim, evidence: Iterable[Evidence]) -> ClaimVerdict:
    """Verdict from evidence on a claim that is not about a coalition's view.

    - Evidence against a claim that is not "none" outweighs all evidence for it: VIOLATED.
    - A verifier that raised an error leaves its question open: COULD NOT BE CHECKED.
    - A claim of strength "none" that neither of these concerns: NOT PROTECTED.
    - PROVED needs conditions of a theorem that hold, and no gap.
    - Tests that did not reject prove nothing: NOT PROVED. Without any evidence: NOT TESTED.
    """
    found = tuple(evidence)
    accusing = [one for one in found if one.effect == "accuses"]
    bearings = {one.bearing for one in found if one.effect != "accuses"}
    if accusing and claim.strength != "none":
        chance = min(1.0 if one.p_value is None else one.p_value for one in accusing)
        ordered = (*accusing, *(one for one in found if one.effect != "accuses"))
        return ClaimVerdict(claim, "VIOLATED", ordered, chance)
    if "failure" in bearings:
        return ClaimVerdict(claim, "COULD NOT BE CHECKED", found)
    if claim.strength == "none":
        return ClaimVerdict(claim, "NOT PROTECTED", found)
    if "proof" in bearings and "gap" not in bearings:
        return ClaimVerdict(claim, "PROVED", found)
    tested = any(one.effect == "supports" or one.bearing == "gap" for one in found)
    return ClaimVerdict(claim, "NOT PROVED" if tested else "NOT TESTED", found)
