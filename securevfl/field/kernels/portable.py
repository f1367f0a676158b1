"""Matrix products for any processor that numba supports, without vector intrinsics."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.field.kernels.ir import high_part, redc
from securevfl.field.kernels.jit import kernel

Array = NDArray[Any]

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


PANEL = 256  # Columns whose sums for three rows, 12 KiB, stay in the L1 cache.


@kernel
def matmul31(a: Array, b: Array, p: Any, radix: Any, out: Array, sums: Array) -> None:
    """Write a @ b mod p for uint32 elements of a field below 2^31; radix = 2^32 mod p.

    Four products are below 4 (2^31 - 1)^2 < 2^64. Their sum is split into halves of 32 bits that
    are summed apart, so both sums stay below k 2^30 and are exact for k < 2^34. At the end
    (high mod p) radix + low mod p < 2^63. Rows and terms are padded with zeros to whole groups.

    Parameters
    ----------
    a : ndarray
        Shape (3 r, 4 s).
    b : ndarray
        Shape (4 s, n).
    out : ndarray
        Shape (m, n) with m <= 3 r.
    sums : ndarray
        Room, (2, 3, PANEL) of uint64.
    """
    inner, columns = b.shape
    low, high = sums[0], sums[1]
    low0, low1, low2 = low[0], low[1], low[2]
    high0, high1, high2 = high[0], high[1], high[2]
    u = np.uint64
    for start in range(0, columns, PANEL):
        stop = min(start + PANEL, columns)
        for i in range(0, a.shape[0], 3):
            low[:] = _ZERO
            high[:] = _ZERO
            for k in range(0, inner, 4):
                b0, b1 = b[k, start:stop], b[k + 1, start:stop]
                b2, b3 = b[k + 2, start:stop], b[k + 3, start:stop]
                x0, x1, x2, x3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
                y0, y1, y2, y3 = a[i + 1, k], a[i + 1, k + 1], a[i + 1, k + 2], a[i + 1, k + 3]
                z0, z1, z2, z3 = a[i + 2, k], a[i + 2, k + 1], a[i + 2, k + 2], a[i + 2, k + 3]
                for j in range(stop - start):
                    v0, v1, v2, v3 = u(b0[j]), u(b1[j]), u(b2[j]), u(b3[j])
                    t = u(x0) * v0 + u(x1) * v1 + u(x2) * v2 + u(x3) * v3
                    low0[j] += t & _LOW
                    high0[j] += t >> _HALF
                    t = u(y0) * v0 + u(y1) * v1 + u(y2) * v2 + u(y3) * v3
                    low1[j] += t & _LOW
                    high1[j] += t >> _HALF
                    t = u(z0) * v0 + u(z1) * v1 + u(z2) * v2 + u(z3) * v3
                    low2[j] += t & _LOW
                    high2[j] += t >> _HALF
            for r in range(min(3, out.shape[0] - i)):
                for j in range(stop - start):
                    rest = (high[r, j] % p) * radix + low[r, j] % p
                    out[i + r, start + j] = rest % p


@kernel
def matmul32(a: Array, b: Array, p: Any, radix: Any, out: Array, sums: Array) -> None:
    """Write a @ b mod p for uint32 elements of any field below 2^32; radix = 2^32 mod p.

    Products below 2^64 are summed in two halves of 32 bits each, so both sums stay below k 2^32
    and are exact for k < 2^32. At the end (high mod p) radix + low mod p < 2^64. `sums` is room for
    two rows of the result.
    """
    rows, inner = a.shape
    columns = b.shape[1]
    low, high = sums[0], sums[1]
    for i in range(rows):
        low[:] = _ZERO
        high[:] = _ZERO
        for k in range(inner):
            factor = np.uint64(a[i, k])
            for j in range(columns):
                t = factor * np.uint64(b[k, j])
                low[j] += t & _LOW
                high[j] += t >> _HALF
        for j in range(columns):
            out[i, j] = ((high[j] % p) * radix % p + low[j] % p) % p


@kernel
def matmul64(
    a: Array, b: Array, p: Any, negative_inverse: Any, square: Any, out: Array, sums: Array
) -> None:
    """Write a @ b mod p for uint64 elements of a field below 2^62.

    Products are below 2^124, so their upper words are below 2^60 and eight of them with eight
    carries and a rest below p < 2^62 fit 64 bits; they are reduced after every eighth term. `sums`
    is room for two rows of the result.
    """
    rows, inner = a.shape
    columns = b.shape[1]
    low, high = sums[0], sums[1]
    for i in range(rows):
        low[:] = _ZERO
        high[:] = _ZERO
        for start in range(0, inner, 8):
            for k in range(start, min(start + 8, inner)):
                factor = a[i, k]
                for j in range(columns):
                    t = factor * b[k, j]
                    s = low[j] + t
                    high[j] += high_part(factor, b[k, j]) + (_ONE if s < t else _ZERO)
                    low[j] = s
            for j in range(columns):
                high[j] %= p
        for j in range(columns):
            # high 2^64 + low, divided by 2^64 (redc), times 2^128 mod p, and divided again: mod p
            # itself.
            t = redc(high[j], low[j], p, negative_inverse)
            out[i, j] = redc(high_part(t, square), t * square, p, negative_inverse)
