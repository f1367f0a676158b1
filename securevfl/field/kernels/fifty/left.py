"""Left operands modulo 2^50 - 2^14 + 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from securevfl.field.kernels import cpu
from securevfl.field.kernels.jit import address
from securevfl.field.kernels.left_operands import AROUND, PiecewiseLeft
from securevfl.field.kernels.primes import P50
from securevfl.field.kernels.scratch import aligned, places

if TYPE_CHECKING:
    from securevfl.field.kernels.fifty.product import Kernels

Array = NDArray[Any]

_MOST_TERMS = 4095  # The bounds of `ifma` and `doubles`.
_PANEL_BYTES = 1 << 19
_FEW_TERMS = 64  # Up to here memory traffic, not arithmetic, bounds products of many columns.
_PIECES = 64  # Pieces of each row in a panel of few terms.


class Product(Protocol):
    """A left operand that can multiply blocks of rows; see dispatch.PreparedMatrix."""

    def multiply(self, blocks: Sequence[Array], out: Array) -> bool:
        """Write the product, and return whether all numbers that were read are below p."""


def prepared(a: Array, tier: str, other: Callable[[], Product]) -> FiftyLeft:
    """Left operand `a` (m, k) in the fastest form for kernel tier `tier`, not the portable one.

    Processors with tile units also multiply 52-bit integers (IFMA), each of which replaces 64
    products of bytes. `other` makes the operand for threads that do not round to nearest.
    """
    if has_integers(tier):
        from securevfl.field.kernels.fifty import ifma

        return FiftyLeft(a, ifma.KERNELS)
    return DoubleLeft(a, tier != "avx2", other)


def has_integers(tier: str) -> bool:
    """Whether a tier has the multiplication of 52-bit integers."""
    return tier in ("ifma", "amx") and "ifma" in cpu.available()


class FiftyLeft(PiecewiseLeft):
    """Left operand modulo 2^50 - 2^14 + 1, for one kind of kernel in this folder."""

    def __init__(self, a: Array, kernels: Kernels) -> None:
        self.kernels = kernels
        super().__init__(P50, a, _MOST_TERMS)

    def _part(self, a: Array) -> Array:
        """The rows, with zero rows added up to a tile's height."""
        missing = max(self.kernels.tile[0], self.kernels.flat[0]) - self.rows
        return a if missing <= 0 else np.concatenate([a, np.zeros((missing, a.shape[1]), a.dtype)])

    def _tiles(self, part: Any, rows: Array, out: Array, seen: Array) -> None:
        place, pitch, pieces = address(out), out.strides[0], out.shape[1] // 8
        whole = place % 64 == 0 and pitch % 64 == 0
        flat = whole and rows.size <= _FEW_TERMS and pieces >= AROUND
        tall, wide = self.kernels.flat if flat else self.kernels.tile
        size = 64 * wide * max(1, rows.size)
        many = _PIECES // wide if flat else max(1, _PANEL_BYTES // size)
        many = min(many, -(-pieces // wide))
        memory, (panel, spare) = places("fifty", (many * size, tall * 64 * wide))
        work = panel, spare, address(seen), many
        left = address(part), part.strides[0], self.rows
        kernel = self.kernels.stream if flat else self.kernels.multiply
        kernel(left, rows, pieces, (place, pitch), work)
        del memory  # Not before.


class DoubleLeft(FiftyLeft):
    """Left operand as centred doubles; see `doubles`.

    Parameters
    ----------
    a : ndarray
        Shape (m, k).
    wide : bool
        512-bit vectors, else 256-bit ones.
    other : callable
        Makes the operand that serves while the thread does not round to nearest.
    """

    def __init__(self, a: Array, wide: bool, other: Callable[[], Product]) -> None:
        from securevfl.field.kernels.fifty import doubles

        self.other = other
        super().__init__(a, doubles.KERNELS512 if wide else doubles.KERNELS256)

    def _part(self, a: Array) -> Array:
        from securevfl.field.kernels.fifty import doubles

        whole = super()._part(a)
        left = aligned(whole.shape, np.float64)
        doubles.centre(whole, left)
        return left

    def multiply(self, blocks: Sequence[Array], out: Array) -> bool:
        """Write the product with stacked `blocks` to `out`; whether all of them are below p."""
        if not rounds_to_nearest():
            return self.other().multiply(blocks, out)
        return super().multiply(blocks, out)


def rounds_to_nearest(one: float = 1.0, tiny: float = 2.0**-54) -> bool:
    """Whether this thread rounds doubles to nearest, the default of every process.

    Upwards 1 + tiny, downwards -1 - tiny, towards zero 1 + 3 tiny would differ.
    """
    return one + tiny == one and -one - tiny == -one and one + 3 * tiny > one
