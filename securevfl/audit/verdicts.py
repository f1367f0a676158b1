"""The result of a verification: one verdict for each claim, and what leaks outside any claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from securevfl.privacy.claims import Claim

Verdict = Literal["PROVED", "NO VIOLATION FOUND", "VIOLATED", "NOT TESTED"]

# Where several kinds of evidence meet, the strongest word that is true.
PROVED: Verdict = "PROVED"
NOT_FOUND: Verdict = "NO VIOLATION FOUND"
VIOLATED: Verdict = "VIOLATED"
NOT_TESTED: Verdict = "NOT TESTED"


@dataclass(frozen=True)
class Finding:
    """A claim and what became of it.

    Attributes
    ----------
    who, about, notion, source : str
        The claim.
    verdict : {"PROVED", "NO VIOLATION FOUND", "VIOLATED", "NOT TESTED"}
        PROVED covers the instances and parameters that the evidence names, under ideal randomness
        and private channels. VIOLATED has evidence against the claim. NO VIOLATION FOUND means that
        the tests were silent and the proof did not apply.
    evidence : str
        What was done and found; of NOT TESTED, why.
    failure_probability : float or None
        Of VIOLATED: the probability of such evidence where the claim holds (0 where values were
        recovered exactly). Of NO VIOLATION FOUND: the probability that the tests would have accused
        a protocol that keeps the claim. None where chance has no part.
    """

    who: str
    about: str
    notion: str
    source: str
    verdict: Verdict
    evidence: str
    failure_probability: float | None

    @classmethod
    def of(
        cls, claim: Claim, verdict: Verdict, evidence: str, failure: float | None = None
    ) -> Finding:
        """Finding about a claim."""
        return cls(claim.who, claim.about, claim.notion, claim.source, verdict, evidence, failure)


@dataclass(frozen=True)
class Shown:
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
    claims : tuple of Finding
    shown : tuple of Shown
    not_covered : tuple of str
        What no verdict is about.
    """

    protocol: str
    parameters: Mapping[str, Any]
    claims: tuple[Finding, ...]
    shown: tuple[Shown, ...]
    not_covered: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Content in JSON types."""
        content = asdict(self) | {"parameters": dict(self.parameters)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in content.items()}

    def verdict(self, who: str, about: str) -> Verdict:
        """Verdict on one claim.

        Raises
        ------
        KeyError
            When the report has no such claim.
        """
        for finding in self.claims:
            if (finding.who, finding.about) == (who, about):
                return finding.verdict
        raise KeyError(f"no claim about {about} against {who}")
