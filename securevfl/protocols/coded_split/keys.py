"""Secret bytes of parties, and keys as arrays that can be sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.field.sampling import SYSTEM


def fresh_bytes(count: int) -> bytes:
    """Secret bytes, from a keystream of the operating system's entropy."""
    drawn = np.empty(count, np.uint8)
    SYSTEM.keystream().fill(drawn)
    return drawn.tobytes()


def as_array(keys: Sequence[bytes]) -> np.ndarray:
    """Keys of equal length as an array, (keys, bytes)."""
    return np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1)
