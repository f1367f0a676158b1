"""Gather rows of several matrices side by side, with prefetch of the next rows.

Rows of a batch stand anywhere in memory, and a processor does not foresee where. Each row is asked
for a whole row of the result ahead of its copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels.ir import I32, copy_line, prefetch
from securevfl.field.kernels.jit import intrinsic, kernel, types

Array = NDArray[Any]


@intrinsic
def _copy_word(context: Any, source: Any, target: Any) -> Any:
    """Copy 4 bytes."""

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        place = [builder.inttoptr(address, ir.PointerType(I32)) for address in args]
        builder.store(builder.load(place[0], align=4), place[1], align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@kernel
def gather(sources: Array, length: int, rows: Array, out: Array) -> bool:
    """Write the numbered rows of all matrices; return False, writing nothing, for a bad number.

    Parameters
    ----------
    sources : ndarray, (matrices, 3), int64
        Of each matrix: its address, the bytes from row to row, and those of a row, whole words of
        4 bytes.
    length : int
        Number of rows of each.
    rows : ndarray, (m,), int64
        Row numbers.
    out : ndarray, (m, bytes of the rows of all matrices together), uint8
        Array for the result.
    """
    for i in range(rows.size):
        if rows[i] < 0 or rows[i] >= length:
            return False
    target, line = np.int64(out.ctypes.data), np.int64(64)
    for i in range(rows.size):
        following = rows[min(i + 1, rows.size - 1)]
        for j in range(sources.shape[0]):
            start, pitch, size = sources[j, 0], sources[j, 1], sources[j, 2]
            ahead = start + following * pitch
            for offset in range(np.int64(0), size, line):
                prefetch(ahead + offset)
            prefetch(ahead + size - 1)  # A row may end in a line more than its length fills.
            place = start + rows[i] * pitch
            # Lines from the start; what is left is the end of a line that overlaps the last one.
            for offset in range(np.int64(0), size - line + 1, line):
                copy_line(place + offset, target + offset)
            if size >= line:
                copy_line(place + size - line, target + size - line)
            else:
                for offset in range(np.int64(0), size, np.int64(4)):
                    _copy_word(place + offset, target + offset)
            target += size
    return True
