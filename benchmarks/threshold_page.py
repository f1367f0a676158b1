"""Write docs/results-threshold.md from what ``securevfl bench threshold`` wrote.

Its ``threshold.json`` is benchmarks/results/threshold/learning.json; facts.json has the command
that made it and what was found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import table

RESULTS = Path("benchmarks/results/threshold")
PAGE = Path("docs/results-threshold.md")
Row = Mapping[str, Any]

HEAD = """# How many slow parties a method bears, and how methods rank

Each method is trained on {data} with s of {parties} parties slow, with {seeds} seeds; each seed
draws anew which parties are slow. Counted is the virtual time until {target:.0%} test accuracy. The
**threshold of learning** is the largest s up to which the median time is at most {factor:g} times
that of s = 0; in square brackets its 95 % bootstrap interval over seeds, in round ones the
**threshold of the clock**, which counts the time of a round alone. ">=": runs ended before they
could tell more. "-": the target was not reached without slow parties. [Stragglers](stragglers.md)
says what the settings are and how to make such a page of your own methods.
"""


def label(method: str, options: Mapping[str, str]) -> str:
    """Name of a method in the tables."""
    return options.get(method, f"`{method}`")


def thresholds(rows: Sequence[Row], names: Mapping[str, str]) -> list[str]:
    """A line a method, a column a setting and kind."""
    columns = list(dict.fromkeys((row["setting"], row["kind"]) for row in rows))
    at = {(row["method"], row["setting"], row["kind"]): row for row in rows}
    lines = [["method", "declared", *(f"{setting}, {kind}" for setting, kind in columns)]]
    for method in dict.fromkeys(row["method"] for row in rows):
        declared = next(row["declared"] for row in rows if row["method"] == method)
        own = [said(at.get((method, *column))) for column in columns]
        lines.append([label(method, names), "-" if declared is None else str(declared), *own])
    return table(lines)


def said(row: Row | None) -> str:
    """A threshold with its interval, and the clock's; "" where it was not run."""
    if row is None:
        return ""
    if row["learning"] < 0:
        return "-"
    more = ">=" if row["open"] else ""
    return f"{more}{row['learning']} [{max(row['low'], 0)}, {row['high']}] ({row['clock']})"


def times(cells: Sequence[Row], setting: str, names: Mapping[str, str]) -> list[str]:
    """Median seconds to the target by s, the fastest bold, with the seeds that reached it."""
    own = [row for row in cells if row["setting"] == setting]
    counts = sorted({row["troubled"] for row in own})
    best = {
        s: min((row["median"] for row in own if row["troubled"] == s and row["median"]), default=0)
        for s in counts
    }
    lines = [["method", *(f"s = {s}" for s in counts), "accuracy at the end, first and last s"]]
    for method in dict.fromkeys(row["method"] for row in own):
        at = {row["troubled"]: row for row in own if row["method"] == method}
        ends = " and ".join(share(at[s]["accuracy"]) for s in (counts[0], counts[-1]) if s in at)
        parts = [seconds(at[s], best[s]) if s in at else "" for s in counts]
        lines.append([label(method, names), *parts, ends])
    return table(lines)


def seconds(row: Row, best: float) -> str:
    """Median time of a cell; with the censored runs, if there are any."""
    late = f" ({row['censored']} of {row['seeds']} not)" if row["censored"] else ""
    if row["median"] is None:
        return f"> {row['until']:.3g}{late}"
    text = f"{row['median']:.3g}"
    return (f"**{text}**" if row["median"] == best else text) + late


def share(value: float | None) -> str:
    """A part in per cent."""
    return "-" if value is None else f"{value:.0%}"


def page() -> str:
    """The page."""
    told = json.loads((RESULTS / "learning.json").read_text())
    facts = json.loads((RESULTS / "facts.json").read_text())
    names = facts["names"]
    parts = [
        HEAD.format(**told["settings"]),
        facts["found"],
        "",
        "## Thresholds",
        "",
        *thresholds(told["thresholds"], names),
        "",
        "![Time to the target and thresholds](../benchmarks/results/threshold/learning.png)",
        "",
        "## Ranks: seconds to the target",
        "",
        "Medians; bold is the fastest. `>`: fewer than half of the seeds reached it by then.",
        "",
    ]
    for setting in dict.fromkeys(row["setting"] for row in told["cells"]):
        parts += [f"### `{setting}`", "", *times(told["cells"], setting, names), ""]
    parts += ["## To repeat", "", "```", *facts["commands"], "```", "", facts["cost"], ""]
    return "\n".join(parts)
