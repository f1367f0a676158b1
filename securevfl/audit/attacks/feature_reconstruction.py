"""The server reconstructs a client's columns from its view of their rows.

`inversion` learns the inverse of the client's network from a few rows that the server knows (a
leaked list, rows of its own): nothing of the network is needed. `equality_solving` is given the
weights of linear or polynomial clients and solves the linear equations ``h = x_pow W`` (X. Luo et
al., "Feature Inference Attack on Model Predictions in Vertical Federated Learning", ICDE 2021,
section V-A, whose equations are those of the prediction; here they are those of the embedding, or
of the sum of several).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.audit.attacks.label_inference import attacked
from securevfl.audit.attacks.outcome import MOST, Outcome, explained
from securevfl.audit.attacks.regression import fit
from securevfl.errors import ConfigurationError
from securevfl.models.polynomial_network import expand

METRIC = "error explained"


def inversion(
    seen: np.ndarray, features: np.ndarray, known: np.ndarray, stream: np.random.Generator
) -> Outcome:
    """Attack that predicts a client's columns from the view of each row, by a network.

    The baseline guess is the mean of the known rows. The control is the same attack with the rows
    of `seen` shuffled.

    Parameters
    ----------
    seen : ndarray, (rows, a)
        Embeddings, uploads or sums of each row, as real numbers.
    features : ndarray, (rows, d)
        The true columns.
    known : ndarray
        Numbers of the rows whose features the server knows.
    stream : numpy Generator
        Source of random choices.

    Returns
    -------
    Outcome
        Explained fraction of the baseline's squared error; chance is 0.
    """
    left = stream.permutation(attacked(len(seen), known))[:MOST]
    decoy = features[known].mean(axis=0)
    guess = fit(seen[known], features[known], stream)(seen[left])
    shuffled = seen[stream.permutation(len(seen))]
    blind = fit(shuffled[known], features[known], stream)(shuffled[left])
    success, low, high = explained(guess, features[left], decoy, stream)
    control, *_ = explained(blind, features[left], decoy, stream)
    note = f"{len(known)} rows known"
    return Outcome(METRIC, success, 0.0, low, high, len(left), {"shuffled rows": control}, note)


def equality_solving(
    seen: np.ndarray,
    weights: Sequence[np.ndarray],
    features: Sequence[np.ndarray],
    degree: int,
    stream: np.random.Generator,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Outcome:
    """Attack that solves ``seen = sum_n [X_n | X_n^2 | ... | 1] W_n`` for X_n, with known weights.

    With fewer equations than unknowns it takes the solution nearest to the middle of the columns'
    public range, and clips it to that range. The baseline guess is the mean of the true columns,
    which the attacker does not know.

    Parameters
    ----------
    seen : ndarray, (rows, h)
        Embeddings, or sums of them, of each row.
    weights : sequence of ndarray, (d_n D + 1, h)
        Weights of each client whose embedding is part of `seen`.
    features : sequence of ndarray, (rows, d_n)
        The true columns.
    degree : int
        Degree D of the clients' networks.
    stream : numpy Generator
        Source of random choices.
    bounds : (float, float)
        Range of the columns.

    Raises
    ------
    ConfigurationError
        If weights do not fit columns and degree, or no column varies.
    """
    if any(len(w) != x.shape[1] * degree + 1 for w, x in zip(weights, features, strict=True)):
        raise ConfigurationError(
            f"equality solving: weights of {[len(w) for w in weights]} rows do not belong to "
            f"clients of {[x.shape[1] for x in features]} columns and degree {degree}"
        )
    half = (bounds[0] + bounds[1]) / 2
    middle = [expand(np.full((1, x.shape[1]), half), degree) for x in features]
    joint = np.concatenate(weights).astype(np.float64)
    start = np.concatenate(middle, axis=1)
    # The columns of ones are known; they only add a constant.
    ends = np.cumsum([len(w) for w in weights])
    free = np.setdiff1d(np.arange(len(joint)), ends - 1)
    rest = seen.astype(np.float64) - start @ joint
    step = np.linalg.lstsq(joint[free].T, rest.T, rcond=None)[0].T
    powers = np.repeat(start, len(seen), axis=0)
    powers[:, free] += step
    begins = ends - [len(w) for w in weights]
    guess = [powers[:, b : b + x.shape[1]] for b, x in zip(begins, features, strict=True)]
    found = np.clip(np.concatenate(guess, axis=1), *bounds)
    truth = np.concatenate(features, axis=1)
    success, low, high = explained(found, truth, truth.mean(axis=0), stream)
    exact = float((np.abs(found - truth) < 1e-3).mean())
    note = f"{joint.shape[1]} equations a row, {len(free)} unknowns; {exact:.1%} within 0.001"
    return Outcome(METRIC, success, 0.0, low, high, len(seen), {}, note)
