"""The picture of `securevfl bench methods`: accuracy against bytes and time, with the fronts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from securevfl.bench.methods import fronts
from securevfl.errors import needs

# Okabe and Ito's colours, that colour-blind readers tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_COSTS = (("bytes", "bytes sent, MB", 1e-6), ("time", "virtual seconds", 1.0))


def draw(cells: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw accuracy against virtual time and bytes, a row of two panels a data set, as a PNG.

    A thin line is the mean curve of a method, a mark its end; the grey step line is the Pareto
    front of all points: no method has more accuracy for less. Methods on a front are named.

    Parameters
    ----------
    cells : sequence of mapping
        Cells from `securevfl.bench.methods.MethodTable.content`.
    path : Path
        PNG file to write.
    """
    needs("pictures", "report", "matplotlib")
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    there = [cell for cell in cells if cell["seeds"]]
    sets = list(dict.fromkeys(cell["data"] for cell in there))
    names = list(dict.fromkeys(cell["method"] for cell in cells))
    if not sets:
        path.unlink(missing_ok=True)
        return
    figure = Figure(figsize=(11.5, 3.7 * len(sets) + 0.4), layout="constrained")
    axes = figure.subplots(len(sets), 2, squeeze=False)
    shown: dict[str, Any] = {}
    for data, panels in zip(sets, axes, strict=True):
        own = [dict(cell) for cell in there if cell["data"] == data]
        for panel, (cost, words, unit) in zip(panels, _COSTS, strict=True):
            for cell in own:
                line = _line(panel, cell, cost, unit, names.index(cell["method"]))
                shown.setdefault(cell["method"], line)
            _front(panel, fronts(own, data, cost), unit)
            panel.set_xlabel(words)
            panel.grid(alpha=0.25, which="both")
            panel.set_xscale("log")
            panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.xaxis.set_minor_formatter(NullFormatter())
        seeds = sorted({cell["seeds"] for cell in own})
        many = "one seed" if seeds == [1] else f"{' or '.join(map(str, seeds))} seeds"
        panels[0].set_title(f"{data}: {own[0]['parties']} parties, {many}", fontsize=10, loc="left")
        panels[0].set_ylabel("test accuracy")
        panels[1].sharey(panels[0])
    order = sorted(shown, key=names.index)
    figure.legend(
        [shown[name] for name in order], order, loc="outside right upper", fontsize=8, frameon=False
    )
    figure.savefig(path, dpi=90)


def _line(panel: Any, cell: Mapping[str, Any], cost: str, unit: float, number: int) -> Any:
    column = ("time", "bytes").index(cost)
    points = [(row[column] * unit, row[2]) for row in cell["curve"] if row[column] > 0]
    x, y = zip(*points, strict=True) if points else ((), ())
    style = {
        "color": _COLOURS[number % len(_COLOURS)],
        "marker": _MARKS[number % len(_MARKS)],
        "markevery": [len(points) - 1] if points else [],
        "markersize": 6,
    }
    return panel.plot(x, y, linewidth=0.8, alpha=0.9, **style)[0]


def _front(panel: Any, points: Sequence[tuple[str, float, float]], unit: float) -> None:
    """Draw the Pareto front of points (name, x, y), x times `unit`, names at their last points."""
    x, y = [point[1] * unit for point in points], [point[2] for point in points]
    panel.step(x, y, where="post", color="grey", linewidth=3, alpha=0.5, zorder=0)
    last = {name: (a, b) for (name, *_), a, b in zip(points, x, y, strict=True)}
    for number, (name, place) in enumerate(last.items()):
        side = "right" if number == len(last) - 1 > 0 else "left"
        below = (3, -9 * (1 + number % 3))  # names of methods that end side by side
        panel.annotate(name, place, textcoords="offset points", xytext=below, ha=side, fontsize=7)
