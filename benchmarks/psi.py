"""Private set intersection at size: time, bytes, and rows that a plain join does not find.

    python benchmarks/psi.py                two sets of 1,000,000 and five of 100,000
    python benchmarks/psi.py --quick        two sets of 5,000 and three of 2,000

Writes benchmarks/results/psi/psi.json. Times are of all members together, in one process each
computing for itself after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data.alignment.join import match_plainly
from securevfl.machine import commit, describe_machine
from securevfl.runs.alignment import intersection

RESULTS = Path(__file__).parent / "results" / "psi"
SHARE = 0.8  # of all identifiers that each member has


def measure(members: int, size: int) -> dict[str, Any]:
    """One run on random sets; a wrong row is one that the plain join has not, or the reverse."""
    draw = np.random.default_rng(members)
    everybody = round(size / SHARE)
    sets = [[f"user-{i:09d}" for i in draw.permutation(everybody)[:size]] for _ in range(members)]
    start = time.perf_counter()
    rows, sent = intersection(sets)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    plain, _ = match_plainly(sets)
    plain_seconds = time.perf_counter() - start
    private, common = np.stack(rows), np.stack(plain)
    wrong = len(set(map(tuple, private.T.tolist())) ^ set(map(tuple, common.T.tolist())))
    multiplications = members * members * size
    return {
        "members": members,
        "identifiers_each": size,
        "common": len(rows[0]),
        "wrong_rows": wrong,
        "seconds": round(seconds, 1),
        "plain_join_seconds": round(plain_seconds, 2),
        "microseconds_per_multiplication": round(1e6 * seconds / multiplications, 1),
        "messages": sent.messages,
        "bytes": sent.bytes,
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    sizes = [(2, 5_000), (3, 2_000)] if parser.parse_args().quick else [(2, 10**6), (5, 10**5)]
    runs = []
    for members, size in sizes:
        runs.append(measure(members, size))
        print(runs[-1], flush=True)
    content = {"processes": os.cpu_count(), "machine": describe_machine(), "commit": commit()}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "psi.json").write_text(json.dumps({"runs": runs, **content}, indent=1) + "\n")


if __name__ == "__main__":
    main()
