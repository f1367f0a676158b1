"""Aligned memory, some of it kept per thread so that kernels do not pay for fresh pages."""

from __future__ import annotations

import math
import threading
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
    return _cut(np.empty(size + _LINE, np.uint8), shape, kind, size)


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
    view = _cut(block, shape, kind, size)
    if size <= _MOST_KEPT:
        kept[name] = key, view, block
    return view


def _cut(block: Array, shape: tuple[int, ...], kind: np.dtype[Any], size: int) -> Array:
    start = -block.ctypes.data % _LINE
    return block[start : start + size].view(kind).reshape(shape)
