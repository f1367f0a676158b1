"""Rows that depend on the rows beside them: then one row that is replaced moves all releases.

Sigma follows from C, the largest norm of one row, because a row changes its own release and no
other. What a row is without noise the audit takes from the library's own network and loss, so rows
that they couple are coupled there, too. Here one row, and one label, is replaced by another one,
and by an extreme one: the results of all others must stay as they are, but for rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.models.aggregation import make_aggregation
from securevfl.privacy.claims import Asset
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread

_ROWS = 12
_CLOSE = 1e-4  # of the largest number: sums of another length are rounded otherwise
_EXTREME = 50.0  # times a row


def coupled_rows(made: Protocol, asset: Asset) -> Iterator[str]:
    """Embeddings of rows that move with another row, or gradients with another label, in words.

    Parameters
    ----------
    made : Protocol
        Fresh: its parties are made and used up.
    asset : {"features", "labels", "model"}
        What noise protects: columns, in embeddings, or labels, in gradients.
    """
    parties: dict[int, Any] = made.parties()
    with one_thread():
        if asset == "labels":
            yield from _gradients(made, getattr(parties[SERVER], "centre", None))
            return
        for n in made.peers():
            network = getattr(parties[n], "network", None)
            if network is None or n >= made.data.parties:
                continue
            if _moved(network.forward, made.data.train[n][:_ROWS]):
                yield f"client {n}'s embedding of a row depends on the others of its batch"
                return


def _gradients(made: Protocol, centre: Any) -> Iterator[str]:
    """dL/dH of rows that moves with the embedding or label of another row."""
    labels = made.data.train_labels
    if centre is None or labels is None or len(labels) < _ROWS:
        return
    config: Any = made.config
    rule = make_aggregation(getattr(config, "aggregation", "mean"), made.data.parties)
    rng = np.random.Generator(np.random.Philox(0))
    H = rng.standard_normal((_ROWS, rule.width(config.width))).astype(np.float32)
    other = labels.copy()
    other[0] = labels[np.argmax(labels != labels[0])]

    def gradient(embedding: np.ndarray, own: np.ndarray = labels) -> np.ndarray:
        found: np.ndarray = copy.deepcopy(centre).step(embedding, np.arange(_ROWS), own)[1]
        return found

    if _moved(gradient, H):
        yield "dL/dH of a row depends on the embeddings of the others of its batch"
    if _differ(gradient(H)[1:], gradient(H, other)[1:]):
        yield "dL/dH of a row depends on the labels of the others of its batch"


def _moved(function: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> bool:
    """Whether results of the other rows move where the first row is replaced."""
    before = np.asarray(function(rows.copy()))
    for new in (rows[-1], _EXTREME * np.abs(rows).max() * np.ones_like(rows[0])):
        changed = rows.copy()
        changed[0] = new
        if _differ(before[1:], np.asarray(function(changed))[1:]):
            return True
    return False


def _differ(one: np.ndarray, other: np.ndarray) -> bool:
    return not np.allclose(one, other, rtol=0, atol=_CLOSE * max(float(np.abs(one).max()), 1e-30))
