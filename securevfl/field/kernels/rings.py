"""Sums of products in 256- and 512-bit vectors, for p < 2^31 and for p = 2^61 - 1.

A ring says how elements are expanded, packed, multiplied and folded; `product` has the loops.
Both operands are centred, so that more products fit a signed 64-bit sum, and both use the
multiplication of signed 32-bit halves of 64-bit lanes. A register tile holds these sums:

p < 2^31
    A lane holds the elements of two neighbouring columns, and each has its sum. |a|, |b| <= h =
    (p - 1)/2. A fold t = (t mod 2^32) + R (t >> 32) with R = 2^32 mod p centred leaves |t| <=
    2^32 + 2^31 |R|; `terms` products of at most h^2 may follow while the total is below 2^63.
p = 2^31 - 1
    The same, with the fold t = (t mod 2^31) + (t >> 31). It leaves |t| <= 2^32 + 2^31, and
    8 h^2 = 2^63 - 2^34 + 8: eight terms fit.
p = 2^61 - 1
    A lane holds b = 2^31 b1 + b0, the left operand a0, a1 and a0 + a1, with |a0| <= 2^30 and
    |a1| <= 2^29. Karatsuba's sums S0 = a0 b0, S1 = a1 b1, S2 = (a0 + a1)(b0 + b1) give
    S0 + 2 S1 + 2^31 X with X = S2 - S0 - S1, since 2^62 = 2. S2 may wrap modulo 2^64, because only
    X, a0 b1 + a1 b0 <= 2^60 per term, must fit: seven terms. |S1| grows by 2^58 per term and is
    folded after 28. See `Long.fold`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from securevfl.field.kernels.ir import (
    I32,
    I64,
    every,
    joined,
    opaque,
    smaller,
    splat,
)


def _low_signed(builder: Any, x: Any) -> Any:
    """Emitted low halves sign-extended, in the form for the 32-bit multiplication."""
    shift = every(I64, x.type.count, 32)
    return builder.ashr(builder.shl(x, shift), shift)


def product(builder: Any, a: Any, b: Any) -> Any:
    """Emitted product of the signed low halves of 64-bit lanes."""
    return builder.mul(_low_signed(builder, a), _low_signed(builder, b))


def _cut(builder: Any, t: Any, bits: int) -> tuple[Any, Any]:
    """Emit t mod 2^bits and floor(t / 2^bits) of signed t."""
    lanes = t.type.count
    low = builder.and_(t, every(I64, lanes, (1 << bits) - 1))
    return low, builder.ashr(t, every(I64, lanes, bits))


class Short:
    """Code of products modulo a prime below 2^31: one limb, sums of even and of odd columns."""

    word = I32
    limbs = 1
    pairs = ((0, 0), (1, 0))  # Which part of the right operand meets which limb, for each sum.

    def __init__(self, builder: Any, lanes: int, p: Any, radix: Any) -> None:
        self.lanes = lanes
        self.p, self.radix = splat(builder, p, lanes), splat(builder, radix, lanes)
        self.modulus = builder.trunc(p, I32)
        self.words = splat(builder, self.modulus, 2 * lanes)
        one = ir.Constant(ir.DoubleType(), 1.0)
        inverse = builder.fdiv(one, builder.sitofp(p, ir.DoubleType()))
        self.inverse = splat(builder, inverse, lanes)

    def expand(self, builder: Any, x: Any) -> Any:
        """Emitted centred words of left operand elements."""
        return centred(builder, x, splat(builder, self.modulus, x.type.count))

    def pack(self, builder: Any, x: Any) -> Any:
        """Emitted words x below p, centred, as 64-bit lanes."""
        return builder.bitcast(centred(builder, x, self.words), ir.VectorType(I64, self.lanes))

    def parts(self, builder: Any, x: Any) -> list[Any]:
        """Emitted factors for the limbs: even and odd columns."""
        return [x, builder.lshr(x, every(I64, self.lanes, 32))]

    def fold(self, builder: Any, sums: list[Any], group: Any) -> list[Any]:
        """Emitted smaller sums with the same values modulo p, after group `group` of terms."""
        folded = []
        for t in sums:
            low, high = _cut(builder, t, 32)
            folded.append(builder.add(low, product(builder, high, self.radix)))
        return folded

    def finish(self, builder: Any, sums: list[Any]) -> Any:
        """Emit the elements of folded sums.

        |t / p| is below 2^31, so that its double-precision quotient errs by less than one and fits
        32 bits: t - q p lies in (-2p, 2p), and the two minima add and subtract p where needed.
        """
        ends = []
        for t in sums:
            real = builder.sitofp(t, ir.VectorType(ir.DoubleType(), self.lanes))
            q = builder.fptosi(builder.fmul(real, self.inverse), t.type)
            r = builder.sub(t, product(builder, q, self.p))
            r = smaller(builder, r, builder.add(r, self.p))
            ends.append(smaller(builder, r, builder.sub(r, self.p)))
        return builder.or_(ends[0], builder.shl(ends[1], every(I64, self.lanes, 32)))


class Mersenne(Short):
    """Elements modulo 2^31 - 1."""

    def fold(self, builder: Any, sums: list[Any], group: Any) -> list[Any]:
        """Emitted smaller sums with the same values modulo p, since 2^31 = 1 modulo p."""
        return [builder.add(*_cut(builder, t, 31)) for t in sums]

    def finish(self, builder: Any, sums: list[Any]) -> Any:
        """Emitted elements of folded sums: t + 8p is in (0, 2^35), so one fold leaves below 2p."""
        up = every(I64, self.lanes, 8 * (2**31 - 1))
        even, odd = self.fold(builder, [builder.add(t, up) for t in sums], None)
        both = builder.or_(even, builder.shl(odd, every(I64, self.lanes, 32)))
        x = builder.bitcast(both, ir.VectorType(I32, 2 * self.lanes))
        return smaller(builder, x, builder.sub(x, every(I32, 2 * self.lanes, 2**31 - 1)))


class Long:
    """Elements modulo 2^61 - 1: three limbs and three sums."""

    word = I64
    limbs = 3
    pairs = ((0, 0), (1, 1), (2, 2))
    groups = 4  # Groups of seven terms after which S1, at most 2^58 for each term, is folded.

    def __init__(self, builder: Any, lanes: int, p: Any, radix: Any) -> None:
        self.lanes, self.words = lanes, every(I64, lanes, 2**61 - 1)

    def expand(self, builder: Any, x: Any) -> Any:
        """Emitted parts a0, a1 and a0 + a1 of each element, side by side."""
        low, high = _halves(builder, x)
        lanes = x.type.count
        words = ir.VectorType(I32, lanes)
        low, high, both = (builder.trunc(v, words) for v in (low, high, builder.add(low, high)))
        order = [lanes * part + i for i in range(lanes) for part in range(3)]
        first, second = joined(builder, low, high), joined(builder, both, both)
        return builder.shuffle_vector(
            first, second, ir.Constant(ir.VectorType(I32, 3 * lanes), order)
        )

    def pack(self, builder: Any, x: Any) -> Any:
        """Emit b0 + 2^32 b1 of elements b = b0 + 2^31 b1, centred."""
        low, high = _halves(builder, x)
        low = builder.and_(low, every(I64, self.lanes, 0xFFFFFFFF))
        return builder.or_(low, builder.shl(high, every(I64, self.lanes, 32)))

    def parts(self, builder: Any, x: Any) -> list[Any]:
        """Emit b0, b1 and b0 + b1 in the low halves."""
        high = opaque(builder, builder.lshr(x, every(I64, self.lanes, 32)))
        return [x, high, opaque(builder, builder.add(x, high))]

    def fold(self, builder: Any, sums: list[Any], group: Any) -> list[Any]:
        """Emitted smaller S0', S1', S2' with S0' + 2 S1' + 2^31 X' = S0 + 2 S1 + 2^31 X modulo p.

        X = 2^30 high + low carries high to S0, since 2^61 = 1; S0 = 2^31 high + low carries high to
        X. Both are then below 2^34 in magnitude. S1 = 2^60 high + low carries 2^61 high.
        """
        s0, s1, s2 = sums
        x = builder.sub(builder.sub(s2, s0), s1)
        low0, high0 = _cut(builder, s0, 31)
        lowx, highx = _cut(builder, x, 30)
        s0, x = builder.add(low0, highx), builder.add(lowx, high0)
        if group is not None:
            last = ir.Constant(I64, self.groups - 1)
            due = builder.icmp_signed("==", builder.and_(group, last), last)
            low1, high1 = _cut(builder, s1, 60)
            s0 = builder.select(due, builder.add(s0, high1), s0)
            s1 = builder.select(due, low1, s1)
        return [s0, s1, builder.add(builder.add(s0, s1), x)]

    def finish(self, builder: Any, sums: list[Any]) -> Any:
        """Emit the elements of folded sums.

        A second fold leaves S0 in [-16, 2^31 + 16] and X in [-8, 2^30 + 8], and with S1 in
        [0, 2^60) the total t lies in (-2^35, 2^62 + 2^35): t + p is positive and below 4p.
        """
        s0, s1, s2 = self.fold(builder, sums, None)
        low1, high1 = _cut(builder, s1, 60)
        x = builder.sub(builder.sub(s2, s0), s1)
        p = every(I64, self.lanes, 2**61 - 1)
        t = builder.add(builder.add(s0, high1), builder.shl(low1, every(I64, self.lanes, 1)))
        t = builder.add(builder.add(t, builder.shl(x, every(I64, self.lanes, 31))), p)
        r = builder.add(*_cut(builder, t, 61))
        return smaller(builder, r, builder.sub(r, p))


def centred(builder: Any, x: Any, p: Any) -> Any:
    """Emitted vector x - p where x > (p - 1)/2, else x."""
    half = builder.lshr(p, every(p.type.element, p.type.count, 1))
    return builder.select(builder.icmp_unsigned(">", x, half), builder.sub(x, p), x)


def _halves(builder: Any, x: Any) -> tuple[Any, Any]:
    """Emit x0, |x0| <= 2^30, and x1, |x1| <= 2^29, with x = x0 + 2^31 x1 modulo 2^61 - 1."""
    lanes = x.type.count
    x = centred(builder, x, every(I64, lanes, 2**61 - 1))
    moved = every(I64, lanes, 2**30)
    low, high = _cut(builder, builder.add(x, moved), 31)
    return builder.sub(low, moved), high
