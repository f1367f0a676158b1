"""The picture of `securevfl bench threshold`: time to the target by s, and thresholds below."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from securevfl.errors import needs

# Okabe and Ito's colours, that colour-blind readers tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
_STYLES = ("-", "--", ":")
_ACROSS = 3  # panels, so that a page shows letters in a size that can be read
_TOLD = (
    "grey line: limit c; marks: threshold of learning, 95 % interval; bars: of the clock; "
    "shades: 95 % interval; a line ends where fewer than half of the seeds get there"
)

Row = Mapping[str, Any]


def draw(rows: Sequence[Row], thresholds: Sequence[Row], path: Path) -> None:
    """Draw a panel for each setting and kind as a PNG.

    Above is the median time to the target with s troubled parties over that with none, with its
    95 % interval; a line ends where fewer than half of the seeds reached it. Below are the
    thresholds: a mark with its interval for learning, a bar for the time of rounds alone.

    Parameters
    ----------
    rows : sequence of mapping
        Result of `securevfl.bench.threshold.rows`.
    thresholds : sequence of mapping
        Fields of `securevfl.bench.threshold.Threshold`.
    path : Path
        PNG file to write.
    """
    needs("pictures", "report", "matplotlib")
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    panels = list(dict.fromkeys((row["setting"], row["kind"]) for row in thresholds))
    names = list(dict.fromkeys(row["method"] for row in thresholds))
    style = {
        name: {
            "color": _COLOURS[number % len(_COLOURS)],
            "marker": _MARKS[number % len(_MARKS)],
            "linestyle": _STYLES[number // len(_COLOURS) % len(_STYLES)],
        }
        for number, name in enumerate(names)
    }
    across, down = min(_ACROSS, len(panels)), -(-len(panels) // _ACROSS)
    tall = (2.6, 0.6 + 0.24 * len(names))
    figure = Figure(figsize=(2.3 * across + 1.8, down * sum(tall) + 0.3), layout="constrained")
    axes = figure.subplots(2 * down, across, squeeze=False, sharex=True, height_ratios=tall * down)
    most = max(row["troubled"] for row in rows)
    pairs = [*zip(axes[::2].ravel(), axes[1::2].ravel(), strict=True)]
    for unused in (panel for pair in pairs[len(panels) :] for panel in pair):
        unused.set_visible(False)
    labels = [textwrap.fill(name.replace(",", ", "), 32) for name in names]
    places = range(len(names), 0, -1)
    for number, ((setting, kind), (above, below)) in enumerate(zip(panels, pairs, strict=False)):
        above.sharey(axes[0, 0])
        own = [row for row in thresholds if (row["setting"], row["kind"]) == (setting, kind)]
        for one in own:
            name, key = one["method"], (one["method"], setting, kind)
            line = [row for row in rows if (row["method"], row["setting"], row["kind"]) == key]
            _line(above, line, style[name])
            _whisker(below, len(names) - names.index(name), one, style[name])
        if own and own[0]["time"]:
            above.axhline(own[0]["limit"] / own[0]["time"], color="grey", linewidth=1, zorder=0)
        above.set_title(f"{setting}\n{kind}", fontsize=9)
        if any(len(one.get_xdata()) for one in above.lines):  # else nobody reached the target
            above.set_yscale("log")
            above.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            above.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            above.yaxis.set_minor_formatter(NullFormatter())
        above.grid(alpha=0.25)
        below.grid(alpha=0.25, axis="x")
        below.set_xticks(range(0, most + 1, max(1, most // 8)))
        below.set(xlim=(-0.4, most + 0.4), ylim=(0.4, len(names) + 0.6), xlabel=f"{kind} parties")
        below.tick_params(labelbottom=True)
        first = number % across == 0
        above.tick_params(labelleft=first)
        below.set_yticks(places, labels if first else [""] * len(names), fontsize=8)
        if first:
            above.set_ylabel("time to the target\n(1: no party in trouble)", fontsize=9)
            below.set_ylabel("threshold", fontsize=9)
    figure.suptitle(textwrap.fill(_TOLD, int(10.5 * figure.get_figwidth())), fontsize=9)
    figure.savefig(path, dpi=120)


def _line(panel: Any, line: Sequence[Row], style: Mapping[str, Any]) -> None:
    free = next((row["median"] for row in line if not row["troubled"]), None)
    shown = [row for row in line if row["median"] is not None and free]
    x = [row["troubled"] for row in shown]
    panel.plot(x, [row["median"] / free for row in shown], linewidth=1.4, markersize=5, **style)
    low = [(row["low"] if row["low"] is not None else row["median"]) / free for row in shown]
    high = [(row["high"] or row["until"]) / free for row in shown]
    panel.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)


def _whisker(panel: Any, y: float, one: Row, style: Mapping[str, Any]) -> None:
    """Draw a row's threshold of learning with its interval, and that of the clock, at height y."""
    if one["learning"] < 0:
        panel.text(0, y, "target not reached", fontsize=7, va="center", color="grey")
        return
    low = max(one["low"], 0)
    panel.plot([low, one["high"]], [y, y], color=style["color"], linewidth=2.4, alpha=0.45)
    panel.plot([one["learning"]], [y], color=style["color"], marker=style["marker"], markersize=6)
    panel.plot([one["clock"]], [y], color="black", marker="|", markersize=11, zorder=0)
    if one["open"]:
        panel.text(one["learning"] + 0.2, y, "or more", fontsize=7, va="center")
