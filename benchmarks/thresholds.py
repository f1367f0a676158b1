"""Thresholds of learning on digits: methods under laws of delay and measured delays.

    PYTHONPATH=. python benchmarks/thresholds.py FOLDER [METHOD...]

A case is a method in a setting. On a seed of its own, without slow parties, each method gets the
rate of `RATES` with which it is the first at the target under the first setting; and each case the
length of its runs, `LONGER` times the time to the target. All other seeds then run with 0 to 6 slow
parties of 8. FOLDER keeps the runs, so that the same command goes on where it stopped; cases that
are done are written to `benchmarks/results/threshold/learning.json`.
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
    """Three laws and two measured sets of delays."""
    return [
        parse_law("lognormal:1.0"),
        conditions_setting("ranks_st"),
        parse_law("paper"),
        conditions_setting("ranks_ar"),
        parse_law("exponential:persistence=20"),
    ]


def sweep(folder: Path, until: float, **more: Any) -> Sweep:
    """Runs of some length."""
    made = DataSource("digits", {})
    return Sweep(made, 8, folder, until=until, target=TARGET, factor=FACTOR, **more)


def first_time(folder: Path, variant: str, setting: Setting, most: float) -> float | None:
    """Virtual seconds to the target on the seed of the choice; None beyond `most`, or never."""
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
    """The variant with a rate."""
    return f"{variant}{',' if ':' in variant else ':'}lr={rate:g}"


def chosen(folder: Path, variant: str, setting: Setting) -> str:
    """The variant with the rate that is first at the target."""
    best, least = with_rate(variant, RATES[0]), float("inf")
    for rate in reversed(RATES):
        time = first_time(folder, with_rate(variant, rate), setting, least)
        if time is not None and time < least:
            best, least = with_rate(variant, rate), time
    return best


def case(
    folder: Path, variant: str, setting: Setting, longer: float = LONGER
) -> tuple[list[Cell], Threshold] | None:
    """Cells and threshold of a case; None where the target is not reached in the choice."""
    time = first_time(folder, variant, setting, float("inf"))
    if time is None:
        return None
    own = folder / ("runs" if longer == LONGER else f"runs-{longer:g}")
    made = sweep(own, longer * time, seeds=SEEDS, counts=COUNTS)
    (method,) = made.methods([variant])
    cells = made.run([Case(method, setting, "slow")])
    return cells, thresholds(cells, FACTOR, {variant: method.declared})[0]


def write(found: list[tuple[str, list[Cell], Threshold]]) -> None:
    """Write cells and thresholds of the cases that are done."""
    content = {
        "thresholds": [asdict(replace(edge, method=name)) for name, _, edge in found],
        "cells": [row | {"method": name} for name, some, _ in found for row in rows(some, FACTOR)],
        "rates": {name: edge.method for name, _, edge in found},
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
    """Run all cases, costly methods one after the other, and those that ended too soon again."""
    first, *_ = settings()
    done: dict[tuple[int, int], tuple[str, list[Cell], Threshold]] = {}
    for group in (variants[:QUICK], *([one] for one in variants[QUICK:])):
        rated = {name: chosen(folder, name, first) for name in group}
        for number, setting in enumerate(settings()):
            for name, variant in rated.items():
                found = case(folder, variant, setting)
                print(setting.label, variant, found and found[1], flush=True)
                if found is not None:
                    done[number, variants.index(name)] = (name, *found)
                    write([done[key] for key in sorted(done)])
    for (number, place), (name, _, edge) in sorted(done.items()):
        if edge.open:
            found = case(folder, edge.method, settings()[number], 2 * LONGER)
            assert found is not None
            done[number, place] = (name, *found)
            write([done[key] for key in sorted(done)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(METHODS))
