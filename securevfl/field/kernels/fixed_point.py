"""Fused passes between floats and field elements.

The range check is part of the same pass; a NaN fails it because every comparison with it is false.
y = x * 2^bits is exact in float64 for float32 input, and for float64 input unless it underflows,
where both the number and its fraction are below 2^-1000.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.field.kernels.jit import kernel

Array = NDArray[Any]

_WORD = 2.0**-32


@kernel
def round_half_up(x: Array, scale: float, largest: float, p: Any, out: Array) -> bool:
    """Write phi(floor(y) + (frac(y) >= 1/2)), y = x scale; return whether any is out of range."""
    wrong = False
    for i in range(x.size):
        y = np.float64(x[i]) * scale
        inside = abs(y) <= largest
        wrong |= not inside
        y = y if inside else np.float64(0.0)
        down = np.floor(y)
        # y - floor(y) is exact, unlike floor(y + 0.5).
        z = np.int64(down) + np.int64(y - down >= 0.5)
        out[i] = z + p if z < 0 else z
    return wrong


@kernel
def round_half_up_short(x: Array, scale: Any, largest: Any, p: Any, out: Array) -> bool:
    """Write rounded float32 values to a field below 2^31, in 32-bit lanes; see `round_half_up`.

    x scale is exact in single precision, since scale is a power of two and at least 1, and what
    passes the check is below 2^30.
    """
    wrong = False
    for i in range(x.size):
        y = x[i] * scale
        inside = abs(y) <= largest
        wrong |= not inside
        y = y if inside else np.float32(0.0)
        down = np.floor(y)
        z = np.int32(np.int32(down) + np.int32(y - down >= np.float32(0.5)))
        out[i] = np.int32(z + p) if z < 0 else z
    return wrong


@kernel
def round_stochastic(
    x: Array, words: Array, scale: float, largest: float, p: Any, out: Array
) -> bool:
    """Write phi(floor(y) + (word 2^-32 < frac(y))), y = x scale; whether any |y| > largest."""
    wrong = False
    for i in range(x.size):
        y = np.float64(x[i]) * scale
        inside = abs(y) <= largest
        wrong |= not inside
        y = y if inside else np.float64(0.0)
        down = np.floor(y)
        z = np.int64(down) + np.int64(np.float64(words[i]) * _WORD < y - down)
        out[i] = z + p if z < 0 else z
    return wrong


@kernel
def dequantize(z: Array, p: Any, half: Any, scale: float, out: Array) -> bool:
    """Write the signed representative of z times scale, a power of two; return whether any z >= p.

    p and half have the dtype of z.
    """
    wrong, modulus = False, np.int64(p)
    for i in range(z.size):
        wrong |= z[i] >= p
        v = np.int64(z[i])
        out[i] = np.float64(v - modulus if z[i] > half else v) * scale
    return wrong


@kernel
def dequantize_short(z: Array, p: Any, half: Any, scale: float, out: Array) -> bool:
    """Dequantise elements for p < 2^31, whose signed values fit 32 bits; see `dequantize`."""
    wrong, modulus = False, np.int32(p)
    for i in range(z.size):
        wrong |= z[i] >= p
        v = np.int32(z[i])
        out[i] = np.float64(np.int32(v - modulus) if z[i] > half else v) * scale
    return wrong
