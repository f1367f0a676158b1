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
    """Settings for the course of a run on an engine; none of them changes the result.

    The options are of the engine's type `Options`. `resume_from` is what its `read` returned, to go
    on with a run; checkpoints are written every so many real seconds. `pause` is asked often; when
    it says True the run stops at a point from which it can go on.
    """

    options: BaseModel
    checkpoint_seconds: float | None
    pause: Callable[[], bool] | None
    resume_from: State | None = None


@dataclass(frozen=True)
class Ended:
    """Outcome of a run that reached its end.

    Its real seconds include those before a resume where they are known. `keep` writes what is
    needed to resume the run at its end, where its result cannot be saved.
    """

    transcript: Transcript
    wall_seconds: float
    keep: Callable[[], None] | None = None


class Engine(Protocol):
    """An engine: carries out a run, or refuses before the start.

    Attributes
    ----------
    name : str
        Value of the run's option `engine`.
    Options : type of BaseModel
        Options of this engine alone, which do not influence the result.
    supports : frozenset of str
        Of what not every engine can: names of options of a run that say what they need ("until",
        "faults", "secret_seed"), and "delay_mode", delays that keep their sender busy.
    conditions : str
        Conditions of a run that asks for none.
    """

    name: ClassVar[str]
    Options: ClassVar[type[BaseModel]]
    supports: ClassVar[frozenset[str]]
    conditions: ClassVar[str]

    def read(self, folder: Path) -> State:
        """State of an interrupted run, for `run`.

        ConfigurationError or CheckpointError when there is none, or it is damaged.
        """

    def run(self, job: Assembled, recorder: HistoryRecorder, course: Course) -> Ended | None:
        """Run to the end; return None if `pause` stopped the run before.

        The recorder holds the parties as they are at the start, and observes.
        """

    def clear(self, folder: Path) -> None:
        """Remove checkpoints of a finished run."""
