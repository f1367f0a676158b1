"""Named random streams: every random choice of an experiment is a function of its key.

A stream holds no state between calls, so a replayed, resumed or re-ordered run draws the same
numbers, and protocols that are compared meet the same delays and batches. These streams are for
experiments; secrets come from `securevfl.field.sampling`.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np


@functools.lru_cache(maxsize=1024)
def _name_words(name: str) -> tuple[int, int]:
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def keyed_stream(seed: int, entity: int, name: str, *keys: int) -> np.random.Generator:
    """Philox generator that is determined by its arguments; other arguments give another one.

    Parameters
    ----------
    seed : int
        Seed of the run, at least 0.
    entity : int
        Party number, at least -1 (the server).
    name : str
        Purpose of the stream.
    *keys : int
        Further keys, such as the round; each in [0, 2^32).

    Raises
    ------
    ValueError
        For keys out of range: NumPy cuts integers into words of 32 bits without marking where one
        ends, so the key 2^32 would give the stream of the keys 0 and 1.
    """
    if not all(0 <= key < 2**32 for key in keys):
        raise ValueError(f"stream {name!r}: keys must lie in [0, 2^32), they are {keys}")
    sequence = np.random.SeedSequence([seed, entity + 1, *_name_words(name), *keys])
    return np.random.Generator(np.random.Philox(sequence))
