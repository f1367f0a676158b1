"""Aligned memory, some of it kept per thread so that kernels do not pay for fresh pages."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_LINE = 64
_MOST_KEPT = 32 << 20

_local = threading.local()


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an uninitialised array that starts on a cache line."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    return _cut(np.empty(size + _LINE, np.uint8), shape, kind)


def scratch(name: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return uninitialised memory that the next call with this name on this thread reuses."""
    kept: dict[str, tuple[tuple[Any, ...], Array, Array]] = _local.__dict__.setdefault("kept", {})
    key = (*shape, dtype)
    if name in kept and kept[name][0] == key:
        return kept[name][1]
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    block = kept[name][2] if name in kept else None
    if block is None or block.size < size + _LINE:
        block = np.empty(size + _LINE, np.uint8)
    view = _cut(block, shape, kind)
    if size <= _MOST_KEPT:
        kept[name] = key, view, block
    return view


def places(name: str, sizes: Sequence[int]) -> tuple[Array, list[int]]:
    """Return such memory for pieces of some sizes in bytes, and the address of each piece.

    Pieces start on cache lines. The memory must be held as long as the addresses are used.
    """
    starts = [0, *accumulate(-(-size // _LINE) * _LINE for size in sizes)]
    kept: dict[str, tuple[Array, int]] = _local.__dict__.setdefault("places", {})
    entry = kept.get(name)
    if entry is None or entry[0].size < starts[-1]:
        block = aligned((starts[-1],), np.uint8)
        entry = block, block.ctypes.data
        if starts[-1] <= _MOST_KEPT:
            kept[name] = entry
    return entry[0], [entry[1] + start for start in starts[:-1]]


def _cut(block: Array, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    return np.ndarray(shape, kind, block, -block.ctypes.data % _LINE)
