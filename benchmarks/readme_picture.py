"""Draw the picture of README from the stored study of digits: accuracy against virtual time.

``python benchmarks/readme_picture.py`` writes docs/_static/equal-time.png.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import t

ROOT = Path(__file__).parents[1]
CURVES = ROOT / "benchmarks" / "results" / "coded_split" / "digits" / "curves.csv"
PICTURE = ROOT / "docs" / "_static" / "equal-time.png"
RUNS = {
    "coded-split-helpers": ("coded_split, two helpers", "#009e73"),
    "coded-split": ("coded_split", "#56b4e9"),
    "fedvs": ("fedvs", "#0072b2"),
    "vafl": ("vafl (no secrecy)", "#e69f00"),
    "wait": ("split (no secrecy), waits for all", "#d55e00"),
}
GRID = np.arange(2.0, 61.0)  # virtual seconds


def series() -> dict[str, np.ndarray]:
    """Accuracy in per cent by run, (seeds, times): last evaluation by each time; NaN if none."""
    points: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    with CURVES.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["accuracy"]:
                points[row["run"]][row["seed"]].append((float(row["time"]), float(row["accuracy"])))
    return {run: np.array([held(points[run][s]) for s in sorted(points[run])]) for run in RUNS}


def held(found: list[tuple[float, float]]) -> np.ndarray:
    """Values of a seed at the times of `GRID`, each kept until the next evaluation."""
    times, values = np.array(sorted(found)).T
    place = np.searchsorted(times, GRID, side="right") - 1
    return np.where(place >= 0, 100 * values[place], np.nan)


def main() -> None:
    """Draw means over seeds with 95 % intervals."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for run, values in series().items():
        name, colour = RUNS[run]
        mean = values.mean(axis=0)
        half = t.ppf(0.975, len(values) - 1) * values.std(axis=0, ddof=1) / len(values) ** 0.5
        axes.plot(GRID, mean, color=colour, label=name)
        axes.fill_between(GRID, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)
    axes.set(xlabel="virtual time (s)", ylabel="accuracy on test rows (%)", ylim=(0, 100))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
