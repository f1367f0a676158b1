"""Matrix products over a prime field: plain arrays in, plain arrays out.

This module does not check that operands are elements; PrimeField and LagrangeCode do. A left
operand is prepared once (`prepare`) for many right operands, in one piece or as blocks of rows at
different addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from securevfl.field.kernels import cpu, portable, primes
from securevfl.field.pool import share

Array = NDArray[Any]

_TINY = 16384  # Products: below, the plain loops are done before the others have begun.
_MANY = 2048  # Columns from which limbs in stacked blocks are worth their preparation.
_FEW = 32  # Terms up to which vectors stream 61-bit numbers faster than the tile unit takes them.


class PreparedMatrix(Protocol):
    """A left operand (m, k), prepared for repeated products.

    Attributes
    ----------
    rows, inner : int
        Sizes m and k.
    """

    rows: int
    inner: int

    def multiply(self, blocks: Sequence[Array], out: Array) -> bool:
        """Write the product with the k stacked rows of `blocks` to `out` (m, n).

        The last axis of blocks and of `out` is contiguous. Sizes are not checked. Returns
        whether all numbers that were read are below p; if not, `out` is meaningless.
        """


def prepare(p: int, a: Array, columns: int | None = None) -> PreparedMatrix:
    """The left operand (m, k) prepared for the fastest kernel on this machine.

    `columns` is the total number of right-hand columns, if known: for few of them preparation does
    not pay.
    """
    if columns is not None and a.size * columns <= _TINY:
        return PortableLeft(p, a)
    from securevfl.field.kernels import left_operands
    from securevfl.field.kernels.streaming.left import MOST_TERMS, StreamingLeft

    tier, narrow = cpu.tier(), a.dtype == np.uint32
    vectors = p == primes.P61 if not narrow else 1 << 12 <= p < 1 << 31
    if p == primes.P50 and tier != "portable":
        from securevfl.field.kernels.fifty.left import prepared

        return prepared(a, tier, lambda: PortableLeft(p, a))
    if (columns or _MANY) >= _MANY:
        if tier == "amx" and left_operands.StreamLeft.fits(p, a):
            return left_operands.StreamLeft(p, a)
        # Beyond so many terms the eight planes of 61-bit numbers are faster than vectors.
        most = {"amx": 0 if narrow else _FEW, "portable": 0}.get(tier, MOST_TERMS)
        if vectors and a.shape[0] and 0 < a.shape[1] <= most:
            return StreamingLeft(p, a, tier != "avx2")
    # Eight planes for a handful of 61-bit terms cost more than vectors do.
    few = vectors and not narrow and a.shape[1] <= 8
    if tier == "amx" and (p < 1 << 31 or not narrow) and not few:
        return left_operands.TiledLeft(p, a)
    if tier != "portable" and vectors:
        return left_operands.VectorLeft(p, a, tier != "avx2")
    return PortableLeft(p, a)


class PortableLeft:
    """Left operand `a`, (m, k) modulo p, for kernels without vector intrinsics."""

    def __init__(self, p: int, a: Array) -> None:
        self.p, self.short = p, p < 1 << 31
        self.rows, self.inner = a.shape
        self.a = np.ascontiguousarray(a)
        if self.short:  # Rows in threes and terms in fours; see portable.matmul31.
            m, k = a.shape
            self.a = np.zeros((m + -m % 3, k + -k % 4), a.dtype)
            self.a[:m, :k] = a

    def multiply(self, blocks: Sequence[Array], out: Array) -> bool:
        """Write the product with stacked `blocks` to `out`; whether all of them are below p."""
        spare = -sum(len(b) for b in blocks) % 4 if self.short else 0
        right = np.concatenate([*blocks, np.zeros((spare, out.shape[1]), out.dtype)])
        if right.size and int(right.max()) >= self.p:
            return False
        result = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        modulus = np.uint64(self.p)
        if out.dtype == np.uint32:
            kernel = portable.matmul31 if self.short else portable.matmul32
            shape = (2, 3, portable.PANEL) if self.short else (2, out.shape[1])
            sums = np.empty(shape, np.uint64)
            kernel(self.a, right, modulus, np.uint64((1 << 32) % self.p), result, sums)
        else:
            c = primes.montgomery(self.p, 64)
            inverse, square = np.uint64(c.negative_inverse), np.uint64(c.square)
            sums = np.empty((2, out.shape[1]), np.uint64)
            portable.matmul64(self.a, right, modulus, inverse, square, result, sums)
        if result is not out:
            out[:] = result
        return True


def matmul(p: int, a: Array, b: Array, out: Array, threads: int = 1) -> bool:
    """Write a @ b mod p, for two matrices or two stacks of matrices.

    Returns whether all numbers of `b` were read and are below p; if not, `out` is meaningless.

    Parameters
    ----------
    p : int
        An odd prime below 2^62.
    a, b, out : ndarray
        Shapes (..., m, k), (..., k, n) and (..., m, n) of uint32 (p < 2^32) or uint64; `out` is
        C-contiguous, and the stacks of `a` and `b` broadcast to its own.
    threads : int
        Number of threads among which the rows of `a` are divided.
    """
    stack = out.shape[:-2]
    if not out.size:
        return False
    if stack:
        a, b = (np.broadcast_to(one, (*stack, *one.shape[-2:])) for one in (a, b))
        return all(matmul(p, a[i], b[i], out[i], threads) for i in np.ndindex(*stack))
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    good: list[bool] = []

    def work(rows: slice) -> None:
        good.append(prepare(p, a[rows], b.shape[1]).multiply([b], out[rows]))

    share(threads, a.shape[0], work, multiple=16)
    return all(good)
