"""Products modulo 2^50 - 2^14 + 1 by the multiplication of 52-bit integers (AVX-512 IFMA).

One instruction adds the lower 52 bits of a product to a sum, another the upper ones. Elements need
no centring and sums no folds: the lower parts of k products are below k 2^52, so that 4095 of them
fit 64 bits, and the upper parts are below k 2^48.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels.fifty import lanes, product
from securevfl.field.kernels.ir import I64, every, load, loop, slot, smaller, splat
from securevfl.field.kernels.jit import kernel
from securevfl.field.primes import P50

Array = NDArray[Any]

# Rows and 64-byte pieces of a register tile, which keeps two sums for each: one for products and
# one for products of few terms.
TILE, FLAT = (3, 4), (5, 2)
_C = 2**50 - P50
_LANES = 8


def low(builder: Any, total: Any, x: Any, y: Any) -> Any:
    """Return total + the lower 52 bits of x y; only the lower 52 bits of x and y are read."""
    return lanes.pure(builder, "llvm.x86.avx512.vpmadd52l.uq.512", [total, x, y])


def high(builder: Any, total: Any, x: Any, y: Any) -> Any:
    """Return total + the upper 52 bits of x y; only the lower 52 bits of x and y are read."""
    return lanes.pure(builder, "llvm.x86.avx512.vpmadd52h.uq.512", [total, x, y])


def _folded(builder: Any, x: Any) -> Any:
    """Return a number equal to x < 2^64 mod p and below 2^50 + 2^28."""
    part = builder.and_(x, every(I64, _LANES, 2**lanes.BITS - 1))
    rest = builder.lshr(x, every(I64, _LANES, lanes.BITS))
    return low(builder, part, rest, every(I64, _LANES, _C))


def _combined(builder: Any, lower: Any, upper: Any) -> Any:
    """Return lower + 2^52 upper mod p for lower <= 4095 (2^52 - 1) and upper < 2^52.

    Since 2^52 = 4c < 2^16, the lower part of 4c upper joins the lower sum within 64 bits. Its upper
    part is below 2^16, and again times 4c below 2^32, which leaves less than 2p in all.
    """
    four = every(I64, _LANES, 4 * _C)
    total = _folded(builder, low(builder, lower, upper, four))
    rest = high(builder, every(I64, _LANES, 0), upper, four)
    total = low(builder, total, rest, four)
    return smaller(builder, total, builder.sub(total, every(I64, _LANES, P50)))


def _tile(rows: int, pieces: int, around: bool) -> Callable[..., Any]:
    """Return the generator of a register tile, whose results pass the caches if `around`."""

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        left, stride, right, inner, target, pitch = args
        zero = ir.Constant(I64, 0)
        sums = [
            [[slot(builder, every(I64, _LANES, 0)) for _s in range(2)] for _v in range(pieces)]
            for _r in range(rows)
        ]
        places = [lanes.at(builder, left, stride, r) for r in range(rows)]
        with loop(builder, zero, inner, ir.Constant(I64, 1)) as (k, _c):
            source = builder.add(right, builder.mul(k, ir.Constant(I64, 64 * pieces)))
            columns = [load(builder, source, 64 * v, I64, _LANES) for v in range(pieces)]
            offset = builder.mul(k, ir.Constant(I64, 8))
            for r in range(rows):
                place = builder.inttoptr(builder.add(places[r], offset), ir.PointerType(I64))
                factor = splat(builder, builder.load(place), _LANES)
                for v in range(pieces):
                    for part, multiply in zip(sums[r][v], (low, high), strict=True):
                        total = multiply(builder, builder.load(part), columns[v], factor)
                        builder.store(total, part)
        # Sixteen upper parts are below 2^52, as the last step needs them.
        many = builder.icmp_signed(">", inner, ir.Constant(I64, 16))
        with builder.if_then(many):
            for row in sums:
                for _lower, upper in row:
                    builder.store(_folded(builder, builder.load(upper)), upper)
        for r in range(rows):
            row = lanes.at(builder, target, pitch, r)
            for v in range(pieces):
                lower, upper = (builder.load(part) for part in sums[r][v])
                lanes.write(builder, row, 64 * v, _combined(builder, lower, upper), around)
        return context.get_dummy_value()

    return generate


def _same(_: Any, x: Any) -> Any:
    """Panels hold the elements themselves."""
    return x


_near = product.intrinsic_tile(_tile(*TILE, around=False))
_blocks = product.blocks(_near, _same, *TILE)
_low, _past = (product.intrinsic_tile(_tile(*FLAT, around)) for around in (False, True))
_panels = product.panels(_past, _low, _same, *FLAT)


@kernel
def multiply(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product; see product.blocks, which names what it takes."""
    _blocks(left, rows, pieces, out, work)


@kernel
def stream(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product with few terms and many columns; see product.panels."""
    _panels(left, rows, pieces, out, work)


KERNELS = product.Kernels(multiply, stream, TILE, FLAT)
