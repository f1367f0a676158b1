"""Thresholds of learning on digits: methods under laws of delay and measured delays.

    PYTHONPATH=. python benchmarks/thresholds.py FOLDER [METHOD...]

A case is a method in a setting. With one further seed and no slow parties, each method gets the
rate of `RATES` with which it reaches the target first under the first setting, and each case gets
`LONGER` times its time to the target as the length of its runs. All other seeds then run with 0 to
6 slow parties of 8. FOLDER stores the runs, so that a stopped command continues. Finished cases are
added to `benchmarks/results/threshold/learning.json`, and not run again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from securevfl.bench.threshold import Case, Cell, Sweep, Threshold, rows, thresholds
from securevfl.bench.troubles import Setting, conditions_setting, mean_delay, parse_law
from securevfl.data.source import DataSource
from securevfl.machine import describe_machine

RESULT = Path(__file__).resolve().parent / "results" / "threshold" / "learning.json"
METHODS = ("fedvs", "coded_split", "split", "vafl", "flexvfl", "split:stragglers=ignore")
RATES = (0.003, 0.01, 0.03)
COUNTS = (0, 1, 2, 4, 6)
SEEDS = range(5)
CHOICE = 100  # the seed of rates and lengths
QUICK = 4  # methods that go through all settings before the next one begins
TARGET, FACTOR, LONGER = 0.85, 2.0, 2.5
FIRST, LAST = 50.0, 1600.0  # length of runs that choose, in mean delays; doubled up to the last


def settings() -> list[Setting]:
    """The settings: three laws of delay and two measured ones."""
    return [
        parse_law("lognormal:1.0"),
        conditions_setting("ranks_st"),
        parse_law("paper"),
        conditions_setting("ranks_ar"),
        parse_law("exponential:persistence=20"),
    ]


def sweep(folder: Path, until: float, **more: Any) -> Sweep:
    """Sweep over runs of `until` virtual seconds."""
    made = DataSource("digits", {})
    return Sweep(made, 8, folder, until=until, target=TARGET, factor=FACTOR, **more)


def first_time(folder: Path, variant: str, setting: Setting, most: float) -> float | None:
    """Virtual seconds to the target with the seed `CHOICE`; None if above `most`, or never."""
    until = FIRST * mean_delay(setting.conditions(8, 64))
    longest = min(most, until * LAST / FIRST)
    while True:
        made = sweep(folder / "choice" / f"{until:g}", until, seeds=(CHOICE,), counts=(0,))
        (cell,) = made.run([Case(made.methods([variant])[0], setting, "slow")])
        if cell.reached:
            return cell.times[0]
        if until >= longest:
            return None
        until = min(2 * until, longest)


def with_rate(variant: str, rate: float) -> str:
    """Name of the variant with a learning rate."""
    return f"{variant}{',' if ':' in variant else ':'}lr={rate:g}"


def chosen(folder: Path, variant: str, setting: Setting) -> str:
    """Name of the variant with the rate that reaches the target first."""
    best, least = with_rate(variant, RATES[0]), float("inf")
    for rate in reversed(RATES):
        time = first_time(folder, with_rate(variant, rate), setting, least)
        if time is not None and time < least:
            best, least = with_rate(variant, rate), time
    return best


def case(
    folder: Path, variant: str, setting: Setting, longer: float = LONGER
) -> tuple[list[Cell], Threshold] | None:
    """Cells and threshold of a case; None if the seed `CHOICE` does not reach the target.

    Runs last `longer` times the time of that seed.
    """
    time = first_time(folder, variant, setting, float("inf"))
    if time is None:
        return None
    own = folder / ("runs" if longer == LONGER else f"runs-{longer:g}")
    made = sweep(own, longer * time, seeds=SEEDS, counts=COUNTS)
    (method,) = made.methods([variant])
    cells = made.run([Case(method, setting, "slow")])
    return cells, thresholds(cells, FACTOR, {variant: method.declared})[0]


def kept() -> tuple[dict[tuple[str, str], dict[str, Any]], dict[str, str]]:
    """Finished cases by (setting, method), and each method's variant, from the file of results."""
    if not RESULT.exists():
        return {}, {}
    content = json.loads(RESULT.read_text())
    found: dict[tuple[str, str], dict[str, Any]] = {
        (edge["setting"], edge["method"]): {"edge": edge, "cells": []}
        for edge in content["thresholds"]
    }
    for row in content["cells"]:
        found[row["setting"], row["method"]]["cells"].append(row)
    return found, content["rates"]


def told(name: str, cells: list[Cell], edge: Threshold) -> dict[str, Any]:
    """Threshold and cells of a case in JSON types, under the name of its method."""
    cell_rows = [row | {"method": name} for row in rows(cells, FACTOR)]
    return {"edge": asdict(replace(edge, method=name)), "cells": cell_rows}


def write(
    done: dict[tuple[str, str], dict[str, Any]], rated: dict[str, str], variants: list[str]
) -> None:
    """Write all finished cases to the file of results."""
    order = [(setting.label, name) for setting in settings() for name in variants]
    found = [done[key] for key in order if key in done]
    content = {
        "thresholds": [case["edge"] for case in found],
        "cells": [row for case in found for row in case["cells"]],
        "rates": rated,
        "settings": {
            "data": "digits",
            "parties": 8,
            "target": TARGET,
            "factor": FACTOR,
            "seeds": list(SEEDS),
            "counts": list(COUNTS),
            "longer": LONGER,
        },
        "machine": describe_machine(),
    }
    RESULT.write_text(json.dumps(content, separators=(",", ":")) + "\n")


def main(folder: Path, variants: list[str]) -> None:
    """Run the missing cases; those whose threshold stays open are run again, twice as long.

    The first `QUICK` methods go through all settings before the next ones begin.
    """
    first, *_ = settings()
    done, rated = kept()
    names = [*METHODS, *(name for name in variants if name not in METHODS)]
    for group in (variants[:QUICK], *([one] for one in variants[QUICK:])):
        for setting in settings():
            for name in group:
                if (setting.label, name) in done:
                    continue
                rated[name] = rated.get(name) or chosen(folder, name, first)
                found = case(folder, rated[name], setting)
                if found is not None and found[1].open:
                    found = case(folder, rated[name], setting, 2 * LONGER)
                print(setting.label, rated[name], found and found[1], flush=True)
                if found is not None:
                    done[setting.label, name] = told(name, *found)
                    write(done, rated, names)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(METHODS))
