"""Measures of runs at common virtual times, read off their evaluation curves.

A run is evaluated at the end of steps, and steps of different methods end at different times. The
value at a time in between is interpolated:

* between two evaluations, linearly, by virtual time;
* before the first evaluation, none;
* after the last one, its value, as long as it is not older than the longest gap between two
  evaluations of that run; where the run had ended by then, its value for ever, marked ``ended``;
* else none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.models.quality import MEASURES
from securevfl.runs.result import ended_by_rounds

GRID = 40  # steps of virtual time in the table, where a study names none

Job = Mapping[str, Any]


def at_times(jobs: Sequence[Job], times: Sequence[float]) -> list[dict[str, Any]]:
    """Measures of every job at common virtual seconds: a row with run, seed, time, ended, measures.

    The module's docstring has the rule. `jobs` are results of `run_job`. Without `times` they are
    equal steps up to the end of the longest run. Without delays no time passes,
    and there is no row.
    """
    curves = [job["curve"] for job in jobs if job["curve"]]
    ends = [curve[-1]["time"] for curve in curves] + [until_of(job) for job in jobs]
    longest = max(ends, default=0.0)
    if not longest:
        return []
    grid = list(times) or [longest * (step + 1) / GRID for step in range(GRID)]
    return [row for job in jobs if job["curve"] for row in _rows(job, grid)]


def _rows(job: Job, grid: Sequence[float]) -> list[dict[str, Any]]:
    """Rows with a job's measures at those times of `grid` for which the module's rule has one."""
    curve = job["curve"]
    known = np.array([row["time"] for row in curve], np.float64)
    names = [name for name in MEASURES if all(name in row for row in curve)]
    # A run that was ended at a virtual second stands still until then, and has not ended; one that
    # had made all of its rounds before has.
    end = job["summary"]["virtual_seconds"]
    if not ended_by_rounds(job["summary"]):
        end = max(end, until_of(job))
    oldest = float(np.diff(known).max(initial=known[0]))
    rows = []
    for time in grid:
        ended = time > end
        if time < known[0] or (not ended and time - known[-1] > oldest):
            continue
        values = {
            name: float(np.interp(time, known, [row[name] for row in curve])) for name in names
        }
        rows.append(
            {"run": job["label"], "seed": job["seed"], "time": time, "ended": ended} | values
        )
    return rows


def until_of(job: Job) -> float:
    """Virtual second at which a job was to end; 0 if it had no such limit."""
    return float(job["summary"].get("until") or 0.0)
