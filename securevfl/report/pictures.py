"""The figures of a report as SVG and PDF files, by matplotlib."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.report import figures
from securevfl.report.evaluations import Evaluation
from securevfl.report.records import Record
from securevfl.report.timeline import timeline
from securevfl.runs.plots import COLOURS, axis_scale, draw_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMS = ("svg", "pdf")
_UNITS = {"bytes": 1e6}
_WRITTEN = 20  # classes up to which a confusion matrix has its numbers written into it
# Text stays text in both; a file of the same run is the same file, so no date is in it.
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "securevfl", "pdf.fonttype": 42}
_METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def write_pictures(records: Sequence[Record], folder: Path, clock: str) -> list[Path]:
    """Write every figure in each of `FORMS` (SVG and PDF), and return the files.

    Parameters
    ----------
    records : sequence of Record
        Runs to draw.
    folder : Path
        Existing folder.
    clock : str
        Label of the time axis without its unit (s), such as "virtual time".
    """
    import matplotlib

    written = []
    with matplotlib.rc_context(_STYLE):
        for name, figure in _all(records, clock):
            for form in FORMS:
                path = folder / f"{name}.{form}"
                figure.savefig(path, metadata=_METADATA[form])
                written.append(path)
    return written


def inline(figure: Figure) -> str:
    """Figure as a ``data:`` URL of an SVG picture, so that the page contains it."""
    import base64
    import io

    import matplotlib

    written = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(written, format="svg", metadata=_METADATA["svg"], transparent=True)
    return "data:image/svg+xml;base64," + base64.b64encode(written.getvalue().encode()).decode()


def file_name(text: str) -> str:
    """File name from a label: other characters than letters, digits, "." and "_" become "-"."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") or "run"


def _all(records: Sequence[Record], clock: str) -> Iterator[tuple[str, Figure]]:
    for measure in figures.measures_of(records):
        for axis in figures.AXES:
            if max(record.rows[-1][axis] for record in records if record.rows) > 0:
                yield f"{measure}-{axis}", curve(records, measure, axis, clock)
    for record in records:
        name = file_name(record.label)
        lanes, sums = timeline(record), figures.links(record)
        if lanes is not None and lanes["ends"][-1] > 0:
            yield f"parties-{name}", parties(lanes, clock)
        if sums is not None:
            yield f"links-{name}", links(sums)
        for what, figure in of_test_rows(record.evaluation).items():
            yield f"{what}-{name}", figure


def of_test_rows(found: Evaluation | None) -> dict[str, Figure]:
    """Figures of confusion, calibration, precision and recall, by name; empty without them."""
    if found is None:
        return {}
    drawn = {"confusion": confusion(found), "calibration": calibration(found)}
    if found.precision_recall:
        drawn["precision-recall"] = precision_recall(found)
    return drawn


def _figure(width: float = 4.6, height: float = 3.4) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def curve(records: Sequence[Record], measure: str, axis: str, clock: str) -> Figure:
    """A measure against "step", "time" of `clock` or "bytes": a line a group, a band over seeds."""
    figure, axes = _figure()
    unit, ends = _UNITS.get(axis, 1.0), []
    for number, group in enumerate(dict.fromkeys(record.group for record in records)):
        own = [figures.finite(r.rows, (measure, axis)) for r in records if r.group == group]
        there = [rows for rows in own if rows]
        if len(there) > 1:
            ends.append(draw_band(axes, number, group, there, axis, measure, unit))
        elif there:
            points = [(row[axis] / unit, row[measure]) for row in there[0]]
            marker = "." if len(points) < 60 else ""
            look: Any = {
                "color": COLOURS[number % len(COLOURS)],
                "linewidth": 1.2,
                "marker": marker,
            }
            axes.plot(*zip(*points, strict=True), label=group, **look)
            ends.append(points[-1][0])
    words = {"step": "round", "time": f"{clock} (s)", "bytes": "sent (MB)"}
    axes.set(xlabel=words[axis], ylabel=figures.MEASURES[measure], xscale=axis_scale(ends))
    if axis == "step":
        axes.locator_params("x", integer=True)
    axes.grid(alpha=0.25)
    if len(ends) > 1:
        axes.legend(frameon=False)
    return figure


def parties(lanes: dict[str, Any], clock: str) -> Figure:
    """A lane for each party: bars, late and lost messages, and down times."""
    rows = lanes["lanes"]
    figure, axes = _figure(7.2, 1.3 + 0.36 * len(rows))
    starts = [0.0, *lanes["ends"]]
    widths = [b - a for a, b in pairwise(starts)]
    server, others = ("0.55", "length of a round"), (COLOURS[0], _bars_of_others(lanes))
    shown: dict[str, Any] = {}
    for place, lane in enumerate(rows):
        colour, label = server if lane["party"] < 0 else others
        most = lanes["highest"]["server" if lane["party"] < 0 else "others"] or 1.0
        if heights := [-0.8 * value / most for value in lane["bars"] or ()]:
            shown[label] = axes.bar(
                starts[:-1], heights, widths, bottom=place + 0.4, align="edge", edgecolor="white",
                linewidth=0.2, color=colour,
            )  # fmt: skip
        spans = [(a, (starts[-1] if b is None else b) - a) for a, b in lane["down"]]
        if spans:
            shown["down"] = axes.broken_barh(spans, (place - 0.45, 0.9), color="#cc79a7", alpha=0.5)
        for kind, sign, ink in (("late", "|", "#d55e00"), ("lost", "x", "black")):
            if times := lane["times"][kind]:
                at = [place + 0.46] * len(times)
                shown[f"{kind} message"] = axes.plot(times, at, sign, color=ink, markersize=4)[0]
    axes.set(xlabel=f"{clock} (s)", xlim=(0, None), ylim=(len(rows) - 0.4, -0.6))
    axes.set_yticks(range(len(rows)), [lane["name"] for lane in rows])
    columns: Any = {"frameon": False, "ncols": 4, "fontsize": "small"}
    figure.legend(shown.values(), shown.keys(), loc="outside upper center", **columns)
    return figure


def _bars_of_others(lanes: dict[str, Any]) -> str:
    """Legend of the clients' bars: "times used" or "longest way of a message"."""
    return "times used" if lanes["used"] else "longest way of a message"


def links(sums: dict[str, Any]) -> Figure:
    """Megabytes from each party (row) to each other (column)."""
    import numpy as np

    names = sums["parties"]
    cells = np.zeros((len(names), len(names)))
    for _, sender, receiver, _, nbytes, _ in sums["cells"]:
        cells[sender, receiver] += nbytes / 1e6
    return _matrix(cells, names, "{:.3g}", ("to", "from"), "sent (MB)")


def confusion(found: Evaluation) -> Figure:
    """Figure of the confusion matrix: a row for each true class, a column for each predicted."""
    import numpy as np

    return _matrix(
        np.array(found.confusion), found.classes, "{:d}", ("predicted", "true"), "test rows"
    )


def _matrix(
    cells: Any, names: Sequence[str], form: str, ends: tuple[str, str], unit: str
) -> Figure:
    written = len(names) <= _WRITTEN  # numbers in the cells: letters are larger in less place
    size = min(max(3.2, (0.28 if written else 0.42) * len(names) + 1.4), 12.0)
    figure, axes = _figure(size + 0.9 * (not written), size)
    image = axes.imshow(cells, cmap="Blues", vmin=0)
    axes.set(xlabel=ends[0], ylabel=ends[1])
    turned: Any = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(names)), names, **(turned if max(map(len, names)) > 3 else {}))
    axes.set_yticks(range(len(names)), names)
    if written:
        axes.set_title(unit, fontsize="medium")
    else:
        figure.colorbar(image, label=unit, shrink=0.8)
    if written:
        for row, column in zip(*cells.nonzero(), strict=True):
            dark = cells[row, column] > cells.max() / 2
            text, ink = form.format(cells[row, column]), "white" if dark else "black"
            axes.text(column, row, text, ha="center", va="center", color=ink, fontsize="x-small")
    return figure


def calibration(found: Evaluation) -> Figure:
    """Accuracy against confidence in bins, and the rows of each; the diagonal is exact."""
    bins = found.calibration
    figure, axes = _figure(4.2, 3.9)
    axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="exact")
    axes.plot(bins.confidence, bins.accuracy, color=COLOURS[0], marker="o", label="accuracy")
    rows = max(sum(bins.rows), 1)
    shares = [count / rows for count in bins.rows]
    axes.bar(bins.confidence, shares, 0.03, color="0.8", label="part of the rows", zorder=0)
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02))
    figure.legend(frameon=False, fontsize="small", ncols=3, loc="outside lower center")
    return figure


def precision_recall(found: Evaluation) -> Figure:
    """Precision against recall, a curve for each class; dotted lines show guessing."""
    lines = -(-len(found.precision_recall) // 2)
    figure, axes = _figure(4.2, 3.6 + 0.2 * lines)
    for number, one in enumerate(found.precision_recall):
        look: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)]}
        style = ("-", "--")[number // len(COLOURS) % 2]
        label = f"{one.name} ({one.average_precision:.3f})"
        axes.step(one.recall, one.precision, where="pre", label=label, linestyle=style, **look)
        axes.axhline(one.share, linestyle=":", linewidth=0.8, **look)
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02))
    title = "class (average precision)"
    look = {"frameon": False, "fontsize": "small", "ncols": 2}
    figure.legend(title=title, loc="outside lower center", **look)
    return figure
