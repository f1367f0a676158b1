"""Products modulo 2^50 - 2^14 + 1 by the multiplication of 52-bit integers (AVX-512 IFMA).

One instruction adds the lower 52 bits of a product to a sum, another the upper ones. Elements need
no centring and sums no folds: the lower parts of k products are below k 2^52, so that 4095 of them
fit 64 bits, and the upper parts are below k 2^48.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from securevfl.field.kernels.fifty import lanes, product, projection
from securevfl.field.kernels.ir import I64, every, pure, slot, smaller
from securevfl.field.kernels.jit import kernel
from securevfl.field.kernels.primes import P50

Array = NDArray[Any]

# Rows and 64-byte pieces of a register tile, which keeps two sums for each: one for products and
# one for products of few terms.
TILE, FLAT = (3, 4), (5, 2)
LANES = 8
_C = 2**50 - P50


def low(builder: Any, total: Any, x: Any, y: Any) -> Any:
    """Emit total + the lower 52 bits of x y; only the lower 52 bits of x and y are read."""
    return pure(builder, "llvm.x86.avx512.vpmadd52l.uq.512", [total, x, y])


def high(builder: Any, total: Any, x: Any, y: Any) -> Any:
    """Emit total + the upper 52 bits of x y; only the lower 52 bits of x and y are read."""
    return pure(builder, "llvm.x86.avx512.vpmadd52h.uq.512", [total, x, y])


class IntegerSum:
    """The sums of the lower and of the upper 52 bits of products; see product.Sum."""

    def __init__(self, builder: Any, size: int) -> None:
        self.builder = builder
        self.lower, self.upper = (slot(builder, every(I64, size, 0)) for _ in range(2))

    def add(self, x: Any, y: Any) -> None:
        """Emit code to add both halves of the product x y."""
        for place, part in ((self.lower, low), (self.upper, high)):
            self.builder.store(part(self.builder, self.builder.load(place), x, y), place)

    def split(self) -> None:
        """Do nothing: a kernel has no more terms than fit."""

    def narrow(self) -> None:
        """Emit code that brings the upper sum below 2^52, as it is for at most sixteen terms."""
        folded = _folded(self.builder, self.builder.load(self.upper))
        self.builder.store(folded, self.upper)

    def result(self, count: Any) -> Any:
        """Emit lower + 2^52 upper mod p for lower <= 4095 (2^52 - 1) and upper < 2^52.

        Since 2^52 = 4c < 2^16, the lower part of 4c upper joins the lower sum within 64 bits. Its
        upper part is below 2^16, and again times 4c below 2^32, which leaves less than 2p in all.
        """
        builder, four = self.builder, every(I64, LANES, 4 * _C)
        lower, upper = builder.load(self.lower), builder.load(self.upper)
        total = _folded(builder, low(builder, lower, upper, four))
        rest = high(builder, every(I64, LANES, 0), upper, four)
        total = low(builder, total, rest, four)
        return smaller(builder, total, builder.sub(total, every(I64, LANES, P50)))


def _folded(builder: Any, x: Any) -> Any:
    """Emitted number equal to x < 2^64 modulo p, and below 2^50 + 2^28."""
    part = builder.and_(x, every(I64, LANES, 2**lanes.BITS - 1))
    rest = builder.lshr(x, every(I64, LANES, lanes.BITS))
    return low(builder, part, rest, every(I64, LANES, _C))


FORM = product.Form(IntegerSum, I64, 4095, 16)


def _same(_: Any, x: Any) -> Any:
    """The elements themselves, which panels hold unchanged."""
    return x


_near = product.tile(FORM, LANES, *TILE, around=False)
_low, _past = (product.tile(FORM, LANES, *FLAT, around) for around in (False, True))
_blocks = product.blocks(_near, _same, *TILE)
_panels = product.panels(_past, _low, _same, *FLAT)
_project = projection.over_rows(projection.dots(FORM, LANES, _same))


@kernel
def multiply(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product; see product.blocks for the arguments."""
    _blocks(left, rows, pieces, out, work)


@kernel
def stream(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product with few terms, many columns; arguments as in product.blocks."""
    _panels(left, rows, pieces, out, work)


@kernel
def project(rows: Array, weights: Array, out: Array, most: Array, work: Any) -> None:
    """Project rows on weights; see projection.over_rows."""
    _project(rows, weights, out, most, work)


KERNELS = product.Kernels(multiply, stream, TILE, FLAT)
