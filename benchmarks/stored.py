"""Stored results of studies, and differences between runs, paired by seed."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securevfl.studies.intervals import paired_difference

RESULTS = Path(__file__).parent / "results"
# Studies that were run in parts.
PARTS = {
    "multivfl/as-printed-mnist": (
        "multivfl/as-printed-mnist-between",
        "multivfl/as-printed-mnist-seeds",
    )
}
OWN_BEST = "each its own best"
# Updates of CVFL's Figure 2 that asynchronous parties would make while those in step make one, were
# all delays of a party the same. They vary, and in step the longest of four is waited for: 1.35.
EVEN_PACE = 5 / 4
Run = tuple[str, str]  # study and label


@dataclass(frozen=True)
class Difference:
    """Mean difference of two runs, paired by seed.

    Attributes
    ----------
    name : str
        Condition of the measurement, such as a time or a data set.
    mean, half : float
        Mean and half-width of its 95 % interval; NaN for one pair.
    pairs : int
        Number of seeds.
    """

    name: str
    mean: float
    half: float
    pairs: int

    def entry(self) -> dict[str, Any]:
        """Mean, half-width and number of pairs in JSON types."""
        half = None if math.isnan(self.half) else self.half
        return {"mean": self.mean, "half_width_95": half, "pairs": self.pairs}

    def text(self, digits: int) -> str:
        """Name, mean and half-width as text, with so many digits after the decimal point."""
        return f"{self.name}: {self.figure(digits)}"

    def figure(self, digits: int) -> str:
        """Mean and half-width as text."""
        spread = " (one pair)" if math.isnan(self.half) else f" ± {self.half:.{digits}f}"
        return f"{self.mean:+.{digits}f}{spread}"


def results(study: str) -> Mapping[str, Any]:
    """Content of a study's ``results.json``."""
    found: Mapping[str, Any] = json.loads((RESULTS / study / "results.json").read_text())
    return found


def runs(study: str) -> Mapping[str, Any]:
    """Results of a study by run."""
    found: Mapping[str, Any] = results(study)["runs"]
    return found


def parts(study: str) -> list[str]:
    """Folders of results of a study: its own, and others with more of its runs or seeds."""
    return [part for part in (study, *PARTS.get(study, ())) if (RESULTS / part).exists()]


def values(study: str, run: str, measure: str = "test_accuracy") -> dict[int, float]:
    """Measure at the end of a run, by seed, from all `parts`; KeyError if there is no such run."""
    own = [runs(part)[run] for part in parts(study) if run in runs(part)]
    if not own:
        raise KeyError(f"{study} has no run {run}")
    return {
        seed: value
        for each in own
        for seed, value in zip(each["seeds"], each[measure]["values"], strict=True)
    }


def paired(
    name: str, one: Mapping[Any, float], two: Mapping[Any, float], scale: float = 100.0
) -> Difference:
    """Difference, one minus two, over the seeds that both have; values are scaled by `scale`."""
    seeds = sorted(set(one) & set(two))
    mean, half = paired_difference([scale * one[s] for s in seeds], [scale * two[s] for s in seeds])
    return Difference(name, mean, half, len(seeds))


def final(study: str, one: str, two: str, *, name: str = "") -> Difference:
    """Difference of two runs' test accuracies after their last step, in points."""
    return paired(name or study, values(study, one), values(study, two))


def at_times(study: str) -> dict[tuple[str, float], dict[str, float]]:
    """Accuracy by (run, virtual second), then by seed."""
    found: dict[tuple[str, float], dict[str, float]] = defaultdict(dict)
    with (RESULTS / study / "times.csv").open() as file:
        for row in csv.DictReader(file):
            found[row["run"], float(row["time"])][row["seed"]] = float(row["accuracy"])
    return found


def over_time(
    study: str, one: str, two: str, *, times: Sequence[float] = (), faster: float = 1.0
) -> list[Difference]:
    """Differences of two runs' accuracies at each virtual time, or at `times`, in points.

    With `faster`, the first run is evaluated at so many times the time: as if it were faster by
    this factor.
    """
    found = at_times(study)
    known = sorted({time for _, time in found})
    asked = [t for t in (times or known) if (one, faster * t) in found and (two, t) in found]
    return [paired(f"{t:g} s", found[one, faster * t], found[two, t]) for t in asked]


def losses(study: str, by: str = "time") -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Evaluations (time or step, test loss) by run, then by seed."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    with (RESULTS / study / "curves.csv").open() as file:
        for row in csv.DictReader(file):
            point = float(row[by]), float(row["test_loss"])
            found[row["run"]][row["seed"]].append(point)
    return found


def stops() -> dict[str, dict[str, float]]:
    """Test losses at which CVFL's Figure 2 stops, by data set, fixed on validation rows."""
    found: dict[str, dict[str, float]] = json.loads((RESULTS / "cvfl" / "stops.json").read_text())
    return found


def ways(name: str) -> dict[str, tuple[Run, Run]]:
    """Pairs (asynchronous run, synchronous run) of CVFL's Figure 2, by optimiser and rate.

    The last pair has each at its own best rate, unless that is one of the others.
    """
    main = f"cvfl/figure-2-{name}"
    found: dict[str, dict[str, Run]] = defaultdict(dict)
    for study in (main, f"{main}-adam"):
        content = RESULTS / study / "results.json"
        settings = json.loads(content.read_text())["settings"] if content.exists() else {}
        for label, run in settings.items():
            own = run["options"]
            found[f"{own['optimizer']} {own['lr']:g}"][own.get("mode", "async")] = study, label
    both = {how: (own["async"], own["sync"]) for how, own in found.items() if len(own) == 2}
    best = (main, "async"), (main, "sync")
    return both if best in both.values() else both | {OWN_BEST: best}


def time_saved(
    one: Run, two: Run, loss: float, name: str, *, pace: float | None = None
) -> Difference | None:
    """Percentage of the second run's time that the first saves until a test loss; None if missed.

    It is the mean over seeds of 1 - t/t', t and t' the times of the first evaluations with at most
    this loss.

    Parameters
    ----------
    one, two : (study, run)
        The two runs.
    loss : float
        Test loss to reach.
    name : str
        Name of the result.
    pace : float, optional
        Steps of the first run for each of the second; times are then steps divided by it.
    """
    by = "time" if pace is None else "step"
    own, other = (
        {seed: _until(curve, loss) for seed, curve in losses(study, by)[label].items()}
        for study, label in (one, two)
    )
    if None in [*own.values(), *other.values()]:
        return None
    ratios = {seed: own[seed] / other[seed] / (pace or 1) for seed in other}  # type: ignore[operator]
    return paired(f"{name}, loss {loss:g}", dict.fromkeys(ratios, 1.0), ratios)


def _until(curve: Sequence[tuple[float, float]], loss: float) -> float | None:
    return next((time for time, value in curve if value <= loss), None)


def mean_loss(study: str, run: str) -> dict[str, float]:
    """Mean test loss of a run over its evaluations, by seed; lower if it falls faster."""
    return {
        seed: sum(loss for _, loss in curve) / len(curve)
        for seed, curve in losses(study)[run].items()
    }


def last_loss(study: str, run: str) -> dict[str, float]:
    """Test loss at a run's last evaluation, by seed."""
    return {seed: curve[-1][1] for seed, curve in losses(study)[run].items()}
