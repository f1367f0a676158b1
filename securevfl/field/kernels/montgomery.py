"""Montgomery reduction with R = 2^64, for kernels of all kinds."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.field.kernels.ir import high_word
from securevfl.field.kernels.jit import inlined, intrinsic, types

ZERO = np.uint64(0)
ONE = np.uint64(1)


@intrinsic
def high_part(context: Any, a: Any, b: Any) -> Any:
    """Return the upper 64 bits of a 64 x 64-bit product; one instruction on common processors."""
    return types.uint64(types.uint64, types.uint64), high_word


@inlined
def redc(upper: Any, low: Any, p: Any, negative_inverse: Any) -> Any:
    """Return (upper 2^64 + low) / 2^64 mod p in [0, p) for upper < p < 2^62."""
    # low + m p is 0 mod 2^64, so its carry is 1 unless low is 0; upper + p < 2^63 does not wrap.
    m = low * negative_inverse
    t = upper + high_part(m, p) + (ONE if low != ZERO else ZERO)
    return t - p if t >= p else t
