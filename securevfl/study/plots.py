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
