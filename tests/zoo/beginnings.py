"""Leaks in how a run, a party, an object or the library came to be what it is.

A run begins anew when it is resumed or its server comes back; a cluster makes each party by itself;
a constructor may change what it is given; and functions of the library may be replaced.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.engine import wire
from tests.zoo.encrypted import every
from tests.zoo.fedvs_masks import UPLOADS
from tests.zoo.planting import (
    planted,
)


def _unmasked_if_resumed(client: Any) -> None:
    masked = client.masked

    def masking(upload: np.ndarray, told: bytes) -> np.ndarray:
        found: np.ndarray = upload if client.resumptions else masked(upload, told)
        return found

    client.masked = masking


def _unmasked_in_a_second_life(client: Any) -> None:
    """The server's life is in what was announced; that of a resumed run is 2^32 and more."""
    masked = client.masked

    def masking(upload: np.ndarray, told: bytes) -> np.ndarray:
        again = 0 < wire.decode(told)[-1].life < 2**32
        found: np.ndarray = upload if again else masked(upload, told)
        return found

    client.masked = masking


_LIVES = "a later life than any run has"

LEAKS = (
    planted(
        "fedvs",
        "uploads of a resumed run without masks",
        _LIVES,
        "In a run that was resumed uploads have no mask.",
        every(_unmasked_if_resumed),
        UPLOADS,
        None,
    ),
    planted(
        "fedvs",
        "uploads to a server that came back without masks",
        _LIVES,
        "Uploads to a server that crashed and came back have no mask.",
        every(_unmasked_in_a_second_life),
        UPLOADS,
        None,
    ),
)
