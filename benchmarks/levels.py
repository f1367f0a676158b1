"""Measures the levels of security in one run: CPU, bytes and messages of a round.

For each method and number of parties all levels run in turn, and that again a few times, so that
other work on the machine slows all of them alike. A round's time is the processor's, of all parties
in one process: that of a longer run less that of a shorter one, by the rounds between.

    PYTHONPATH=. nice -n 10 python benchmarks/levels.py [--times 5] [words of names]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from securevfl.data import load_dataset
from securevfl.engine.conditions import NONE
from securevfl.testing.runs import simulate

RESULTS = Path(__file__).parent / "results" / "plan" / "levels.json"
SHORT, MORE = 2, {8: 5, 9: 5, 28: 2}  # rounds, and how many more by number of parties
COMMON = {"width": 64, "degree": 1, "sum_budget": 0.0}
ACTIVE = ("semi-honest", "covert", "active")
# By name: method, parties, levels, options.
CASES: dict[str, tuple[str, int, tuple[str, ...], dict[str, Any]]] = {
    "coded_split 8,1,1": ("coded_split", 8, ACTIVE, {"segments": 1, "batch": 128, **COMMON}),
    "coded_split 28,4,1": ("coded_split", 28, ACTIVE, {"segments": 4, "batch": 256, **COMMON}),
    "fedvs 8,1,1": ("fedvs", 8, ACTIVE, {"segments": 1, "batch": 128, **COMMON}),
    "fedvs 28,6,1": ("fedvs", 28, ACTIVE, {"segments": 6, "batch": 128, **COMMON}),
    "fedvs 28,3,1": ("fedvs", 28, ACTIVE, {"segments": 3, "batch": 128, **COMMON}),
    "secagg_split 9": ("secagg_split", 9, ACTIVE[:2], {"batch": 128, "width": 64}),
    "secagg_split 28": ("secagg_split", 28, ACTIVE[:2], {"batch": 128, "width": 64}),
}


def run(name: str, level: str, rounds: int) -> dict[str, float]:
    """CPU seconds, bytes and messages of a run."""
    method, parties, _, options = CASES[name]
    data = load_dataset("digits", parties=8).with_parties(parties)
    before = time.process_time()
    given = {**options, "rounds": rounds, "security": level}
    outcome = simulate(method, data, conditions=NONE, defaults={}, **given)
    seconds = time.process_time() - before
    totals = outcome.simulation.transcript.totals()
    return {
        "seconds": seconds,
        "bytes": float(np.sum(totals["bytes"])),
        "messages": float(np.sum(totals["messages"])),
    }


def measure(name: str, times: int) -> dict[str, Any]:
    """A round of each level: medians of ms and of its ratio to the first one's; bytes, messages."""
    _, parties, levels, _ = CASES[name]
    more = MORE[parties]
    found: dict[str, list[dict[str, float]]] = {level: [] for level in levels}
    for _ in range(times):
        for level in levels:
            short, long = (run(name, level, rounds) for rounds in (SHORT, SHORT + more))
            found[level].append({key: (long[key] - short[key]) / more for key in long})
    first = found[levels[0]]
    return {
        level: {
            "ms": round(1000 * median(one["seconds"] for one in own), 1),
            "times the first": round(
                median(a["seconds"] / b["seconds"] for a, b in zip(own, first, strict=True)), 2
            ),
            "bytes": round(median(one["bytes"] for one in own)),
            "messages": round(median(one["messages"] for one in own)),
        }
        for level, own in found.items()
    }


def main() -> None:
    """Measure, and write a case's figures as it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in CASES:
        if not given.words or any(word in name for word in given.words):
            run(name, "semi-honest", 1)  # compiles
            known[name] = measure(name, given.times)
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(known, indent=1) + "\n")
            print(name, json.dumps(known[name]), flush=True)


if __name__ == "__main__":
    main()
