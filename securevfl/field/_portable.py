"""Matrix products that run on any processor numba knows, without vector intrinsics."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from securevfl.field._ir import high_word
from securevfl.field._jit import inlined, intrinsic, kernel

Array = NDArray[Any]

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@kernel
def matmul32(a: Array, b: Array, p: Any, radix: Any, out: Array) -> None:
    """Write a @ b mod p for uint32 elements of a field below 2^32; radix = 2^32 mod p.

    Products below 2^64 are summed in two halves of 32 bits each, so both sums stay below k 2^32
    and are exact for k < 2^32. At the end (high mod p) radix + low mod p < 2^64.
    """
    rows, inner = a.shape
    columns = b.shape[1]
    low = np.empty(columns, np.uint64)
    high = np.empty(columns, np.uint64)
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


@intrinsic
def _high(context: Any, a: Any, b: Any) -> Any:
    """Return the upper 64 bits of a 64 x 64-bit product."""
    return types.uint64(types.uint64, types.uint64), high_word


@inlined
def _redc(high: Any, low: Any, p: Any, negative_inverse: Any) -> Any:
    m = low * negative_inverse
    t = high + _high(m, p) + (_ONE if low != _ZERO else _ZERO)
    return t - p if t >= p else t


@kernel
def matmul64(a: Array, b: Array, p: Any, negative_inverse: Any, square: Any, out: Array) -> None:
    """Write a @ b mod p for uint64 elements of a field below 2^62.

    Products are below 2^124, so their upper words are below 2^60 and eight of them with eight
    carries and a rest below p < 2^62 fit 64 bits; they are reduced after every eighth term.
    """
    rows, inner = a.shape
    columns = b.shape[1]
    low = np.empty(columns, np.uint64)
    high = np.empty(columns, np.uint64)
    for i in range(rows):
        low[:] = _ZERO
        high[:] = _ZERO
        for start in range(0, inner, 8):
            for k in range(start, min(start + 8, inner)):
                factor = a[i, k]
                for j in range(columns):
                    t = factor * b[k, j]
                    s = low[j] + t
                    high[j] += _high(factor, b[k, j]) + (_ONE if s < t else _ZERO)
                    low[j] = s
            for j in range(columns):
                high[j] %= p
        for j in range(columns):
            t = _redc(high[j], low[j], p, negative_inverse)
            out[i, j] = _redc(_high(t, square), t * square, p, negative_inverse)
