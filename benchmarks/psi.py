"""Cost of private set intersection: CPU time of two parties, bytes, and memory.

    python benchmarks/psi.py [--members N] [SIZES...]

Each size is measured in a new process, and added to benchmarks/results/psi/psi.json. The sets of
two neighbours share nine of ten ids. `in_the_engine` runs all parties in one process with sealed
links; `by_party` runs `securevfl.data.alignment.oprf` alone, for the CPU time of each party.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data.alignment import oprf
from securevfl.machine import describe_machine
from securevfl.runs.alignment import intersection

RESULTS = Path(__file__).parent / "results" / "psi" / "psi.json"


def tables(count: int, members: int) -> list[list[str]]:
    """Sets of `count` ids in random order; each is shifted by a tenth from the one before."""
    draw = np.random.default_rng(count)
    firsts = [member * count // 10 for member in range(members)]
    return [[f"user-{first + n}" for n in draw.permutation(count)] for first in firsts]


def in_the_engine(count: int, members: int) -> dict[str, Any]:
    """Measures of a whole intersection; ``right`` compares its rows with a join in the clear."""
    sets = tables(count, members)
    cpu, wall = time.process_time(), time.perf_counter()
    rows, sent = intersection(sets)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    found = [[ids[row] for row in own] for ids, own in zip(sets, rows, strict=True)]
    right = all(one == found[0] for one in found[1:])
    return {
        "members": members,
        "identifiers_each": count,
        "common": len(found[0]),
        "right": right and set(found[0]) == set.intersection(*map(set, sets)),
        "cpu_seconds": round(cpu, 2),
        "wall_seconds": round(wall, 1),
        "bytes": sent.bytes,
        "messages": sent.messages,
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }


def by_party(count: int) -> dict[str, Any]:
    """CPU seconds of the collector and of the member, in an intersection of two."""
    own, others = tables(count, 2)
    spent = {"collector": 0.0, "member": 0.0}

    def timed(who: str, work: Callable[..., Any], *given: Any) -> Any:
        begin = time.process_time()
        done = work(*given)
        spent[who] += time.process_time() - begin
        return done

    receiver = timed("collector", oprf.Receiver, own, "member")
    sender = timed("member", oprf.Sender, others, "collector")
    choices = timed("member", lambda: sender.choices(*receiver.hello()))
    parts = receiver.matrix(choices)
    for number in range(len(sender.part_shapes())):
        timed("member", sender.take, number, timed("collector", next, parts))
    opening = timed("collector", receiver.opening, sender.challenge())
    timed("member", sender.check, opening)
    size = oprf.value_bytes(count, count) + oprf.PROOF
    for who, party in (("collector", receiver), ("member", sender)):
        timed(who, party.values, size)
    return {f"{who}_cpu_seconds": round(seconds, 2) for who, seconds in spent.items()}


def measure(count: int, members: int) -> dict[str, Any]:
    """Result row for a set size and a number of members."""
    in_the_engine(100, 2)  # compiles the kernels
    return in_the_engine(count, members) | (by_party(count) if members == 2 else {})


def main() -> None:
    """Measure all sizes, print and store the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("sizes", type=int, nargs="*", default=[10**4, 10**5, 10**6])
    asked = parser.parse_args()
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for count in asked.sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            row = pool.apply(measure, (count, asked.members))
        print(json.dumps(row), flush=True)
        stored[f"{asked.members} x {count}"] = row
        stored["machine"] = describe_machine()
        RESULTS.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
