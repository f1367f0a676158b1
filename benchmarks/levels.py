"""CPU time, bytes and messages of a round at each level of security, by method and size.

All levels run in turn, several times, so that other work on the machine slows all of them alike. A
round's time is the CPU time of all parties in one process, from the end of the first step to that
of the last, divided by the rounds between.

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
from securevfl.engine.network import Event
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.runs.assembly import rules_of
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import History, make

RESULTS = Path(__file__).parent / "results" / "plan" / "levels.json"
ROUNDS = 5
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


class Clock(History):
    """Observer that also stores the CPU time at the end of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def record(self, event: Event) -> None:
        """Store the event and, for a step, the CPU time of this process in seconds."""
        super().record(event)
        if event.name == "round":
            self.seconds.append(time.process_time())


def run(name: str, level: str) -> dict[str, float]:
    """CPU seconds, bytes and messages per round of one run; first and last round do not count."""
    method, parties, _, options = CASES[name]
    data = load_dataset("digits", parties=8).with_parties(parties)
    made = make(method, data, defaults={}, **options, rounds=ROUNDS, security=level)
    clock, sent = Clock(), Transcript()
    how = {"transcript": sent, "observer": clock, "make_party": made.party}
    every = made.parties()
    with one_thread():
        Simulation(every, conditions=NONE, secrets=made.secrets, rules=rules_of(made), **how).run()
    totals, ends = sent.totals(), clock.seconds
    inner = (totals["round"] > 1) & (totals["round"] < ROUNDS)
    return {
        "seconds": (ends[-1] - ends[0]) / (len(ends) - 1),
        "bytes": float(np.sum(totals["bytes"][inner])) / (ROUNDS - 2),
        "messages": float(np.sum(totals["messages"][inner])) / (ROUNDS - 2),
    }


def measure(name: str, times: int) -> dict[str, Any]:
    """For each level: median ms per round, ratio to the first level, bytes and messages."""
    levels = CASES[name][2]
    found: dict[str, list[dict[str, float]]] = {level: [] for level in levels}
    for _ in range(times):
        for level in levels:
            found[level].append(run(name, level))
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
    """Measure the cases whose names contain a given word, and write each when it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in CASES:
        if not given.words or any(word in name for word in given.words):
            known[name] = measure(name, given.times)
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(known, indent=1) + "\n")
            print(name, json.dumps(known[name]), flush=True)


if __name__ == "__main__":
    main()
