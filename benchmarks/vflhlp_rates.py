"""Rates, beta and lengths of VFLHLP's Table 3 and Figure 5, chosen on validation rows.

    python benchmarks/vflhlp_rates.py

Every method is tried at each setting of its own (`SETTINGS`) on a split that no study has (seed
100): a fifth of that split's training rows is held back before the overlap is limited, and scores
by its AUC, the mean over 200 and 1000 aligned rows. Gradients of the proximal term are clipped at
norm 1, so that a large beta does not diverge by the length of the step. Writes
results/vflhlp/rates.json after each method; what is there is not run again.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rates import SEED, held_back

from securevfl.data import load_dataset
from securevfl.data.alignment.overlap import limit_overlap
from securevfl.data.dataset import VerticalDataset
from securevfl.errors import RunError
from securevfl.machine import commit, describe_machine
from securevfl.runs.run import run
from securevfl.studies.jobs import Job
from securevfl.studies.study import read_study

HERE = Path(__file__).parent
STUDY = HERE / "papers" / "vflhlp" / "table-3-criteo.toml"
OUT = HERE / "results" / "vflhlp" / "rates.json"
SIZES = (200, 1000)
LR = (0.01, 0.03, 0.1)
BETA = (0.01, 0.1, 1.0)
EPOCHS = (6, 20, 40)
ALONE = (62, 186, 620, 1240)  # batches of the active party: 2 to 40 epochs
# Step 1 for six epochs, or for forty at most that end by held-out rows.
STEP_1 = ({"pretrain_epochs": 6}, {"pretrain_epochs": 40, "pretrain_stop": 3})


def settings(method: str) -> Iterator[dict[str, Any]]:
    """Settings that are tried of a method."""
    for lr in LR:
        if method == "vfl":
            yield {"lr": lr}
        elif method == "local":
            yield from ({"lr": lr / 10, "rounds": steps} for steps in ALONE)
        elif method in ("vflhlp", "vflhlp-a"):
            for beta, step in itertools.product(BETA, STEP_1):
                yield {"lr": lr, "beta": beta, "clip": 1.0, **step}
        else:
            for epochs in EPOCHS:
                yield {"lr": lr, "pretrain_epochs": epochs}


def score(job: Job, whole: VerticalDataset, chosen: dict[str, Any]) -> dict[str, Any]:
    """AUC at each number of aligned rows, and their mean; 0 where training diverged."""
    asked = {key: value for key, value in job.asked.items() if value is not None} | {"seed": SEED}
    found = []
    for aligned in SIZES:
        data = limit_overlap(whole, aligned, rest="kept", seed=SEED)
        try:
            done = run(job.protocol, data, **{**job.options, **chosen}, **asked)
        except RunError as error:
            return {**chosen, "error": str(error), "mean": 0.0}
        found.append(round(done.summary()["test_auc"], 4))
    return {**chosen, "auc": found, "mean": round(sum(found) / len(found), 4)}


def main() -> None:
    """Try all settings of all methods."""
    found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {"runs": {}}
    found |= {"machine": describe_machine(), "commit": commit(), "seed": SEED, "aligned": SIZES}
    jobs = {job.label.split(",")[0]: job for job in read_study(STUDY).jobs}
    first = jobs["vfl"]
    whole = held_back(load_dataset(first.dataset, seed=SEED))
    for method in ("local", "vfl", "vflhlp", "vflhlp-a", "vflhlp-p", "fedhssl-moco"):
        if method in found["runs"]:
            continue
        tried = [score(jobs[method], whole, chosen) for chosen in settings(method)]
        best = max(tried, key=lambda one: one["mean"])
        found["runs"][method] = {"best": best, "tried": tried}
        print(method, best, flush=True)
        OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
