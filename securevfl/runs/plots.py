"""Plots of histories: measures and losses over rounds, virtual time and bytes, with bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.errors import needs
from securevfl.runs.history import Rows

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes

    needs("pictures", "report", "matplotlib")
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def _measure(histories: Mapping[str, Rows]) -> tuple[str, str]:
    keys = {key for rows in histories.values() for row in rows for key in row}
    return ("rmse", "root mean square error") if "rmse" in keys else ("accuracy", "accuracy")


_AXES = {"step": "round", "time": "virtual time (s)", "bytes": "sent (MB)"}
_UNITS = {"bytes": 1e6}
_FAR = 20.0  # ends that lie further apart than this are drawn on a logarithmic axis


_STYLES = ("-", "--", ":")
_MARKERS = ("o", "s", "^")


def draw_study(curves: Mapping[str, Sequence[Rows]], path: Path, *, title: str) -> None:
    """Mean over seeds of the held-out measure against rounds, virtual time and bytes, as a PNG.

    `curves` has, by name of the run, one list of evaluated rows per seed. The band is the range
    over seeds. An axis is logarithmic if the runs' ends differ widely.
    """
    needs("pictures", "report", "matplotlib")
    from matplotlib.figure import Figure

    drawn = {name: [rows for rows in seeds if rows] for name, seeds in curves.items()}
    rows = {name: [row for rows in seeds for row in rows] for name, seeds in drawn.items()}
    measure, label = _measure(rows)
    everything = [row for each in rows.values() for row in each]
    # Without delays all virtual times are 0, and there is nothing to see.
    axes_shown = [axis for axis in _AXES if all(axis in row for row in everything)]
    moving = [axis for axis in axes_shown if any(row[axis] for row in everything)]
    axes_shown = moving or axes_shown  # where nothing was evaluated, empty panels say so
    figure = Figure(figsize=(4.2 * len(axes_shown), 3.9), layout="constrained")
    panels = figure.subplots(1, len(axes_shown), sharey=True, squeeze=False)[0]
    for panel, axis in zip(panels, axes_shown, strict=True):
        unit, ends = _UNITS.get(axis, 1.0), []
        for number, (name, seeds) in enumerate(drawn.items()):
            if not seeds:
                continue
            ends.append(draw_band(panel, number, name, seeds, axis, measure, unit))
        panel.set(xlabel=_AXES[axis], xscale=axis_scale(ends))
    panels[0].set_ylabel(f"test {label}")
    _finish(figure, panels, title, path)


def draw_grid(
    cells: Mapping[str, Mapping[str, Sequence[Rows]]],
    path: Path,
    *,
    title: str,
) -> None:
    """Mean over seeds of the held-out measure against virtual time, a panel for each condition.

    `cells` has, by condition and name of the run, a list of evaluated rows per seed. The band is
    the range over seeds. A run has one colour in all panels, and all panels have the same axes.
    """
    needs("pictures", "report", "matplotlib")
    from matplotlib.figure import Figure

    rows = {
        f"{under}, {name}": [row for rows in seeds for row in rows]
        for under, curves in cells.items()
        for name, seeds in curves.items()
    }
    measure, label = _measure(rows)
    columns = min(3, len(cells))
    lines = -(-len(cells) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.9 * lines + 0.9), layout="constrained")
    grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.ravel())
    ends = []
    for panel, (under, curves) in zip(panels, cells.items(), strict=False):
        for number, (name, seeds) in enumerate(curves.items()):
            there = [rows for rows in seeds if rows]
            if there:
                ends.append(draw_band(panel, number, name, there, "time", measure))
        panel.set_title(under, fontsize="medium")
    panels[0].set_xscale(axis_scale(ends))
    for panel in panels[len(cells) :]:
        panel.set_visible(False)
    for panel in panels[max(0, len(cells) - columns) : len(cells)]:
        panel.set_xlabel(_AXES["time"])
        panel.tick_params(labelbottom=True)
    for panel in panels[::columns]:
        panel.set_ylabel(f"test {label}")
    _finish(figure, panels, title, path)


def draw_sizes(
    runs: Mapping[str, Mapping[int, Sequence[Rows]]],
    path: Path,
    *,
    title: str,
) -> None:
    """Final held-out measure against the number of aligned rows, as a PNG.

    `runs` has, by name of the run and number of aligned rows, a list of evaluated rows per seed.
    The line is the mean over seeds, the band their range. The measure is the AUC if all have it.
    """
    needs("pictures", "report", "matplotlib")
    from matplotlib.figure import Figure

    ends = {
        name: {size: [rows[-1] for rows in by_size[size] if rows] for size in sorted(by_size)}
        for name, by_size in runs.items()
    }
    every = [row for own in ends.values() for rows in own.values() for row in rows]
    measure, label = _measure({"": every})
    if all("auc" in row for row in every):
        measure, label = "auc", "AUC"
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    panel = figure.subplots()
    for number, (name, own) in enumerate(ends.items()):
        values = {size: [row[measure] for row in rows] for size, rows in own.items() if rows}
        if not values:
            continue
        means = [sum(each) / len(each) for each in values.values()]
        look = _look(number)
        panel.plot([*values], means, label=name, marker="o", markersize=4, linewidth=1.2, **look)
        low, high = ([pick(each) for each in values.values()] for pick in (min, max))
        panel.fill_between([*values], low, high, color=look["color"], alpha=0.1, lw=0)
    places = sorted({size for own in ends.values() for size in own})
    panel.set(xscale="log", xlabel="aligned rows", ylabel=f"test {label}")
    panel.set_xticks(places, [f"{place:,}" for place in places])
    panel.set_xticks([], minor=True)
    _finish(figure, [panel], title, path)


def axis_scale(ends: Sequence[float]) -> str:
    """Scale of an axis on which runs end at `ends`; "symlog" is linear around 0."""
    if not ends or max(ends) <= _FAR * max(min(ends), 1e-9):
        return "linear"
    return "log" if min(ends) > 0 else "symlog"


def draw_band(
    panel: Axes,
    number: int,
    name: str,
    seeds: Sequence[Rows],
    axis: str,
    measure: str,
    unit: float = 1.0,
) -> float:
    """Draw a measure's mean and range over seeds by `axis` / `unit`, colour `number`; the end."""
    where, low, mean, high = _band(seeds, axis, measure)
    look = _look(number)
    if where[0] < where[-1]:
        panel.plot(where / unit, mean, label=name, linewidth=1.2, **look)
        panel.fill_between(where / unit, low, high, color=look["color"], alpha=0.15, lw=0)
    else:  # one evaluation: a point, and the range over seeds
        marker = _MARKERS[number // len(COLOURS) % len(_MARKERS)]
        at, middle = where[0] / unit, mean[0]
        # The mean of equal values can lie a rounding beside them, and no bar is negative.
        ends = ([max(middle - low[0], 0.0)], [max(high[0] - middle, 0.0)])
        panel.errorbar([at], [middle], yerr=ends, label=name, color=look["color"], fmt=marker)
    return float(where[-1])


def _look(number: int) -> dict[str, Any]:
    """Colour and line style of the run with this number."""
    line = _STYLES[number // len(COLOURS) % len(_STYLES)]
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": line}


def _finish(figure: Figure, panels: Sequence[Axes], title: str, path: Path) -> None:
    """Draw grids, one legend for all panels and the title, and write the file."""
    for panel in panels:
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    if len(labels) > 1:
        inches = 0.6 + 0.085 * max(map(len, labels))  # of a column, whose letters are all wide
        columns = max(1, min(4, int(figure.get_figwidth() / inches)))
        figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=columns)
    figure.suptitle(title)
    figure.savefig(path, dpi=130)


def _band(
    seeds: Sequence[Rows], axis: str, measure: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(axis, smallest, mean, largest value of a measure over seeds), interpolated linearly."""
    import numpy as np

    end = min(rows[-1][axis] for rows in seeds)
    start = min(max(rows[0][axis] for rows in seeds), end)
    where = np.linspace(start, end, 200)
    values = np.stack(
        [np.interp(where, [r[axis] for r in rows], [r[measure] for r in rows]) for rows in seeds]
    )
    return where, values.min(axis=0), values.mean(axis=0), values.max(axis=0)
