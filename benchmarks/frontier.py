"""Accuracy against the sums released about a row: benchmarks/results/sums/frontier-NAME.json.

In ``fedvs``, ``coded_split`` and ``secagg_split`` the server gets h equations about a row at each
use of it, so E h after E epochs; the unknowns of a row are the dimensions d of all parties'
columns. For each width h and degree D, with and without a secret rotation of the columns, learning
rates, batch size and the clients' optimiser are chosen on held-back training rows. The choice is
then trained five times and evaluated on test rows; a training gives a curve over all E.

    python benchmarks/frontier.py digits breast-cancer
    python benchmarks/frontier.py digits breast-cancer --attack
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sums_training import Rates, expanded, many, together

from securevfl.audit.attacks.squares import MISFIT, columns_of_span
from securevfl.data import load_dataset
from securevfl.data.dataset import VerticalDataset

RESULTS = Path(__file__).parent / "results" / "sums"
WIDTHS = (2, 4, 8, 16, 64)
SEEDS = (1, 2, 3, 4, 5)
ADAM = [(0.003, 0.03), (0.01, 0.1), (0.01, 0.01)]
SGD = [(0.01, 16.0)]  # the server's model by Adam
MOST_SEARCHED, STARTS, ROWS = 62, 100, 250  # dimensions, starts and rows of the attack
ANCHORS = (0.25, 0.5, 1, 2, 4)  # equations released a row / d


@dataclass(frozen=True)
class Set:
    """Settings for a data set."""

    rows: int | None = None  # training rows; all if None
    most: int = 10**6  # epochs at most
    tuning: tuple[int, ...] = (101,)
    batches: tuple[int, ...] = (32, 128)
    beyond: float = 2.0  # largest number of equations a row / d
    widths: tuple[int, ...] = WIDTHS


SETS = {
    "digits": Set(batches=(32,)),
    "breast-cancer": Set(tuning=(101, 102, 103), beyond=4.0, widths=(1, *WIDTHS)),
    "credit-card": Set(rows=3000, widths=(1, *WIDTHS), batches=(32,)),
    "handwritten": Set(most=10, batches=(32,)),
    "fashion-mnist": Set(rows=2000, most=8, batches=(64,)),
}


def rotated(data: VerticalDataset, seed: int) -> VerticalDataset:
    """Data set in which each party's columns are rotated secretly and scaled to [0, 1] again."""
    rng, train, test = np.random.default_rng([seed, 77]), [], []
    for a, b in zip(data.train, data.test, strict=True):
        mean, deviation = a.mean(0, dtype=float), a.std(0, dtype=float)
        deviation[deviation == 0] = 1
        Q = np.linalg.qr(rng.normal(size=(a.shape[1],) * 2))[0]
        a, b = (a - mean) / deviation @ Q, (b - mean) / deviation @ Q
        low, high = a.min(0), a.max(0)
        high[high == low] += 1
        train.append(((a - low) / (high - low)).astype(np.float32))
        test.append(np.clip((b - low) / (high - low), 0, 1).astype(np.float32))
    return replace(data, train=tuple(train), test=tuple(test))


def unknowns(data: VerticalDataset) -> dict[str, int]:
    """Number of columns of all parties, their rank d, and the ranks r1, r2 of expanded columns."""
    X = np.concatenate(data.train, 1).astype(float)[:6000]
    one = np.ones((len(X), 1))
    return {
        "columns": X.shape[1],
        "d": int(np.linalg.matrix_rank(X - X.mean(0))),
        "r1": int(np.linalg.matrix_rank(np.c_[X, one])),
        "r2": int(np.linalg.matrix_rank(np.c_[X, X * X, one])),
    }


def epochs_of(width: int, d: int, use: Set) -> list[int]:
    """Epochs at which a line has points: those with `ANCHORS` times d equations, if allowed."""
    wanted = [math.floor(part * d / width) for part in ANCHORS if part <= use.beyond]
    if wanted[-1] > use.most:  # the epochs end before: some more points
        wanted += [1, use.most // 4, use.most // 2]
    return sorted({min(max(one, 1), use.most) for one in wanted})


def tune(
    data: VerticalDataset, use: Set, points: Sequence[int], rotation: bool, **line: Any
) -> list[Any]:
    """Candidates of batch, optimiser and rates, each with accuracy and loss on held-back rows.

    ``validation`` has them for each number of epochs in `points`.
    """
    sets = [data.hold_back(0.2, seed=seed) for seed in use.tuning]
    least = min(one.rows for one in sets), min(one.test_rows for one in sets)
    sets = [one.subset(*least) for one in sets]  # the last group may be shorter than three rows
    if rotation:
        sets = [rotated(one, seed) for one, seed in zip(sets, use.tuning, strict=True)]
    tried = []
    for batch in use.batches:
        for rates in ([Rates(a, "adam", b) for a, b in ADAM], [Rates(a, "sgd", b) for a, b in SGD]):
            curve = list(many(sets, points[-1], seeds=use.tuning, rates=rates, batch=batch, **line))
            for n, one in enumerate(rates):
                means = {E: [curve[E - 1][k][:, n].mean() for k in (0, 1)] for E in points}
                found = {E: [round(float(v), 4) for v in pair] for E, pair in means.items()}
                tried.append({"batch": batch, **asdict(one), "validation": found})
    return tried


def best(tried: Sequence[dict[str, Any]], E: int) -> dict[str, Any]:
    """Candidate with the highest accuracy on held-back rows after E epochs; ties by lower loss."""
    return max(tried, key=lambda one: (one["validation"][E][0], -one["validation"][E][1]))


def test(
    data: VerticalDataset, chosen: dict[str, Any], epochs: int, rotation: bool, **line: Any
) -> np.ndarray:
    """Accuracy on test rows after each epoch, (epochs, seeds)."""
    sets = [rotated(data, seed) if rotation else data for seed in SEEDS]
    rates = [Rates(chosen["lr"], chosen["client"], chosen["client_lr"])]
    curve = many(sets, epochs, seeds=SEEDS, rates=rates, batch=chosen["batch"], **line)
    return np.array([accuracy[:, 0] for accuracy, _ in curve])


def line_of(data: VerticalDataset, use: Set, d: int, rotation: bool, **line: int) -> dict[str, Any]:
    """Line of the picture: points, choices, and test accuracies by epochs and seed."""
    points = epochs_of(line["width"], d, use)
    tried = tune(data, use, points, rotation, **line)
    chosen = [best(tried, E) for E in points]
    tested: dict[int, Any] = {}
    for one in {id(one): one for one in chosen}.values():
        mine = [E for E, other in zip(points, chosen, strict=True) if other is one]
        curve = test(data, one, max(mine), rotation, **line)
        tested |= {E: [round(float(v), 4) for v in curve[E - 1]] for E in mine}
    return {
        **line,
        "rotation": rotation,
        "chosen": [tried.index(one) for one in chosen],
        "test": {E: tested[E] for E in points},
        "tried": tried,
    }


def reference(data: VerticalDataset) -> dict[str, Any]:
    """Test accuracy at the former defaults: h = 64, D = 2, 500 rounds of 128 rows, Adam at 0.01."""
    per_epoch = max(1, data.rows // 128)
    E = max(1, round(500 / per_epoch))
    chosen = {"lr": 0.01, "client": "adam", "client_lr": 0.01, "batch": 128}
    found = test(data, chosen, E, False, width=64, degree=2)
    return {"epochs": E, "test": [round(float(v), 4) for v in found[-1]]}


def study(name: str) -> Iterator[dict[str, Any]]:
    """Compute the lines that a data set's file lacks; yields the file's content after each."""
    use = SETS[name]
    data = load_dataset(name)
    path = RESULTS / f"frontier-{name}.json"
    content: dict[str, Any] = {"unknowns": unknowns(data), "parties": data.parties}
    data = data if use.rows is None else data.subset(use.rows)
    content |= {"rows": data.rows, "test_rows": data.test_rows, "lines": []}
    if path.exists():  # goes on where it ended
        content = json.loads(path.read_text())
    else:
        content["reference"] = reference(data)
    done = [(one["degree"], one["rotation"], one["width"]) for one in content["lines"]]
    for degree, rotation, width in itertools.product((2, 1), (False, True), use.widths):
        if (degree, rotation, width) in done:
            continue
        start, d = time.process_time(), content["unknowns"]["d"]
        one = line_of(data, use, d, rotation, width=width, degree=degree)
        one["seconds"] = round(time.process_time() - start)
        content["lines"].append(one)
        means = {E: round(float(np.mean(v)), 3) for E, v in one["test"].items()}
        print(name, width, degree, rotation, one["seconds"], means, flush=True)
        yield content


# -- what an attack gets at the points -------------------------------------------------------


def released(
    data: VerticalDataset, chosen: dict[str, Any], epochs: int, rows: int, **line: Any
) -> np.ndarray:
    """Sums of the first `rows` rows under the models at the end of each epoch, (rows, E h).

    In a run the rows of an epoch are seen under different models. Here all are under the same
    model, which tells a server more, because sums of different rows then fit together.
    """
    client = {"name": chosen["client"], "lr": chosen["client_lr"], "momentum": 0.0}
    options = {**line, "batch": chosen["batch"], "lr": chosen["lr"]}
    run = together(data, epochs, seed=SEEDS[0], client=client, **options)
    powers = expanded(tuple(part[:rows] for part in data.train), line["degree"]).astype(float)
    return np.concatenate([powers @ weights for _, weights in run], axis=1)


def attacked(raw: np.ndarray, view: np.ndarray) -> dict[str, Any]:
    """Number of columns that `columns_of_span` finds in the space of the sums, and its rank.

    ``explained`` is the median part of a column's variance in that space.

    Parameters
    ----------
    raw : ndarray, (rows, columns)
        True columns.
    view : ndarray, (rows, E h)
        Sums, from `released`.
    """
    u, s, _ = np.linalg.svd(view - view.mean(0), full_matrices=False)
    space = u[:, s > s[0] * 1e-9]
    own = (raw - raw.mean(0))[:, raw.std(0) > 0]
    own /= np.sqrt((own**2).sum(0))
    explained = round(float(np.median(((space.T @ own) ** 2).sum(0))), 3)
    found: dict[str, Any] = {"rank": space.shape[1] + 1, "explained": explained}
    if 1 < space.shape[1] <= MOST_SEARCHED:
        guesses = columns_of_span(space, np.random.default_rng(0), starts=STARTS).within(MISFIT)
        guesses /= np.sqrt((guesses**2).sum(0))
        best = np.abs(guesses.T @ own).max(0, initial=0)
        found |= {f"above {c}": int((best > c).sum()) for c in (0.95, 0.99)}
    return found


def attack(name: str) -> None:
    """Add the results of `attacked` at each point to the lines in a data set's file."""
    path = RESULTS / f"frontier-{name}.json"
    content = json.loads(path.read_text())
    data = load_dataset(name)
    data = data.subset(content["rows"]) if content["rows"] < data.rows else data
    for line in content["lines"]:
        options = {"width": line["width"], "degree": line["degree"]}
        own = rotated(data, SEEDS[0]) if line["rotation"] else data
        raw = np.concatenate(data.train, 1)[:ROWS].astype(float)
        line["attack"] = {}
        for E, index in zip(line["test"], line["chosen"], strict=True):
            view = released(own, line["tried"][index], int(E), ROWS, **options)
            line["attack"][E] = attacked(raw, view)
            print(name, *options.values(), line["rotation"], E, line["attack"][E], flush=True)
        path.write_text(json.dumps(content) + "\n")


def main() -> None:
    """Compute lines, or attack them, for the data sets named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", choices=SETS)
    parser.add_argument("--attack", action="store_true", help="attack what stands there")
    import torch

    torch.set_num_threads(1)
    RESULTS.mkdir(parents=True, exist_ok=True)
    asked = parser.parse_args()
    for name in asked.sets:
        if asked.attack:
            attack(name)
            continue
        for content in study(name):
            (RESULTS / f"frontier-{name}.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
