"""Learning rates of a study's runs, each chosen among as many on rows that no result is told of.

    python benchmarks/rates.py benchmarks/papers/coded_split/handwritten.toml --until 120

Every run of the study is trained at each pair of rates of its protocol (`LR` of the server model by
four of the clients, so sixteen for every method) under the study's conditions, on a split of its
own (seed 100) and on four fifths of that split's training rows. Where the best pair has a neighbour
that was not tried (half a decade away; a factor of 4 for the owners of coded_split), that one is
tried too, until no neighbour is better or `MOST` pairs were tried: the same rule for every run. The
score is the mean over the study's times up to `--until` of the accuracy on the fifth that was held
back; three rows in a row stay together, as recordings of one person do. Writes rates/NAME.json
beside the study's results, after each run; what is there is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data import load_dataset
from securevfl.data.dataset import VerticalDataset
from securevfl.machine import commit, describe_machine
from securevfl.runs.run import run
from securevfl.studies.jobs import Job
from securevfl.studies.study import read_study

RATES = Path(__file__).parent / "results" / "coded_split" / "rates"
SEED = 100
LR = (0.001, 0.003, 0.01, 0.03)
# By plain SGD on prepared columns, where rivals' clients use Adam.
GRID = {"coded_split": (4.0, 16.0, 64.0, 256.0)}
OTHERS = (0.001, 0.003, 0.01, 0.03)
MOST = 32


def held_back(data: VerticalDataset) -> VerticalDataset:
    """The training rows alone: a fifth of them stands in for the test rows."""
    tested = np.arange(data.rows) // 3 % 5 == 4
    kept = data.subset(~tested)
    rows = tuple(array[tested] for array in data.train)
    return replace(kept, test=rows, test_labels=data.train_labels[tested])


def curve_of(job: Job, data: VerticalDataset, until: float, rates: dict[str, float]) -> Any:
    """Times and accuracies of one run."""
    options = {"rounds": 10**6, **job.options, **rates}
    asked = {name: value for name, value in job.asked.items() if value is not None}
    asked |= {"seed": SEED, "until": until}
    with tempfile.TemporaryDirectory() as folder:  # the messages of so many rounds go there
        # No checkpoints: the shares of 28 parties are 12 GB, and nobody would go on from them.
        kept: dict[str, Any] = {"out": Path(folder, "run"), "checkpoint_seconds": None}
        history = run(job.protocol, data, **kept, **options, **asked).history
    rows = [row for row in history if "accuracy" in row]
    return [row["time"] for row in rows], [row["accuracy"] for row in rows]


def score(job: Job, data: VerticalDataset, times: Sequence[float], rates: dict[str, float]) -> Any:
    """Accuracy at each time, and their mean; None where training diverged."""
    try:
        known, values = curve_of(job, data, max(times), rates)
    except Exception as error:
        return {**rates, "error": str(error), "mean": 0.0}
    at = [float(np.interp(time, known, values)) for time in times]
    return {**rates, "accuracy": [round(one, 4) for one in at], "mean": round(sum(at) / len(at), 4)}


def neighbours(best: Mapping[str, float], protocol: str) -> list[tuple[float, float]]:
    """The four pairs one step from a pair: half a decade, or a factor of 4, in either rate."""
    lr, client = best["lr"], best["client_lr"]
    beside = [(one, client) for one in _steps(lr)]
    if protocol in GRID:
        return [*beside, (lr, client / 4), (lr, client * 4)]
    return [*beside, *((lr, one) for one in _steps(client))]


def _steps(rate: float) -> tuple[float, float]:
    """The rates before and after one in 1, 3, 10, 30, ..."""
    place = round(2 * math.log10(rate))
    return _rate(place - 1), _rate(place + 1)


def _rate(place: int) -> float:
    return float(f"{10.0 ** (place / 2):.0e}")


def best_of(tried: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The pair of the highest mean."""
    return max(tried, key=lambda one: one["mean"])


def search(
    job: Job, data: VerticalDataset, times: Sequence[float], tried: list[Any]
) -> Iterator[dict[str, Any]]:
    """Try the grid, then neighbours of the best pair until none is better; yields each result."""
    wanted = set(itertools.product(LR, GRID.get(job.protocol, OTHERS)))
    while True:
        there = {(one["lr"], one["client_lr"]) for one in tried}
        for lr, client in sorted(wanted - there)[: MOST - len(tried)]:
            tried.append(score(job, data, times, {"lr": lr, "client_lr": client}))
            yield tried[-1]
        wanted = set(neighbours(best_of(tried), job.protocol))
        if len(tried) >= MOST or wanted <= {(one["lr"], one["client_lr"]) for one in tried}:
            return


def main() -> None:
    """Try all rates of all runs, and write what was found after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("--until", type=float, required=True)
    parser.add_argument("--only", nargs="+", help="these runs alone; all by default")
    parser.add_argument("--data-dir")
    asked = parser.parse_args()
    study = read_study(asked.study)
    unknown = set(asked.only or ()) - set(study.labels)
    if unknown:
        parser.error(f"the study has no run {', '.join(sorted(unknown))}; it has {study.labels}")
    out = RATES / f"{asked.study.stem}.json"
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"runs": {}}
    found |= {"machine": describe_machine(), "commit": commit(), "seed": SEED}
    times = [time for time in study.times if time <= asked.until]
    if found.setdefault("times", times) != times:
        parser.error(f"{out} has means over {found['times']} s; give the --until of these")
    out.parent.mkdir(parents=True, exist_ok=True)
    jobs = {job.label: job for job in reversed(study.jobs)}
    first = next(iter(jobs.values()))
    options = {**first.data, "seed": SEED, "data_dir": asked.data_dir}
    data = held_back(load_dataset(first.dataset, **options))
    for label in asked.only or study.labels:
        tried = found["runs"].get(label, {}).get("tried", [])
        for one in search(jobs[label], data, times, tried):
            found["runs"][label] = {"best": best_of(tried), "tried": tried}
            out.write_text(json.dumps(found, indent=1) + "\n")
            print(label, one, flush=True)
        print(label, "best", best_of(tried), flush=True)


if __name__ == "__main__":
    main()
