"""Matrix products by 256- and 512-bit vectors, for p < 2^31 and for p = 2^61 - 1.

Both operands are centred, so that more products fit a signed 64-bit sum, and both use the
multiplication of signed 32-bit halves of 64-bit lanes. One register tile holds `mr` rows and one
or two 64-byte pieces of columns, two sums per lane:

p < 2^31
    A lane holds the elements of two neighbouring columns, and each has its sum. |a|, |b| <= h =
    (p - 1)/2. A fold t = (t mod 2^32) + R (t >> 32) with R = 2^32 mod p centred leaves |t| <=
    2^32 + 2^31 |R|; `terms` products of at most h^2 may follow while the total is below 2^63.
p = 2^61 - 1
    A lane holds b = 2^30 b1 + b0 and a = 2^31 a1 + a0 with |a0|, |b1| <= 2^30, |a1|, |b0| <= 2^29.
    Since 2^61 = 1, a b = S0 + 2^30 S1 with S0 = a0 b0 + a1 b1 <= 2^60 and S1 = 2 a1 b0 + a0 b1 <=
    1.5 2^60 in magnitude. A fold leaves S1 < 2^31 and S0 < 2^61 + 2^34, so five terms fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from securevfl.field.kernels.ir import I32, I64, every, load, loop, slot, smaller, splat, store
from securevfl.field.kernels.jit import inlined, intrinsic, kernel

Array = NDArray[Any]

# Rows and bytes of columns of a register tile, for 256- and 512-bit vectors.
TILES = {False: (2, 64), True: (6, 128)}
MOST_TERMS = 4096  # A panel of so many rows still fits the L2 cache.


def _low_signed(builder: Any, x: Any) -> Any:
    """Sign-extend the low halves, in the form that selects the 32-bit multiplication."""
    shift = every(I64, x.type.count, 32)
    return builder.ashr(builder.shl(x, shift), shift)


def _finish31(builder: Any, t: Any, modulus: Any, inverse: Any) -> Any:
    """Return t mod p for a folded t.

    |t / p| is below 2^31, so that its double-precision quotient errs by less than one and fits 32
    bits: t - q p lies in (-2p, 2p), and the two minima add and subtract p where that is needed.
    """
    lanes = t.type.count
    p = splat(builder, modulus, lanes)
    real = builder.sitofp(t, ir.VectorType(ir.DoubleType(), lanes))
    q = builder.fptosi(builder.fmul(real, splat(builder, inverse, lanes)), t.type)
    r = builder.sub(t, builder.mul(_low_signed(builder, q), _low_signed(builder, p)))
    r = smaller(builder, r, builder.add(r, p))
    return smaller(builder, r, builder.sub(r, p))


def _finish61(builder: Any, first: Any, second: Any) -> Any:
    """Return S0 + 2^30 S1 mod 2^61 - 1 for folded sums, whose total is in [-4, 2^62 + 2^34)."""
    lanes = first.type.count
    p = every(I64, lanes, 2**61 - 1)
    t = builder.add(first, builder.shl(second, every(I64, lanes, 30)))
    r = builder.add(builder.and_(t, p), builder.ashr(t, every(I64, lanes, 61)))
    return smaller(builder, r, builder.sub(r, p))


def _tile(lanes: int, rows: int, pieces: int, wide: bool) -> Any:
    """Return the generator of a register tile.

    Parameters
    ----------
    lanes : int
        64-bit lanes of a vector register.
    rows, pieces : int
        Rows of the left operand and vectors of columns that one tile covers.
    wide : bool
        Elements of 61 bits, else of up to 31.
    """
    factors = 3 if wide else 1

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        left, right, inner, terms, radix, modulus, inverse, target = args
        sums = [
            [[slot(builder, every(I64, lanes, 0)) for _e in range(2)]
             for _v in range(pieces)]
            for _r in range(rows)
        ]  # fmt: skip
        width = 8 * lanes

        def add(place: Any, a: Any, b: Any) -> None:
            product = builder.mul(_low_signed(builder, a), _low_signed(builder, b))
            builder.store(builder.add(builder.load(place), product), place)

        def term(k: Any) -> None:
            source = builder.add(right, builder.mul(k, ir.Constant(I64, width * pieces)))
            limbs = builder.add(left, builder.mul(k, ir.Constant(I64, 8 * rows * factors)))
            for v in range(pieces):
                even = load(builder, source, width * v, I64, lanes)
                odd = builder.lshr(even, every(I64, lanes, 32))
                for r in range(rows):
                    a = []
                    for f in range(factors):
                        place = builder.add(limbs, ir.Constant(I64, 8 * (r * factors + f)))
                        scalar = builder.load(builder.inttoptr(place, ir.PointerType(I64)))
                        a.append(splat(builder, scalar, lanes))
                    first, second = sums[r][v]
                    add(first, even, a[0])
                    add(second, odd, a[0])
                    if wide:
                        add(first, odd, a[1])
                        add(second, even, a[2])

        def fold(first: Any, second: Any) -> None:
            if not wide:
                scale = splat(builder, radix, lanes)
                for place in (first, second):
                    t = builder.load(place)
                    low = builder.and_(t, every(I64, lanes, 0xFFFFFFFF))
                    high = builder.ashr(t, every(I64, lanes, 32))
                    product = builder.mul(_low_signed(builder, high), _low_signed(builder, scale))
                    builder.store(builder.add(low, product), place)
                return
            s0, s1 = builder.load(first), builder.load(second)
            carry = builder.ashr(s1, every(I64, lanes, 31))
            builder.store(builder.and_(s1, every(I64, lanes, 2**31 - 1)), second)
            high = builder.ashr(s0, every(I64, lanes, 61))
            low = builder.and_(s0, every(I64, lanes, 2**61 - 1))
            builder.store(builder.add(builder.add(low, high), carry), first)

        zero = ir.Constant(I64, 0)
        with loop(builder, zero, inner, terms) as (start, _count):
            stop = builder.add(start, terms)
            stop = builder.select(builder.icmp_signed("<", stop, inner), stop, inner)
            with loop(builder, start, stop, ir.Constant(I64, 1)) as (k, _c):
                term(k)
            for r in range(rows):
                for v in range(pieces):
                    fold(*sums[r][v])
        for r in range(rows):
            for v in range(pieces):
                first, second = (builder.load(place) for place in sums[r][v])
                finish = _finish61(builder, first, second) if wide else None
                if finish is None:
                    even, odd = (_finish31(builder, t, modulus, inverse) for t in (first, second))
                    finish = builder.or_(even, builder.shl(odd, every(I64, lanes, 32)))
                store(builder, target, (r * pieces + v) * width, finish)
        return context.get_dummy_value()

    return generate


_SIGNATURE = types.void(*[types.int64] * 6, types.float64, types.int64)


@intrinsic
def _tile512(
    context: Any, a: Any, b: Any, inner: Any, terms: Any, radix: Any, p: Any, inv: Any, out: Any
) -> Any:
    """Six rows, 32 columns of 32 bits."""
    return _SIGNATURE, _tile(8, 6, 2, wide=False)


@intrinsic
def _tile512w(
    context: Any, a: Any, b: Any, inner: Any, terms: Any, radix: Any, p: Any, inv: Any, out: Any
) -> Any:
    """Six rows, 16 columns of 64 bits."""
    return _SIGNATURE, _tile(8, 6, 2, wide=True)


@intrinsic
def _tile256(
    context: Any, a: Any, b: Any, inner: Any, terms: Any, radix: Any, p: Any, inv: Any, out: Any
) -> Any:
    """Two rows, 16 columns of 32 bits."""
    return _SIGNATURE, _tile(4, 2, 2, wide=False)


@intrinsic
def _tile256w(
    context: Any, a: Any, b: Any, inner: Any, terms: Any, radix: Any, p: Any, inv: Any, out: Any
) -> Any:
    """Two rows, 8 columns of 64 bits."""
    return _SIGNATURE, _tile(4, 2, 2, wide=True)


@intrinsic
def _centre31(context: Any, source: Any, target: Any, p: Any, seen: Any) -> Any:
    """Copy 16 words as c = b - p where b > (p - 1)/2, else b; raise the maxima at `seen`."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        source, target, p, seen = args
        x, most = load(builder, source, 0, I32, 16), load(builder, seen, 0, I32, 16)
        modulus = splat(builder, p, 16)
        above = builder.icmp_unsigned(">", x, builder.lshr(modulus, every(I32, 16, 1)))
        store(builder, target, 0, builder.select(above, builder.sub(x, modulus), x))
        store(builder, seen, 0, builder.select(builder.icmp_unsigned(">", x, most), x, most))
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.uint32, types.int64), generate


@intrinsic
def _centre61(context: Any, source: Any, target: Any, seen: Any) -> Any:
    """Copy 8 double words as b0 + 2^32 b1, centred; raise the maxima at `seen`."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        source, target, seen = args
        x, most = load(builder, source, 0, I64, 8), load(builder, seen, 0, I64, 8)
        above = builder.icmp_unsigned(">", x, every(I64, 8, 2**60 - 1))
        c = builder.select(above, builder.sub(x, every(I64, 8, 2**61 - 1)), x)
        moved = builder.add(c, every(I64, 8, 2**29))
        low = builder.sub(builder.and_(moved, every(I64, 8, 2**30 - 1)), every(I64, 8, 2**29))
        high = builder.shl(builder.ashr(moved, every(I64, 8, 30)), every(I64, 8, 32))
        low = builder.and_(low, every(I64, 8, 0xFFFFFFFF))
        store(builder, target, 0, builder.or_(low, high))
        store(builder, seen, 0, builder.select(builder.icmp_unsigned(">", x, most), x, most))
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _copy64(context: Any, source: Any, target: Any) -> Any:
    """Copy 64 bytes."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        store(builder, args[1], 0, load(builder, args[0], 0, I64, 8))
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@kernel
def limbs31(a: Array, p: Any, out: Array) -> None:
    """Write the centred elements of a (m, k) to out[block, term, row]; missing rows are zero."""
    half = p >> np.uint64(1)
    out[:] = 0
    for i in range(a.shape[0]):
        block, row = i // out.shape[2], i % out.shape[2]
        for k in range(a.shape[1]):
            x = np.int64(a[i, k])
            out[block, k, row] = x - np.int64(p) if x > np.int64(half) else x


@kernel
def limbs61(a: Array, p: Any, out: Array) -> None:
    """Write a0, a1 and 2 a1 of centred elements to out[block, term, 3 row + limb]."""
    half, per_block = np.int64(p >> np.uint64(1)), out.shape[2] // 3
    out[:] = 0
    for i in range(a.shape[0]):
        block, row = i // per_block, i % per_block
        for k in range(a.shape[1]):
            x = np.int64(a[i, k])
            x = x - np.int64(p) if x > half else x
            high = (x + np.int64(1 << 30)) >> 31
            out[block, k, 3 * row] = x - (high << 31)
            out[block, k, 3 * row + 1] = high
            out[block, k, 3 * row + 2] = 2 * high


@kernel
def multiply(
    left: Array, rows: Array, tiles: int, out: Array, constants: Any, wide: bool, work: Any
) -> None:
    """Write the product of `left` with a matrix of whole 64-byte pieces.

    Parameters
    ----------
    left : ndarray
        From limbs31 or limbs61.
    rows : ndarray
        int64 addresses of the k rows of the right operand.
    tiles : int
        Pieces of 64 bytes in each row.
    out : ndarray
        The result (m, n), last axis contiguous.
    constants : tuple
        p, terms per fold, R, 1/p.
    wide : bool
        512-bit vectors, else 256-bit ones.
    work : tuple
        panel (blocks of columns, k, bytes of a tile) and sums (rows of a tile, pieces, 64) of
        uint8; seen, 64 bytes of maxima.
    """
    p, panel, sums, seen = constants[0], work[0], work[1], work[2]
    size, per_tile = out.itemsize, panel.shape[2] // 64
    top, inner, count = seen.ctypes.data, rows.size, sums.shape[0]
    blocks = (tiles + per_tile - 1) // per_tile
    panel[:] = np.uint8(0)
    for begin in range(0, blocks, panel.shape[0]):
        for b in range(begin, min(begin + panel.shape[0], blocks)):
            base = panel[b - begin].ctypes.data
            for k in range(inner):
                for t in range(min(per_tile, tiles - b * per_tile)):
                    source = rows[k] + (b * per_tile + t) * 64
                    target = base + k * panel.shape[2] + 64 * t
                    if size == 4:
                        _centre31(source, target, np.uint32(p), top)
                    else:
                        _centre61(source, target, top)
        for m in range(left.shape[0]):
            limbs = left[m].ctypes.data
            for b in range(begin, min(begin + panel.shape[0], blocks)):
                right = panel[b - begin].ctypes.data
                _run(limbs, right, inner, constants, sums.ctypes.data, size == 8, wide)
                for r in range(min(count, out.shape[0] - m * count)):
                    target = out.ctypes.data + (m * count + r) * out.strides[0]
                    for t in range(min(per_tile, tiles - b * per_tile)):
                        _copy64(sums[r, t].ctypes.data, target + 64 * (b * per_tile + t))


@inlined
def _run(
    left: int, right: int, inner: int, constants: Any, out: int, long: bool, wide: bool
) -> None:
    """Compute one register tile."""
    p, terms, radix, inverse = constants
    if wide and long:
        _tile512w(left, right, inner, terms, radix, np.int64(p), inverse, out)
    elif wide:
        _tile512(left, right, inner, terms, radix, np.int64(p), inverse, out)
    elif long:
        _tile256w(left, right, inner, terms, radix, np.int64(p), inverse, out)
    else:
        _tile256(left, right, inner, terms, radix, np.int64(p), inverse, out)
