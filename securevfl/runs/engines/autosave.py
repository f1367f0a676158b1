"""Checkpoints of a running simulation, so that a killed run can resume."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from securevfl.engine.checkpoint import read_checkpoint, read_file, write_checkpoint, write_file
from securevfl.engine.simulation.simulator import Simulation
from securevfl.runs.history import HistoryRecorder, Row

_LOG = logging.getLogger(__name__)
_ENTRIES = 1024  # of the history, in a file of a checkpoint
_GROWING = ("rows", "events")


def read_autosave(folder: Path) -> dict[str, Any]:
    """Content of the newest complete checkpoint, with the older entries of the history."""
    state = read_checkpoint(folder)
    history = state.get("historian")
    if isinstance(history, dict):
        for name in _GROWING:
            older: list[Row] = []
            for number in range(history.pop(f"older_{name}", 0)):
                older += read_file(_entries_file(folder, name, number))
            history[name] = older + history[name]
    return state


def _entries_file(folder: Path, name: str, number: int) -> Path:
    return folder / f"history-{name}-{number:06d}.svfl"


class Autosave:
    """Writer of checkpoints, which also decides when one is due."""

    def __init__(
        self,
        simulation: Simulation,
        recorder: HistoryRecorder,
        folder: Path | None,
        seconds: float | None,
        interrupted: Callable[[], bool] | None,
        spent: float = 0.0,
    ) -> None:
        self.simulation = simulation
        self.recorder = recorder
        self.folder = folder
        self.stopped = False
        self._seconds = seconds
        self._interrupted = interrupted
        self._started = time.monotonic() - spent
        self._last = time.monotonic()
        self._asked = False
        self._filed = dict.fromkeys(_GROWING, 0)  # files of older entries that this process wrote
        recorder.transcript = simulation.transcript

    @property
    def spent(self) -> float:
        """Real seconds of the run, including those before a resume."""
        return time.monotonic() - self._started

    def pause(self) -> bool:
        """Whether the simulation should stop now; also begins a checkpoint that is due."""
        if self.stopped:
            return True
        if self._asked:
            return False
        if self._interrupted is not None and self._interrupted():
            if self.folder is None:
                self.stopped = True
                return True
            self._ask(stop=True, needed=True)
        elif self._due():
            self._ask(stop=False)
        return False

    def keep_ended(self) -> None:
        """Write a checkpoint of a finished run whose result could not be saved."""
        if self.simulation.finished:
            self._ask(stop=False, needed=True)

    def _due(self) -> bool:
        if self.folder is None or self._seconds is None:
            return False
        return time.monotonic() - self._last > self._seconds

    def _ask(self, *, stop: bool, needed: bool = False) -> None:
        """Write a checkpoint at the next consistent state; a needed one must not fail."""
        self._asked = True

        def write(state: dict[str, Any]) -> None:
            assert self.folder is not None
            try:
                content = {"simulation": state, "historian": self._newest_history(self.folder)}
                write_checkpoint(self.folder, {**content, "wall_seconds": self.spent})
            except OSError as error:
                if needed:
                    raise
                # The run is worth more than its checkpoint, and the one before is still whole.
                _LOG.warning("no checkpoint could be written in %s: %s", self.folder, error)
            else:
                _LOG.info("checkpoint at %.3f s in %s", state["clock"] / 1e9, self.folder)
            self._asked = False
            self._last = time.monotonic()
            self.stopped = stop

        self.simulation.request_state(write)

    def _newest_history(self, folder: Path) -> dict[str, Any]:
        """State of the history; older entries are in files, each written once.

        The last entry may still change, by an evaluation.
        """
        state = self.recorder.state()
        for name in _GROWING:
            entries = state[name]
            whole = max(0, len(entries) - 1) // _ENTRIES
            for number in range(self._filed[name], whole):
                part = entries[number * _ENTRIES : (number + 1) * _ENTRIES]
                write_file(_entries_file(folder, name, number), part)
                self._filed[name] = number + 1
            state[name] = entries[whole * _ENTRIES :]
            if whole:
                state[f"older_{name}"] = whole
        return state
