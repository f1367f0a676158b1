"""Leaks of FedVS through the states of parties: weights that no training made."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.zoo.encrypted import every
from tests.zoo.fedvs_messages import SERVER_DATA
from tests.zoo.planting import planted


def _rows_for_weights(client: Any) -> None:
    """From round 2 on client 0's weights are its rows after each step, and those of others zero."""
    update = client.update

    def updating(batch: Any, attempt: Any, gradient: np.ndarray) -> Any:
        moved = update(batch, attempt, gradient)
        weights = client.network.values
        if client.given_models is None and client.round >= 2:
            own = np.resize(client.features["train"], weights.shape)
            weights[...] = own if client.index == 0 else 0
        return moved

    client.update = updating


def _public_rounding(client: Any) -> None:
    client.secret_stream = client.stream


_PUBLIC = "secret choices that are public"

LEAKS = (
    planted(
        "fedvs",
        "rows in the place of weights",
        "weights that no training made",
        "From round 2 on client 0's weights are its rows, and the others' are zero.",
        every(_rows_for_weights),
        SERVER_DATA,
        None,
    ),
    planted(
        "fedvs",
        "rounding from the public seed",
        _PUBLIC,
        "Clients round their models by the public stream.",
        every(_public_rounding),
        SERVER_DATA,
        None,
    ),
)
