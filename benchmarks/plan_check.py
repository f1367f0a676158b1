"""Hold the planner's predictions against simulations of random configurations.

Every configuration draws N, K, T, masking, model and batch sizes, a law of delay with finite
variance for each client, and a rate for each uplink, so that in some of them delays dominate and in
others transfers do. Bytes must be equal; the mean round time should be within a tenth.

    python benchmarks/plan_check.py --configurations 10 --rounds 2000
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import securevfl as svfl
from securevfl.data.dataset import VerticalDataset
from securevfl.engine.conditions import Conditions, Delay
from securevfl.machine import commit, describe_machine
from securevfl.planning.forecast import plan

OUT = Path(__file__).parent / "results" / "plan" / "plan_check.json"


def configuration(seed: int, rounds: int) -> tuple[int, dict[str, Any], Conditions]:
    """N, options and conditions number `seed`."""
    stream = np.random.Generator(np.random.Philox(seed))
    privacy = int(stream.integers(1, 3))
    parties = int(stream.integers(2 * privacy + 1, 13))
    largest = (parties - 1) // 2 - privacy + 1
    options = {
        "rounds": rounds,
        "segments": int(stream.integers(1, largest + 1)),
        "privacy": privacy,
        "masked": bool(parties > privacy + 1 and stream.random() < 0.7),
        "secure": bool(stream.random() < 0.3),
        "degree": int(stream.integers(1, 3)),
        "width": int(stream.integers(1, 5)),
        "hidden": 2,
        "batch": int(stream.integers(8, 33)),
    }
    delays = []
    for _ in range(parties):
        law = str(stream.choice(["exponential", "pareto", "lognormal"]))
        shape = {"exponential": 0.0, "pareto": stream.uniform(2.5, 5), "lognormal": 0.7}[law]
        mean = float(np.exp(stream.uniform(np.log(0.02), np.log(3))))
        delays.append(Delay(mean, float(stream.choice([0.0, 0.1])), law, float(shape)))
    rates = np.exp(stream.uniform(np.log(5e4), np.log(1e7), parties))
    conditions = Conditions(
        name="random",
        uploads=tuple(delays),
        share_factor=float(stream.uniform(0.05, 1)),
        bandwidth=float(stream.choice([1e5, 1e6, 1e7])),
        uplinks=tuple(float(rate) for rate in rates),
    )
    return parties, options, conditions


def data(parties: int) -> Any:
    """Forty rows of two columns a party; what is learnt does not matter."""
    stream = np.random.Generator(np.random.Philox(0))
    features, labels = stream.random((48, 2 * parties), np.float32), np.arange(48) % 2
    return VerticalDataset.from_numpy(
        features[:40], labels[:40], test_features=features[40:], test_labels=labels[40:],
        task="binary", parties=parties, name="random rows",
    )  # fmt: skip


def check(seed: int, rounds: int) -> dict[str, Any]:
    """Prediction and measurement of one configuration."""
    parties, options, conditions = configuration(seed, rounds)
    rows = data(parties)
    predicted = plan(rows, conditions=conditions, prime=2**61 - 1, **options).best
    started = time.perf_counter()
    run = svfl.run("fedvs", rows, conditions=conditions, seed=seed, eval_every=rounds, **options)
    times = [row["time"] for row in run.history]
    measured = (times[-1] - times[0]) / (len(times) - 1)
    return {
        "configuration": seed,
        "parties": parties,
        "options": options,
        "conditions": conditions.describe(),
        "predicted_round_seconds": predicted.round_seconds,
        "measured_round_seconds": measured,
        "relative_error": predicted.round_seconds / measured - 1,
        "predicted_total_seconds": predicted.total_seconds,
        "measured_total_seconds": run.virtual_seconds,
        "predicted_bytes": predicted.bytes,
        "measured_bytes": run.transcript.bytes,
        "wall_seconds": time.perf_counter() - started,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first configuration")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    results = []
    for seed in range(given.first, given.first + given.configurations):
        results.append(check(seed, given.rounds))
        last = results[-1]
        print(
            f"{seed}: N={last['parties']} K={last['options']['segments']} "
            f"T={last['options']['privacy']} round {last['measured_round_seconds']:.4f} s, "
            f"predicted {100 * last['relative_error']:+.2f} %, bytes "
            f"{'equal' if last['predicted_bytes'] == last['measured_bytes'] else 'DIFFERENT'}",
            flush=True,
        )
    content = {
        "rounds": given.rounds,
        "within_a_tenth": sum(abs(r["relative_error"]) <= 0.1 for r in results),
        "bytes_equal": sum(r["predicted_bytes"] == r["measured_bytes"] for r in results),
        "configurations": results,
        "machine": describe_machine(),
        "commit": commit(),
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
