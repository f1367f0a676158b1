"""Pictures of histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def draw_curves(histories: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Held-out measure against virtual time, and training loss against rounds, as a PNG.

    Parameters
    ----------
    histories : mapping
        Name of the curve to rows of a history.
    path : Path
        The picture to write.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    held_out, losses = figure.subplots(1, 2)
    measure, label = _measure(histories)
    for colour, (name, rows) in zip(_COLOURS * len(histories), histories.items(), strict=False):
        points = [(row["time"], row[measure]) for row in rows if measure in row]
        if points:
            times, values = zip(*points, strict=True)
            held_out.plot(times, values, color=colour, label=name, marker=".", markersize=3)
        losses.plot(
            [row["step"] for row in rows],
            [row["loss"] for row in rows],
            color=colour,
            label=name,
            linewidth=0.8,
        )
    held_out.set(xlabel="virtual time (s)", ylabel=f"test {label}")
    losses.set(xlabel="round", ylabel="training loss", yscale="log")
    for axes in (held_out, losses):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    if len(histories) > 1:
        held_out.legend(frameon=False)
    else:
        figure.suptitle(next(iter(histories)))
    figure.savefig(path, dpi=130)


def _measure(histories: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[str, str]:
    keys = {key for rows in histories.values() for row in rows for key in row}
    return ("rmse", "root mean square error") if "rmse" in keys else ("accuracy", "accuracy")


def draw_study(
    curves: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], path: Path, *, title: str
) -> None:
    """Mean over seeds of the held-out measure against rounds and virtual time, with its range.

    Parameters
    ----------
    curves : mapping
        Name of the run to one list of evaluated rows a seed.
    path : Path
        The picture to write.
    title : str
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2, sharey=True)
    measure, label = _measure(
        {name: [row for rows in seeds for row in rows] for name, seeds in curves.items()}
    )
    for colour, (name, seeds) in zip(_COLOURS * len(curves), curves.items(), strict=False):
        if not seeds:
            continue
        for axes, axis in zip(panels, ("step", "time"), strict=True):
            where, low, mean, high = _band(seeds, axis, measure)
            axes.plot(where, mean, color=colour, label=name, linewidth=1.2)
            axes.fill_between(where, low, high, color=colour, alpha=0.15, linewidth=0)
    panels[0].set(xlabel="round", ylabel=f"test {label}")
    panels[1].set(xlabel="virtual time (s)")
    for axes in panels:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[1].legend(frameon=False, loc="lower right")
    figure.suptitle(title)
    figure.savefig(path, dpi=130)


def _band(
    seeds: Sequence[Sequence[Mapping[str, Any]]], axis: str, measure: str
) -> tuple[Any, Any, Any, Any]:
    """Smallest, mean and largest value over seeds, on a common axis, by linear interpolation."""
    import numpy as np

    end = min(rows[-1][axis] for rows in seeds)
    start = max(rows[0][axis] for rows in seeds)
    where = np.linspace(start, end, 200)
    values = np.stack(
        [np.interp(where, [r[axis] for r in rows], [r[measure] for r in rows]) for rows in seeds]
    )
    return where, values.min(axis=0), values.mean(axis=0), values.max(axis=0)
