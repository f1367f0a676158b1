"""Columns that the server finds in sums, with nothing known: ``python benchmarks/sums.py``.

- squares: both methods with coded sums at the options below, on five sets, K = 1 and 2;
- others: rows by other rows of the population and their labels, D = 1 and 2;
- short: the columns of wine from c sums of each row, c below the rank of the space;

Writes benchmarks/results/privacy/sums.json after each part; words name the parts to run.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.audit.attack_matrix.on_spans import other_rows, squares
from securevfl.audit.attack_matrix.setting import AttackCase, AttackSettings
from securevfl.audit.attacks.outcome import NoView
from securevfl.audit.attacks.short_span import filled_span
from securevfl.audit.attacks.squares import MISFIT, columns_of_span, likenesses
from securevfl.data.dataset import VerticalDataset
from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError
from securevfl.machine import commit, describe_machine
from securevfl.models.polynomial_network import expand
from securevfl.runs.threads import one_thread
from securevfl.studies.compare import comparison

OUT = Path(__file__).parent / "results" / "privacy" / "sums.json"
SEEDS = 5
PARTIES = {"wine": 5, "breast-cancer": 6, "digits": 8, "credit-card": 11, "handwritten": 6}
OPTIONS = {"width": 64, "batch": 128}
METHODS = ("fedvs", "coded_split")
HELPED = {"wine": 2, "breast-cancer": 1, "handwritten": 1}  # holders that K = 2 needs besides
Row = dict[str, Any]


def case(name: str, method: str, seed: int, **options: Any) -> AttackCase:
    """A method on a set; wine is scikit-learn's own table."""
    known = "breast-cancer" if name == "wine" else name
    words = ",".join(f"{k}={v}" for k, v in {**OPTIONS, **options}.items())
    source = DataSource(known, {"parties": 6 if name == "wine" else PARTIES[name]})
    job = comparison(
        [f"{method}:{words}"], source, options={}, seeds=[seed], conditions="none"
    ).jobs[0]
    found = AttackCase(job, AttackSettings())
    if name == "wine":
        from sklearn.datasets import load_wine

        found.data = VerticalDataset.from_sklearn(load_wine(), parties=PARTIES[name], seed=seed)
    return found


def attacked(attempt: Callable[[AttackCase], Any], one: AttackCase, **names: Any) -> Row:
    """Line of a table: what an attempt gave."""
    start = time.process_time()
    one.begin(attempt.__name__)
    with one_thread():
        found = attempt(one)
    row = {**names, "seconds": round(time.process_time() - start, 1)}
    if isinstance(found, NoView):
        return row | {"success": None, "note": found.reason}
    row |= {"success": round(found.success, 4), "chance": round(found.chance, 4)}
    return row | counted(found.note)


def counted(note: str) -> Row:
    """Numbers of a note of `judge`, which are much shorter than the note."""
    words = re.search(
        r"of (\d+) columns (\d+) above 0.999, (\d+) above 0.99, (\d+) above 0.95; mean (\S+); "
        r"elements within 0.001: (\S+); (\d+) guesses; rank (\d+) by (\d+) views of (\d+) rows",
        note,
    )
    if words is None:
        return {"note": note}
    names = ("columns", "above_999", "above_99", "above_95", "mean", "elements", "guesses", "rank",
             "views", "rows")  # fmt: skip
    return {n: json.loads(word) for n, word in zip(names, words.groups(), strict=True)}


def columns_by_squares(name: str, methods: list[str]) -> list[Row]:
    """Default options of both methods."""
    made = []
    for method in methods:
        for K in (1, 2):
            options: Row = {"segments": K, "degree": 2}
            if method == "coded_split" and K == 2 and name in HELPED:
                options["helpers"] = HELPED[name]
            for seed in range(SEEDS):
                row = attacked(squares, case(name, method, seed, **options),
                               data=name, method=method, K=K, seed=seed)  # fmt: skip
                made.append(row)
                print(row, flush=True)
                if row["success"] is None and seed == 0:
                    break  # no seed changes the count of equations
    return made


def rows_by_others(name: str) -> list[Row]:
    """X X^T of coded_split, and 200 other rows with their labels."""
    made = []
    for degree in (1, 2):
        for seed in range(SEEDS):
            one = case(name, "coded_split", seed, degree=degree)
            row = attacked(other_rows, one, data=name, degree=degree, seed=seed)
            made.append(row)
            print(row, flush=True)
    return made


def wine() -> np.ndarray:
    """All 178 rows, min-max scaled."""
    from sklearn.datasets import load_wine

    X = load_wine().data
    scaled: np.ndarray = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    return scaled


def short_spans(widths: tuple[int, ...] = (24, 22, 20, 13)) -> list[Row]:
    """Columns from c sums of every row by random weights, and from columns of noise."""
    X, made = wine(), []
    d = X.shape[1]
    for c in widths:
        for seed in range(3):
            stream = np.random.Generator(np.random.Philox(seed))
            U = expand(X, 2) @ stream.normal(size=(2 * d + 1, c))
            basis = np.linalg.svd(U - U.mean(axis=0), full_matrices=False)[0]
            start = time.process_time()
            near = columns_of_span(basis, stream)
            filled = filled_span(basis, 2 * d - c, d, stream, near=near)
            found = np.zeros((len(X), 0))
            if filled is not None:
                found = columns_of_span(filled, stream).within(MISFIT)
            like, alone = likenesses(found, X), likenesses(near.values[:, :d], X)
            blind = likenesses(basis @ stream.normal(size=(c, d)), X)
            counts = {
                name: int((found > 0.95).sum())
                for name, found in (("above", like), ("near_alone", alone), ("random", blind))
            }
            seconds = round(time.process_time() - start, 1)
            made.append({"data": "wine", "c": c, "seed": seed, **counts, "seconds": seconds})
            print(made[-1], flush=True)
    return made


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["squares", "others", "short"])
    parser.add_argument("--data", nargs="*", default=list(PARTIES))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    asked = parser.parse_args()
    for part in asked.parts:
        if part not in ("squares", "others", "short"):
            raise ConfigurationError(f"sums: no part {part!r}; there are squares, others, short")
        if part == "short":
            keep(part, short_spans())
            continue
        for name in asked.data:
            others = part == "others"
            rows = rows_by_others(name) if others else columns_by_squares(name, asked.methods)
            keep(part, rows)


def keep(part: str, rows: list[Row]) -> None:
    """Write the rows of a part and a set in the place of those that are there."""
    content = json.loads(OUT.read_text()) if OUT.exists() else {}
    new = {(row["data"], row.get("method")) for row in rows}
    others = [row for row in content.get(part, []) if (row["data"], row.get("method")) not in new]
    content |= {part: others + rows}
    content |= {"options": OPTIONS, "commit": commit(), "machine": describe_machine()}
    lines = (f" {json.dumps(k)}: " + _lines(v) for k, v in content.items())
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _lines(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"


if __name__ == "__main__":
    main()
