"""Matrix products over a prime field: plain arrays in, plain arrays out.

Nothing here checks that operands are elements; PrimeField does that at the door.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.field import _portable, primes
from securevfl.field._pool import share

Array = NDArray[Any]


def matmul_stack(p: int, a: Array, b: Array, out: Array, threads: int = 1) -> None:
    """Write a @ b mod p for stacks of matrices that broadcast to the shape of `out`."""
    stack = out.shape[:-2]
    if not stack:
        matmul(p, a, b, out, threads)
        return
    left = np.broadcast_to(a, (*stack, *a.shape[-2:]))
    right = np.broadcast_to(b, (*stack, *b.shape[-2:]))
    for index in np.ndindex(*stack):
        matmul(p, left[index], right[index], out[index], threads)


def matmul(p: int, a: Array, b: Array, out: Array, threads: int = 1) -> None:
    """Write a @ b mod p.

    Parameters
    ----------
    p : int
        An odd prime below 2^62.
    a, b, out : ndarray
        Shapes (m, k), (k, n) and (m, n) of uint32 (p < 2^32) or uint64; `out` is C-contiguous.
    threads : int
        The rows of `a` are dealt to this many threads.
    """
    left, right = np.ascontiguousarray(a), np.ascontiguousarray(b)
    share(threads, left.shape[0], lambda rows: _rows(p, left[rows], right, out[rows]))


def _rows(p: int, a: Array, b: Array, out: Array) -> None:
    modulus = np.uint64(p)
    if out.dtype == np.uint32:
        _portable.matmul32(a, b, modulus, np.uint64((1 << 32) % p), out)
    else:
        constants = primes.montgomery(p, 64)
        inverse, square = np.uint64(constants.negative_inverse), np.uint64(constants.square)
        _portable.matmul64(a, b, modulus, inverse, square, out)
