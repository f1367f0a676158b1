"""Columns that a server finds from sums, knowing no row: ``python benchmarks/sums.py``.

- squares: attack by squares on two methods with coded sums, at the paper's sizes, K = 1 and 2;
- defaults: the same at default options, with the budget of sums, in a whole run;
- others: rows by inner products and other rows with labels, at the paper's width;
- others_defaults: the same at default options, with the budget of sums;
- epochs: completion of the space of columns over several epochs of reshuffled batches;
- short: columns of wine from c sums of each row, with c below the rank of the space.

Each result is written to benchmarks/results/privacy/sums.json, and a stopped command continues. The
parts named on the command line are run, by default all.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.audit.attack_matrix.on_spans import other_rows, squares, views_of
from securevfl.audit.attack_matrix.setting import AttackCase, AttackSettings
from securevfl.audit.attacks.outcome import NoView
from securevfl.audit.attacks.short_span import filled_span
from securevfl.audit.attacks.squares import MISFIT, Span, columns_of_span, judge, likenesses
from securevfl.data.dataset import VerticalDataset
from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError
from securevfl.machine import commit, describe_machine
from securevfl.models.polynomial_network import expand
from securevfl.runs.threads import one_thread
from securevfl.studies.compare import comparison
from securevfl.writing import write_durably

OUT = Path(__file__).parent / "results" / "privacy" / "sums.json"
SEEDS = 5
PARTIES = {"wine": 5, "breast-cancer": 6, "digits": 8, "credit-card": 11, "handwritten": 6}
OPTIONS = {"width": 64, "batch": 128}
ROWS = {"credit-card": 6000}  # training rows, all where none are named
JOINED = {"credit-card": (2400, 48)}  # rows and rounds where views must be put together
METHODS = ("fedvs", "coded_split")
SEARCHED = 300  # dimensions in which directions are searched, at most
HELPED = {"wine": 2, "breast-cancer": 1, "handwritten": 1}  # holders that K = 2 needs besides
Row = dict[str, Any]


def case(
    name: str, method: str, seed: int, settings: AttackSettings | None = None, **options: Any
) -> AttackCase:
    """Attack case of a method on a data set ("wine" is scikit-learn's), without delays."""
    known = "breast-cancer" if name == "wine" else name
    words = ",".join(f"{k}={str(v).lower()}" for k, v in options.items())
    source = DataSource(known, {"parties": 6 if name == "wine" else PARTIES[name]})
    label = f"{method}:{words}" if words else method
    job = comparison([label], source, options={}, seeds=[seed], conditions="none").jobs[0]
    found = AttackCase(job, settings or AttackSettings())
    if name == "wine":
        from sklearn.datasets import load_wine

        X, y = load_wine(return_X_y=True)
        found.data = VerticalDataset.from_numpy(X, y, parties=PARTIES[name], seed=seed)
    return found


def attacked(attempt: Callable[[AttackCase], Any], one: AttackCase, **names: Any) -> Row:
    """Result row of an attack `attempt`: success, chance, CPU seconds, and `counted`."""
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
    """Numbers in a note of `judge` by name; other notes are kept as text."""
    words = re.search(
        r"of (\d+) columns (\d+) above 0.999, (\d+) above 0.99, (\d+) above 0.95; mean (\S+); "
        r"elements within 0.001: (\S+); (\d+) guesses; rank (\d+) by (\d+) views of (\d+) rows",
        note,
    )
    if words is None:
        return {"note": note}
    names = ("columns", "above_999", "above_99", "above_95", "mean", "elements", "guesses", "rank",
             "views", "rows")  # fmt: skip
    found = {n: json.loads(word) for n, word in zip(names, words.groups(), strict=True)}
    return found | ({"searched": False} if "no direction was searched" in note else {})


def settings(name: str, rounds: int, rows: int | None = None) -> AttackSettings:
    """Attack settings: training rows of a data set, and number of first rounds to read."""
    return AttackSettings(rows=rows or ROWS.get(name), watched=rounds)


def cells(
    name: str, methods: list[str], degree: int | None, seeds: int
) -> Iterator[tuple[Row, Row]]:
    """Names and options of the runs on a data set: methods, K = 1 and 2, seeds."""
    for method in methods:
        for K in (1, 2):
            options: Row = {"segments": K}
            if degree:
                options |= {"degree": degree, **OPTIONS}
            if method == "coded_split" and K == 2 and name in HELPED:
                options["helpers"] = HELPED[name]
            for seed in range(seeds):
                yield {"data": name, "method": method, "K": K, "seed": seed}, options


def columns_by_squares(name: str, methods: list[str], seeds: int) -> None:
    """Part squares: the attack `squares` on runs at the FedVS paper's sizes (`OPTIONS`), D = 2."""
    rows, rounds = JOINED.get(name, (None, 12))
    for names, options in cells(name, methods, 2, seeds):
        chosen = settings(name, rounds, rows)
        make = functools.partial(case, name, names["method"], names["seed"], chosen, **options)
        once("squares", names, make)


def columns_at_defaults(name: str, methods: list[str], seeds: int) -> None:
    """Part defaults: squares in a whole run, and directions in batches of all rows.

    It also adds ``standing``: directions in default batches, from `standing_still`.
    """
    for names, options in cells(name, methods, None, seeds):
        one = functools.partial(case, name, names["method"], names["seed"], **options)
        once("defaults", names, functools.partial(one, settings(name, 500)))
        once("directions", names, functools.partial(one, settings(name, 12)), near_directions)
        once("standing", names, functools.partial(one, settings(name, 500)), standing_still)


def near_directions(one: AttackCase) -> Any:
    """Result of `directions` on sums of whole batches, in a run that its budget ends."""
    found = one.sums
    return found if isinstance(found, NoView) else directions(one, *found)


def standing_still(one: AttackCase) -> Any:
    """Result of `directions` on a run's own sums, as if weights did not change in an epoch."""
    views = views_of(one.watched)
    if isinstance(views, NoView):
        return views
    X = np.concatenate(one.data.train, axis=1).astype(np.float64)
    of_rows: dict[int, list[np.ndarray]] = {}
    for view in views:
        for row, values in zip(view.rows, view.values, strict=True):
            of_rows.setdefault(int(row), []).append(values)
    visits = max(len(own) for own in of_rows.values())
    rows = [row for row, own in of_rows.items() if len(own) == visits]
    return directions(one, np.stack([np.concatenate(of_rows[r]) for r in rows]), X[rows])


def directions(one: AttackCase, joint: np.ndarray, columns: np.ndarray) -> Any:
    """Success of directions with squares nearest to the span of sums, and of the principal axes.

    `joint` has the sums, (M, c), `columns` the true columns. Above `SEARCHED` dimensions only the
    axes are tried.
    """
    basis, lengths, _ = np.linalg.svd(joint - joint.mean(axis=0), full_matrices=False)
    basis = basis[:, lengths > 1e-9 * lengths[0]]
    few = one.stream.permutation(len(basis))[:1000]
    span = Span(few, np.linalg.qr(basis[few] - basis[few].mean(axis=0))[0], 1)
    if span.rank > SEARCHED:  # a start takes minutes there
        return judge(basis[few], span, columns[few], one.stream, "; no direction was searched")
    near = columns_of_span(span.basis, one.stream).values[:, : columns.shape[1]]
    guesses = np.concatenate([near, basis[few]], axis=1)
    return judge(guesses, span, columns[few], one.stream, "")


def once(
    part: str, names: Row, make: Callable[[], AttackCase], attempt: Callable[..., Any] = squares
) -> None:
    """Add the result of an attack to a part, unless it is stored.

    An attack that the number of equations rules out is stored for one seed only.
    """
    rows = stored().get(part, [])
    group = [r for r in rows if all(r[k] == v for k, v in names.items() if k != "seed")]
    if any(r["seed"] == names["seed"] or r["success"] is None for r in group):
        return
    row = attacked(attempt, make(), **names)
    print(part, row, flush=True)
    keep(part, row)


def rows_by_others(name: str) -> None:
    """Part others: coded_split's inner products, with the test rows and their labels."""
    for degree in (1, 2):
        for seed in range(SEEDS):
            names = {"data": name, "degree": degree, "seed": seed}
            chosen = AttackSettings(rows=ROWS.get(name))
            make = functools.partial(
                case, name, "coded_split", seed, chosen, degree=degree, **OPTIONS
            )
            once("others", names, make, other_rows)


def rows_by_others_at_defaults(name: str) -> None:
    """Part others_defaults: both methods; FedVS by SGD, because Adam is not linear."""
    for method in METHODS:
        more = {"optimizer": "sgd"} if method == "fedvs" else {}
        for seed in range(SEEDS):
            names = {"data": name, "method": method, "seed": seed}
            make = functools.partial(
                case, name, method, seed, settings(name, 12), segments=1, **more
            )
            once("others_defaults", names, make, other_rows)


def over_epochs(name: str, width: int, batch: int, epochs: tuple[int, ...]) -> None:
    """Part epochs: `completed` on a data set after each number of epochs."""
    options = {"segments": 1, "degree": 2, "width": width, "batch": batch}
    for seed in range(3):
        for count in epochs:
            names = {"data": name, "h": width, "batch": batch, "epochs": count, "seed": seed}
            if any(all(r[k] == v for k, v in names.items()) for r in stored().get("epochs", [])):
                continue
            one = case(name, "fedvs", seed, **options)
            layout = one.protocol().train_layout()
            chosen = settings(name, count * layout.per_epoch)
            start = time.process_time()
            with one_thread():
                row = names | completed(case(name, "fedvs", seed, chosen, **options))
            keep("epochs", row | {"seconds": round(time.process_time() - start, 1)})
            print("epochs", stored()["epochs"][-1], flush=True)


def completed(one: AttackCase) -> Row:
    """Fit of the space of columns and squares to all sums, by alternating least squares.

    The model is V_t = Z_t W_t: Z has a row for each training row, W_t is the weights of round t;
    the rank is assumed known. ``outside`` is the fraction of the columns' variance outside the
    space.
    """
    views: Any = views_of(one.watched)
    told = one.protocol().released()
    assert told is not None
    assert told.rank is not None
    r, X = told.rank, np.concatenate(one.data.train, axis=1).astype(np.float64)
    member = np.zeros((len(X), len(views)))
    for t, view in enumerate(views):
        member[view.rows, t] = 1
    used = np.flatnonzero(member.sum(axis=1) * told.width >= r)
    counted = sum((len(v.rows) - r) * told.width for v in views)
    facts = {"rank": r, "rows": len(used), "net_equations": counted, "of": len(X) * r - r * r}
    Z = np.linalg.qr(one.stream.normal(size=(len(X), r)))[0]
    if len(used) < len(X) // 2 or counted <= 0:
        return facts | {"outside": None, "chance": round(1 - r / len(X), 3)}
    for _ in range(300):
        W = [fitted(Z[v.rows], v.values) for v in views]
        grams = np.stack([(w @ w.T).ravel() for w in W])
        normal = (member @ grams).reshape(len(X), r, r)
        right = np.zeros((len(X), r))
        for view, w in zip(views, W, strict=True):
            right[view.rows] += view.values @ w.T
        ridge = 1e-9 * np.trace(normal, axis1=1, axis2=2)[:, None, None] / r
        Z = np.linalg.solve(normal + (ridge + 1e-300) * np.eye(r), right[..., None])[..., 0]
        Z = np.linalg.qr(Z)[0]
    rest = [v.values - Z[v.rows] @ fitted(Z[v.rows], v.values) for v in views]
    misfit = sum((e**2).sum() for e in rest) / sum((v.values**2).sum() for v in views)
    truth = X[used] - X[used].mean(axis=0)
    truth = truth[:, truth.std(axis=0) > 0] / truth.std(axis=0)[truth.std(axis=0) > 0]
    basis = np.linalg.qr(Z[used] - Z[used].mean(axis=0))[0]
    outside = ((truth - basis @ (basis.T @ truth)) ** 2).mean(axis=0)
    found = columns_of_span(basis, one.stream).within(1e-2)
    return facts | {
        "misfit": float(f"{np.sqrt(misfit):.1e}"),
        "outside": round(float(outside.mean()), 4),
        "chance": round(1 - r / len(used), 3),
        "columns": truth.shape[1],
        "above_95": int((likenesses(found, truth) > 0.95).sum()),
        "guesses": found.shape[1],
    }


def fitted(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Least-squares weights from `rows` to `values`, by normal equations with a small ridge."""
    gram = rows.T @ rows
    ridge = 1e-10 * np.trace(gram) / len(gram)
    found: np.ndarray = np.linalg.solve(gram + ridge * np.eye(len(gram)), rows.T @ values)
    return found


def wine() -> np.ndarray:
    """Columns of the wine data, (178, 13), scaled to [0, 1]."""
    from sklearn.datasets import load_wine

    X = load_wine().data
    scaled: np.ndarray = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    return scaled


def short_spans() -> None:
    """Part short: columns found from c sums of each row with random weights."""
    X = wine()
    d = X.shape[1]
    for c in (24, 22, 20, 13):
        for seed in range(3):
            if any((r["c"], r["seed"]) == (c, seed) for r in stored().get("short", [])):
                continue
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
            row = {"data": "wine", "c": c, "seed": seed, **counts, "seconds": seconds}
            print("short", row, flush=True)
            keep("short", row)


PARTS = ("squares", "defaults", "others", "others_defaults", "epochs", "short")


def main() -> None:
    """Run the parts named on the command line, by default all; ConfigurationError for others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--data", nargs="*", default=list(PARTIES))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of squares and defaults")
    asked = parser.parse_args()
    for part in asked.parts:
        if part not in PARTS:
            raise ConfigurationError(f"sums: no part {part!r}; there are {', '.join(PARTS)}")
        if part == "short":
            short_spans()
        if part == "epochs":
            over_epochs("wine", 16, 64, (6, 12))
            over_epochs("breast-cancer", 32, 128, (12,))
            over_epochs("digits", 64, 256, (6,))
            over_epochs("digits", 64, 128, (3, 6))
        for name in asked.data:
            if part == "squares":
                columns_by_squares(name, asked.methods, asked.seeds)
            elif part == "defaults":
                columns_at_defaults(name, asked.methods, asked.seeds)
            elif part == "others":
                rows_by_others(name)
            elif part == "others_defaults":
                rows_by_others_at_defaults(name)


def stored() -> dict[str, Any]:
    """Content of the file of results; empty if there is none."""
    found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    return found


def made_here(content: dict[str, Any], row: Row) -> Row:
    """The row, with commit and machine if they differ from those of the whole content."""
    made = {"commit": commit(), "machine": describe_machine()}
    for name, own in made.items():
        content.setdefault(name, own)
    return row | {name: own for name, own in made.items() if content[name] != own}


def keep(part: str, row: Row) -> None:
    """Add a row to a part of the file of results."""
    content = stored()
    content[part] = [*content.get(part, []), made_here(content, row)]
    content |= {"options": OPTIONS}
    lines = (f" {json.dumps(k)}: " + _lines(v) for k, v in content.items())
    write_durably(OUT, "{\n" + ",\n".join(lines) + "\n}\n")


def _lines(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"


if __name__ == "__main__":
    main()
