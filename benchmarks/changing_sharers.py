"""Embeddings of single clients from honest runs of FedVS, where sharers change from round to round.

The server and all clients follow the protocol, masks included. The server has what it decoded, who
was in each sum, and its own gradients. With SGD a client's embedding in round t is

    E_n(t) = E_n(0) - X_n X_n^T G_n(t),

G_n(t) the steps of the rounds that it stood in, which the server knows. Each sum is linear in all
E_n(0) and X_n X_n^T, so least squares over the rounds give both, as far as sums over changing sets
of clients tell them apart. `python benchmarks/changing_sharers.py` runs 96 rows of digits in whole
batches under the paper's delays with a share_timeout of 1 s, and writes
benchmarks/results/privacy/changing_sharers.json.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.engine.conditions import paper
from securevfl.protocols.fedvs.algorithm import Server
from securevfl.verified import Secret, bare_of
from tests.lies import SMALL
from tests.lies.stage import play, relative

RESULTS = Path(__file__).parent / "results" / "privacy" / "changing_sharers.json"
MOMENTUM = 0.9  # of SGD, the default
PARTIES = 10


class Noting(Server):
    """Honest server that records each decoded sum, its sharers, and the gradient that it sent.

    `judge` gives the true embeddings, for comparison. Records are in ``found["rounds"]``.
    """

    judge: Any
    found: dict[str, Any]

    def train(self, batch: Any, attempt: Any, embedding: Secret) -> None:
        """Train on a batch, and record sum, sharers, gradient and the clients' true embeddings."""
        truth = np.array([self.judge.embedding(n, batch) for n in self.peers])
        broadcast, sent = self.broadcast, list[np.ndarray]()

        def noting(kind: str, payload: Any, *more: Any) -> None:
            sent.append(bare_of(payload))
            broadcast(kind, payload, *more)

        self.broadcast = noting  # type: ignore[method-assign]
        super().train(batch, attempt, embedding)
        del self.broadcast
        samples = self.public.batches["train"].samples(batch.rows)
        order = np.argsort(samples)  # whole batches come in another order each epoch
        total = bare_of(embedding)[order].astype(float) * len(attempt.sharers)
        self.found.setdefault("rounds", []).append(
            (attempt.sharers, total, sent[-1][order], truth[:, order])
        )


def run(rounds: int, **options: Any) -> Any:
    """Server at the end of an honest run of `rounds` rounds with these protocol options."""
    size = dataclasses.replace(SMALL, batch=SMALL.rows)
    delays = paper(PARTIES, batch_rows=48, share_factor=0.5)
    options = {"optimizer": "sgd", "share_timeout": 1.0, "max_attempts": 50, **options}
    played = play(size, Noting, conditions=delays, rounds=rounds, **options)
    assert played.error is None, played.error
    return played.server


def single_embeddings(server: Any) -> dict[str, Any]:
    """Relative errors of each client's embedding in the last round, and of a guess.

    The guess is the mean of all embeddings in the sum.
    """
    config, seen = server.public.config, server.found["rounds"]
    lr = config.client_lr or config.lr
    N, (rows, h) = len(server.peers), seen[0][1].shape
    steps, speed = np.zeros((2, N, rows, h))
    width, equations, sums = rows + h, [], []
    for sharers, total, gradient, _truth in seen:
        row = np.zeros((h, N, width))
        for n in sharers:
            row[:, n, :rows], row[:, n, rows:] = steps[n].T, np.eye(h)
        equations.append(row.reshape(h, -1))
        sums.append(total.T)
        before = steps.copy()
        for n in sharers:  # in numbers of 32 bits, as the clients step
            speed[n] = MOMENTUM * speed[n] + np.float32(gradient / np.float32(len(sharers)))
            steps[n] = steps[n] - lr * speed[n]
    last, (sharers, total, _gradient, truth) = before, seen[-1]
    best: dict[str, Any] = {}
    for cutoff in (1e-10, 1e-6):
        found = np.linalg.lstsq(np.concatenate(equations), np.concatenate(sums), rcond=cutoff)[0]
        parts = found.reshape(N, width, rows)
        guesses = [parts[n, rows:].T + parts[n, :rows].T @ last[n] for n in range(N)]
        errors = [relative(guesses[n], truth[n]) for n in range(N)]
        if not best or np.median(errors) < np.median(best["errors"]):
            best = {"errors": errors, "cutoff": cutoff}
    mean = total / len(sharers)
    guess = float(np.median([relative(mean, truth[n]) for n in range(N)]))
    changing = [n for n in range(N) if any(n not in one[0] for one in seen)]
    sets = {one[0] for one in seen}
    return {**best, "guess": guess, "sets": len(sets), "not_always_there": changing}


def main() -> None:
    """Run with changing sharers and with fixed cohorts, and write the results as JSON."""
    rows = []
    for cohorts in (0, 2, 3):
        for rounds in (60, 150):
            found = single_embeddings(run(rounds, cohorts=cohorts))
            rows.append({"cohorts": cohorts, "rounds": rounds, **found})
            print(rows[-1], flush=True)
    settings = {"data": "digits", "rows": SMALL.rows, "parties": PARTIES, "share_timeout": 1.0}
    RESULTS.write_text(json.dumps({**settings, "optimizer": "sgd", "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
