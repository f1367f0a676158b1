"""The picture of `securevfl bench threshold`: time of a round and accuracy by troubled parties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from securevfl.bench.threshold import FAST, SLOW, Cell

_STYLES = ("-", "--", ":", "-.")


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Draw a panel for each trouble: time of a round above, accuracy below, as a PNG.

    Lines are methods with the smallest T and A; a ring marks the predicted boundary, and a line
    ends where an error ended the run.
    """
    from matplotlib.figure import Figure

    troubles = list(dict.fromkeys((cell.kind, cell.law) for cell in cells))
    lines = _lines(cells)
    figure = Figure(figsize=(2.9 * len(troubles) + 1.0, 6.6), layout="constrained")
    axes = figure.subplots(2, len(troubles), squeeze=False, sharex=True, sharey="row")
    for column, trouble in enumerate(troubles):
        above, below = axes[0, column], axes[1, column]
        for number, (name, own) in enumerate(lines.items()):
            here = [cell for cell in own if (cell.kind, cell.law) == trouble]
            style = {"color": f"C{number % 10}", "linestyle": _STYLES[number % len(_STYLES)]}
            _line(above, here, "round_seconds", style, name)
            _line(below, here, "accuracy", style, name)
        kind, law = trouble
        above.set_title(f"{kind}: {law}" if kind == "slow" else kind, fontsize=10)
        above.set_yscale("log")
        below.set_xlabel(f"{kind} parties")
        for panel in (above, below):
            panel.grid(alpha=0.25)
    axes[0, 0].set_ylabel("seconds of a round")
    axes[1, 0].set_ylabel("accuracy at the end")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=5,
        frameon=False,
        fontsize=9,
    )
    figure.suptitle(
        f"uploads take {FAST:g} s, those of slow parties {SLOW:g} s; ring: predicted boundary",
        fontsize=11,
    )
    figure.savefig(path, dpi=110)


def _lines(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Cells by method, of those with the smallest T and A of their label."""
    least: dict[str, tuple[int, int]] = {}
    for cell in cells:
        pair = cell.T or 0, cell.A or 0
        least[cell.label] = min(least.get(cell.label, pair), pair)
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        if (cell.T or 0, cell.A or 0) == least[cell.label]:
            numbers = "" if cell.R is None else f" K={cell.K} (R={cell.R})"
            found.setdefault(cell.label + numbers, []).append(cell)
    return found


def _line(panel: Any, cells: Sequence[Cell], what: str, style: dict[str, Any], name: str) -> None:
    own = sorted(cells, key=lambda cell: cell.troubled)
    shown = [cell for cell in own if math.isfinite(getattr(cell, what))]
    values = [getattr(cell, what) for cell in shown]
    panel.plot([cell.troubled for cell in shown], values, marker=".", label=name, **style)
    ring = [cell for cell in shown if cell.troubled == cell.predicted]
    at = [getattr(cell, what) for cell in ring]
    panel.plot([cell.troubled for cell in ring], at, "o", mfc="none", ms=9, color=style["color"])
