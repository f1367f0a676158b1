"""Rates of DVFL's other data sets, chosen on rows that no result is told of.

    python benchmarks/dvfl_rates.py

For the four sets of Table 2 the hosts' rate is tried at the paper's value, a third and a tenth of
it, then at the best of these the owner's rate at 0.003, 0.001 and 0.0003, and the rate of split
learning at the same three: on a split of its own (seed 100), trained on four fifths of that split's
training rows and scored by the accuracy on the other fifth. Writes results/dvfl/rates.json; what is
there is not run again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rates import SEED, held_back

from securevfl.data import load_dataset
from securevfl.data.dataset import VerticalDataset
from securevfl.errors import RunError
from securevfl.machine import commit, describe_machine
from securevfl.runs.run import run
from securevfl.studies.jobs import Job
from securevfl.studies.study import read_study

HERE = Path(__file__).parent
OUT = HERE / "results" / "dvfl" / "rates.json"
SETS = ("handwritten", "parkinson", "caltech-7", "credit-card")
HOSTS = {"handwritten": 0.001, "parkinson": 0.004, "caltech-7": 0.01, "credit-card": 0.001}
LR = (0.003, 0.001, 0.0003)


def tried(job: Job, data: VerticalDataset, rates: dict[str, float]) -> dict[str, Any]:
    """Accuracy on the rows held back at these rates, or why there is none."""
    asked = {key: value for key, value in job.asked.items() if value is not None} | {"seed": SEED}
    try:
        done = run(job.protocol, data, **{**job.options, **rates}, **asked)
    except RunError as error:
        return {**rates, "error": str(error), "accuracy": 0.0}
    return {**rates, "accuracy": round(done.summary()["test_accuracy"], 4)}


def best(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The rates of the highest accuracy."""
    return max(found, key=lambda one: one["accuracy"])


def main() -> None:
    """Try all rates of all sets."""
    found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {"sets": {}}
    found |= {"machine": describe_machine(), "commit": commit(), "seed": SEED}
    for name in SETS:
        own = found["sets"].setdefault(name, {})
        study = read_study(HERE / "papers" / "dvfl" / f"{name}.toml")
        jobs = {job.label: job for job in study.jobs}
        options = {**jobs["dvfl"].data, "seed": SEED}
        data = held_back(load_dataset(jobs["dvfl"].dataset, **options))
        if "dvfl" not in own:
            rates = (HOSTS[name], HOSTS[name] / 3, HOSTS[name] / 10)
            own["dvfl"] = [tried(jobs["dvfl"], data, {"host_lr": round(r, 5)}) for r in rates]
        if "owner" not in own:
            host = best(own["dvfl"])["host_lr"]
            own["owner"] = [tried(jobs["dvfl"], data, {"host_lr": host, "lr": lr}) for lr in LR]
        if "split" not in own:
            own["split"] = [tried(jobs["split"], data, {"lr": lr}) for lr in LR]
        print(name, own, flush=True)
        OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
