"""Where the masks of a run come from."""

from __future__ import annotations

from collections.abc import Iterable

from securevfl.audit import randomness
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.audit.verifiers.coded import CodedVerifier, coded, factory, provable
from securevfl.privacy.claims import Claim


class Provenance(CodedVerifier):
    """Traces every draw of a run to one call of the sampler, and that to fresh entropy."""

    name = "provenance"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """All draws are results of secure calls, each used once."""
        if provable(coded(subject), claim.against):
            strange, draws = subject.shared("provenance", lambda: self._trace(subject))
            text = (
                f"all {draws} draws came from the one sampler, each call keyed by 32 fresh bytes "
                "of the operating system"
            )
            wrong = f"masks of another origin: {strange[0]}" if strange else ""
            yield self.condition(not strange, wrong or text)

    def _trace(self, subject: Subject) -> tuple[list[str], int]:
        subject.progress("provenance of masks")
        made = factory(subject)
        with randomness.watch() as log:
            recorded = made.run()
        tapes = recorded.tapes.values()
        return list(randomness.unexplained(log, tapes)), sum(len(t.draws) for t in tapes)
