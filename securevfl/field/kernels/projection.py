"""Weighted sums of blocks in one pass over rows: the whole check of honest results."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels.ir import I64, high_part, redc
from securevfl.field.kernels.jit import inlined, intrinsic, kernel, types

Array = NDArray[Any]

BLOCK = 2048  # Columns; a block of a row and its weights stay in the L1 cache.

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@inlined
def _pair31(y: Array, v: Array, w: Array, p: Any, radix: Any) -> Any:
    """Return sum y v and sum y w mod p, p < 2^31: four products fit, see portable.matmul31."""
    q = y.size // 4
    y0, y1, y2, y3 = y[:q], y[q : 2 * q], y[2 * q : 3 * q], y[3 * q : 4 * q]
    v0, v1, v2, v3 = v[:q], v[q : 2 * q], v[2 * q : 3 * q], v[3 * q : 4 * q]
    w0, w1, w2, w3 = w[:q], w[q : 2 * q], w[2 * q : 3 * q], w[3 * q : 4 * q]
    low, high, low_w, high_w, u = _ZERO, _ZERO, _ZERO, _ZERO, np.uint64
    for j in range(q):
        a, b, c, d = u(y0[j]), u(y1[j]), u(y2[j]), u(y3[j])
        t = a * u(v0[j]) + b * u(v1[j]) + c * u(v2[j]) + d * u(v3[j])
        low += t & _LOW
        high += t >> _HALF
        t = a * u(w0[j]) + b * u(w1[j]) + c * u(w2[j]) + d * u(w3[j])
        low_w += t & _LOW
        high_w += t >> _HALF
    for j in range(4 * q, y.size):
        t = u(y[j]) * u(v[j])
        low += t & _LOW
        high += t >> _HALF
        t = u(y[j]) * u(w[j])
        low_w += t & _LOW
        high_w += t >> _HALF
    first = ((high % p) * radix + low % p) % p
    return first, ((high_w % p) * radix + low_w % p) % p


@inlined
def _dot32(y: Array, v: Array, p: Any, radix: Any) -> Any:
    """Return sum y v mod p for p < 2^32."""
    low, high = _ZERO, _ZERO
    for j in range(y.size):
        t = np.uint64(y[j]) * np.uint64(v[j])
        low += t & _LOW
        high += t >> _HALF
    return ((high % p) * radix % p + low % p) % p


@intrinsic
def _sum16(context: Any, y: Any, v: Any) -> Any:
    """Upper and lower words of the sum of 16 products, operands at two addresses.

    Products of elements below 2^62 are below 2^124, so 16 of them fit 128 bits.
    """

    def generate(cx: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        total = ir.Constant(wide, 0)
        for i in range(16):
            factors = []
            for address in args:
                place = builder.add(address, ir.Constant(I64, 8 * i))
                element = builder.load(builder.inttoptr(place, ir.PointerType(I64)), align=8)
                factors.append(builder.zext(element, wide))
            total = builder.add(total, builder.mul(*factors))
        high = builder.trunc(builder.lshr(total, ir.Constant(wide, 64)), I64)
        words = [high, builder.trunc(total, I64)]
        return cx.make_tuple(builder, signature.return_type, words)

    return types.UniTuple(types.uint64, 2)(types.int64, types.int64), generate


@inlined
def _dot64(y: Array, v: Array, p: Any, ninv: Any, square: Any, radix: Any) -> Any:
    """Sum of products y v mod p < 2^62; ninv, square, radix: constants as in `project64`."""
    low, middle, top = _ZERO, _ZERO, _ZERO
    a, b, whole = y.ctypes.data, v.ctypes.data, y.size // 16 * 16
    for start in range(0, whole, 16):
        upper, t = _sum16(a + 8 * start, b + 8 * start)
        low += t
        middle += (upper & _LOW) + (_ONE if low < t else _ZERO)
        top += upper >> _HALF
    for j in range(whole, y.size):
        t = y[j] * v[j]
        upper = high_part(y[j], v[j])
        low += t
        middle += (upper & _LOW) + (_ONE if low < t else _ZERO)
        top += upper >> _HALF
    # radix / 2^64 = 2^32 mod p
    upper = redc(high_part(top, radix), top * radix, p, ninv) + middle % p
    upper = upper - p if upper >= p else upper
    t = redc(upper, low, p, ninv)
    return redc(high_part(t, square), t * square, p, ninv)


@inlined
def _largest(y: Array) -> Any:
    most = y[0]
    for j in range(y.size):
        most = max(most, y[j])
    return most


@kernel
def project32(rows: Array, v: Array, p: Any, radix: Any, out: Array, most: Array) -> None:
    """Write out[q, i, block] = sum_j v[q, j] rows[i, block BLOCK + j]; update the rows' maxima.

    All blocks have the same weights, so that the rows are read once, from end to end. radix = 2^32
    mod p; `most` has a maximum for each row.
    """
    for i in range(rows.shape[0]):
        for b in range(out.shape[2]):
            y = rows[i, b * BLOCK : (b + 1) * BLOCK]
            most[i] = max(most[i], np.uint64(_largest(y)))
            if v.shape[0] == 2 and p < np.uint64(1 << 31):
                both = _pair31(y, v[0, : y.size], v[1, : y.size], p, radix)
                out[0, i, b], out[1, i, b] = both
                continue
            for q in range(v.shape[0]):
                out[q, i, b] = _dot32(y, v[q, : y.size], p, radix)


@kernel
def project64(rows: Array, v: Array, constants: Any, out: Array, most: Array) -> None:
    """Projection of `project32` for uint64 elements; constants: p, -1/p, 2^128 and 2^96 mod p."""
    p, ninv, square, radix = constants
    for i in range(rows.shape[0]):
        for b in range(out.shape[2]):
            y = rows[i, b * BLOCK : (b + 1) * BLOCK]
            most[i] = max(most[i], _largest(y))
            for q in range(v.shape[0]):
                out[q, i, b] = _dot64(y, v[q, : y.size], p, ninv, square, radix)
