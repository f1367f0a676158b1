"""Comparison of FedVS with masked sums, homomorphic encryption and noise on equal runs.

All runs go to benchmarks/results/comparators/table.json, from which comparators_page.py makes
tables. Methods have equal rows, batches, networks, initial weights and delays (the paper's).
Rounds, batch, width, learning rate and K are ours. Computing time is the CPU time of one process
that runs all parties with sealed links, without evaluation. Finished runs are stored in a .jsonl
file, so an interrupted measurement continues.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dp import carried_out

import securevfl as svfl
from securevfl.data import load_dataset
from securevfl.machine import describe_machine

RESULTS = Path(__file__).parent / "results" / "comparators"
SETS = {"digits": 8, "handwritten": 6, "credit-card": 11}  # parties
SEEDS = 3
OPTIONS = {"rounds": 200, "batch": 64, "width": 64, "hidden": 128, "lr": 0.003}
FIELD = {"prime": 2**61 - 1, "data_bits": 20, "model_bits": 24}  # of FedVS
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "split, waiting": ("split", {}),
    "split, ignoring": ("split", {"stragglers": "ignore"}),
    "fedvs, masked": ("fedvs", FIELD),
    "fedvs, plain": ("fedvs", {"masked": False, **FIELD}),
    "secagg_split": ("secagg_split", {}),
    "he_split, ckks": ("he_split", {}),
    "wait_dp, eps' = 5": ("wait_dp", {"epsilon": 5.0}),
}
SETUP = ("train-data", "key")  # kinds of message that are sent once
SHORT = {"rounds": 10}  # Paillier takes seconds a round
PAILLIER = {
    "he_split, ckks, 10 rounds": ("he_split", SHORT),
    "he_split, paillier, 10 rounds": ("he_split", {"scheme": "paillier", **SHORT}),
}


def settings() -> Iterator[dict[str, Any]]:
    for data, seed, method in itertools.product(SETS, range(SEEDS), METHODS):
        yield {"data": data, "seed": seed, "method": method}
    for method in PAILLIER:
        yield {"data": "digits", "seed": 0, "method": method}


def one(data: str, seed: int, method: str) -> dict[str, Any]:
    """Measures of a run: accuracy, virtual time, bytes, CPU time, tolerated stragglers, epsilon."""
    protocol, own = (METHODS | PAILLIER)[method]
    dataset = load_dataset(data, parties=SETS[data], seed=seed)
    options = {**OPTIONS, **own}
    # One evaluation, after the last step; its share of the time does not count.
    started = time.process_time()
    done = svfl.run(
        protocol, dataset, seed=seed, eval_every=options["rounds"], conditions="paper", **options
    )
    spent = time.process_time() - started
    started = time.process_time()
    done.protocol.scores(done.parties, dataset.test)
    spent -= time.process_time() - started
    summary = done.summary()
    rounds = options["rounds"]
    setup = sum(int(n) for kind, n in summary["bytes_by_kind"].items() if kind in SETUP)
    return {
        "accuracy": summary["test_accuracy"],
        "auc": summary.get("test_auc"),
        "virtual_seconds": summary["virtual_seconds"],
        "bytes_setup": setup,
        "bytes_round": (summary["bytes"] - setup) / rounds,
        "cpu_ms_round": 1e3 * spent / rounds,
        "survived": survived(done.protocol),
        "epsilon": done.history[-1].get("epsilon_total"),
        "losses": [row["loss"] for row in done.history][:10],
        "derived": summary["derived"],
    }


def survived(protocol: Any) -> int:
    """Number of stragglers that a round does not wait for: N - R, or N - quorum."""
    told, N = protocol.describe(), protocol.data.parties
    return N - int(told.get("R") or told.get("quorum") or N)


def collect() -> dict[str, Any]:
    one("digits", 0, "fedvs, masked")  # so that no compilation is timed
    rows = carried_out(RESULTS / "table.jsonl", settings(), one)
    short = {row["method"]: row["losses"] for row in rows if row["method"] in PAILLIER}
    return {
        "options": OPTIONS,
        "parties": SETS,
        "conditions": "paper",
        "sealed": True,
        "paillier_equals_ckks": len({json.dumps(losses) for losses in short.values()}) == 1,
        "runs": rows,
        "machine": describe_machine(),
    }


def main() -> None:
    result = collect()
    (RESULTS / "table.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
