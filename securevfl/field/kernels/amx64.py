"""Matrix products of 64-bit elements by the tile unit, for p < 2^62; see `tiles` for the planes."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels.ir import (
    I32,
    I64,
    copier,
    every,
    high_part,
    joined,
    load,
    redc,
    smaller,
    store,
)
from securevfl.field.kernels.jit import inlined, intrinsic, kernel, types
from securevfl.field.kernels.tiles import BLOCK, accumulate, configure, planes, release

Array = NDArray[Any]

_MERSENNE = np.uint64(2**61 - 1)


def _store_planes64(builder: Any, v: list[list[Any]], lower: Any, upper: Any) -> None:
    """Emit stores of planes 0 .. 3 of four vectors of 16 elements to `lower`, 4 .. 7 to `upper`."""
    words = ir.VectorType(I32, 8)
    for shift, target in ((0, lower), (32, upper)):
        parts = []
        for pair in v:
            moved = [builder.lshr(x, every(I64, 8, shift)) for x in pair]
            parts.append(joined(builder, *[builder.trunc(x, words) for x in moved]))
        for j, plane in enumerate(planes(builder, parts)):
            store(builder, target, 1024 * j, plane)


@intrinsic
def _expand61(context: Any, source: Any, lower: Any, upper: Any) -> Any:
    """Write eight byte planes of 16 elements at `source` mod 2^61 - 1 (2^8 x rotates 8 bits)."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        v = [[load(builder, args[0], 64 * h, I64, 8) for h in range(2)]]
        for _step in range(3):
            turned = []
            for x in v[-1]:
                left = builder.and_(builder.shl(x, every(I64, 8, 8)), every(I64, 8, 2**61 - 1))
                turned.append(builder.or_(left, builder.lshr(x, every(I64, 8, 53))))
            v.append(turned)
        _store_planes64(builder, v, args[1], args[2])
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _expand64(context: Any, powers: Any, lower: Any, upper: Any) -> Any:
    """Write the eight byte planes of 16 elements from their multiples at powers + 128 b."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        v = [[load(builder, args[0], 128 * b + 64 * h, I64, 8) for h in range(2)] for b in range(4)]
        _store_planes64(builder, v, args[1], args[2])
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _sum_planes(builder: Any, lower: Any, upper: Any) -> tuple[Any, Any, Any]:
    """Emitted parts (A, M, B) of eight columns' values A + 2^32 M + 2^64 B.

    Each 64-bit lane of a plane holds the sum for the lower words of the right operand and, above
    it, that for the upper words. A, B < 2^57 and M < 2^58.
    """
    zero = every(I64, 8, 0)
    sums = [[zero, zero], [zero, zero]]
    for h, source in enumerate((lower, upper)):
        for j in range(4):
            lane = load(builder, source, 1024 * j, I64, 8)
            parts = (
                builder.and_(lane, every(I64, 8, 0xFFFFFFFF)),
                builder.lshr(lane, every(I64, 8, 32)),
            )
            for w, part in enumerate(parts):
                moved = builder.shl(part, every(I64, 8, 8 * j))
                sums[h][w] = builder.add(sums[h][w], moved)
    return sums[0][0], builder.add(sums[0][1], sums[1][0]), sums[1][1]


@intrinsic
def _combine61(context: Any, lower: Any, upper: Any, target: Any) -> Any:
    """Write eight sums modulo p = 2^61 - 1.

    2^64 B = 8 B < 2^60, and 2^32 M = 2^32 (M mod 2^29) + (M >> 29) < 2^61 + 2^29, so the total is
    below 2^62; one fold leaves at most p + 1, one conditional subtraction the rest.
    """

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        lower, upper, target = args
        a, m, b = _sum_planes(builder, lower, upper)
        total = builder.add(a, builder.shl(b, every(I64, 8, 3)))
        turned = builder.shl(builder.and_(m, every(I64, 8, 2**29 - 1)), every(I64, 8, 32))
        total = builder.add(total, builder.add(turned, builder.lshr(m, every(I64, 8, 29))))
        p = every(I64, 8, 2**61 - 1)
        r = builder.add(builder.and_(total, p), builder.lshr(total, every(I64, 8, 61)))
        store(builder, target, 0, smaller(builder, r, builder.sub(r, p)))
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _combine64(context: Any, lower: Any, upper: Any, target: Any) -> Any:
    """Write the parts A, M and B of eight columns, for reduction by any modulus later."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        for i, part in enumerate(_sum_planes(builder, args[0], args[1])):
            store(builder, args[2], 64 * i, part)
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _copy64(context: Any, source: Any, target: Any, seen: Any) -> Any:
    """Copy 8 double words, and update the 8 maxima at `seen`."""
    return types.void(types.int64, types.int64, types.int64), copier(I64, 8)


@intrinsic
def _copy128(context: Any, source: Any, target: Any) -> Any:
    """Copy 128 bytes."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        for half in (0, 64):
            store(builder, args[1], half, load(builder, args[0], half, I64, 8))
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@inlined
def _reduce64(parts: Array, p: Any, inverse: Any, square: Any) -> None:
    """Reduce A + 2^32 M + 2^64 B for eight columns; write the elements to parts[0]."""
    for c in range(8):
        # The value is high 2^64 + low. redc divides by 2^64, and the second one, of t (2^128 mod
        # p), undoes that: the result is the value mod p.
        low = parts[0, c] + (parts[1, c] << np.uint64(32))
        carry = np.uint64(1) if low < parts[0, c] else np.uint64(0)
        high = (parts[2, c] + (parts[1, c] >> np.uint64(32)) + carry) % p
        t = redc(high, low, p, inverse)
        parts[0, c] = redc(high_part(t, square), t * square, p, inverse)


@inlined
def _expand(a: Array, m: int, left: Array, edge: Array, powers: Array, constants: Any) -> None:
    """Write the byte planes of rows 16 m .. 16 m + 15 of `a` to left[half, step, plane, row, word].

    Rows and terms beyond the matrix are zero. `edge` holds one short piece of a row, `powers` its
    four multiples, for moduli other than 2^61 - 1.
    """
    p, inverse, _, radix = constants
    rows, inner = a.shape
    half = left.shape[1] * 4096
    for s in range(left.shape[1]):
        for r in range(16):
            i, count = 16 * m + r, min(16, inner - 16 * s)
            source = a.ctypes.data + i * a.strides[0] + 128 * s
            if i >= rows or count < 16:
                edge[:] = np.uint64(0)
                for j in range(count if i < rows else 0):
                    edge[j] = a[i, 16 * s + j]
                source = edge.ctypes.data
            target = left.ctypes.data + s * 4096 + r * 64
            if p == _MERSENNE:
                _expand61(source, target, target + half)
                continue
            _copy128(source, powers.ctypes.data)
            for b in range(3):
                for j in range(16):
                    x = powers[b, j]
                    # radix = 2^72 mod p, and redc divides by 2^64: the next multiple is 2^8 x mod
                    # p.
                    powers[b + 1, j] = redc(high_part(x, radix), x * radix, p, inverse)
            _expand64(powers.ctypes.data, target, target + half)


@inlined
def _finish(place: Any, width: int, rows: int, parts: Array, constants: Any) -> None:
    """Write `rows` rows of `width` tiles, reduced modulo p.

    place is the address of the sums, the bytes between their halves, the target and the bytes
    between its rows.
    """
    sums, half, out, stride = place
    p, inverse, square, _ = constants
    for r in range(rows):
        lower, target = sums + 64 * r, out + stride * r
        if p == _MERSENNE:
            for t in range(width):
                _combine61(lower + 4096 * t, lower + 4096 * t + half, target + 64 * t)
            continue
        for t in range(width):
            _combine64(lower + 4096 * t, lower + 4096 * t + half, parts.ctypes.data)
            _reduce64(parts, p, inverse, square)
            _copy64(parts.ctypes.data, target + 64 * t, parts[3].ctypes.data)


@kernel
def multiply(
    a: Array, left: Array, rows: Array, tiles: int, out: int, stride: int, constants: Any, work: Any
) -> None:
    """Write the product of `a` with a matrix of whole 64-byte tiles.

    Parameters
    ----------
    a : ndarray
        The left operand (m, k).
    left : ndarray
        Room for the planes of 16 rows, (2, steps, 4, 16, 16) of uint32. They are made again for
        each panel, which costs less than fetching planes from beyond the L2 cache.
    rows : ndarray
        int64 addresses of the k rows of the right operand.
    tiles : int
        Tiles of 64 bytes in each row.
    out, stride : int
        Address of the result and the bytes between its rows.
    constants : tuple
        p, -1/p mod 2^64, 2^128 mod p and 2^72 mod p, uint64.
    work : tuple
        setup (64 bytes); panel (tiles at a time, steps, 16, 16) and sums (2, tiles at a time, 4,
        16, 16) of uint32; seen, 64 bytes of maxima over all inputs; edge, 16 elements; parts, (4,
        8), and powers, (4, 16), of uint64.
    """
    setup, panel, sums, seen, edge, parts, powers = work
    steps, count, pitch = left.shape[1], a.shape[0], panel.shape[1] * 1024
    base, half = panel.ctypes.data, sums.shape[1] * 4096
    configure(setup.ctypes.data)
    panel[:] = np.uint32(0)
    for turn in range(-(-tiles // panel.shape[0])):  # A range with a step may raise.
        begin = turn * panel.shape[0]
        width = min(panel.shape[0], tiles - begin)
        for i in range(rows.size):
            for t in range(width):
                source = rows[i] + 64 * (begin + t)
                _copy64(source, base + pitch * t + 64 * i, seen.ctypes.data)
        for m in range((count + 15) // 16):
            _expand(a, m, left, edge, powers, constants)
            for h in range(2):
                for start in range(0, steps, BLOCK):
                    many = min(BLOCK, steps - start)
                    limbs = left[h, start].ctypes.data
                    for t in range(width):
                        right = base + pitch * t + 1024 * start
                        accumulate(limbs, right, sums[h, t].ctypes.data, many, start == 0)
            place = sums.ctypes.data, half, out + 16 * m * stride + 64 * begin, stride
            _finish(place, width, min(16, count - 16 * m), parts, constants)
    release()
