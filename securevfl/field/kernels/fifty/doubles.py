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
from typing import Any

from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels.fifty import lanes, product, projection
from securevfl.field.kernels.ir import I64, every, pure, slot, splat
from securevfl.field.kernels.jit import kernel
from securevfl.field.kernels.primes import P50

Array = NDArray[Any]

_C = 1.5 * 2.0**102
_C_BITS = struct.unpack("<q", struct.pack("<d", _C))[0]
# A multiple of p that makes the sum of up to 4095 numbers of at most 2^48 in magnitude positive.
_OFFSET = P50 << 11


class DoubleSum:
    """The sum of multiples of 2^50 in the bits of doubles, and that of rests; see product.Sum."""

    def __init__(self, builder: Any, size: int) -> None:
        self.builder, self.size = builder, size
        self.multiples = slot(builder, every(I64, size, 0))
        self.rests = slot(builder, every(lanes.DOUBLE, size, 0.0))
        self.c = every(lanes.DOUBLE, size, _C)

    def add(self, x: Any, y: Any) -> None:
        """Emit code that adds the product x y, as a multiple of 2^50 and a rest."""
        fma = f"llvm.fma.v{self.size}f64"
        minus = self._take(pure(self.builder, fma, [y, x, self.c]))
        rest = pure(self.builder, fma, [y, x, minus])
        self._rest(self.builder.fadd(self.builder.load(self.rests), rest))

    def split(self) -> None:
        """Emit code that moves the multiple of 2^50 out of the sum of rests."""
        rests = self.builder.load(self.rests)
        minus = self._take(self.builder.fadd(rests, self.c))
        self._rest(self.builder.fadd(rests, minus))

    def narrow(self) -> None:
        """Do nothing: `result` handles all sums."""

    def result(self, count: Any) -> Any:
        """Emitted vector 2^50 (multiples - count bits(C)) + rests mod p, |rests| <= 2^49."""
        builder, size = self.builder, self.size
        shift = builder.mul(count, ir.Constant(I64, -_C_BITS))
        shift = builder.add(shift, ir.Constant(I64, _OFFSET))
        total = builder.add(builder.load(self.multiples), splat(builder, shift, size))
        total = lanes.times_2_50(builder, lanes.fold(builder, total))
        rests = lanes.integers(builder, builder.load(self.rests))
        rests = builder.add(rests, every(I64, size, 4 * P50))
        return lanes.finish(builder, builder.add(total, rests))

    def _take(self, h: Any) -> Any:
        """Emit code that adds the bits of h = C + m 2^50 to the sum; return its value C - h."""
        bits = self.builder.bitcast(h, ir.VectorType(I64, self.size))
        total = self.builder.add(self.builder.load(self.multiples), bits)
        self.builder.store(total, self.multiples)
        return self.builder.fsub(self.c, h)

    def _rest(self, value: Any) -> None:
        self.builder.store(value, self.rests)


FORM = product.Form(DoubleSum, lanes.DOUBLE, 14, 1 << 62)

# Rows and 64-byte pieces of register tiles; see `ifma`. AVX2 has 16 registers, for 8 sums.
TILE512, FLAT512, TILE256 = (3, 4), (2, 4), (2, 1)
_near512 = product.tile(FORM, 8, *TILE512, around=False)
_low512, _past512 = (product.tile(FORM, 8, *FLAT512, around) for around in (False, True))
_near256, _past256 = (product.tile(FORM, 4, *TILE256, around) for around in (False, True))
_project512 = projection.over_rows(projection.dots(FORM, 8, lanes.centred_bits))
_project256 = projection.over_rows(projection.dots(FORM, 4, lanes.centred_bits))
_blocks512 = product.blocks(_near512, lanes.centred_bits, *TILE512)
_panels512 = product.panels(_past512, _low512, lanes.centred_bits, *FLAT512)
_blocks256 = product.blocks(_near256, lanes.centred_bits, *TILE256)
_panels256 = product.panels(_past256, _near256, lanes.centred_bits, *TILE256)


@kernel
def multiply512(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product with 512-bit vectors; arguments as of the result of product.blocks."""
    _blocks512(left, rows, pieces, out, work)


@kernel
def stream512(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product with few terms by 512-bit vectors; arguments as in product.blocks."""
    _panels512(left, rows, pieces, out, work)


@kernel
def multiply256(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product with 256-bit vectors; arguments as of the result of product.blocks."""
    _blocks256(left, rows, pieces, out, work)


@kernel
def stream256(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
    """Write a product with few terms by 256-bit vectors; arguments as in product.blocks."""
    _panels256(left, rows, pieces, out, work)


@kernel
def centre(a: Array, out: Array) -> None:
    """Write the elements of a (m, k), centred, as doubles."""
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            x = int(a[i, k])
            out[i, k] = float(x - P50 if x > (P50 - 1) // 2 else x)


@kernel
def project512(rows: Array, weights: Array, out: Array, most: Array, work: Any) -> None:
    """Project rows on weights by 512-bit vectors; see projection.over_rows."""
    _project512(rows, weights, out, most, work)


@kernel
def project256(rows: Array, weights: Array, out: Array, most: Array, work: Any) -> None:
    """Project rows on weights by 256-bit vectors; see projection.over_rows."""
    _project256(rows, weights, out, most, work)


KERNELS512 = product.Kernels(multiply512, stream512, TILE512, FLAT512)
KERNELS256 = product.Kernels(multiply256, stream256, TILE256, TILE256)
