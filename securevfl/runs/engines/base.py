"""Interface of engines, which carry out an assembled run and name the options they support."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

from securevfl.engine.transcript import Transcript
from securevfl.runs.assembly import Assembled
from securevfl.runs.history import HistoryRecorder

#: What an engine reads of an interrupted run, by name.
State = Mapping[str, Any]


@dataclass(frozen=True)
class Course:
    """Settings of one run on an engine, besides its specification; none changes the result.

    `options` has the engine's type `Options`. `resume_from` is the state that the engine's `read`
    returned, for a resumed run. Checkpoints are written every `checkpoint_seconds` real seconds.
    `pause` is called often; when it returns True the run stops at a point from which it can be
    resumed.
    """

    options: BaseModel
    checkpoint_seconds: float | None
    pause: Callable[[], bool] | None
    resume_from: State | None = None


@dataclass(frozen=True)
class Ended:
    """Outcome of a run that reached its end.

    `wall_seconds` is real time, with that before a resume if known. `keep` writes a checkpoint of
    the finished run; it is called if the result cannot be saved.
    """

    transcript: Transcript
    wall_seconds: float
    keep: Callable[[], None] | None = None


class Engine(Protocol):
    """An engine: runs all parties, in one process or on a cluster.

    Attributes
    ----------
    name : str
        Value of the run's option `engine`.
    Options : type of BaseModel
        Options of this engine, which do not influence the result.
    supports : frozenset of str
        Optional abilities of the engine: names of run options that not every engine supports
        ("until", "faults", "secret_seed"), and "delay_mode", delays during which the sender is
        busy.
    conditions : str
        Default conditions of a run on this engine.
    """

    name: ClassVar[str]
    Options: ClassVar[type[BaseModel]]
    supports: ClassVar[frozenset[str]]
    conditions: ClassVar[str]

    def read(self, folder: Path) -> State:
        """State of an interrupted run, for `run`.

        ConfigurationError or CheckpointError if the state is missing or damaged.
        """

    def run(self, job: Assembled, recorder: HistoryRecorder, course: Course) -> Ended | None:
        """Run to the end; return None if `pause` stopped the run before.

        The recorder has the parties as they are at the start, and observes the run; `course` has
        the engine's options, `pause`, seconds between checkpoints, and a state to resume.
        """

    def clear(self, folder: Path) -> None:
        """Remove checkpoints of a finished run."""
