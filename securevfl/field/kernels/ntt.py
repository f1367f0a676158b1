"""Butterflies of number-theoretic transforms over many columns, for p < 2^31.

A transform runs down the rows of a panel of columns; all columns share the twiddles.
Products by a twiddle w use its companion w' = floor(2^32 w / p) (Shoup): with
q = floor(y w' / 2^32) the number y w - q p lies in [0, 2p), below 2^32, so its low words suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.field.kernels.ir import I32, I64, copy16, every, load, smaller, splat, store
from securevfl.field.kernels.jit import inlined, intrinsic, kernel, types

Array = NDArray[Any]

_LANES = 16


def _times(builder: Any, y: Any, w: Any, companion: Any, p: Any) -> Any:
    """Emit y w mod p in 32-bit lanes; companion is floor(2^32 w / p)."""
    words = every(I64, 8, 0xFFFFFFFF)
    pairs = builder.bitcast(y, words.type)
    factor = builder.and_(splat(builder, builder.zext(companion, I64), 8), words)
    even = builder.mul(builder.and_(pairs, words), factor)
    odd = builder.mul(builder.lshr(pairs, every(I64, 8, 32)), factor)
    upper = builder.and_(odd, every(I64, 8, 0xFFFFFFFF << 32))
    q = builder.bitcast(builder.or_(builder.lshr(even, every(I64, 8, 32)), upper), y.type)
    r = builder.sub(builder.mul(y, splat(builder, w, _LANES)), builder.mul(q, p))
    return smaller(builder, r, builder.sub(r, p))


def _sum_difference(builder: Any, x: Any, y: Any, p: Any) -> tuple[Any, Any]:
    """Emitted x + y and x - y mod p; a negative difference wraps, so that + p is smaller."""
    total, difference = builder.add(x, y), builder.sub(x, y)
    total = smaller(builder, total, builder.sub(total, p))
    return total, smaller(builder, difference, builder.add(difference, p))


def _generator(kind: str) -> Callable[..., Any]:
    """Return the generator of a butterfly ("in frequency", "in time") or a scaled copy."""

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        a, b, w, companion, modulus = args
        p = splat(builder, modulus, _LANES)
        x = load(builder, a, 0, I32, _LANES)
        if kind == "scale":
            store(builder, b, 0, _times(builder, x, w, companion, p))
            return context.get_dummy_value()
        y = load(builder, b, 0, I32, _LANES)
        if kind == "in time":
            y = _times(builder, y, w, companion, p)
        total, difference = _sum_difference(builder, x, y, p)
        if kind == "in frequency":
            difference = _times(builder, difference, w, companion, p)
        store(builder, a, 0, total)
        store(builder, b, 0, difference)
        return context.get_dummy_value()

    return generate


def _butterfly(kind: str) -> Any:
    """Signature (numba) and LLVM emitter of a butterfly of `kind` in the transform."""
    return types.void(types.int64, types.int64, *[types.uint32] * 3), _generator(kind)


@intrinsic
def _in_frequency(context: Any, a: Any, b: Any, w: Any, companion: Any, p: Any) -> Any:
    """Replace x at a, y at b (16 lanes) by x + y, (x - y) w; companion is floor(2^32 w / p)."""
    return _butterfly("in frequency")


@intrinsic
def _in_time(context: Any, a: Any, b: Any, w: Any, companion: Any, p: Any) -> Any:
    """Replace x at a, y at b (16 lanes) by x + w y, x - w y."""
    return _butterfly("in time")


@intrinsic
def _scale(context: Any, a: Any, b: Any, w: Any, companion: Any, p: Any) -> Any:
    """Write x w to address b, x 16 lanes at address a."""
    return _butterfly("scale")


@inlined
def _interpolate(panel: int, pitch: int, m: int, pieces: int, twiddles: Array, p: Any) -> None:
    """Transform m rows, `pitch` bytes apart, in place (in frequency), to bit-reversed order."""
    half = m // 2
    while half:
        step = m // (2 * half)
        for group in range(step):
            start = 2 * half * group
            for i in range(half):
                w, companion = twiddles[0, i * step], twiddles[1, i * step]
                a = panel + (start + i) * pitch
                for piece in range(pieces):
                    _in_frequency(a + 64 * piece, a + half * pitch + 64 * piece, w, companion, p)
        half //= 2


@inlined
def _evaluate(
    panel: int, pitch: int, n: int, first: int, pieces: int, twiddles: Array, p: Any
) -> None:
    """Transform n rows in place (decimation in time, bit-reversed input), stages >= `first`."""
    half = first
    while half < n:
        step = n // (2 * half)
        for group in range(step):
            start = 2 * half * group
            for i in range(half):
                w, companion = twiddles[0, i * step], twiddles[1, i * step]
                a = panel + (start + i) * pitch
                for piece in range(pieces):
                    _in_time(a + 64 * piece, a + half * pitch + 64 * piece, w, companion, p)
        half *= 2


@kernel
def encode(rows: Array, tiles: int, out: Array, p: Any, tables: Any, work: Any) -> None:
    """Interpolate columns at m points of a coset and evaluate at points of another coset.

    Parameters
    ----------
    rows : ndarray
        int64 addresses of the m rows.
    tiles : int
        Pieces of 64 bytes in each row.
    out : ndarray
        uint32 (N, ..), N <= n; the last axis is contiguous and holds the tiles.
    p : uint32
        The modulus.
    tables : tuple of ndarray
        Twiddles and companions, (2, size) of uint32: w_m^-i for i < m/2; the factors of the m
        coefficients in bit-reversed order; w_n^i for i < n/2.
    work : tuple
        low (m, width) and high (n, width) of uint8, width a multiple of 64; seen, 64 bytes of
        maxima over all inputs, and 64 to spare.
    """
    inverse, factors, forward = tables
    low, high, seen = work
    m, n, top = low.shape[0], high.shape[0], seen.ctypes.data
    base, place, spread = low.ctypes.data, high.ctypes.data, n // m
    pitch = low.shape[1]
    width = pitch // 64
    for turn in range(-(-tiles // width)):  # A range with a step may raise.
        begin = turn * width
        pieces = min(width, tiles - begin)
        for i in range(m):
            for piece in range(pieces):
                copy16(rows[i] + 64 * (begin + piece), base + pitch * i + 64 * piece, top)
        # This leaves the coefficients in bit-reversed order, which is the order that `_evaluate`
        # takes: rows are never put back into their natural order.
        _interpolate(base, pitch, m, pieces, inverse, p)
        for i in range(m):
            # The other n/m - 1 coefficients of a group are 0, so its first stages repeat this one.
            for copy in range(spread):
                target = place + pitch * (i * spread + copy)
                for piece in range(pieces):
                    source = base + pitch * i + 64 * piece
                    _scale(source, target + 64 * piece, factors[0, i], factors[1, i], p)
        _evaluate(place, pitch, n, spread, pieces, forward, p)
        for i in range(out.shape[0]):
            target = out.ctypes.data + i * out.strides[0] + 64 * begin
            for piece in range(pieces):
                source = place + pitch * i + 64 * piece
                copy16(source, target + 64 * piece, seen[64:].ctypes.data)


def companions(values: list[int], p: int) -> Array:
    """Twiddle factors and their precomputed quotients, (2, size) uint32."""
    return np.array([values, [(w << 32) // p for w in values]], np.uint32).reshape(2, -1)
