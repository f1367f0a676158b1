"""Pictures of the pages of results, drawn from stored results.

`draw` knows by its path how a picture is drawn; `benchmarks/build.py` draws what pages show.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from frontier_page import found, interval, released

PAPERS = Path("benchmarks/papers")
WIDTHS = {1: "black", 2: "#0072b2", 4: "#009e73", 8: "#e69f00", 16: "#d55e00", 64: "#cc79a7"}


def draw(path: Path) -> None:
    """Draw a picture of results to its path.

    Raises
    ------
    KeyError
        If there is no function for a picture of this name.
    """
    drawer(path)(path)


def drawer(path: Path) -> Callable[[Path], None]:
    """Function that draws a picture, chosen by the picture's path."""
    if path.name == "curves.png":
        study = "/".join(path.parts[-3:-1])
        return losses if study.startswith(OF_LOSSES) else curves_of_a_study
    known = {
        "attacks": attacks,
        "frontier": frontier,
        "learning": thresholds,
        "methods": methods,
    }
    return known[path.stem.partition("-")[0]]


def curves_of_a_study(path: Path) -> None:
    """Draw a study's measure against rounds, virtual time and bytes."""
    from securevfl.studies.study import read_study
    from securevfl.studies.summary import draw as draw_jobs

    told = [
        {"label": label, "curve": curve} for label, own in curves(path).items() for curve in own
    ]
    study = PAPERS / path.parent.parent.name / f"{path.parent.name}.toml"
    draw_jobs(read_study(study), told, path)


KEYS = ("run", "seed")
# CVFL's figures show test losses, against time or epochs; their runs' names begin with the case.
OF_LOSSES = ("cvfl/figure-2-", "cvfl/figures-3-6-")
CASES = ("iid-50", "iid-95", "noniid-50", "noniid-95")


def curves(path: Path) -> dict[str, list[list[dict[str, float]]]]:
    """Evaluations by run, a list for each seed, from ``curves.csv`` beside the picture."""
    found: dict[str, dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    with (path.parent / "curves.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            own = {key: float(value) for key, value in row.items() if key not in KEYS and value}
            found[row["run"]][row["seed"]].append(own)
    return {run: [*seeds.values()] for run, seeds in found.items()}


def losses(path: Path) -> None:
    """Draw test losses, a panel for each case; a method has the same colour in all."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    from securevfl.runs.plots import draw_band

    runs = curves(path)
    cases = [case for case in CASES if any(run.startswith(f"{case}-") for run in runs)] or [""]
    axis = "time" if cases == [""] else "step"
    ways = list(dict.fromkeys(run.removeprefix(f"{case}-") for case in cases for run in runs
                              if run.startswith(case)))  # fmt: skip
    lines = -(-len(cases) // 2)
    figure = Figure(figsize=(8, 2.8 * lines + 1), layout="constrained")
    panels = figure.subplots(lines, min(2, len(cases)), squeeze=False, sharey=True).ravel()
    for panel, case in zip(panels, cases, strict=True):
        for number, way in enumerate(ways):
            seeds = runs.get(f"{case}-{way}" if case else way)
            if seeds:
                draw_band(panel, number, way, seeds, axis, "test_loss")
        panel.set(
            title=case, xlabel="virtual time (s)" if axis == "time" else "round", yscale="log"
        )
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0)))
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.grid(alpha=0.25)
    for panel in panels[::2]:
        panel.set_ylabel("test loss")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, loc="outside lower center", ncols=6)
    figure.suptitle(f"{path.parent.name}: mean over seeds that ended, and their range")
    figure.savefig(path, dpi=100)


def attacks(path: Path) -> None:
    """Draw the matrix of attacks on a data set."""
    from securevfl.audit.attack_matrix.matrix import Matrix
    from securevfl.audit.attack_matrix.plot import draw_matrix

    told = json.loads(path.with_suffix(".json").read_text())
    names = ("title", "labels", "cells", "figures", "settings")
    draw_matrix(Matrix(rows=[], **{name: told[name] for name in names}), path)


def thresholds(path: Path) -> None:
    """Draw times to the target by number of slow parties, with thresholds below."""
    from securevfl.bench.threshold_picture import draw as draw_thresholds

    told = json.loads(path.with_suffix(".json").read_text())
    draw_thresholds(told["cells"], told["thresholds"], path)


def methods(path: Path) -> None:
    """Draw accuracy of all methods against bytes and time, a row for each data set."""
    from securevfl.bench.methods_picture import draw as draw_methods

    draw_methods(json.loads(path.with_suffix(".json").read_text())["cells"], path)


def frontier(path: Path) -> None:
    """Draw accuracy against released equations: panels by degree and rotation, lines by width."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    name = path.stem.removeprefix("frontier-")
    content = found(name)
    figure = Figure(figsize=(9.5, 7), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, degree in enumerate((2, 1)):
        for column, rotation in enumerate((False, True)):
            axes = panels[row][column]
            kind = degree, rotation
            own = [one for one in content["lines"] if (one["degree"], one["rotation"]) == kind]
            _panel(axes, own, content)
            turned = "secret rotation" if rotation else "no rotation"
            axes.set_title(f"D = {degree}, {turned}", fontsize=10)
    d = content["unknowns"]["d"]
    for axes in panels[1]:
        axes.set_xlabel(f"equations about a row / unknowns, E h / d; d = {d}")
    for axes in panels[:, 0]:
        axes.set_ylabel("test accuracy (%)")
    panels[0][0].set_ylim(*_range(content))
    _legend(figure, content)
    rows = f"{content['rows']} training rows, {content['parties']} parties"
    figure.suptitle(f"{name}: {rows}; mean and 95 % interval of five seeds", fontsize=11)
    figure.savefig(path, dpi=90)


def _range(content: dict[str, Any]) -> tuple[float, float]:
    """Limits of the accuracy axis, with a margin of 8 % around all means."""
    means = [interval(v)[0] for line in content["lines"] for v in line["test"].values()]
    means.append(interval(content["reference"]["test"])[0])
    room = 0.08 * (max(means) - min(means))
    return min(means) - room, max(means) + room


def _panel(axes: Any, lines: Sequence[dict[str, Any]], content: dict[str, Any]) -> None:
    mean, half = interval(content["reference"]["test"])
    axes.axhspan(mean - half, mean + half, color="0.85", zorder=0)
    axes.axhline(mean, color="0.55", linewidth=1, zorder=0)
    axes.axvline(1, color="black", linewidth=1, linestyle="--", zorder=0)
    for line in lines:
        x = [released(line, E, content) for E in line["test"]]
        y, band = np.array([interval(values) for values in line["test"].values()]).T
        colour = WIDTHS[line["width"]]
        axes.plot(x, y, color=colour, marker=".", linewidth=1.2)
        axes.fill_between(x, y - band, y + band, color=colour, alpha=0.12, linewidth=0)
        if len(x) == 1:
            axes.errorbar(x, y, band, color=colour, capsize=2, linewidth=1)
        for E, one in line.get("attack", {}).items():
            if one.get("above 0.95"):
                at = list(line["test"]).index(E)
                axes.plot(x[at], y[at], marker="x", color="red", markersize=7, zorder=5)
                axes.annotate(str(one["above 0.95"]), (x[at], y[at]), xytext=(4, -11),
                              textcoords="offset points", color="red", fontsize=8)  # fmt: skip
    if not lines:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color="0.5")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Any, content: dict[str, Any]) -> None:
    from matplotlib.lines import Line2D

    widths = sorted({line["width"] for line in content["lines"]})
    handles = [Line2D([], [], color=WIDTHS[h], marker=".", label=f"h = {h}") for h in widths]
    ratio = content["reference"]["epochs"] * 64 / content["unknowns"]["d"]
    words = f"h = 64, D = 2, 500 rounds of 128: E h / d = {ratio:.3g}"
    handles.append(Line2D([], [], color="0.7", linewidth=4, label=words))
    words = "as many equations as unknowns"
    handles.append(Line2D([], [], color="black", linestyle="--", label=words))
    if any(one.get("above 0.95") for line in content["lines"] for one in _attacks(line)):
        words = "columns found (correlation above 0.95)"
        handles.append(Line2D([], [], color="red", marker="x", linestyle="", label=words))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)


def _attacks(line: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return list(line.get("attack", {}).values())
