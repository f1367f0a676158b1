"""Streams for p < 2^31: two columns in each 64-bit lane, a sum for each.

Left operands are centred, |a| <= h = (p - 1)/2, and columns are b - h. Seven products stay below
7 h^2 < 7 2^60 in magnitude. What the shift by h takes away comes back as one constant per row.

p = 2^31 - 1
    Between groups t = (t mod 2^31) + (t >> 31), below 2^33. At the end the row's constant, h times
    the sum of the left row and a multiple of p above 7 2^60 + 2^40, makes t positive and below
    2^64; its parts of 31, 31 and 2 bits are added.
other p
    Left operands carry a factor 2^32. Between groups t = (t mod 2^32) + R (t >> 32) with R = 2^32
    mod p centred, and |t| <= 2^61 + 2^32 is left, so that groups are of five. At the end, after
    the same fold, |t| >> 32 <= p/4 + 1; with m = t p^-1 mod 2^32, signed, (t - m p) / 2^32 =
    t / 2^32 mod p is above -p and below p.
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

PRIME = 2**31 - 1
TERMS = {True: 7, False: 6}  # Products between folds, for 2^31 - 1 and for other primes.
SHAPES = {
    512: Shape(kind=I32, lanes=16, vectors=2, rows=(5, 4, 1), limbs=1),
    256: Shape(kind=I32, lanes=8, vectors=2, rows=(2, 1), limbs=1),
}


def _convert(builder: Any, x: Any, constants: Any) -> Any:
    """Emitted columns b shifted to b - h; the first of `constants` is h."""
    half = builder.trunc(number(builder, constants), I32)
    return builder.sub(x, splat(builder, half, x.type.count))


class _Mersenne:
    """The fold and the finish for p = 2^31 - 1."""

    terms = TERMS[True]

    def __init__(self, builder: Any, lanes: int, constants: Any) -> None:
        self.builder, self.lanes = builder, lanes

    def fold(self, t: Any) -> Any:
        return self.builder.add(masked(self.builder, t, 31), shifted(self.builder, t, 31))

    def finish(self, even: Any, odd: Any) -> Any:
        builder, count = self.builder, 2 * self.lanes
        kind = ir.VectorType(I32, count)
        a, b = (builder.bitcast(t, kind) for t in (even, odd))
        low, high = (
            builder.shuffle_vector(a, b, ir.Constant(kind, _interleaved(count, half)))
            for half in (0, 1)
        )
        p = every(I32, count, PRIME)
        middle = builder.or_(shifted(builder, high, 1, up=True), unsigned(builder, low, 31))
        r = builder.add(builder.and_(low, p), builder.and_(middle, p))
        r = smaller(builder, r, builder.sub(r, p))
        r = builder.add(r, unsigned(builder, high, 30))
        return smaller(builder, r, builder.sub(r, p))


class _Other:
    """Fold and final reduction for other primes; constants after the first are p, R, 1/p."""

    terms = TERMS[False]

    def __init__(self, builder: Any, lanes: int, constants: Any) -> None:
        self.builder, self.lanes = builder, lanes
        words = [number(builder, constants, i) for i in (1, 2, 3)]
        self.modulus, self.radix, self.inverse = (splat(builder, w, lanes) for w in words)

    def fold(self, t: Any) -> Any:
        high = unsigned(self.builder, t, 32)
        return self.builder.add(masked(self.builder, t, 32), halves(self.builder, high, self.radix))

    def finish(self, even: Any, odd: Any) -> Any:
        builder, rest = self.builder, []
        for t in (self.fold(even), self.fold(odd)):
            m = halves(builder, t, self.inverse)
            rest.append(builder.sub(t, halves(builder, m, self.modulus)))  # Its low half is 0.
        both = builder.or_(unsigned(builder, rest[0], 32), rest[1])
        p = builder.or_(self.modulus, shifted(builder, self.modulus, 32, up=True))
        r, p = (builder.bitcast(x, ir.VectorType(I32, 2 * self.lanes)) for x in (both, p))
        return smaller(builder, r, builder.add(r, p))


def _interleaved(count: int, half: int) -> list[int]:
    """Indices of low (`half` 0) or high words of two vectors' lanes, of `count` words each."""
    return [i + half + j for i in range(0, count, 2) for j in (0, count)]


def _stream(shape: Shape, field: Any) -> Any:
    """Return the generator of a stream; a 64-bit lane holds two columns, each has a sum."""
    lanes = shape.lanes // 2

    def tile(builder: Any, rows: int, at: Operands) -> list[list[Any]]:
        prime = field(builder, lanes, at.constants)
        # The row's constant is in the sums from the start where no fold meets it; a fold takes
        # sums to be signed, with the constant they need not be.
        short = builder.icmp_signed("<=", at.inner, constant(prime.terms))
        numbers = [number(builder, at.offsets, r) for r in range(rows)]
        starts = [builder.select(short, offset, constant(0)) for offset in numbers]
        sums = [
            [
                [slot(builder, splat(builder, start, lanes)) for _e in range(2)]
                for _v in range(shape.vectors)
            ]
            for start in starts
        ]

        def term(k: Any) -> None:
            source = builder.add(at.right, builder.mul(k, constant(shape.size)))
            limbs = builder.add(at.left, builder.mul(k, constant(4 * rows)))
            columns = []
            for v in range(shape.vectors):
                even = load(builder, source, 8 * lanes * v, I64, lanes)
                columns.append((even, unsigned(builder, even, 32)))
            for r in range(rows):
                a = broadcast(builder, limbs, r, lanes)
                for v in range(shape.vectors):
                    for place, x in zip(sums[r][v], columns[v], strict=True):
                        plus(builder, place, halves(builder, a, x))

        def fold() -> None:
            for place in (place for row in sums for pair in row for place in pair):
                builder.store(prime.fold(builder.load(place)), place)

        def after_folds() -> None:
            for row, offset in zip(sums, numbers, strict=True):
                for place in (place for pair in row for place in pair):
                    plus(builder, place, splat(builder, offset, lanes))

        grouped(builder, at.inner, prime.terms, term, fold, after_folds)
        return [
            [prime.finish(*(builder.load(place) for place in pair)) for pair in row] for row in sums
        ]

    return streamer(shape, _convert, tile)


_mersenne512 = entry(_stream(SHAPES[512], _Mersenne))
_other512 = entry(_stream(SHAPES[512], _Other))
_mersenne256 = entry(_stream(SHAPES[256], _Mersenne))
_other256 = entry(_stream(SHAPES[256], _Other))


@kernel
def mersenne512(arguments: int) -> None:
    """Product of a small matrix modulo 2^31 - 1 by 512-bit vectors; see panels.ARGUMENTS."""
    _mersenne512(arguments)


@kernel
def other512(arguments: int) -> None:
    """Product of a small matrix modulo another p < 2^31, 512 bits; see panels.ARGUMENTS."""
    _other512(arguments)


@kernel
def mersenne256(arguments: int) -> None:
    """Product of a small matrix modulo 2^31 - 1 by 256-bit vectors; see panels.ARGUMENTS."""
    _mersenne256(arguments)


@kernel
def other256(arguments: int) -> None:
    """Product of a small matrix modulo another p < 2^31, 256 bits; see panels.ARGUMENTS."""
    _other256(arguments)
