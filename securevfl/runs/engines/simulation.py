"""Runs in virtual time, with all parties in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from securevfl.engine.checkpoint import begin_resumption, remove_checkpoints
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.errors import CheckpointError, RunError, SecureVFLError
from securevfl.runs.assembly import Assembled, rules_of, schedule_of, sealing_of
from securevfl.runs.engines.autosave import Autosave, read_autosave
from securevfl.runs.engines.base import Course, Ended, State
from securevfl.runs.history import HistoryRecorder
from securevfl.runs.threads import few_collections, one_thread


class NoOptions(BaseModel):
    """Empty options: the simulation has none of its own."""


class SimulationEngine:
    """Runs all parties in this process; a party's delays cost virtual time only."""

    name: ClassVar[str] = "simulation"
    Options: ClassVar[type[BaseModel]] = NoOptions
    supports: ClassVar[frozenset[str]] = frozenset(
        {"until", "faults", "secret_seed", "delay_mode", "sealed"}
    )
    conditions: ClassVar[str] = "paper"

    def read(self, folder: Path) -> State:
        """Content of the newest complete checkpoint."""
        return read_autosave(folder)

    def run(self, job: Assembled, recorder: HistoryRecorder, course: Course) -> Ended | None:
        """Run to the end; return None if `pause` stopped the run before.

        RunError if virtual time exceeds 292 years, its largest number of nanoseconds.
        """
        recorder.keep_models = job.folder is not None
        state, seconds = course.resume_from, course.checkpoint_seconds
        simulation = _simulation(job, recorder, state)
        spent = 0.0 if state is None else state["wall_seconds"]
        autosave = Autosave(simulation, recorder, job.folder, seconds, course.pause, spent)
        with one_thread(), few_collections():
            try:
                simulation.run(autosave.pause, until=job.spec.until)
            except OverflowError:
                raise RunError(
                    "run: virtual time went beyond 292 years, which is as long as it can be; "
                    "choose shorter delays and timeouts, or a larger bandwidth"
                ) from None
            if autosave.stopped and not simulation.finished:
                return None
            recorder.finish()
        return Ended(simulation.transcript, autosave.spent, autosave.keep_ended)

    def clear(self, folder: Path) -> None:
        """Remove the checkpoints."""
        remove_checkpoints(folder)


def _simulation(job: Assembled, recorder: HistoryRecorder, state: State | None) -> Simulation:
    """The simulation at its start, or from a checkpoint's state; CheckpointError if that fails."""
    parties = dict(recorder.parties)
    recorder.parties = parties  # who comes back after a crash is put into it
    parts: dict[str, Any] = {
        "secrets": job.protocol.secrets,
        "conditions": job.spec.conditions,
        "observer": recorder,
        "sealing": sealing_of(job.spec, parties),
        "faults": schedule_of(job.protocol, job.spec),
        "make_party": job.protocol.party,
        "rules": rules_of(job.protocol),
        "lazy": True,
    }
    if state is None:
        transcript = Transcript(folder=job.folder)
        return Simulation(parties, seed=job.spec.seed, transcript=transcript, **parts)
    try:
        recorder.restore(state["historian"])
        resumption = 0 if job.folder is None else begin_resumption(job.folder)
        with one_thread():  # to come back, parties compute again what followed their safe points
            return Simulation.from_state(
                parties, state["simulation"], resumption=resumption, folder=job.folder, **parts
            )
    except SecureVFLError:
        raise
    except Exception as error:  # whatever a content may do that no run has written
        raise CheckpointError(
            f"checkpoint: that in {job.folder} does not fit its run: {type(error).__name__}: "
            f"{error}"
        ) from None
