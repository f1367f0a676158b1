"""Verifier of the origin of a run's masks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from securevfl.audit import randomness
from securevfl.audit.beside.known_answers import sampler_fault
from securevfl.audit.keyed.mask_keys import faults_of_keys
from securevfl.audit.recorded_runs import CodedRun
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.audit.verifiers.coded import CodedVerifier, coded, factory, provable
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.coded import CodedProtocol


class Provenance(CodedVerifier):
    """Traces every draw of all runs to one call of the sampler each, and that to fresh entropy.

    One run is small and held against the proof; the others have all options of the configuration.
    """

    name = "provenance"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """All draws are results of secure calls, each used once; so are keys of masks."""
        if not provable(coded(subject), claim.against):
            return
        origins = subject.shared("provenance", lambda: _trace(subject))
        text = (
            f"all {origins.draws} draws, also those of the runs with the protocol's own options, "
            "came from the one sampler, each call keyed by 32 fresh bytes of the operating system"
        )
        strange = origins.strange
        yield self.condition(
            not strange, f"masks of another origin: {strange[0]}" if strange else text
        )
        if claim.against.server:
            text = (
                f"all {origins.keys} keys of masks are 32 fresh bytes of the operating system "
                "each, drawn by one client in the run that uses them, and asked for the sums of "
                "that run alone, one upload of a client for each label; others get them as the "
                "formula of their message says, over links that claims against an outsider are "
                "about"
            )
            strange = origins.strange_keys
            yield self.condition(not strange, f"keys of masks: {strange[0]}" if strange else text)


@dataclass(frozen=True)
class _Origins:
    """Draws and keys of all runs, and what is strange about them."""

    strange: list[str]
    draws: int
    strange_keys: list[str]
    keys: int


def _trace(subject: Subject) -> _Origins:
    subject.progress("provenance of masks")
    protocol, made = coded(subject), factory(subject)
    with randomness.watch() as log:
        recorded = made.run()
    runs = [(log, recorded.tapes.values()), (subject.log, subject.run.tapes.values())]
    field = protocol.code.field
    fault = sampler_fault(field.modulus, field.dtype)
    strange = [fault] * bool(fault)
    strange += [
        one for log, tapes in runs for one in randomness.unexplained(log, tapes, field.modulus)
    ]
    draws = sum(len(tape.draws) for _, tapes in runs for tape in tapes)
    strange_keys, keys = _keys(protocol, recorded, log)
    for found in subject.settings:
        name = found.setting.name
        strange += [f"the run {name!r}, {one}" for one in found.strange]
        strange_keys += [f"the run {name!r}, {one}" for one in found.mask_keys]
        draws, keys = draws + found.draws, keys + found.keys
        if found.thrown and not found.setting.resumed_in:
            strange.append(f"the run {name!r}, {found.thrown} thrown away")
    return _Origins(strange, draws, strange_keys, keys)


def _keys(
    protocol: CodedProtocol, recorded: CodedRun, log: randomness.Log
) -> tuple[list[str], int]:
    """Faults of the keys of the small run, and their number."""
    if protocol.prss is None:
        return [], 0
    drawn = [key for keys in recorded.keys.values() for key in keys]
    return list(faults_of_keys(drawn, len(protocol.prss.blocks), log)), len(drawn)
