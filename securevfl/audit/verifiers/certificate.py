"""The proof's conditions on the code's own matrices, and on the messages of a run."""

from __future__ import annotations

from collections.abc import Iterable

from securevfl.audit.proof.certificate import certificate
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.audit.verifiers.coded import CodedVerifier, coded, followed, provable, wrong
from securevfl.privacy.claims import Claim


class Certificate(CodedVerifier):
    """Checks the conditions of docs/masking.md at the configuration's N, K, T and p."""

    name = "certificate"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """One condition of the proof for each check; none covers the server without masks."""
        protocol = coded(subject)
        if not provable(protocol, claim.against):
            yield self.condition(False, "the proof does not apply: plain evaluation")
            return
        subject.progress("certificate")
        checks = subject.shared(
            "certificate", lambda: certificate(protocol.code, protocol.prss, seed=subject.seed)
        )
        for check in checks:
            about_masks = check.name.startswith("mask") and check.name != "mask minors"
            if claim.against.server or not about_masks:
                yield self.condition(check.holds, check.detail)


class Formulas(CodedVerifier):
    """Compares a run with the formulas that the proof is about."""

    name = "formulas of the proof"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Every message of a run equals its formula, draw by draw fresh."""
        subject.progress("a run against the formulas of the proof")
        found, recorded = wrong(subject), followed(subject)
        sizes = [m.payload.size for m in recorded.whole.messages if hasattr(m.payload, "size")]
        text = (
            f"a run of the real code: {sum(sizes)} elements of its messages equal the formulas of "
            "the proof, draw by draw fresh, with S large enough and all that was told in each label"
        )
        yield self.condition(not found, f"a run deviates: {found[0]}" if found else text)
        broken = [f"{one.setting.name}, {what}" for one in subject.settings for what in one.sums]
        text = (
            "in all runs each sum has T + 2 sharers or more, and no row stands in two sums of "
            "different models between two steps"
        )
        yield self.condition(not broken, f"the sums break a rule: {broken[0]}" if broken else text)
