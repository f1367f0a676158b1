"""One pass over rows of elements that weights their blocks: the honest case's whole check."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from securevfl.field._ir import high_word
from securevfl.field._jit import inlined, intrinsic, kernel

Array = NDArray[Any]

BLOCK = 8192  # Columns; the weights of a block stay in the L1 cache, or L2 for 64-bit elements.

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@intrinsic
def _high(context: Any, a: Any, b: Any) -> Any:
    """Return the upper 64 bits of a 64 x 64-bit product."""
    return types.uint64(types.uint64, types.uint64), high_word


@inlined
def _redc(high: Any, low: Any, p: Any, ninv: Any) -> Any:
    """Return (high 2^64 + low) / 2^64 mod p for high < p < 2^62."""
    m = low * ninv
    t = high + _high(m, p) + (_ONE if low != _ZERO else _ZERO)
    return t - p if t >= p else t


@inlined
def _dot31(y: Array, v: Array, p: Any, radix: Any) -> Any:
    """Return sum y v mod p for p < 2^31: four products fit 64 bits, see _portable.matmul31."""
    quarter = y.size // 4
    y0, y1, y2, y3 = (
        y[:quarter],
        y[quarter : 2 * quarter],
        y[2 * quarter : 3 * quarter],
        y[3 * quarter : 4 * quarter],
    )
    v0, v1, v2, v3 = (
        v[:quarter],
        v[quarter : 2 * quarter],
        v[2 * quarter : 3 * quarter],
        v[3 * quarter : 4 * quarter],
    )
    low, high, u = _ZERO, _ZERO, np.uint64
    for j in range(quarter):
        t = u(y0[j]) * u(v0[j]) + u(y1[j]) * u(v1[j]) + u(y2[j]) * u(v2[j]) + u(y3[j]) * u(v3[j])
        low += t & _LOW
        high += t >> _HALF
    for j in range(4 * quarter, y.size):
        t = u(y[j]) * u(v[j])
        low += t & _LOW
        high += t >> _HALF
    return ((high % p) * radix + low % p) % p


@inlined
def _dot32(y: Array, v: Array, p: Any, radix: Any) -> Any:
    """Return sum y v mod p for p < 2^32."""
    low, high = _ZERO, _ZERO
    for j in range(y.size):
        t = np.uint64(y[j]) * np.uint64(v[j])
        low += t & _LOW
        high += t >> _HALF
    return ((high % p) * radix % p + low % p) % p


@inlined
def _dot64(y: Array, v: Array, p: Any, ninv: Any, square: Any) -> Any:
    """Return sum y v mod p for p < 2^62.

    Upper words of products are below 2^60; eight of them with their carries and a rest below 2^32
    fit 64 bits, and what they exceed 32 bits by is summed apart.
    """
    low, middle, top = _ZERO, _ZERO, _ZERO
    for start in range(0, y.size, 8):
        for j in range(start, min(start + 8, y.size)):
            t = y[j] * v[j]
            low += t
            middle += _high(y[j], v[j]) + (_ONE if low < t else _ZERO)
        top += middle >> _HALF
        middle &= _LOW
    upper = top % p
    for _ in range(32):  # 2^32 top mod p, by doubling: this runs once per block.
        upper += upper
        upper = upper - p if upper >= p else upper
    upper += middle % p
    upper = upper - p if upper >= p else upper
    t = _redc(upper, low, p, ninv)
    return _redc(_high(t, square), t * square, p, ninv)


@inlined
def _largest(y: Array) -> Any:
    most = y[0]
    for j in range(y.size):
        most = max(most, y[j])
    return most


@kernel
def project32(rows: Array, v: Array, p: Any, radix: Any, out: Array, most: Array) -> None:
    """Write out[q, i, block] = sum_j v[q, j] rows[i, block BLOCK + j] and raise the rows' maxima.

    Blocks are visited row after row, so each is read from memory once for all q.
    """
    for b in range(out.shape[2]):
        for i in range(rows.shape[0]):
            y = rows[i, b * BLOCK : (b + 1) * BLOCK]
            most[i] = max(most[i], np.uint64(_largest(y)))
            for q in range(v.shape[0]):
                if p < np.uint64(1 << 31):
                    out[q, i, b] = _dot31(y, v[q, : y.size], p, radix)
                else:
                    out[q, i, b] = _dot32(y, v[q, : y.size], p, radix)


@kernel
def project64(
    rows: Array, v: Array, p: Any, ninv: Any, square: Any, out: Array, most: Array
) -> None:
    """Write the same for uint64 elements."""
    for b in range(out.shape[2]):
        for i in range(rows.shape[0]):
            y = rows[i, b * BLOCK : (b + 1) * BLOCK]
            most[i] = max(most[i], _largest(y))
            for q in range(v.shape[0]):
                out[q, i, b] = _dot64(y, v[q, : y.size], p, ninv, square)
