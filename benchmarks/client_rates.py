"""Learning rates of FedVS's Table 1, chosen on rows of which no result is told.

    python benchmarks/client_rates.py --device cuda --workers 9

Each kind of client network is trained at each rate of `LR` for 5 of the study's 20 epochs, on four
fifths of the training rows and with a seed that the study has not. The rate with the best accuracy
on the other fifth is taken. Writes results/fedvs/rates/table-1.json.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from securevfl.machine import commit, describe_machine
from securevfl.studies.study import read_study
from securevfl.studies.workers import carry_out

HERE = Path(__file__).parent
LR = (0.0003, 0.001, 0.003)
SEED, HELD_BACK, ROUNDS = 100, 0.2, 940  # 940 rounds of 256 are 5 epochs of 48,000 rows


def main() -> None:
    """Try all rates of all networks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results/fedvs/rates/table-1.json")
    asked = parser.parse_args()
    jobs = []
    for job in read_study(HERE / "papers/fedvs/table-1.toml").jobs:
        for lr in LR:
            options = {**job.options, "lr": lr, "rounds": ROUNDS, "device": asked.device}
            data = {**job.data, "seed": SEED, "validation": HELD_BACK}
            own = {"seed": SEED, "eval_every": ROUNDS}
            label = f"{job.label} {lr}"
            jobs.append(
                replace(job, label=label, options=options, data=data, asked={**job.asked, **own})
            )
    tried: dict[str, dict[str, Any]] = {}
    # One job a network and rate: seeds of the study fall together.
    for job, result in carry_out(list({job.label: job for job in jobs}.values()), asked.workers):
        name, lr = job.label.split()
        tried.setdefault(name, {})[lr] = result["summary"]["test_accuracy"]
        print(job.label, tried[name][lr], flush=True)
    found = {
        "machine": describe_machine(),
        "commit": commit(),
        "seed": SEED,
        "rounds": ROUNDS,
        "runs": {
            name: {"best": float(max(own, key=own.__getitem__)), "tried": dict(sorted(own.items()))}
            for name, own in sorted(tried.items())
        },
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
