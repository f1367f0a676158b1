"""Streams for p = 2^61 - 1: one column in each 64-bit lane, three sums for each.

Operands are centred and cut in two signed limbs, a = a0 + 2^31 a1 with |a0| <= 2^30 and |a1| <=
2^29; columns are b - h, h = (p - 1)/2, cut in the same way. By Karatsuba's identity the sums

    S0 of a0 b0,  S1 of a1 b1,  S2 of (a0 + a1) (b0 + b1),  X = S2 - S0 - S1

give S0 + 2^31 X + 2^62 S1 = S0 + 2^31 X + 2 S1. S2 is kept modulo 2^64: only X must fit. A product
adds at most 2^60 to S0 and X and 2^58 to S1. Between groups of seven, since 2^31 2^30 = 1,

    S0' = (S0 mod 2^31) + (X >> 30),  X' = (X mod 2^30) + (S0 >> 31) + (S1 >> 30),
    S1' = S1 mod 2^30,  S2' = S0' + S1' + X'

leave at most 2^34. At the end (S0 mod 2^61) + (S0 >> 61) + 2 S1 + (X >> 30) + 2^31 (X mod 2^30) is
above -3.6 2^60 and below 7.6 2^60, so that with the row's constant, at least 2 p and below 3 p, it
is positive and below 2^64.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from securevfl.field.kernels.ir import I32, I64, every, load, slot, smaller, splat
from securevfl.field.kernels.jit import kernel
from securevfl.field.kernels.streaming.panels import Operands, Shape, entry, streamer
from securevfl.field.kernels.streaming.pieces import (
    broadcast,
    constant,
    grouped,
    halves,
    masked,
    number,
    plus,
    shifted,
    unsigned,
)

PRIME = 2**61 - 1
TERMS = 7
SHAPES = {
    512: Shape(kind=I64, lanes=8, vectors=2, rows=(4, 3, 1), limbs=3),
    256: Shape(kind=I64, lanes=4, vectors=1, rows=(3, 2, 1), limbs=3),
}


def _convert(builder: Any, x: Any, constants: Any) -> Any:
    """Emitted limbs of b - h: b0 in the low half of the lane, b1 in the high one."""
    lanes = x.type.count
    # Plus 2^30, cut at bit 31, less 2^30: the low limb is centred and the high one is floored.
    moved = builder.add(x, every(I64, lanes, 2**30 - PRIME // 2))
    low = builder.sub(masked(builder, moved, 31), every(I64, lanes, 2**30))
    # One place up, b1 begins at bit 32: it is the upper half of its lane, beside b0 below.
    a, b = (
        builder.bitcast(y, ir.VectorType(I32, 2 * lanes))
        for y in (low, shifted(builder, moved, 1, up=True))
    )
    order = [i + j for i in range(0, 2 * lanes, 2) for j in (0, 2 * lanes + 1)]
    both = builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, 2 * lanes), order))
    return builder.bitcast(both, x.type)


def _fold(builder: Any, sums: list[Any]) -> None:
    """Emit code to reduce the three sums at their places to small ones of equal value."""
    s0, s1, s2 = (builder.load(place) for place in sums)
    x = builder.sub(builder.sub(s2, s0), s1)
    low = builder.add(masked(builder, s0, 31), shifted(builder, x, 30))
    carry = builder.add(shifted(builder, s0, 31), shifted(builder, s1, 30))
    x = builder.add(masked(builder, x, 30), carry)
    high = masked(builder, s1, 30)
    for place, value in zip(sums, (low, high, builder.add(builder.add(low, high), x)), strict=True):
        builder.store(value, place)


def _finish(builder: Any, sums: list[Any], offset: Any) -> Any:
    """Emitted elements represented by three sums and the row's constant."""
    s0, s1, s2 = (builder.load(place) for place in sums)
    x = builder.sub(builder.sub(s2, s0), s1)
    t = builder.add(masked(builder, s0, 61), shifted(builder, s0, 61))
    t = builder.add(t, shifted(builder, s1, 1, up=True))
    t = builder.add(t, shifted(builder, x, 30))
    t = builder.add(t, shifted(builder, masked(builder, x, 30), 31, up=True))
    t = builder.add(t, offset)
    r = builder.add(masked(builder, t, 61), unsigned(builder, t, 61))
    return smaller(builder, r, builder.sub(r, every(I64, r.type.count, PRIME)))


def _stream(shape: Shape) -> Any:
    """Return the generator of a stream."""
    lanes = shape.lanes

    def tile(builder: Any, rows: int, at: Operands) -> list[list[Any]]:
        sums = [
            [
                [slot(builder, every(I64, lanes, 0)) for _s in range(3)]
                for _v in range(shape.vectors)
            ]
            for _r in range(rows)
        ]

        def term(k: Any) -> None:
            source = builder.add(at.right, builder.mul(k, constant(shape.size)))
            limbs = builder.add(at.left, builder.mul(k, constant(12 * rows)))
            columns = []
            for v in range(shape.vectors):
                low = load(builder, source, 8 * lanes * v, I64, lanes)
                high = unsigned(builder, low, 32)
                columns.append((low, high, builder.add(low, high)))
            for r in range(rows):
                for i in range(3):
                    a = broadcast(builder, limbs, 3 * r + i, lanes)
                    for v in range(shape.vectors):
                        plus(builder, sums[r][v][i], halves(builder, a, columns[v][i]))

        def fold() -> None:
            for row in sums:
                for three in row:
                    _fold(builder, three)

        grouped(builder, at.inner, TERMS, term, fold)
        results = []
        for r in range(rows):
            offset = splat(builder, number(builder, at.offsets, r), lanes)
            results.append([_finish(builder, three, offset) for three in sums[r]])
        return results

    return streamer(shape, _convert, tile)


_limbs512 = entry(_stream(SHAPES[512]))
_limbs256 = entry(_stream(SHAPES[256]))


@kernel
def limbs512(arguments: int) -> None:
    """Product of a small matrix modulo 2^61 - 1 by 512-bit vectors; see panels.ARGUMENTS."""
    _limbs512(arguments)


@kernel
def limbs256(arguments: int) -> None:
    """Product of a small matrix modulo 2^61 - 1 by 256-bit vectors; see panels.ARGUMENTS."""
    _limbs256(arguments)
