"""Accuracy of FedVS at its defaults beside those of the paper: `default_sizes.py [SET ...]`.

Each run is ``securevfl run fedvs`` itself, without delays: once with the sizes that the budget of
sums sets, once with ``--paper``. Rows are shuffled and dealt anew by each seed. Writes
benchmarks/results/sums/defaults.json after each set; words name the sets to run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import securevfl as svfl
from securevfl.data import load_dataset
from securevfl.machine import commit, describe_machine
from securevfl.studies.intervals import mean_interval

OUT = Path(__file__).parent / "results" / "sums" / "defaults.json"
SEEDS = (1, 2, 3, 4, 5)
SETS = {  # training rows, all if None
    "breast-cancer": None,
    "digits": None,
    "handwritten": None,
    "credit-card": 6000,
    "fashion-mnist": 2000,
}
PARTIES = {"breast-cancer": 6}  # its own are 2, and fedvs needs 3
SIZES = ("width", "degree", "batch", "rounds", "sum_budget")


def measured(name: str, seed: int, **options: object) -> dict[str, object]:
    """Sizes, released equations, steps and test accuracy of one run of fedvs."""
    data = load_dataset(name, parties=PARTIES.get(name), seed=seed)
    if SETS[name] is not None:
        data = data.subset(SETS[name], data.test_rows)
    run = svfl.run("fedvs", data, seed=seed, conditions="none", segments=1, **options)
    summary, config = run.summary(), run.protocol.config
    released = summary["released"]
    return {
        **{key: getattr(config, key) for key in SIZES},
        **{key: released[key] for key in ("equations", "unknowns", "rank")},
        "steps": len(run.history),
        "accuracy": summary["test_accuracy"],
    }


def interval(values: list[float]) -> list[float]:
    """Mean and half-width of the 95 % t interval of some values, in per cent."""
    return [round(100 * one, 2) for one in mean_interval(values)]


def main() -> None:
    """Run the data sets named on the command line, by default all."""
    content = json.loads(OUT.read_text()) if OUT.exists() else {"sets": {}}
    for name in sys.argv[1:] or SETS:
        ours = [measured(name, seed) for seed in SEEDS]
        paper = [measured(name, seed, paper=True) for seed in SEEDS]
        accuracy = [[float(str(one["accuracy"])) for one in runs] for runs in (ours, paper)]
        content["sets"][name] = {
            "rows": SETS[name],
            "ours": ours[0] | {"accuracy": interval(accuracy[0])},
            "paper": paper[0] | {"accuracy": interval(accuracy[1])},
            "difference": interval(list(np.subtract(*accuracy))),
        }
        content |= {"seeds": len(SEEDS), "machine": describe_machine(), "commit": commit()}
        OUT.write_text(json.dumps(content, indent=1) + "\n")
        print(name, content["sets"][name], flush=True)


if __name__ == "__main__":
    main()
