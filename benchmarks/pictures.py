"""Pictures of the pages of results, drawn from stored results.

`draw` knows by its path how a picture is drawn; `benchmarks/build.py` draws what pages show.
"""

from __future__ import annotations

import csv
import importlib
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from frontier_page import found, interval, released
from label_page import NAMES
from pages import load
from stored import runs, stops

RESULTS = Path("benchmarks/results")
PAPERS = Path("benchmarks/papers")
LINES = ("#0072b2", "#d55e00", "#009e73", "#999999", "#56b4e9", "#e69f00")
WIDTHS = {1: "black", 2: "#0072b2", 4: "#009e73", 8: "#e69f00", 16: "#d55e00", 64: "#cc79a7"}


def draw(path: Path) -> None:
    """Draw a picture under benchmarks/results, at its path.

    Raises
    ------
    KeyError
        Where nothing here draws such a picture.
    """
    drawer(path)(path)


def drawer(path: Path) -> Callable[[Path], None]:
    """The function that draws a picture."""
    kinds = {
        "curves.png": curves_of_a_study,
        "losses.png": figure_2,
        "exponents.png": exponents,
        "rate.png": rate,
    }
    kind = path.stem.partition("-")[0]
    return kinds.get(path.name) or {"attacks": attacks, "frontier": frontier}[kind]


def study_of(path: Path) -> str:
    """Name of the study that a picture is of."""
    return f"{path.parent.parent.name}/{path.parent.name}"


def curves_of_a_study(path: Path) -> None:
    """The measure of all runs against rounds, virtual time and bytes."""
    from securevfl.studies.study import read_study
    from securevfl.studies.summary import draw as draw_jobs

    jobs: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    with (path.parent / "curves.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            own = {key: float(value) for key, value in row.items() if key not in KEYS and value}
            jobs[row["run"], row["seed"]].append(own)
    told = [{"label": label, "curve": curve} for (label, _), curve in jobs.items()]
    draw_jobs(read_study(PAPERS / f"{study_of(path)}.toml"), told, path)


KEYS = ("run", "seed")


def attacks(path: Path) -> None:
    """The matrix of attacks on one data set."""
    from securevfl.audit.attack_matrix.matrix import Matrix
    from securevfl.audit.attack_matrix.plot import draw_matrix

    told = json.loads(path.with_suffix(".json").read_text())
    names = ("title", "labels", "cells", "figures", "settings")
    draw_matrix(Matrix(rows=[], **{name: told[name] for name in names}), path)


def rate(path: Path) -> None:
    """Norms of the gradient against the number of rounds."""
    importlib.import_module("papers.fedvs.rate").draw(
        json.loads(path.with_suffix(".json").read_text()), path
    )


def curves(folder: Path) -> dict[tuple[str, str], list[tuple[float, float, float]]]:
    """(step, virtual time, test loss) of all evaluations, by run and seed."""
    found = defaultdict(list)
    with (folder / "curves.csv").open() as file:
        for row in csv.DictReader(file):
            found[row["run"], row["seed"]].append(
                (float(row["step"]), float(row["time"]), float(row["test_loss"]))
            )
    return found


def figure_2(path: Path) -> None:
    """Test loss over virtual time of all runs of Figure 2 on a set."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    main = path.parent
    name = main.name.removeprefix("figure-2-")
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    for folder in (main, main.with_name(f"{main.name}-adam")):
        content = load(folder) or {"settings": {}}
        for label, run in content["settings"].items():
            own = run["options"]
            in_step = own.get("mode") == "sync"
            seeds = [curve for (of, _), curve in curves(folder).items() if of == label]
            losses = np.array([[loss for *_, loss in curve] for curve in seeds])
            times = np.mean([[time for _, time, _ in curve] for curve in seeds], axis=0)
            adam = own["optimizer"] == "adam"
            colour = LINES[adam]
            words = f"{'in step' if in_step else 'asynchronous'}, "
            words += f"{'Adam' if adam else 'SGD'} {own['lr']:g}"
            panel.plot(times, losses.mean(axis=0), color=colour, label=words,
                       ls="--" if in_step else "-", lw=1.5)  # fmt: skip
            panel.fill_between(times, losses.min(axis=0), losses.max(axis=0), color=colour,
                               alpha=0.15, lw=0)  # fmt: skip
    panel.axhline(stops()[name]["stop"], color="#444444", ls=":", lw=1, label="stop loss")
    logarithmic(panel)
    panel.set_xlabel("virtual time, s")
    panel.set_ylabel("test loss")
    panel.set_title(f"mean and range of 5 seeds, {name}", fontsize=10)
    panel.grid(alpha=0.25)
    panel.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)


def logarithmic(panel: Any) -> None:
    """Losses on a logarithmic axis whose numbers are written out."""
    from matplotlib.ticker import LogLocator

    panel.set_yscale("log")
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_locator(LogLocator(subs=(2, 4, 6)))
    panel.yaxis.set_minor_formatter("{x:g}")


def exponents(path: Path) -> None:
    """Test loss against updates, a panel for each partition and slowness."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = curves(path.parent)
    told = runs(study_of(path))
    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, part in enumerate(("iid", "noniid")):
        for column, slow in enumerate(("50", "95")):
            panel = panels[row][column]
            panel.set_title(
                f"{'iid' if part == 'iid' else 'non-iid'}, {slow} % slower", fontsize=10
            )
            for (kind, label), colour in zip(NAMES.items(), LINES, strict=True):
                own = f"{part}-{slow}-{kind}"
                seeds = [c for (run, _), c in found.items() if run == own]
                if not seeds:
                    continue
                # What is left where seeds diverged would look as good as a whole run.
                dashed = "--" if told[own].get("errors") else "-"
                steps = [step for step, *_ in seeds[0]]
                losses = np.array([[loss for *_, loss in curve] for curve in seeds])
                panel.plot(steps, losses.mean(axis=0), color=colour, label=label, ls=dashed, lw=1.5)
                panel.fill_between(
                    steps, losses.min(axis=0), losses.max(axis=0), color=colour, alpha=0.15, lw=0
                )
            panel.grid(alpha=0.25)
            logarithmic(panel)
    for panel in panels[1]:
        panel.set_xlabel("updates")
    for panel in panels[:, 0]:
        panel.set_ylabel("test loss")
    panels[0][0].legend(frameon=False, fontsize=9)
    if any(run.get("errors") for run in told.values()):
        figure.suptitle("dashed: seeds that did not diverge, where others did", fontsize=9)
    figure.savefig(path, dpi=130)


def frontier(path: Path) -> None:
    """The picture of a set: panels by degree and rotation, lines by width."""
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
    """Accuracies to show: all means, and a little more."""
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
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)


def _attacks(line: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return list(line.get("attack", {}).values())
