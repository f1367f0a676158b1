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
    """Philox generator that is determined by its arguments.

    Parameters
    ----------
    seed : int
        Seed of the run, at least 0.
    entity : int
        Party number, at least -1 (the server).
    name : str
        Purpose of the stream.
    *keys : int
        Further keys, such as the round; each at least 0.
    """
    sequence = np.random.SeedSequence([seed, entity + 1, *_name_words(name), *keys])
    return np.random.Generator(np.random.Philox(sequence))
