"""The engine of a Ray cluster; its implementation is imported on first use."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from securevfl.runs.assembly import Assembled
from securevfl.runs.engines.base import Course, Ended, State
from securevfl.runs.engines.cluster_options import ClusterOptions
from securevfl.runs.history import HistoryRecorder
from securevfl.runs.storage import FACTS
from securevfl.runs.threads import one_thread


class RayEngine:
    """Runs each party as an actor of a Ray cluster, in real time."""

    name: ClassVar[str] = "ray"
    Options: ClassVar[type[BaseModel]] = ClusterOptions
    supports: ClassVar[frozenset[str]] = frozenset()
    conditions: ClassVar[str] = "none"

    def read(self, folder: Path) -> State:
        """Return an empty state: the driver and each party read their own files."""
        return {}

    def run(self, job: Assembled, recorder: HistoryRecorder, course: Course) -> Ended | None:
        """Run to the end; return None if `pause` stopped the run before.

        The parties write a checkpoint after every round, whatever `checkpoint_seconds` says.
        """
        from securevfl.runs.engines.ray import Driver

        assert isinstance(course.options, ClusterOptions)
        driver = Driver(job, recorder, course.options)
        with one_thread():
            if not driver.run(course.pause, resumed=course.resume_from is not None):
                return None
        return Ended(driver.transcript, driver.spent)

    def clear(self, folder: Path) -> None:
        """Remove checkpoints and the driver's history, so that a finished run stores no shares."""
        from securevfl.runs.engines.ray import HISTORY

        for name in (HISTORY, FACTS):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / "parties", ignore_errors=True)
