"""Verifier of the origin of a run's masks."""

from __future__ import annotations

from collections.abc import Iterable

from securevfl.audit import randomness
from securevfl.audit.beside.known_answers import sampler_fault
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.audit.verifiers.coded import CodedVerifier, coded, factory, provable
from securevfl.privacy.claims import Claim


class Provenance(CodedVerifier):
    """Traces every draw of all runs to one call of the sampler each, and that to fresh entropy.

    One run is small and held against the proof; the others have all options of the configuration.
    """

    name = "provenance"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """All draws are results of secure calls, each used once."""
        if provable(coded(subject), claim.against):
            strange, draws = subject.shared("provenance", lambda: self._trace(subject))
            text = (
                f"all {draws} draws, also those of the runs with the protocol's own options, came "
                "from the one sampler, each call keyed by 32 fresh bytes of the operating system"
            )
            wrong = f"masks of another origin: {strange[0]}" if strange else ""
            yield self.condition(not strange, wrong or text)

    def _trace(self, subject: Subject) -> tuple[list[str], int]:
        subject.progress("provenance of masks")
        made = factory(subject)
        with randomness.watch() as log:
            recorded = made.run()
        runs = [(log, recorded.tapes.values()), (subject.log, subject.run.tapes.values())]
        field = coded(subject).code.field
        fault = sampler_fault(field.modulus, field.dtype)
        strange = [fault] * bool(fault)
        strange += [one for log, tapes in runs for one in randomness.unexplained(log, tapes)]
        draws = sum(len(tape.draws) for _, tapes in runs for tape in tapes)
        for found in subject.settings:
            strange += [f"the run {found.setting.name!r}, {one}" for one in found.strange]
            draws += found.draws
            if found.thrown and not found.setting.resumed_in:
                strange.append(f"the run {found.setting.name!r}, {found.thrown} thrown away")
        return strange, draws
