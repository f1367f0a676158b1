"""Rates, beta and lengths of a table of VFLHLP's, chosen on validation rows.

    python benchmarks/vflhlp_rates.py table-3-criteo

Every run of the study is tried at each of its `settings` on a split that no study has (seed 100): a
fifth of that split's training rows is held back before the overlap is limited, and scores by its
AUC, the mean over `SIZES` of aligned rows. Gradients of the proximal term are clipped at norm 1, so
that a large beta does not diverge by the length of the step. Writes
results/vflhlp/rates/TABLE.json after each run; what is there is not run again.
"""

from __future__ import annotations

import argparse
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
STUDIES = HERE / "papers" / "vflhlp"
RATES = HERE / "results" / "vflhlp" / "rates"
SIZES = {"table-2-avazu": (250, 1000), "table-3-criteo": (200, 1000), "table-4-avazu": (200, 1000)}
LR = (0.01, 0.03, 0.1)
BETA = (0.01, 0.1, 1.0)
EPOCHS = (6, 20, 40)
# Rates and epochs of the active party alone, which stops soonest of all.
ALONE = (0.001, 0.003, 0.01, 0.03, 0.1), (0.5, 1, 2, 6, 20, 40)
# Step 1 for six epochs, or for forty at most that end by held-out rows.
STEP_1 = ({"pretrain_epochs": 6}, {"pretrain_epochs": 40, "pretrain_stop": 3})


def settings(job: Job, rows: int) -> Iterator[dict[str, Any]]:
    """Settings that are tried of a run, on as many training rows as its study has."""
    if job.protocol == "local":
        epoch = rows // job.options["batch"]
        for lr, epochs in itertools.product(*ALONE):
            yield {"lr": lr, "rounds": int(epochs * epoch)}
        return
    for lr in LR:
        if job.protocol == "split":
            yield {"lr": lr}
        elif job.options.get("variant") in ("full", "a"):
            for beta, step in itertools.product(BETA, STEP_1):
                yield {"lr": lr, "beta": beta, "clip": 1.0, **step}
        else:
            for epochs in EPOCHS:
                yield {"lr": lr, "pretrain_epochs": epochs}


def score(
    job: Job, whole: VerticalDataset, sizes: tuple[int, ...], chosen: dict[str, Any]
) -> dict[str, Any]:
    """AUC at each number of aligned rows, and their mean; 0 where training diverged."""
    asked = {key: value for key, value in job.asked.items() if value is not None} | {"seed": SEED}
    found = []
    for aligned in sizes:
        data = limit_overlap(whole, aligned, rest="kept", seed=SEED)
        try:
            done = run(job.protocol, data, **{**job.options, **chosen}, **asked)
        except RunError as error:
            return {**chosen, "error": str(error), "mean": 0.0}
        found.append(round(done.summary()["test_auc"], 4))
    return {**chosen, "auc": found, "mean": round(sum(found) / len(found), 4)}


def main() -> None:
    """Try all settings of all runs of a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=sorted(SIZES))
    name = parser.parse_args().table
    out, sizes = RATES / f"{name}.json", SIZES[name]
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"runs": {}}
    found |= {"machine": describe_machine(), "commit": commit(), "seed": SEED, "aligned": sizes}
    jobs = {job.label.split(",")[0]: job for job in read_study(STUDIES / f"{name}.toml").jobs}
    first = next(iter(jobs.values()))
    kept = {key: value for key, value in first.data.items() if key == "parties"}
    data = load_dataset(first.dataset, seed=SEED, **kept)
    whole = held_back(data)
    for label, job in jobs.items():
        if label in found["runs"]:
            continue
        tried = [score(job, whole, sizes, chosen) for chosen in settings(job, data.rows)]
        best = max(tried, key=lambda one: one["mean"])
        found["runs"][label] = {"best": best, "tried": tried}
        print(label, best, flush=True)
        out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
