"""Functions of protected values in FedVS: steps and measures of the parties."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.models.split import Centre, measure, rows_of
from securevfl.models.weights import load_weights


def update(
    network: PolynomialNetwork,
    features: np.ndarray,
    gradient: np.ndarray,
    samples: np.ndarray,
    sharers: int,
    rounding: float,
) -> tuple[np.bool_, int]:
    """One step of a client with dL/dH_n = (1/|S|) dL/dH on its real rows (lines 33-35).

    `gradient` is dL/dH, `samples` its row numbers (-1 for padding), `sharers` the number |S|.

    Returns
    -------
    bool, int
        Whether a weight moved by more than `rounding`, and how many were cut to their bound.
    """
    before = network.values.copy()
    cut = network.update(rows_of(features, samples), gradient / np.float32(sharers))
    return np.bool_(float(np.abs(network.values - before).max()) > rounding), cut


def train(
    centre: Centre, embedding: np.ndarray, labels: np.ndarray, samples: np.ndarray
) -> tuple[float, np.ndarray]:
    """One step of the server model W_0; return the loss and dL/dH (line 31)."""
    return centre.step(embedding, samples, labels)


def scores_of(centre: Centre, embedding: np.ndarray) -> np.ndarray:
    """Raw scores that the server model gives to rows."""
    return centre.scores(embedding)


def both_classes(labels: np.ndarray) -> np.bool_:
    """NumPy bool: True if the labels hold both classes, as an AUC needs."""
    return np.bool_(0 < labels.sum() < len(labels))


def measured(scores: np.ndarray, labels: np.ndarray, task: Any, name: str) -> float:
    """The measure `name` of raw scores of test rows."""
    return measure(task, scores, labels).get(name, np.nan)


def take_head(
    centre: Centre, weight: np.ndarray, names: list[str], parties: int, *others: np.ndarray
) -> None:
    """Load client 0's pre-trained head into the server model.

    The first weight is multiplied by `parties`, because the server model reads the mean of N
    embeddings, of which the head knows only client 0's.
    """
    head = dict(zip(names, (weight, *others), strict=True))
    first = next(name for name, weight in head.items() if weight.ndim > 1)
    load_weights(centre, head | {first: parties * head[first]})
