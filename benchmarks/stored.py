"""Stored results, and differences of two runs that are paired by seed."""

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
    """A mean difference of two runs, paired by seed, with half its 95 % interval.

    Attributes
    ----------
    name : str
        Where it was measured, such as a time or a data set.
    """

    name: str
    mean: float
    half: float
    pairs: int

    def entry(self) -> dict[str, Any]:
        """Mean, half width and number of pairs as a JSON object."""
        half = None if math.isnan(self.half) else self.half
        return {"mean": self.mean, "half_width_95": half, "pairs": self.pairs}

    def text(self, digits: int) -> str:
        """The difference with its name and interval."""
        return f"{self.name}: {self.figure(digits)}"

    def figure(self, digits: int) -> str:
        """The difference with its interval."""
        spread = " (one pair)" if math.isnan(self.half) else f" ± {self.half:.{digits}f}"
        return f"{self.mean:+.{digits}f}{spread}"


def results(study: str) -> Mapping[str, Any]:
    """All results of a study."""
    found: Mapping[str, Any] = json.loads((RESULTS / study / "results.json").read_text())
    return found


def runs(study: str) -> Mapping[str, Any]:
    """The runs of a study's results."""
    found: Mapping[str, Any] = results(study)["runs"]
    return found


def parts(study: str) -> list[str]:
    """The study and those that hold more of its runs or seeds, at the same settings."""
    return [part for part in (study, *PARTS.get(study, ())) if (RESULTS / part).exists()]


def values(study: str, run: str, measure: str = "test_accuracy") -> dict[int, float]:
    """Final values of a run by seed, of all parts of its study."""
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
    """Difference of two runs' values over the seeds that both have."""
    seeds = sorted(set(one) & set(two))
    mean, half = paired_difference([scale * one[s] for s in seeds], [scale * two[s] for s in seeds])
    return Difference(name, mean, half, len(seeds))


def final(
    study: str, one: str, two: str, *, measure: str = "test_accuracy", name: str = ""
) -> Difference:
    """Difference of two runs of a study after their last step."""
    scale = 100.0 if measure == "test_accuracy" else 1.0
    return paired(name or study, values(study, one, measure), values(study, two, measure), scale)


def at_times(study: str) -> dict[tuple[str, float], dict[str, float]]:
    """Accuracy by run and virtual time, then by seed."""
    found: dict[tuple[str, float], dict[str, float]] = defaultdict(dict)
    with (RESULTS / study / "times.csv").open() as file:
        for row in csv.DictReader(file):
            found[row["run"], float(row["time"])][row["seed"]] = float(row["accuracy"])
    return found


def over_time(
    study: str, one: str, two: str, *, times: Sequence[float] = (), faster: float = 1.0
) -> list[Difference]:
    """Differences at each virtual time, or at `times`.

    Parameters
    ----------
    faster : float
        How many times faster the first run is taken to be: it is read off so much later.
    """
    found = at_times(study)
    known = sorted({time for _, time in found})
    asked = [t for t in (times or known) if (one, faster * t) in found and (two, t) in found]
    return [paired(f"{t:g} s", found[one, faster * t], found[two, t]) for t in asked]


def losses(study: str, by: str = "time") -> dict[str, dict[str, list[tuple[float, float]]]]:
    """(virtual time or step, test loss) of all evaluations by run, then by seed."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    with (RESULTS / study / "curves.csv").open() as file:
        for row in csv.DictReader(file):
            point = float(row[by]), float(row["test_loss"])
            found[row["run"]][row["seed"]].append(point)
    return found


def stops() -> dict[str, dict[str, float]]:
    """Stop losses of CVFL's Figure 2 by set, fixed on validation rows before the study."""
    found: dict[str, dict[str, float]] = json.loads((RESULTS / "cvfl" / "stops.json").read_text())
    return found


def ways(name: str) -> dict[str, tuple[Run, Run]]:
    """Asynchronous run of CVFL's Figure 2 and that in step, by optimiser and rate of both.

    What is each way's own best comes last, where the two differ.
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
    """Per cent of the second run's time that the first saves until a test loss; None if missed.

    It is the mean of 1 - t/t' over the seeds, where t and t' are the times of the first evaluations
    that are not above the loss.

    Parameters
    ----------
    one, two : (study, run)
    loss : float
    name : str
    pace : float, optional
        Updates that the first run makes to one of the second: times are then updates over pace.
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
    """Mean of a run's test losses over its evaluations, by seed: lower where it falls faster."""
    return {
        seed: sum(loss for _, loss in curve) / len(curve)
        for seed, curve in losses(study)[run].items()
    }


def last_loss(study: str, run: str) -> dict[str, float]:
    """Test loss of a run's last evaluation by seed."""
    return {seed: curve[-1][1] for seed, curve in losses(study)[run].items()}
