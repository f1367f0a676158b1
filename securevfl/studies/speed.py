"""Speed of learning: time and bytes to a stated measure, and the mean measure over time.

All are read off a run's evaluations, with linear interpolation in virtual time. A run learns
nothing after its end, so its last value remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.models.quality import MEASURES
from securevfl.studies.equal_times import until_of
from securevfl.studies.intervals import mean_interval, number_or_none

FALLING = frozenset({"rmse"})  # measures that are better when smaller


def speeds(
    jobs: Sequence[Mapping[str, Any]], labels: Sequence[str], target: float | None
) -> dict[str, Any]:
    """Speed of learning of each run of a study, over its seeds.

    `jobs` are results of `securevfl.studies.jobs.run_job`; the result is empty where none was
    evaluated, or they share no measure. `target` is a value of the first measure that all have;
    None leaves times and bytes out. The result has ``measure``, ``target``, ``horizon`` (the
    virtual second at which the longest run ended), and under ``runs`` by name: ``seeds``, their
    number; where all were evaluated ``area``, the mean of the measure over time, from the second at
    which every run has been evaluated once to the horizon; ``reached``, the number of seeds that
    reached the target; and, where all did, ``seconds`` and ``bytes`` to it. All but the two numbers
    are a mean, the half-width of its 95 % interval, and the values.
    """
    curves = [(job["label"], job["curve"]) for job in jobs if job["curve"]]
    measure = next((m for m in ("rmse", *MEASURES) if all(m in c[0] for _, c in curves)), None)
    if measure is None or not curves:
        return {}
    begin = max(curve[0]["time"] for _, curve in curves)
    horizon = max([curve[-1]["time"] for _, curve in curves] + [until_of(job) for job in jobs])
    runs = {}
    for label in labels:
        own = [curve for name, curve in curves if name == label]
        if own:
            seeds = sum(job["label"] == label for job in jobs)
            runs[label] = _of_run(own, seeds, measure, target, begin, horizon)
    return {"measure": measure, "target": target, "horizon": horizon, "runs": runs}


def _of_run(
    curves: Sequence[Sequence[Mapping[str, Any]]],
    seeds: int,
    measure: str,
    target: float | None,
    begin: float,
    horizon: float,
) -> dict[str, Any]:
    found: dict[str, Any] = {"seeds": seeds}
    if len(curves) == seeds:  # else the mean would be of those that were evaluated in time
        found["area"] = _summed([_area(c, measure, begin, horizon) for c in curves])
    if target is None:
        return found
    there = [at for at in (reached(curve, measure, target) for curve in curves) if at]
    found["reached"] = len(there)
    if len(there) == seeds:
        found["seconds"] = _summed([seconds for seconds, _ in there])
        found["bytes"] = _summed([nbytes for _, nbytes in there])
    return found


def reached(
    curve: Sequence[Mapping[str, Any]], measure: str, target: float
) -> tuple[float, float] | None:
    """(virtual second, bytes) at which a curve's measure first reaches `target`; None if never."""
    sign = -1.0 if measure in FALLING else 1.0
    before = None
    for row in curve:
        short = sign * (target - row[measure])
        if short <= 0:
            if before is None:
                return row["time"], row["bytes"]
            part = (target - before[measure]) / (row[measure] - before[measure])
            return tuple(before[n] + part * (row[n] - before[n]) for n in ("time", "bytes"))
        before = row
    return None


def _area(curve: Sequence[Mapping[str, Any]], measure: str, begin: float, horizon: float) -> float:
    """Mean of a curve's measure from virtual second `begin` to `horizon`, by trapezoids."""
    times = np.array([row["time"] for row in curve], np.float64)
    values = np.array([row[measure] for row in curve], np.float64)
    if horizon <= begin:
        return float(np.interp(begin, times, values))
    inner = times[(times > begin) & (times < horizon)]
    grid = np.concatenate([[begin], inner, [horizon]])
    return float(np.trapezoid(np.interp(grid, times, values), grid) / (horizon - begin))


def _summed(values: Sequence[float]) -> dict[str, Any]:
    mean, half = mean_interval(values)
    return {"mean": mean, "half_width_95": number_or_none(half), "values": list(values)}
