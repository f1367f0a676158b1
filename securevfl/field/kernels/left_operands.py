"""Left operands of products by tiles or vectors, and the edges that do not fill a tile."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.field.kernels import primes
from securevfl.field.kernels.jit import address
from securevfl.field.kernels.scratch import aligned, places, scratch

Array = NDArray[Any]

_PANEL_BYTES = 1 << 20  # A panel of the right operand; with the limbs of its rows it fills L2.
_PANEL_TILES = 32
AROUND = 1024  # Tiles per row from which results are written past the caches.
_SUMS_BYTES = 1 << 14  # Sums that are finished while they are in the L1 cache.


class PiecewiseLeft:
    """Left operand (m, k) for kernels that need rows of whole 64-byte pieces and limited k."""

    def __init__(self, p: int, a: Array, most: int) -> None:
        self.p, self.most = p, most
        self.rows, self.inner = a.shape
        pieces = range(0, max(1, a.shape[1]), most)
        self.parts = [self._part(np.ascontiguousarray(a[:, k : k + most])) for k in pieces]

    def _part(self, a: Array) -> Any:
        """At most `most` terms of left operand `a` in the kernel's form; by subclasses."""
        raise NotImplementedError

    def _tiles(self, part: Any, rows: Array, out: Array, seen: Array) -> None:
        """Write `part` (of `_part`) times the rows at addresses `rows` to `out`; by subclasses."""
        raise NotImplementedError

    def multiply(self, blocks: Sequence[Array], out: Array) -> bool:
        """Write the product with stacked `blocks` to `out`; whether all of them are below p."""
        blocks = [b if b.strides[1] == b.itemsize else np.ascontiguousarray(b) for b in blocks]
        if len(self.parts) == 1:
            return self._multiply(self.parts[0], blocks, out)
        from securevfl.field.kernels import scalar

        good = self._multiply(self.parts[0], _take(blocks, 0, self.most), out)
        for i, part in enumerate(self.parts[1:], 1):
            # Longer sums are added modulo p, in pieces.
            more = np.empty(out.shape, out.dtype)
            good &= self._multiply(part, _take(blocks, i * self.most, self.most), more)
            for row, other in zip(out, more, strict=True):
                scalar.add(row, other, np.uint64(self.p), row)
        return good

    def _multiply(self, part: Any, blocks: Sequence[Array], out: Array) -> bool:
        columns = 64 // out.itemsize
        whole = out.shape[1] // columns * columns
        seen = np.zeros(64, np.uint8)
        if whole:
            self._tiles(part, _addresses(blocks), out[:, :whole], seen)
        if whole < out.shape[1]:
            rest = out.shape[1] - whole
            padded = [np.zeros((b.shape[0], columns), out.dtype) for b in blocks]
            for target, source in zip(padded, blocks, strict=True):
                target[:, :rest] = source[:, whole:]
            edge = np.empty((self.rows, columns), out.dtype)
            self._tiles(part, _addresses(padded), edge, seen)
            out[:, whole:] = edge[:, :rest]
        return int(max(seen.view(out.dtype).tolist())) < self.p


class TiledLeft(PiecewiseLeft):
    """Left operand for the processor's tile unit (AMX)."""

    def __init__(self, p: int, a: Array) -> None:
        from securevfl.field.kernels import tiles as _tiles

        self.constants = _constants(p, a.itemsize)
        super().__init__(p, a, _tiles.MOST_TERMS)

    def _part(self, a: Array) -> Array:
        return a

    def _tiles(self, part: Any, rows: Array, out: Array, seen: Array) -> None:
        from securevfl.field.kernels import amx32, amx64
        from securevfl.field.kernels import tiles as _tiles

        tiles, steps = out.shape[1] * out.itemsize // 64, max(1, -(-part.shape[1] // 16))
        width = min(tiles, _PANEL_TILES, max(4, _PANEL_BYTES // (1024 * steps)))
        halves = () if out.itemsize == 4 else (2,)
        work: tuple[Any, ...] = (
            _tiles.SETUP,
            scratch("panel", (width, steps, 16, 16), np.uint32),
            scratch("sums", (*halves, width, 4, 16, 16), np.uint32),
            seen,
            np.empty(16, out.dtype),
        )
        if halves:
            work += np.empty((4, 8), np.uint64), np.empty((4, 16), np.uint64)
        left = scratch("left", (*halves, steps, 4, 16, 16), np.uint32)
        multiply = amx64.multiply if halves else amx32.multiply
        place = out.ctypes.data, out.strides[0]
        multiply(part, left, rows, tiles, *place, self.constants, work)


@lru_cache(maxsize=32)
def _constants(p: int, size: int) -> tuple[Any, ...]:
    """Values of the argument `constants` for kernels on elements of `size` bytes."""
    if size == 4:
        return np.uint64(p), (1.0 - 2.0**-50) / p, np.float32(256 / p * (1 - 2.0**-20))
    c = primes.montgomery(p, 64)
    words = p, c.negative_inverse, c.square, (1 << 72) % p
    return tuple(np.uint64(word) for word in words)


class StreamLeft(PiecewiseLeft):
    """Left operand of at most 32 terms for the tile unit, 2^30 < p < 2^31; see `stream`."""

    def __init__(self, p: int, a: Array) -> None:
        super().__init__(p, a, max(1, a.shape[1]))

    @staticmethod
    def fits(p: int, a: Array) -> bool:
        """Whether the bounds of `stream` hold."""
        from securevfl.field.kernels import stream

        return 1 << 30 < p < 1 << 31 and 0 < a.shape[1] <= stream.MOST_TERMS

    def _part(self, a: Array) -> Array:
        """Byte limbs of the left operand, rows of all planes one after another, in blocks of 16."""
        from securevfl.field.kernels import amx32

        steps = -(-a.shape[1] // 16)
        planes = aligned((-(-self.rows // 16), steps, 4, 16, 16), np.uint32)
        p, _, factor = _constants(self.p, 4)
        amx32.expand(a, planes, p, factor, np.empty(16, np.uint32))
        by_plane = planes.transpose(2, 0, 3, 1, 4).reshape(4, -1, steps, 16)
        rows = by_plane[:, : self.rows].reshape(-1, steps, 16)
        blocks = -(-rows.shape[0] // 16)
        stacked = np.zeros((blocks * 16, steps, 16), np.uint32)
        stacked[: rows.shape[0]] = rows
        left = aligned((blocks, steps, 16, 16), np.uint32)
        left[:] = stacked.reshape(blocks, 16, steps, 16).transpose(0, 2, 1, 3)
        return left

    def _tiles(self, part: Any, rows: Array, out: Array, seen: Array) -> None:
        from securevfl.field.kernels import stream
        from securevfl.field.kernels import tiles as _tiles

        tiles, (blocks, steps) = out.shape[1] // 16, part.shape[:2]
        group = max(1, min(8, _SUMS_BYTES // (1024 * blocks)))
        work = (
            _tiles.setup((3, 4, 5), (6, 7), min(16, rows.size)),
            scratch("panel", (min(tiles, _PANEL_TILES), steps, 16, 16), np.uint32),
            scratch("sums", (group, blocks, 16, 16), np.uint32),
            seen,
        )
        place, stride = out.ctypes.data, out.strides[0]
        around = tiles >= AROUND and place % 64 == 0 and stride % 64 == 0
        target = self.rows, rows, tiles, place, stride
        modulus, factor = np.uint32(self.p), np.float32(65536 / self.p * (1 - 2.0**-20))
        stream.multiply(part, *target, modulus, factor, around, work)


@lru_cache(maxsize=32)
def _vector_form(p: int, size: int, wide: bool) -> tuple[Any, int, int]:
    """Kernel for elements of `size` bytes, its terms between folds, and 2^32 mod p."""
    from securevfl.field.kernels import vector

    ring = "long" if size == 8 else "mersenne" if p == 2**31 - 1 else "short"
    form = vector.FORMS[ring, wide]
    radix = (1 << 32) % p
    radix -= p if radix > p // 2 else 0
    rest = (1 << 32) + (abs(radix) << 31)
    terms = min(1 << 20, ((1 << 63) - 1 - rest) // ((p - 1) // 2) ** 2)
    return form, form.terms or terms, radix


class VectorLeft(PiecewiseLeft):
    """Left operand for 256- or 512-bit vectors; see `vector`."""

    def __init__(self, p: int, a: Array, wide: bool) -> None:
        from securevfl.field.kernels import vector

        self.form, self.terms, self.radix = _vector_form(p, a.itemsize, wide)
        super().__init__(p, a, vector.MOST_TERMS)

    def _part(self, a: Array) -> Array:
        return a

    def _multiply(self, part: Any, blocks: Sequence[Array], out: Array) -> bool:
        """Write the product with one part of the left operand."""
        from securevfl.field.kernels import vector

        (height, inner), form = part.shape, self.form
        length = out.shape[1] * out.itemsize
        room = max(1, (_PANEL_BYTES >> 1) // (form.width * max(1, inner)))
        count = -(-length // form.width)
        many = min(count, room)
        kept = count > room
        sizes = (
            8 * inner,
            4 * form.limbs * inner * (height if kept else form.rows),
            many * inner * form.width,
            form.rows * form.width,
            form.width,
        )
        memory, (sources, limbs, panel, edge, tail) = places("vectors", sizes)
        plan = vector.Plan(
            left=address(part),
            inner=inner,
            height=height,
            length=length,
            out=address(out),
            stride=out.strides[0],
            blocks=len(blocks),
            sources=sources,
            limbs=limbs,
            kept=kept,
            panel=panel,
            many=many,
            edge=edge,
            tail=tail,
            terms=self.terms,
            modulus=self.p,
            radix=self.radix,
        )
        words = array("q", plan)
        for block in blocks:
            words.extend((address(block), block.strides[0], len(block)))
        good = form.multiply(words.buffer_info()[0])
        del memory  # Not before.
        return bool(good)


def _addresses(blocks: Sequence[Array]) -> Array:
    """Addresses, int64, of all rows of the blocks, whose last axis is contiguous."""
    if len(blocks) == 1:
        (block,) = blocks
        return address(block) + block.strides[0] * np.arange(len(block), dtype=np.int64)
    if all(len(b) == 1 for b in blocks):
        return np.array([address(b) for b in blocks])
    return np.concatenate([_addresses([b]) for b in blocks])


def _take(blocks: Sequence[Array], start: int, count: int) -> list[Array]:
    """Rows start .. start + count of the stacked blocks."""
    taken, stop, base = [], start + count, 0
    for block in blocks:
        part = block[max(0, start - base) : max(0, stop - base)]
        if part.shape[0]:
            taken.append(part)
        base += block.shape[0]
    return taken or [blocks[0][:0]]
