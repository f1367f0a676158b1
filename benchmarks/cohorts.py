"""Cost of cohorts to FedVS under the paper's delays: sharers lost, and accuracy at equal time.

Digits with 10 parties, of which the last five straggle as in FedVS, section 6.2, with a
`share_timeout`; K = T = 1, three seeds. "last" has the stragglers as the paper's pattern does,
neighbours; "every other" deals them out, so that every cohort has some. Without a share_timeout all
share in every round, and cohorts change nothing.

    python benchmarks/cohorts.py

writes benchmarks/results/fedvs/cohorts.json.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

import securevfl as svfl
from securevfl.engine.conditions import Conditions, paper

RESULTS = Path(__file__).parent / "results" / "fedvs" / "cohorts.json"
PARTIES, BATCH, SEEDS = 10, 128, 3
TIMES = (20, 40)  # virtual seconds
OPTIONS = {"width": 64, "batch": BATCH, "segments": 1, "rounds": 100_000}
PLACES = {"last": range(PARTIES), "every other": (0, 5, 1, 6, 2, 7, 3, 8, 4, 9)}


def conditions(place: str) -> Conditions:
    """The paper's delays, with the stragglers where they are to be."""
    made = paper(PARTIES, batch_rows=BATCH)
    return dataclasses.replace(made, uploads=tuple(made.uploads[n] for n in PLACES[place]))


def measured(place: str, timeout: float | None, cohorts: int | None, seed: int) -> dict[str, Any]:
    """One run: rounds, sharers and accuracy by virtual time."""
    options: dict[str, Any] = {**OPTIONS, "cohorts": cohorts}
    if timeout is not None:
        options |= {"share_timeout": timeout, "max_attempts": 1000}
    run = svfl.run(
        *("fedvs", svfl.load_dataset("digits", parties=PARTIES)),
        until=float(TIMES[-1]),
        eval_seconds=10.0,
        conditions=conditions(place),
        sealed=False,
        seed=seed,
        **options,
    )
    steps = [row for row in run.history if "sharers" in row]
    at = {}
    for time in TIMES:
        known = [row for row in run.history if "accuracy" in row and row["time"] <= time]
        at[str(time)] = 100 * known[-1]["accuracy"] if known else None
    given_up = run.summary()["given_up"]
    return {
        "steps": len(steps),
        "given_up": given_up,
        "sharers": float(np.mean([row["sharers"] for row in steps])) if steps else 0.0,
        "accuracy": at,
    }


def main() -> None:
    """Measure every cell, and write the means over seeds."""
    cells = []
    for place in PLACES:
        for timeout in (None, 0.5, 1.0):
            for cohorts in (0, 2, 3) if timeout else (0,):
                runs = [measured(place, timeout, cohorts, seed) for seed in range(SEEDS)]
                cell = {"stragglers": place, "share_timeout": timeout, "cohorts": cohorts}
                for name in ("steps", "given_up", "sharers"):
                    cell[name] = round(float(np.mean([run[name] for run in runs])), 2)
                for time in map(str, TIMES):
                    scores = [run["accuracy"][time] for run in runs]
                    cell[f"accuracy at {time} s"] = (
                        None if None in scores else round(float(np.mean(scores)), 1)
                    )
                cells.append(cell)
                print(cell, flush=True)
    settings = {"data": "digits", "parties": PARTIES, "seeds": SEEDS, **OPTIONS}
    del settings["rounds"]
    RESULTS.write_text(json.dumps({**settings, "cells": cells}, indent=1) + "\n")


if __name__ == "__main__":
    main()
