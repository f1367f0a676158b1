"""Write docs/results-thresholds.md from the results of thresholds.py."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, median_low
from typing import Any

from pages import table

from securevfl.bench.troubles import conditions_setting
from securevfl.engine.delays import Trace

RESULT = Path("benchmarks/results/threshold/learning.json")
PAGE = Path("docs/results-thresholds.md")
SPREAD = ("paper", "ranks_st", "ranks_ar", "ranks_se", "lambda_canada", "lambda_cold")
# Rounds of which the spread is a median: of laws so many that it is known to a fifteenth.
ROUNDS, STEPS = 1000, 100

HEAD = """# Thresholds of learning

How many of {parties} parties may be slow, until a method takes more than {factor:g} times as long
to {target:g} accuracy on {data} as without them. Each case has {seeds} seeds, of which each draws
which parties are slow. The interval is a 95 % bootstrap over seeds; ">=" says that runs ended
before the limit. The *clock's* threshold counts rounds alone, *declared* is N - R. *Censored* are
runs that did not reach the target. No more than {most} slow parties were tried. "-": no run, or
none that reached the target without slow parties on the seed that chooses rates.
`benchmarks/thresholds.py` makes the runs, and `benchmarks/thresholds_page.py` this page
([how](stragglers.md#how-many-stragglers)).

A slow party is ten times slower under laws in which all are alike (lognormal, exponential); in
`paper` and in measured delays it is one of the slow parties there. Rates are the best of three on
a seed of their own, under the first setting. Batches of 64, h = 16, no budget of sums given.

![Time to the target by slow parties, and thresholds](../benchmarks/results/threshold/learning.png)
"""

Row = Mapping[str, Any]


def page() -> str:
    """Markdown of the page."""
    content = json.loads(RESULT.read_text())
    settings = content["settings"]
    lines = [
        HEAD.format(**settings | {"seeds": len(settings["seeds"]), "most": settings["counts"][-1]}),
        *spread(),
        "",
    ]
    lines += ["## Thresholds", "", *matrix(content["thresholds"]), ""]
    for setting in dict.fromkeys(row["setting"] for row in content["thresholds"]):
        own = [row for row in content["thresholds"] if row["setting"] == setting]
        cells = [row for row in content["cells"] if row["setting"] == setting]
        lines += [f"## {setting}", "", *times(cells, own), ""]
    rates = ", ".join(f"`{one}`" for one in content["rates"].values())
    return "\n".join([*lines, f"Variants with their rates: {rates}."]) + "\n"


def spread() -> list[str]:
    """Table of the delay of the slowest over that of the N/2-th fastest party, by conditions.

    Each is a median over rounds. The N/2-th party is used because a mean of the two middle ones
    would be neither fast nor slow if half of the parties are slow.
    """
    found = []
    for name in SPREAD:
        ratios = []
        for parties in (8, 28):
            delays = conditions_setting(name).conditions(parties, 64).uploads
            rounds = STEPS if isinstance(delays[0], Trace) else ROUNDS
            drawn = [
                [delay.seconds(0, n, r, "upload") for n, delay in enumerate(delays)]
                for r in range(1, rounds + 1)
            ]
            ratios.append(f"{median(max(own) / median_low(own) for own in drawn):.2g}")
        found.append([f"`{name}`", *ratios])
    return table([["slowest over N/2-th fastest in a round", "8 parties", "28 parties"], *found])


def matrix(rows: Sequence[Row]) -> list[str]:
    """Table of thresholds, with intervals and the clock's thresholds, by method and setting."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    at = {(row["method"], row["setting"]): row for row in rows}
    lines = [["threshold (clock's, declared)", *settings]]
    for method in methods:
        lines.append([f"`{method}`", *(edge(at.get((method, setting))) for setting in settings)])
    return table(lines)


def edge(row: Row | None) -> str:
    """Table cell of a threshold; "-" if the target is missed without slow parties."""
    if row is None or row["learning"] < 0:
        return "-"
    declared = "" if row["declared"] is None else f", {row['declared']}"
    more = ">= " if row["open"] else ""
    low, high = max(row["low"], 0), row["high"]
    return f"{more}**{row['learning']}** [{low}, {high}] ({row['clock']}{declared})"


def times(cells: Sequence[Row], edges: Sequence[Row]) -> list[str]:
    """Table of median seconds to the target and intervals, by method and number of slow parties."""
    counts = sorted({row["troubled"] for row in cells})
    lines = [
        ["seconds to the target", *(f"{s} slow" for s in counts), "censored", "rank, 0 to most"]
    ]
    at = {(row["method"], row["troubled"]): row for row in cells}
    methods = [row["method"] for row in edges]
    ranks = [ranked([at[method, s]["median"] for method in methods]) for s in counts]
    for number, method in enumerate(methods):
        own = [at[method, s] for s in counts]
        censored = f"{sum(row['censored'] for row in own)} of {sum(row['seeds'] for row in own)}"
        places = " ".join(column[number] for column in ranks)
        lines.append([f"`{method}`", *map(seconds, own), censored, places])
    return table(lines)


def seconds(row: Row) -> str:
    """Table cell: median and interval; "> END" if over half of the runs missed the target."""
    if row["median"] is None:
        return f"> {row['until']:.3g}"
    high = "-" if row["high"] is None else f"{row['high']:.3g}"
    return f"{row['median']:.3g} [{row['low']:.3g}, {high}]"


def ranked(medians: Sequence[float | None]) -> list[str]:
    """Rank of each method by its median, from 1; "-" without a median."""
    there = sorted(value for value in medians if value is not None)
    return ["-" if value is None else str(there.index(value) + 1) for value in medians]
