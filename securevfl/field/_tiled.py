"""The left operand of products by the tile unit, and the edges that do not fill a tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.field import _amx, _scalar, primes
from securevfl.field._scratch import aligned, scratch

Array = NDArray[Any]

_PANEL_BYTES = 1 << 20  # A panel of the right operand; with the planes of 16 rows it fills L2.
_PANEL_TILES = 32
_KEPT_BYTES = 1 << 18  # Planes of the whole left operand are kept up to this size.


class TiledLeft:
    """A left operand (m, k) for the tile unit; see _amx."""

    def __init__(self, p: int, a: Array) -> None:
        self.p, self.rows = p, a.shape[0]
        c = primes.montgomery(p, 64)
        self.constants = (
            np.uint64(p),
            np.uint64(c.negative_inverse),
            np.uint64(c.square),
            (1.0 - 2.0**-50) / p,
            np.uint64((1 << 72) % p),
            np.float32(256 / p * (1 - 2.0**-20)),
        )
        most = _amx.MOST_TERMS
        self.parts = [
            self._part(np.ascontiguousarray(a[:, k : k + most]))
            for k in range(0, max(1, a.shape[1]), most)
        ]

    def _part(self, a: Array) -> tuple[Array, Array | None]:
        """Return up to MOST_TERMS terms and, where they are small, their planes."""
        shape = self._shape(a, -(-self.rows // 16))
        if 4 * int(np.prod(shape)) > _KEPT_BYTES:
            return a, None
        left = aligned(shape, np.uint32)
        _amx.expand(a, left, self.constants, np.empty(16, a.dtype))
        return a, left

    @staticmethod
    def _shape(a: Array, tiles: int) -> tuple[int, ...]:
        return tiles, a.itemsize // 4, max(1, -(-a.shape[1] // 16)), 4, 16, 16

    def multiply(self, blocks: Sequence[Array], out: Array) -> bool:
        """See kernels.Left."""
        good = self._multiply(*self.parts[0], _take(blocks, 0), out)
        for i, part in enumerate(self.parts[1:], 1):
            # Sums of more than MOST_TERMS terms are added modulo p, in pieces.
            more = np.empty(out.shape, out.dtype)
            good &= self._multiply(*part, _take(blocks, i * _amx.MOST_TERMS), more)
            for row, other in zip(out, more, strict=True):
                _scalar.add(row, other, np.uint64(self.p), row)
        return good

    def _multiply(self, a: Array, left: Array | None, blocks: Sequence[Array], out: Array) -> bool:
        columns = 64 // out.itemsize
        whole = out.shape[1] // columns * columns
        good = not whole or self._tiles(a, left, blocks, out[:, :whole])
        if whole < out.shape[1]:
            rest = out.shape[1] - whole
            padded = [np.zeros((b.shape[0], columns), out.dtype) for b in blocks]
            for target, source in zip(padded, blocks, strict=True):
                target[:, :rest] = source[:, whole:]
            edge = np.empty((self.rows, columns), out.dtype)
            good &= self._tiles(a, left, padded, edge)
            out[:, whole:] = edge[:, :rest]
        return good

    def _tiles(self, a: Array, left: Array | None, blocks: Sequence[Array], out: Array) -> bool:
        tiles, shape = out.shape[1] * out.itemsize // 64, self._shape(a, 1)
        halves, steps = shape[1:3]
        width = min(tiles, _PANEL_TILES, max(4, _PANEL_BYTES // (1024 * steps)))
        rows = np.concatenate(
            [b.ctypes.data + b.strides[0] * np.arange(b.shape[0], dtype=np.int64) for b in blocks]
        )
        seen = np.zeros(64, np.uint8)
        work = (
            _amx._SETUP,
            scratch("panel", (width, steps, 16, 16), np.uint32),
            scratch("sums", (halves, width, 4, 16, 16), np.uint32),
            seen,
            np.empty(16, out.dtype),
        )
        planes = scratch("left", shape, np.uint32) if left is None else left
        span = (0, tiles)
        _amx.multiply(
            a,
            planes,
            left is not None,
            rows,
            span,
            out.ctypes.data,
            out.strides[0],
            self.constants,
            work,
        )
        return int(seen.view(out.dtype).max()) < self.p


def _take(blocks: Sequence[Array], start: int) -> list[Array]:
    """Return the rows start .. start + MOST_TERMS of the stacked blocks."""
    taken, stop, base = [], start + _amx.MOST_TERMS, 0
    for block in blocks:
        part = block[max(0, start - base) : max(0, stop - base)]
        if part.shape[0]:
            taken.append(part)
        base += block.shape[0]
    return taken or [blocks[0][:0]]
