"""More leaks of secagg_split, he_split, wait_dp, multivfl, dvfl, fedonce, vafl and cvfl."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.zoo.encrypted import SECAGG, every
from tests.zoo.planting import (
    planted,
)

# -- secure aggregation ----------------------------------------------------------------------------


def _again_after_nothing(client: Any) -> None:
    """After a round that was given up a client takes its key and seed once more."""
    draw, update = client.random_bytes, client.update
    kept: list[bytes] = []
    stepped = [True]

    def drawing() -> bytes:
        begins = len(kept) >= 2
        if begins and stepped[0]:
            kept.clear()
        if begins and not stepped[0]:
            kept.append(kept.pop(0))
            found: bytes = kept[-1]
            stepped[0] = False
            return found
        kept.append(draw())
        if len(kept) == 2:
            stepped[0] = False
        return kept[-1]

    def updating(own: np.ndarray, gradient: np.ndarray) -> None:
        stepped[0] = True
        update(own, gradient)

    client.random_bytes, client.update = drawing, updating


# -- homomorphic encryption ------------------------------------------------------------------------


# -- noise -----------------------------------------------------------------------------------------


# -- labels ----------------------------------------------------------------------------------------


# -- seeing them -----------------------------------------------------------------------------------


_DRAWN, _MASKS = "keys and seeds reused or known", "masks left out"

LEAKS = (
    planted(
        "secagg_split",
        "secrets of a round that was given up",
        _DRAWN,
        "After a round that was given up clients take its key and seed again.",
        every(_again_after_nothing),
        SECAGG,
        None,
    ),
)
