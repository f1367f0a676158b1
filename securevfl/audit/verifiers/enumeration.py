"""Small instances whose views are enumerated exactly."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from securevfl.audit.proof.exhaustive import equal_views, small_instances
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.audit.verifiers.coded import CodedVerifier, coalition, coded, provable
from securevfl.privacy.adversary import Adversary
from securevfl.privacy.claims import Claim


class Enumeration(CodedVerifier):
    """Counts the views of every secret in small fields."""

    name = "enumeration"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """All secrets with equal sums have the same integer histogram of views."""
        protocol = coded(subject)
        if not provable(protocol, claim.against):
            return
        subject.progress(f"exhaustive enumeration, {claim.who}")
        equal = _equal(claim.against, masked=protocol.masked)
        text = (
            f"{sum(equal)} of {len(equal)} small instances (K and T up to 2, one and two rounds) "
            "enumerated exactly have equal integer histograms for all secrets"
        )
        yield self.condition(all(equal), text)


@functools.cache  # the instances are the same for every configuration
def _equal(against: Adversary, *, masked: bool) -> tuple[bool, ...]:
    """Of each small instance, whether all secrets with equal sums give equal views."""
    return tuple(
        equal_views(one, coalition(against, tuple(range(one.code.privacy))))
        for one in small_instances(masked)
    )
