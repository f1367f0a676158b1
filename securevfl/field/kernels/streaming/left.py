"""Left operands of streams."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.field.kernels.scratch import scratch

Array = NDArray[Any]

MOST_TERMS = 1024  # A panel with one tile of columns still stays in an L2 cache.
_AROUND = 1 << 21  # Bytes of a result from which it is written past the caches.
_PANEL_BYTES = 1 << 18  # With results on their way it stays in an L2 cache.
_PANEL_COLUMNS = 2048


def blocks_of(rows: int, sizes: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """First row of each tile, and the number of tiles of each size.

    As many of the two largest sizes as fill the rows exactly; where none do, tiles of the second
    size, of which the last covers rows of its neighbour again. Few rows are taken one by one.
    """
    large, small = sizes[:2]
    counts = [0] * len(sizes)
    if rows < small or small == 1:
        counts[0] = rows // large if small == 1 else 0
        counts[-1] = rows - large * counts[0]
    else:
        exact = [n for n in range(rows // large, -1, -1) if (rows - n * large) % small == 0]
        counts[0] = exact[0] if exact else 0
        counts[1] = -(-(rows - counts[0] * large) // small)
    heights = [size for size, count in zip(sizes, counts, strict=True) for _ in range(count)]
    ends = np.cumsum(heights).clip(max=rows)
    return [int(end) - height for end, height in zip(ends, heights, strict=True)], counts


class StreamingLeft:
    """Left operand (m, k) for vector streams, for p < 2^31 and 2^61 - 1.

    Parameters
    ----------
    p : int
        The modulus.
    a : ndarray
        Shape (m, k), 1 <= k <= MOST_TERMS.
    wide : bool
        512-bit vectors, else 256-bit ones.
    """

    def __init__(self, p: int, a: Array, wide: bool) -> None:
        from securevfl.field.kernels.streaming import narrow
        from securevfl.field.kernels.streaming import wide as long

        bits, self.p, self.rows, self.inner = 512 if wide else 256, p, a.shape[0], a.shape[1]
        if a.itemsize == 8:
            self.shape, self.kernel = long.SHAPES[bits], getattr(long, f"limbs{bits}")
        else:
            name = "mersenne" if p == narrow.PRIME else "other"
            self.shape, self.kernel = narrow.SHAPES[bits], getattr(narrow, f"{name}{bits}")
        h, radix = (p - 1) // 2, (1 << 32) % p
        constants = h, p, radix - p if radix > h else radix, _signed(pow(p, -1, 1 << 32))
        self.constants = np.array(constants, np.int64)
        starts, counts = blocks_of(self.rows, self.shape.rows)
        self.firsts, self.counts = np.array(starts, np.int64), np.array(counts, np.int64)
        heights = np.repeat(self.shape.rows, counts)
        limbs, factors, above = self._limbs(a)
        tiles = [slice(f, f + n) for f, n in zip(starts, heights, strict=True)]
        self.left = np.concatenate([limbs[t].transpose(1, 0, 2).ravel() for t in tiles])
        sums = limbs.sum(axis=1, dtype=np.int64).tolist()
        totals = [sum(map(operator.mul, row, factors)) * h % p + above for row in sums]
        self.offsets = np.array([x for t in tiles for x in totals[t]], np.uint64).view(np.int64)
        arrays = self.left, self.firsts, self.offsets, self.counts, self.constants
        self.fixed = self.inner, *map(_address, arrays)
        self.steps = np.arange(self.inner, dtype=np.int64)

    def _limbs(self, a: Array) -> tuple[Array, tuple[int, ...], int]:
        """Kernel limbs (m, k, limbs), the weight of each limb, and a multiple of p.

        That multiple makes the sums at the end of a stream positive.
        """
        p, h = self.p, (self.p - 1) // 2
        c = a.astype(np.int64)
        if a.itemsize == 8:
            c[c > h] -= p
            low = ((c + (1 << 30)) & ((1 << 31) - 1)) - (1 << 30)
            high = (c - low) >> 31
            limbs = np.stack([low, high, low + high], axis=-1).astype(np.int32)
            return limbs, (1, 1 << 31, 0), 2 * p
        mersenne = p == (1 << 31) - 1
        if not mersenne:
            c = (c << 32) % p
        c[c > h] -= p
        above = ((7 << 60) + (1 << 40)) // p * p + p if mersenne else 0
        return c.astype(np.int32)[..., None], (1,), above

    def multiply(self, blocks: Sequence[Array], out: Array) -> bool:
        """Write the product with stacked `blocks` to `out`; whether all of them are below p."""
        columns = self.shape.size // out.itemsize
        blocks = [b if b.strides[1] == b.itemsize else np.ascontiguousarray(b) for b in blocks]
        seen = np.zeros(64, np.uint8)
        whole = out.shape[1] // columns * columns
        if whole:
            self._stream(blocks, out, whole // columns, seen)
        rest = out.shape[1] - whole
        if rest:
            padded = scratch("stream edge", (self.inner, columns), out.dtype)
            padded[:, rest:] = 0
            np.concatenate([b[:, whole:] for b in blocks], out=padded[:, :rest])
            edge = scratch("stream result", (self.rows, columns), out.dtype)
            self._stream([padded], edge, 1, seen)
            out[:, whole:] = edge[:, :rest]
        return int(seen.view(out.dtype).max()) < self.p

    def _stream(self, blocks: Sequence[Array], out: Array, pieces: int, seen: Array) -> None:
        size = self.shape.size
        most = min(_PANEL_COLUMNS * out.itemsize, _PANEL_BYTES // self.inner) // size
        panel = scratch("stream panel", (max(1, min(pieces, most)), self.inner, size), np.uint8)
        rows = np.concatenate([_address(b) + b.strides[0] * self.steps[: len(b)] for b in blocks])
        place, stride = _address(out), out.strides[0]
        around = out.nbytes >= _AROUND and place % 64 == 0 and stride % 64 == 0
        own = _address(rows), pieces, place, stride, around, _address(panel), len(panel)
        arguments = np.array([*self.fixed, *own, _address(seen)], np.int64)
        self.kernel(_address(arguments))


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _signed(number: int) -> int:
    """Signed 32-bit number with the same bits."""
    return number - (1 << 32) if number >> 31 else number
