"""Plots of histories as PNG files: measures over virtual time, losses over rounds."""

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


_AXES = {"step": "round", "time": "virtual time (s)", "bytes": "sent (MB)"}
_UNITS = {"bytes": 1e6}
_FAR = 20.0  # ends that lie further apart than this are drawn on a logarithmic axis
_STYLES = ("-", "--", ":")


def draw_study(
    curves: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], path: Path, *, title: str
) -> None:
    """Mean over seeds of the held-out measure against rounds, virtual time and bytes, as a PNG.

    The band is the range over seeds. An axis is logarithmic where the runs end far apart.

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

    drawn = {name: [rows for rows in seeds if rows] for name, seeds in curves.items()}
    rows = {name: [row for rows in seeds for row in rows] for name, seeds in drawn.items()}
    measure, label = _measure(rows)
    everything = [row for each in rows.values() for row in each]
    axes_shown = [axis for axis in _AXES if all(axis in row for row in everything)]
    figure = Figure(figsize=(4.2 * len(axes_shown), 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(axes_shown), sharey=True, squeeze=False)[0]
    for panel, axis in zip(panels, axes_shown, strict=True):
        unit, ends = _UNITS.get(axis, 1.0), []
        for number, (name, seeds) in enumerate(drawn.items()):
            if not seeds:
                continue
            where, low, mean, high = _band(seeds, axis, measure)
            look = {
                "color": _COLOURS[number % len(_COLOURS)],
                "linestyle": _STYLES[number // len(_COLOURS) % len(_STYLES)],
            }
            panel.plot(where / unit, mean, label=name, linewidth=1.2, **look)
            panel.fill_between(where / unit, low, high, color=look["color"], alpha=0.15, lw=0)
            ends.append(where[-1])
        far = bool(ends) and max(ends) > _FAR * max(min(ends), 1e-9)
        panel.set(xlabel=_AXES[axis], xscale="log" if far else "linear")
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"test {label}")
    handles, labels = panels[0].get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=4)
    figure.suptitle(title)
    figure.savefig(path, dpi=130)


def _band(
    seeds: Sequence[Sequence[Mapping[str, Any]]], axis: str, measure: str
) -> tuple[Any, Any, Any, Any]:
    """Smallest, mean and largest value over seeds, on a common axis, by linear interpolation."""
    import numpy as np

    end = min(rows[-1][axis] for rows in seeds)
    start = min(max(rows[0][axis] for rows in seeds), end)
    where = np.linspace(start, end, 200)
    values = np.stack(
        [np.interp(where, [r[axis] for r in rows], [r[measure] for r in rows]) for rows in seeds]
    )
    return where, values.min(axis=0), values.mean(axis=0), values.max(axis=0)
