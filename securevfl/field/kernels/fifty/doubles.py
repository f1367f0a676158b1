"""Products modulo 2^50 - 2^14 + 1 by exact pairs of doubles, for processors without IFMA.

Both operands are centred, so |a|, |x| <= 2^49 and |a x| <= 2^98. C = 1.5 2^102 has a unit of 2^50
in the last place. So h = fma(a, x, C) is C + the multiple of 2^50 nearest to a x, C - h is exact,
and rest = fma(a, x, C - h) is what is left, exactly, at most 2^49 in magnitude. The bits of h,
read as an integer, are those of C plus that multiple's number, so that integer additions sum them.
Fifteen rests are below 2^53; after 14 the sum of rests is split in the same manner.

All this needs rounding to nearest, which is what processes start with. `DoubleLeft` checks it
before each product, in the thread that computes it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels.fifty import lanes, product
from securevfl.field.kernels.ir import I64, every, load, loop, slot, splat
from securevfl.field.kernels.jit import kernel
from securevfl.field.primes import P50

Array = NDArray[Any]

_C = 1.5 * 2.0**102
_C_BITS = struct.unpack("<q", struct.pack("<d", _C))[0]
_GROUP = 14
# A multiple of p that makes the sum of up to 4095 numbers of at most 2^48 in magnitude positive.
_OFFSET = P50 << 11


def _split(builder: Any, h: Any, total: Any) -> tuple[Any, Any]:
    """Return the sum of bits with those of h, and C - h."""
    count = h.type.count
    bits = builder.bitcast(h, ir.VectorType(I64, count))
    return builder.add(total, bits), builder.fsub(every(lanes.DOUBLE, count, _C), h)


def _result(builder: Any, multiples: Any, rest: Any, count: Any) -> Any:
    """Return 2^50 (multiples - count bits(C)) + rest mod p, |rest| <= 2^49."""
    size = multiples.type.count
    shift = builder.mul(count, ir.Constant(I64, -_C_BITS))
    shift = builder.add(shift, ir.Constant(I64, _OFFSET))
    total = lanes.fold(builder, builder.add(multiples, splat(builder, shift, size)))
    low = builder.add(lanes.integers(builder, rest), every(I64, size, 4 * P50))
    return lanes.finish(builder, builder.add(lanes.times_2_50(builder, total), low))


def _tile(size: int, rows: int, pieces: int, around: bool) -> Callable[..., Any]:
    """Return the generator of a register tile of vectors with `size` lanes."""
    vectors = pieces * 8 // size

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        left, stride, right, inner, target, pitch = args
        zero, one = ir.Constant(I64, 0), ir.Constant(I64, 1)
        c, fma = every(lanes.DOUBLE, size, _C), f"llvm.fma.v{size}f64"
        sums = [
            [(slot(builder, every(I64, size, 0)), slot(builder, every(lanes.DOUBLE, size, 0.0)))
             for _v in range(vectors)]
            for _r in range(rows)
        ]  # fmt: skip
        places = [lanes.at(builder, left, stride, r) for r in range(rows)]

        def term(k: Any) -> None:
            source = builder.add(right, builder.mul(k, ir.Constant(I64, 64 * pieces)))
            columns = [
                load(builder, source, 8 * size * v, lanes.DOUBLE, size) for v in range(vectors)
            ]
            offset = builder.mul(k, ir.Constant(I64, 8))
            for r in range(rows):
                place = builder.add(places[r], offset)
                number = builder.load(builder.inttoptr(place, ir.PointerType(lanes.DOUBLE)))
                factor = splat(builder, number, size)
                for v in range(vectors):
                    multiples, rests = sums[r][v]
                    h = lanes.pure(builder, fma, [factor, columns[v], c])
                    total, minus = _split(builder, h, builder.load(multiples))
                    rest = lanes.pure(builder, fma, [factor, columns[v], minus])
                    builder.store(total, multiples)
                    builder.store(builder.fadd(builder.load(rests), rest), rests)

        def regroup(multiples: Any, rests: Any) -> None:
            h = builder.fadd(builder.load(rests), c)
            total, minus = _split(builder, h, builder.load(multiples))
            builder.store(total, multiples)
            builder.store(builder.fadd(builder.load(rests), minus), rests)

        count = slot(builder, inner)
        with loop(builder, zero, inner, ir.Constant(I64, _GROUP)) as (start, _c):
            stop = builder.add(start, ir.Constant(I64, _GROUP))
            stop = builder.select(builder.icmp_signed("<", stop, inner), stop, inner)
            with loop(builder, start, stop, one) as (k, _k):
                term(k)
            for r in range(rows):
                for v in range(vectors):
                    regroup(*sums[r][v])
            builder.store(builder.add(builder.load(count), one), count)
        for r in range(rows):
            row = lanes.at(builder, target, pitch, r)
            for v in range(vectors):
                multiples, rests = (builder.load(place) for place in sums[r][v])
                value = _result(builder, multiples, rests, builder.load(count))
                lanes.write(builder, row, 8 * size * v, value, around)
        return context.get_dummy_value()

    return generate


# Rows and 64-byte pieces of register tiles; see `ifma`. AVX2 has 16 registers, for 8 sums.
TILE512, FLAT512, TILE256 = (3, 4), (2, 4), (2, 1)
_near512 = product.intrinsic_tile(_tile(8, *TILE512, around=False))
_low512 = product.intrinsic_tile(_tile(8, *FLAT512, around=False))
_past512 = product.intrinsic_tile(_tile(8, *FLAT512, around=True))
_near256 = product.intrinsic_tile(_tile(4, *TILE256, around=False))
_past256 = product.intrinsic_tile(_tile(4, *TILE256, around=True))
_blocks512 = product.blocks(_near512, lanes.centred_bits, *TILE512)
_panels512 = product.panels(_past512, _low512, lanes.centred_bits, *FLAT512)
_blocks256 = product.blocks(_near256, lanes.centred_bits, *TILE256)
_panels256 = product.panels(_past256, _near256, lanes.centred_bits, *TILE256)


@kernel
def multiply512(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product by 512-bit vectors; see product.blocks."""
    _blocks512(left, rows, pieces, out, work)


@kernel
def stream512(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product with few terms by 512-bit vectors; see product.panels."""
    _panels512(left, rows, pieces, out, work)


@kernel
def multiply256(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product by 256-bit vectors; see product.blocks."""
    _blocks256(left, rows, pieces, out, work)


@kernel
def stream256(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product with few terms by 256-bit vectors; see product.panels."""
    _panels256(left, rows, pieces, out, work)


@kernel
def centre(a: Array, out: Array) -> None:
    """Write the elements of a (m, k), centred, as doubles."""
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            x = int(a[i, k])
            out[i, k] = float(x - P50 if x > (P50 - 1) // 2 else x)


KERNELS512 = product.Kernels(multiply512, stream512, TILE512, FLAT512)
KERNELS256 = product.Kernels(multiply256, stream256, TILE256, TILE256)
