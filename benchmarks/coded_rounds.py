"""CPU and bytes of a round of coded split learning: ``python benchmarks/coded_rounds.py``.

All parties are in one process of one thread, on random columns, without delays and unsealed. CPU of
a round is the difference of a long and a short run, divided by the rounds between them; the median
of three such pairs, or as many as are asked for. Beside it stand the float twin, `split` with
SGD, and bytes by the messages of a round. Writes benchmarks/results/coded_split/rounds.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import securevfl as svfl
from securevfl.data.dataset import VerticalDataset
from securevfl.machine import commit, describe_machine
from securevfl.runs.threads import one_thread

OUT = Path(__file__).parent / "results" / "coded_split" / "rounds.json"
SMALL = {"prime": 2**31 - 1, "data_bits": 6, "gradient_bits": 8}
PRIMES: dict[str, dict[str, Any]] = {
    "2^31-1": SMALL,
    "2^50-2^14+1": {},  # the default where 2^31-1 is too small
    "2^40-87": {"prime": 2**40 - 87},
    "2^61-1": {"prime": 2**61 - 1},
}
# Parties, columns of each, rows, options, and the bits that leave room at 2^31-1.
WIDE = {"segments": 4, "batch": 256, "width": 64, "hidden": 64, "degree": 1}
MANY = {"segments": 1, "batch": 64, "width": 64, "hidden": 64, "degree": 1}
SMALLER = {"segments": 1, "batch": 128, "width": 64, "hidden": 64, "degree": 2}
CASES: dict[str, tuple[int, int, int, dict[str, Any], dict[str, int]]] = {
    "N = 8, K = 1, batch 128": (8, 8, 1348, SMALLER, {}),
    "N = 28, K = 4, batch 256": (28, 28, 2048, WIDE, {}),
    "N = 256, K = 1, batch 64": (256, 2, 1024, MANY, {"data_bits": 5, "gradient_bits": 7}),
}


def columns(parties: int, width: int, rows: int) -> VerticalDataset:
    """Random columns in [0, 1] and labels of ten classes."""
    drawn = np.random.default_rng(0)
    features = [drawn.random((rows, width)).astype(np.float32) for _ in range(parties)]
    labels = drawn.integers(0, 10, rows)
    return VerticalDataset.from_numpy(
        features,
        labels,
        test_features=[x[:50] for x in features],
        test_labels=labels[:50],
        scaling="none",
    )


def of_a_round(
    protocol: str, data: Any, few: int, many: int, pairs: int, **options: Any
) -> dict[str, Any]:
    """CPU milliseconds and bytes that a round more takes."""
    spent, bytes_ = [], 0.0
    for _ in range(pairs):
        ends = []
        for rounds in (few, many):
            start = time.process_time()
            run = svfl.run(
                *(protocol, data),
                conditions="none",
                rounds=rounds,
                seed=0,
                sealed=False,
                **options,
            )
            ends.append((time.process_time() - start, run.transcript.bytes))
        spent.append(1e3 * (ends[1][0] - ends[0][0]) / (many - few))
        bytes_ = (ends[1][1] - ends[0][1]) / (many - few)
    return {"cpu_ms": round(statistics.median(spent), 2), "bytes": round(bytes_)}


def main() -> None:
    """Measure all cases, or those of one size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--primes", nargs="+", choices=list(PRIMES), default=list(PRIMES))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--case", choices=list(CASES))
    asked = parser.parse_args()
    found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {"cases": {}}
    found |= {"machine": describe_machine(), "commit": commit()}
    for name in [asked.case] if asked.case else CASES:
        parties, width, rows, options, bits = CASES[name]
        data, rows_of = columns(parties, width, rows), found["cases"].setdefault(name, {})
        few, many = (5, 45) if parties < 100 else (1, 6)
        with one_thread():
            twin = options | {"optimizer": "sgd"}
            of_a_round("split", data, 1, 2, 1, **twin)
            rows_of["split, floats"] = of_a_round("split", data, few, many, asked.pairs, **twin)
            for prime in asked.primes:
                given = options | PRIMES[prime] | (bits if prime == "2^31-1" else {})
                svfl.run("coded_split", data, conditions="none", rounds=1, seed=0, **given)
                rows_of[prime] = of_a_round("coded_split", data, few, many, asked.pairs, **given)
                print(name, prime, rows_of[prime], rows_of["split, floats"], flush=True)
                OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
