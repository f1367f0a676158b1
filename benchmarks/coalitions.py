"""Information that each coalition gets from coded_split: ``python benchmarks/coalitions.py``.

- gram: inner products of rows that the server solves for, from 6 to 8 epochs in batches;
- rank: all inner products by rank, from batches of all rows; then rows and columns from them;
- independent: the same as rank, on independent synthetic columns;
- fedvs: the same attack against FedVS with SGD, whose sums are rounded;
- ten_rounds: that attack on breast-cancer at h = 64 after ten rounds, in two fields;
- holders: values that T, T + 1 and K + T holders decode from their shares;
- labels: attacks of clients on labels over many seeds, so that intervals are narrow.

The parts named on the command line are run, by default all. Each is written to
benchmarks/results/privacy/coalitions.json when it ends.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.audit.attack_matrix.observation import observe
from securevfl.audit.attack_matrix.observed_run import ObservedRun
from securevfl.audit.attack_matrix.run import AttackSettings, attack_matrix
from securevfl.audit.attack_matrix.server_steps import visits_of
from securevfl.audit.attacks.gram import Visit, gram_by_rank, rough_gram_by_rank
from securevfl.audit.attacks.outcome import NoView
from securevfl.audit.attacks.shares import known_combinations, recover_data, recover_model
from securevfl.data import load_dataset
from securevfl.data.dataset import VerticalDataset
from securevfl.data.source import DataSource
from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.field import PrimeField
from securevfl.machine import commit, describe_machine
from securevfl.models.polynomial_network import expand
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import simulate
from tests.audit.attacks.equations import exact_row_of_gram
from tests.audit.attacks.rotation import best_matches, independent_columns, rows_from_known

OUT = Path(__file__).parent / "results" / "privacy" / "coalitions.json"
P61 = PrimeField(2**61 - 1)
SEEDS = 3
EPOCHS = 10
WHOLE = {"rounds": EPOCHS, "client_lr": 64.0}  # of batches of all rows, whose steps are small
VICTIM = 0  # the owner whose shares are pooled
SAMPLED = 12  # rows for which equations are solved one by one
Row = dict[str, Any]


def seen(name: str, data: VerticalDataset, seed: int, **options: Any) -> ObservedRun:
    """Run of a protocol, recorded with the joint embeddings of all rounds; degree 1 by default."""
    cls = get_protocol(name)
    known = {"degree": 1, "lr": 0.01, **options}
    made = cls(make_config(cls, known), data, seed=seed)
    with one_thread():
        return observe(made, conditions=NONE, client=0, every=True)


def whole_rows(run: ObservedRun) -> np.ndarray:
    """Expanded columns of all clients, (M, columns), as whole multiples of 2^-data_bits."""
    protocol: Any = run.protocol
    columns = [expand(x.astype(np.float64), protocol.config.degree) for x in protocol.data.train]
    return np.floor(np.concatenate(columns, axis=1) * 2.0**protocol.config.data_bits + 0.5)


def visits(run: ObservedRun) -> list[Visit]:
    """Server's view of a run: decoded sums and dealt steps, batch by batch."""
    found = visits_of(run)
    assert not isinstance(found, NoView), found
    return found


def epoch_by_epoch() -> list[Row]:
    """Inner products of sampled rows with all rows, solved from sums in batches; 6 to 8 epochs.

    Each result counts the rows that were solved, and those that are exact.
    """
    made = []
    for seed in range(SEEDS):
        M, h, batch = 240, 40, 60
        data = load_dataset("breast-cancer", parties=6, seed=seed).subset(M, 20)
        run = seen("coded_split", data, seed, width=h, batch=batch, rounds=8 * M // batch)
        X, every = whole_rows(run), visits(run)
        chosen = np.random.Generator(np.random.Philox(seed)).permutation(M)[:SAMPLED]
        for epochs in (6, 7, 8):
            some = every[: epochs * M // batch]
            rows = {int(i): exact_row_of_gram(some, M, int(i), P61) for i in chosen}
            right = [i for i, r in rows.items() if r is not None and (r == X @ X[i]).all()]
            made.append({"data": "breast-cancer", "seed": seed, "M": M, "h": h, "batch": batch,
                         "epochs": epochs, "equations": (epochs - 1) * h, "tried": SAMPLED,
                         "solved": sum(r is not None for r in rows.values()),
                         "exact": len(right)})  # fmt: skip
            print(made[-1], flush=True)
    return made


RANKS = (("breast-cancer", 6, 16), ("digits", 8, 64))


def by_rank() -> list[Row]:
    """Inner products of all rows by their rank, on two data sets with batches of all rows.

    Results have the epochs needed, and the success of `_after`.
    """
    made = []
    for name, parties, h in RANKS:
        for seed in range(SEEDS):
            data = load_dataset(name, parties=parties, seed=seed)
            options = {"width": h, "batch": data.rows, **WHOLE}
            made.append(_by_rank(name, seen("coded_split", data, seed, **options), seed))
            print(made[-1], flush=True)
    return made


def _by_rank(name: str, run: ObservedRun, seed: int) -> Row:
    X, every, start = whole_rows(run), visits(run), time.process_time()
    grams = ((epochs, gram_by_rank(every[:epochs], P61)) for epochs in range(1, EPOCHS + 1))
    epochs, gram = next((e, gram) for e, gram in grams if gram is not None)
    rank = int(np.linalg.matrix_rank(X))
    exact = bool((gram == X @ X.T).all())
    real = gram * 4.0**-run.protocol.config.data_bits
    truth = X * 2.0**-run.protocol.config.data_bits
    seconds = time.process_time() - start
    raw = np.concatenate(run.protocol.data.train, axis=1)
    return {
        "data": name, "seed": seed, "rows": len(X), "columns": X.shape[1], "rank": rank,
        "h": run.protocol.config.width, "degree": run.protocol.config.degree,
        "epochs": epochs, "exact": exact, "seconds": round(seconds, 1),
        **_after(real, truth, raw, rank, seed),
    }  # fmt: skip


def _after(gram: np.ndarray, truth: np.ndarray, raw: np.ndarray, rank: int, seed: int) -> Row:
    """Success of finding rows from known rows, and columns by independent component analysis (ICA).

    Both start from the Gram matrix `gram`. `truth` has the expanded rows, `raw` the columns; once
    rank + 2 rows are known, once half of the rank.
    """
    stream = np.random.Generator(np.random.Philox(seed))
    found = {}
    for word, count in (("known", rank + 2), ("half_known", rank // 2)):
        known = stream.permutation(len(truth))[:count]
        rows = rows_from_known(gram, known, truth[known])
        left = np.setdiff1d(np.arange(len(truth)), known)
        found[word] = count
        found[f"{word}_found"] = float((np.abs(rows - truth)[left] < 1e-3).mean())
    matches = best_matches(independent_columns(gram, stream), raw)
    found |= {"ica_columns": len(matches), "ica_95": int((matches >= 0.95).sum())}
    return found | {"ica_best": float(matches.max()), "ica_median": float(np.median(matches))}


def independent() -> list[Row]:
    """`by_rank` on 12 independent columns of 4 owners, uniform or exponential."""
    made = []
    for seed in range(SEEDS):
        stream = np.random.Generator(np.random.Philox(seed + 100))
        uniform = stream.random((1344, 12))
        other = np.minimum(-np.log(uniform) / 6, 1)
        columns = np.where(np.arange(12) % 2, other, uniform)
        labels = (columns.sum(axis=1) > np.median(columns.sum(axis=1))).astype(int)
        parts = np.split(columns.astype(np.float32), 4, axis=1)
        data = VerticalDataset.from_numpy(
            parts, labels, test_features=[x[:20] for x in parts], test_labels=labels[:20],
            scaling="none",
        )  # fmt: skip
        options = {"width": 8, "batch": 1344, **WHOLE}
        made.append(_by_rank("12 independent columns", seen("coded_split", data, seed, **options),
                             seed))  # fmt: skip
        print(made[-1], flush=True)
    return made


def fedvs() -> list[Row]:
    """Relative error of the inner products against FedVS with SGD, masked, after 2 to 6 epochs."""
    made = []
    for name, parties, h in RANKS:
        for seed in range(SEEDS):
            data = load_dataset(name, parties=parties, seed=seed)
            options = {"width": h, "batch": data.rows, "rounds": 6, "optimizer": "sgd"}
            options |= {"lr": 0.5, "momentum": 0.0, "segments": 1}
            run = seen("fedvs", data, seed, **options)
            X = whole_rows(run) * 2.0**-run.protocol.config.data_bits
            gram, rank = X @ X.T, int(np.linalg.matrix_rank(X))
            for epochs in range(2, 7):
                rough = rough_gram_by_rank(visits(run)[:epochs], rank)
                error = np.linalg.norm(rough - gram) / np.linalg.norm(gram)
                made.append({"data": name, "seed": seed, "h": h, "rank": rank, "epochs": epochs,
                             "error": float(error)})  # fmt: skip
                print(made[-1], flush=True)
    return made


FIELDS: dict[str, dict[str, int]] = {  # the default, and one with finer rounding
    "2^50-2^14+1": {},
    "2^61-1": {"prime": 2**61 - 1, "data_bits": 20, "model_bits": 24},
}


def ten_rounds() -> list[Row]:
    """Relative errors of inner products and distances against FedVS, ten rounds of all rows."""
    made = []
    for name, bits in FIELDS.items():
        for seed in range(SEEDS):
            data = load_dataset("breast-cancer", parties=6, seed=seed)
            options = {"width": 64, "batch": data.rows, "rounds": 10, "optimizer": "sgd"}
            run = seen("fedvs", data, seed, **options, lr=0.5, momentum=0.0, segments=1, **bits)
            X = whole_rows(run) * 2.0**-run.protocol.config.data_bits
            gram, rank = X @ X.T, int(np.linalg.matrix_rank(X))
            rough = rough_gram_by_rank(visits(run), rank)
            ratios = _distances(rough) / _distances(gram)
            made.append({"data": "breast-cancer", "p": name, "seed": seed, "h": 64, "rank": rank,
                         "rounds": 10, "error": float(_relative(rough, gram)),
                         "error_of_distances": float(np.median(np.abs(ratios - 1)))})  # fmt: skip
            print(made[-1], flush=True)
    return made


def _relative(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def _distances(gram: np.ndarray) -> np.ndarray:
    """Euclidean distances between all pairs of rows, from their inner products."""
    lengths = np.diag(gram)
    squares = lengths[:, None] + lengths[None] - 2 * gram
    return np.sqrt(np.maximum(squares[np.triu_indices(len(gram), 1)], 1e-12))


def holders() -> list[Row]:
    """Fractions of an owner's data, first model and steps that coalitions of holders decode."""
    from scipy.stats import chisquare

    made = []
    for K, T, helpers in ((1, 1, 0), (2, 1, 0), (1, 2, 0), (2, 2, 2)):
        data = load_dataset("digits", parties=8)
        outcome = simulate("coded_split", data, conditions=NONE, payloads=True, rounds=5,
                           batch=128, width=32, hidden=16, segments=K, privacy=T,
                           helpers=helpers)  # fmt: skip
        protocol: Any = outcome.protocol
        public, code = protocol.public, protocol.public.code
        server: Any = outcome.parties[SERVER]
        steps = code.field.reduce(server.log[-1].astype(np.int64))
        laid = public.batches["train"].lay_out(_quantised(protocol, VICTIM))
        truth = code.field.reduce(laid.astype(np.int64))
        held = _held(outcome, steps=5)
        own = public.model_point.quantize(protocol.first_weights(VICTIM))
        for size in sorted({T, T + 1, K + T}):
            C = tuple(range(T, T + size))
            known = known_combinations(code, {j: held["data"][j] for j in C})
            whole = recover_data(code, {j: held["data"][j] for j in C})
            first = recover_model(code, {j: held["model"][j] for j in C})
            dealt = recover_data(code, {j: held["deal"][j] for j in C})
            values = np.concatenate([held["deal"][j].ravel() for j in C])
            counts = np.bincount((values % 64).astype(int), minlength=64)
            one = first is not None
            made.append({
                "K": K, "T": T, "N": code.parties, "holders": size,
                "combinations": len(known.matrix),
                "data": 0.0 if whole is None else float((whole == truth).mean()),
                "first_models": float((first == own).mean()) if one else 0.0,
                "steps": 0.0 if dealt is None else float((dealt == steps).mean()),
                "p_uniform": float(chisquare(counts).pvalue),
            })  # fmt: skip
            print(made[-1], flush=True)
    return made


def _quantised(protocol: Any, owner: int) -> np.ndarray:
    """One owner's expanded columns, times 2^data_bits and rounded to whole numbers."""
    columns = expand(protocol.data.train[owner], protocol.config.degree).astype(np.float64)
    whole: np.ndarray = np.floor(columns * 2.0**protocol.config.data_bits + 0.5)
    return whole


def _held(outcome: Any, steps: int) -> dict[str, dict[int, np.ndarray]]:
    """Shares that holders received: of the victim's data and first model, and of round `steps`."""
    sent, columns = outcome.simulation.transcript, outcome.simulation.transcript.columns()
    found: dict[str, dict[int, np.ndarray]] = {}
    by = {
        (str(columns["kind"][i]), int(columns["round"][i]), int(columns["sender"][i]),
         int(columns["receiver"][i])): payload
        for i, payload in enumerate(sent.payloads)
    }  # fmt: skip
    holders = range(outcome.protocol.public.code.parties)
    others = [j for j in holders if j != VICTIM]
    found["data"] = {j: by["train-data", 0, VICTIM, j] for j in others}
    found["model"] = {j: by["model", 0, VICTIM, j] for j in others}
    T = outcome.protocol.public.code.privacy
    found["deal"] = {j: by["deal", steps, SERVER, j][1] for j in holders if j >= T}
    return found


LABELS = (
    "gradient norm",
    "gradient clusters",
    "gradient directions",
    "model completion",
    "gradient directions, T + 1 clients",
)
LABELLED: tuple[tuple[str, dict[str, Any], int, dict[str, Any], int], ...] = (
    ("digits", {"parties": 8}, 10, {}, 12),
    ("breast-cancer", {"parties": 6}, 14, {}, 12),
    ("credit-card", {}, 120, {"lr": 0.001}, 5),  # its rare class is what gradient norms tell
)


def labels() -> list[Row]:
    """Cells of label attacks on fedvs, and on coded_split with one and two segments."""
    made = []
    for name, data, rounds, options, seeds in LABELLED:
        own = f"client_lr={1 if 'lr' in options else 16},helpers=1"
        theirs = "fedvs:segments=1" + (",client_lr=0.01" if "lr" in options else "")
        matrix = attack_matrix(
            [theirs, f"coded_split:{own}", f"coded_split:{own},segments=2"],
            DataSource(name, data),
            options={"batch": 64, **options},
            rounds=rounds,
            seeds=range(seeds),
            attacks=LABELS,
            settings=AttackSettings(rows=2000 if "lr" in options else 640),
            folder=Path("runs") / f"labels-{name}",
        )
        made += [{"data": name, **cell} for cell in matrix.cells]
    return made


PARTS = {
    "gram": epoch_by_epoch,
    "rank": by_rank,
    "independent": independent,
    "fedvs": fedvs,
    "ten_rounds": ten_rounds,
    "holders": holders,
    "labels": labels,
}


def main() -> None:
    """Run the parts named on the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    asked = parser.parse_args().parts or list(PARTS)
    found = json.loads(OUT.read_text()) if OUT.exists() else {}
    for part in asked:
        found |= {part: PARTS[part](), "machine": describe_machine()}
        found["commits"] = {**found.get("commits", {}), part: commit()}
        OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
