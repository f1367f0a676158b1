"""Matrix products on processors with tile units for bytes (AMX-INT8).

A product a x mod p is written with the bytes x_b of x and the bytes of a 2^(8b) mod p:
    a x = sum_b (a 2^(8b) mod p) x_b = sum_j 2^(8j) sum_b limb_j(a 2^(8b) mod p) x_b   (mod p).
The left operand is expanded once into those limbs, one plane per j; the right operand's own bytes
in memory are already in the order that the tile unit reads, four per 32-bit word. One tile
instruction adds 16 x 16 sums of 16 terms each to one plane; planes are combined and reduced at the
end. Elements of 64 bits have eight planes, and a second set of columns for their upper words.

Bound: a plane's sum of k terms is at most 4 k 255^2 < 2^32 for k <= 16384, and sums of limbs over
planes are at most sum_k sum_b (a 2^(8b) mod p) x_b < 4 k 255 p <= 2^24 p.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from securevfl.field._ir import (
    I8,
    I32,
    I64,
    copier,
    every,
    high_word,
    joined,
    load,
    smaller,
    splat,
    store,
    tile,
)
from securevfl.field._jit import inlined, intrinsic, kernel

Array = NDArray[Any]

MOST_TERMS = 16384
_BLOCK = 8  # Steps of 16 terms whose limbs, 32 KiB, stay in the L1 cache.

_POINTER = ir.PointerType(I8)


def setup(left: tuple[int, ...], right: tuple[int, ...], terms: int) -> Array:
    """Return the configuration where `left` tiles hold limbs, `right` ones columns, others sums.

    A left tile is 4 bytes wide for each of at most 16 terms, and a right tile has a row for each.
    """
    config = np.zeros(64, np.uint8)
    config[0] = 1  # The palette with eight tiles of up to 16 rows and 64 bytes.
    config[16:32:2], config[48:56] = 64, 16
    config[[16 + 2 * tile for tile in left]] = 4 * terms
    config[[48 + tile for tile in right]] = terms
    return config


# Sums in 0 to 3, columns in 4, limbs in 5 to 7.
SETUP = setup((5, 6, 7), (4,), 16)

_configure = tile("ldtilecfg", addresses=1)
_release = tile("tilerelease")
_zero0, _zero1, _zero2, _zero3 = (tile("tilezero", t) for t in range(4))
_load0, _load1, _load2, _load3, _load4, _load5, _load6, _load7 = (
    tile("tileloadd64", t, addresses=2) for t in range(8)
)
_store0, _store1, _store2, _store3 = (tile("tilestored64", t, addresses=2) for t in range(4))
_dot0, _dot1 = tile("tdpbuud", 0, 5, 4), tile("tdpbuud", 1, 6, 4)
_dot2, _dot3 = tile("tdpbuud", 2, 7, 4), tile("tdpbuud", 3, 5, 4)


def _planes(builder: Any, v: list[Any]) -> list[Any]:
    """Transpose the bytes of four vectors of words: plane j holds byte j of each v_b, in order."""

    def mix(a: Any, b: Any, bits: int, low: int) -> tuple[Any, Any]:
        shift, keep = every(I32, 16, bits), every(I32, 16, low)
        rest = every(I32, 16, low << bits)
        first = builder.or_(builder.and_(a, keep), builder.and_(builder.shl(b, shift), rest))
        second = builder.or_(builder.and_(builder.lshr(a, shift), keep), builder.and_(b, rest))
        return first, second

    even01, odd01 = mix(v[0], v[1], 8, 0x00FF00FF)
    even23, odd23 = mix(v[2], v[3], 8, 0x00FF00FF)
    plane0, plane2 = mix(even01, even23, 16, 0x0000FFFF)
    plane1, plane3 = mix(odd01, odd23, 16, 0x0000FFFF)
    return [plane0, plane1, plane2, plane3]


@intrinsic
def _expand32(context: Any, source: Any, target: Any, p: Any, factor: Any) -> Any:
    """Write the four planes of 16 words below p < 2^31 to target, target + 1024, ..

    256 x mod p: q = trunc(x factor) with factor just below 256/p is floor(256 x / p) or one less,
    since the quotient is below 256 and single precision errs by less than 2^-14 there; so
    256 x - q p lies in [0, 2p), below 2^32.
    """

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        source, target, p, factor = args
        modulus, scale = splat(builder, p, 16), splat(builder, factor, 16)
        v = [load(builder, source, 0, I32, 16)]
        for _step in range(3):
            x = v[-1]
            real = builder.sitofp(x, ir.VectorType(ir.FloatType(), 16))
            q = builder.fptosi(builder.fmul(real, scale), x.type)
            r = builder.sub(builder.shl(x, every(I32, 16, 8)), builder.mul(q, modulus))
            v.append(smaller(builder, r, builder.sub(r, modulus)))
        for j, plane in enumerate(_planes(builder, v)):
            store(builder, target, 1024 * j, plane)
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.uint32, types.float32), generate


def _store_planes64(builder: Any, v: list[list[Any]], lower: Any, upper: Any) -> None:
    """Write planes 0 .. 3 of four vectors of 16 elements to `lower`, 4 .. 7 to `upper`."""
    words = ir.VectorType(I32, 8)
    for shift, target in ((0, lower), (32, upper)):
        parts = []
        for pair in v:
            moved = [builder.lshr(x, every(I64, 8, shift)) for x in pair]
            parts.append(joined(builder, *[builder.trunc(x, words) for x in moved]))
        for j, plane in enumerate(_planes(builder, parts)):
            store(builder, target, 1024 * j, plane)


@intrinsic
def _expand61(context: Any, source: Any, lower: Any, upper: Any) -> Any:
    """Write the eight planes of 16 elements modulo 2^61 - 1, where 2^8 x is a turn by 8 bits."""

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
    """Write the eight planes of 16 elements whose v_b, 128 bytes each, stand at powers + 128 b."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        v = [[load(builder, args[0], 128 * b + 64 * h, I64, 8) for h in range(2)] for b in range(4)]
        _store_planes64(builder, v, args[1], args[2])
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _combine32(context: Any, source: Any, target: Any, p: Any, inverse: Any) -> Any:
    """Write 16 words sum_j 2^(8j) C_j mod p for p < 2^31, inverse just below 1/p.

    The sum t is below 2^57 and t/p below 2^24, so the quotient in double precision is the true
    one or one less and fits 32 bits.
    """

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        source, target, p, inverse = args
        words = every(I64, 8, 0xFFFFFFFF)
        modulus = builder.and_(splat(builder, p, 8), words)
        scale = splat(builder, inverse, 8)
        halves = []
        for half in range(2):
            t = every(I64, 8, 0)
            for j in range(4):
                plane = load(builder, source, 1024 * j + 32 * half, I32, 8)
                wide = builder.zext(plane, t.type)
                t = builder.add(t, builder.shl(wide, every(I64, 8, 8 * j)))
            real = builder.sitofp(t, ir.VectorType(ir.DoubleType(), 8))
            q = builder.and_(builder.fptosi(builder.fmul(real, scale), t.type), words)
            r = builder.sub(t, builder.mul(q, modulus))
            r = smaller(builder, r, builder.sub(r, modulus))
            halves.append(builder.trunc(r, ir.VectorType(I32, 8)))
        store(builder, target, 0, joined(builder, *halves))
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.uint64, types.float64), generate


def _sum_planes(builder: Any, lower: Any, upper: Any) -> tuple[Any, Any, Any]:
    """Return (A, M, B) with A + 2^32 M + 2^64 B the value of eight columns.

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
    """Write A, M and B of eight columns, for a reduction of any modulus elsewhere."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        for i, part in enumerate(_sum_planes(builder, args[0], args[1])):
            store(builder, args[2], 64 * i, part)
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _copy32(context: Any, source: Any, target: Any, seen: Any) -> Any:
    """Copy 16 words and raise the 16 maxima at `seen`."""
    return types.void(types.int64, types.int64, types.int64), copier(I32, 16)


@intrinsic
def _copy64(context: Any, source: Any, target: Any, seen: Any) -> Any:
    """Copy 8 double words and raise the 8 maxima at `seen`."""
    return types.void(types.int64, types.int64, types.int64), copier(I64, 8)


@intrinsic
def _copy128(context: Any, source: Any, target: Any) -> Any:
    """Copy 128 bytes."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        for half in (0, 64):
            store(builder, args[1], half, load(builder, args[0], half, I64, 8))
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def _high(context: Any, a: Any, b: Any) -> Any:
    """Return the upper 64 bits of a 64 x 64-bit product."""
    return types.uint64(types.uint64, types.uint64), high_word


@inlined
def _redc(high: Any, low: Any, p: Any, negative_inverse: Any) -> Any:
    """Return (high 2^64 + low) / 2^64 mod p for high < p < 2^62."""
    m = low * negative_inverse
    t = high + _high(m, p) + (np.uint64(1) if low != np.uint64(0) else np.uint64(0))
    return t - p if t >= p else t


@inlined
def _expand(a: Array, m: int, planes: Array, edge: Array, powers: Array, constants: Any) -> None:
    """Write the planes of rows 16 m .. 16 m + 15 of `a` to planes[half, step, plane, row, word].

    Rows and terms beyond the matrix are zero. `edge` holds one short piece of a row, `powers` the
    four multiples of it for a modulus without a turn.
    """
    p, inverse, _, _, radix, factor = constants
    rows, inner = a.shape
    half = planes.shape[1] * 4096
    for s in range(planes.shape[1]):
        for r in range(16):
            i, count = 16 * m + r, min(16, inner - 16 * s)
            source = a.ctypes.data + i * a.strides[0] + 16 * s * a.itemsize
            if i >= rows or count < 16:
                edge[:] = np.uint64(0)
                for j in range(count if i < rows else 0):
                    edge[j] = a[i, 16 * s + j]
                source = edge.ctypes.data
            target = planes.ctypes.data + s * 4096 + r * 64
            if planes.shape[0] == 1:
                _expand32(source, target, p, factor)
            elif p == np.uint64(2**61 - 1):
                _expand61(source, target, target + half)
            else:
                _copy128(source, powers.ctypes.data)
                for b in range(3):
                    for j in range(16):
                        x = powers[b, j]
                        powers[b + 1, j] = _redc(_high(x, radix), x * radix, p, inverse)
                _expand64(powers.ctypes.data, target, target + half)


@kernel
def expand(a: Array, left: Array, constants: Any, edge: Array) -> None:
    """Write the planes of the whole matrix to left[m tile, half, step, plane, row, word]."""
    powers = np.empty((4, 16), np.uint64)
    for m in range(left.shape[0]):
        _expand(a, m, left[m], edge, powers, constants)


@inlined
def _gather(rows: Array, offset: int, tiles: int, size: int, panel: Array, seen: Array) -> None:
    """Copy 64-byte pieces of the rows to panel[tile, step, row]; rows beyond the last are zero."""
    top, base = seen.ctypes.data, panel.ctypes.data
    pitch = panel.shape[1] * 1024  # Bytes from one tile of columns to the next.
    for i in range(rows.size):
        source, target = rows[i] + offset, base + 64 * i
        for t in range(tiles):
            if size == 4:
                _copy32(source + 64 * t, target + pitch * t, top)
            else:
                _copy64(source + 64 * t, target + pitch * t, top)
    for i in range(rows.size, panel.shape[1] * 16):
        panel[:, i // 16, i % 16] = np.uint32(0)


@inlined
def _accumulate(left: int, panel: int, sums: int, steps: int, first: bool) -> None:
    """Add `steps` steps of four planes to the four sums of one tile."""
    if first:
        _zero0()
        _zero1()
        _zero2()
        _zero3()
    else:
        _load0(sums, 64)
        _load1(sums + 1024, 64)
        _load2(sums + 2048, 64)
        _load3(sums + 3072, 64)
    for _ in range(steps):
        _load4(panel, 64)
        _load5(left, 64)
        _dot0()
        _load6(left + 1024, 64)
        _dot1()
        _load7(left + 2048, 64)
        _dot2()
        _load5(left + 3072, 64)
        _dot3()
        left += 4096
        panel += 1024
    _store0(sums, 64)
    _store1(sums + 1024, 64)
    _store2(sums + 2048, 64)
    _store3(sums + 3072, 64)


@inlined
def _reduce64(parts: Array, p: Any, inverse: Any, square: Any) -> None:
    """Reduce A + 2^32 M + 2^64 B for eight columns; parts[0] receives the elements."""
    for c in range(8):
        low = parts[0, c] + (parts[1, c] << np.uint64(32))
        carry = np.uint64(1) if low < parts[0, c] else np.uint64(0)
        high = (parts[2, c] + (parts[1, c] >> np.uint64(32)) + carry) % p
        t = _redc(high, low, p, inverse)
        parts[0, c] = _redc(_high(t, square), t * square, p, inverse)


@inlined
def _finish(place: Any, width: int, rows: int, parts: Array, constants: Any) -> None:
    """Write `rows` rows of `width` tiles, reduced modulo p.

    place is the address of the sums, the bytes between halves (0 where there is one), the target
    and the bytes between its rows.
    """
    sums, half, out, stride = place
    p, inverse, square, reciprocal, _, _ = constants
    for r in range(rows):
        lower, target = sums + 64 * r, out + stride * r
        if half == 0:
            for t in range(width):
                _combine32(lower + 4096 * t, target + 64 * t, p, reciprocal)
        elif p == np.uint64(2**61 - 1):
            for t in range(width):
                _combine61(lower + 4096 * t, lower + 4096 * t + half, target + 64 * t)
        else:
            for t in range(width):
                _combine64(lower + 4096 * t, lower + 4096 * t + half, parts.ctypes.data)
                _reduce64(parts, p, inverse, square)
                _copy64(parts.ctypes.data, target + 64 * t, parts[3].ctypes.data)


@kernel
def multiply(
    a: Array,
    left: Array,
    ready: bool,
    rows: Array,
    tiles: int,
    out: int,
    stride: int,
    constants: Any,
    work: Any,
) -> None:
    """Write the product of `a` with a matrix of whole 64-byte tiles.

    Parameters
    ----------
    a : ndarray
        The left operand (m, k).
    left : ndarray
        Its planes from `expand` if `ready`, else room for those of 16 rows, which are then made
        when needed: expanding again costs less than fetching planes from beyond the L2 cache.
    rows : ndarray
        int64 addresses of the k rows of the right operand.
    tiles : int
        Tiles of 64 bytes in each row.
    out, stride : int
        Address of the result and the bytes between its rows.
    constants : tuple
        p, -1/p mod 2^64 and 2^128 mod p (uint64), a number just below 1/p (float64), 2^72 mod p
        (uint64), a number just below 256/p (float32).
    work : tuple
        setup (64 bytes); panel (tiles at a time, steps, 16, 16) and sums (halves, tiles at a time,
        4, 16, 16) of uint32; seen, 64 bytes of maxima over all inputs; edge, 16 elements.
    """
    setup, panel, sums, seen, edge = work
    halves, steps = left.shape[1], left.shape[2]
    count, size = a.shape[0], a.itemsize
    parts, powers = np.empty((4, 8), np.uint64), np.empty((4, 16), np.uint64)
    _configure(setup.ctypes.data)
    for begin in range(0, tiles, panel.shape[0]):
        width = min(panel.shape[0], tiles - begin)
        _gather(rows, 64 * begin, width, size, panel, seen)
        for m in range((count + 15) // 16):
            planes = left[m if ready else 0]
            if not ready:
                _expand(a, m, planes, edge, powers, constants)
            for h in range(halves):
                for start in range(0, steps, _BLOCK):
                    many = min(_BLOCK, steps - start)
                    limbs = planes[h, start].ctypes.data
                    for t in range(width):
                        right = panel[t, start].ctypes.data
                        _accumulate(limbs, right, sums[h, t].ctypes.data, many, start == 0)
            half = sums.shape[1] * 4096 if halves == 2 else 0
            place = sums.ctypes.data, half, out + 16 * m * stride + 64 * begin, stride
            _finish(place, width, min(16, count - 16 * m), parts, constants)
    _release()
