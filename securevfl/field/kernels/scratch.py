"""Aligned memory; part of it is reused so that kernels avoid fresh pages."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_LINE = 64
_MOST_KEPT = 32 << 20
_LARGE = 4 << 20  # Bytes from which fresh pages cost more than the arithmetic that fills them.
_MOST_FREE = 192 << 20

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
    """Return uninitialised memory for pieces of some sizes in bytes, and each piece's address.

    The next call with this name on this thread reuses it. Pieces start on cache lines. The memory
    must be held as long as the addresses are used.
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


class _Memory:
    """A memory block that becomes free again when its last array is gone."""

    free: ClassVar[list[Array]] = []
    lock: ClassVar[threading.Lock] = threading.Lock()
    block: Array | None = None

    def __init__(self, size: int) -> None:
        with self.lock:
            fitting = [b for b in self.free if size <= b.size <= 2 * size]
            block = min(fitting, key=len, default=None)
            # Blocks are told apart by identity; == would compare their bytes.
            _Memory.free = [b for b in self.free if b is not block]
        self.block = block = aligned((size,), np.uint8) if block is None else block
        place = block.ctypes.data, False
        self.__array_interface__ = {
            "version": 3, "data": place, "shape": (size,), "typestr": "|u1",
        }  # fmt: skip

    def __del__(self) -> None:
        # No lock: a collection may end this within __init__, which holds it. What is lost to
        # another thread at this moment is freed.
        kept = _Memory.free
        if self.block is not None and sum(map(len, kept)) + len(self.block) <= _MOST_FREE:
            kept.append(self.block)


def result(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an uninitialised array for a result; a large one starts on a cache line.

    Large ones reuse memory that nothing refers to any more: every array, view or export of a
    buffer keeps its memory.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < _LARGE:
        return np.empty(shape, kind)
    array: Array = np.asarray(_Memory(size)).view(kind).reshape(shape)
    return array
