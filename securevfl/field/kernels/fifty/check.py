"""Projections that detect wrong rows, by the fastest form in this folder."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.field.kernels import cpu
from securevfl.field.kernels.fifty import left
from securevfl.field.kernels.projection import BLOCK
from securevfl.field.kernels.scratch import aligned

Array = NDArray[Any]


def project(rows: Array, v: Array, out: Array, most: Array) -> bool:
    """Write what `kernels.projection.project64` writes, faster; return whether this was possible.

    It is not without vector instructions, for other than two rows of weights, or where doubles do
    not round to nearest.
    """
    from securevfl.field.kernels.fifty.projection import STEP

    tier = cpu.tier()
    if tier == "portable" or len(v) != 2:
        return False
    weights: Array = aligned((2, BLOCK + STEP), np.uint64)
    weights[:, : v.shape[1]], weights[:, v.shape[1] :] = v, 0
    if left.has_integers(tier):
        from securevfl.field.kernels.fifty import ifma

        kernel = ifma.project
    elif left.rounds_to_nearest():
        from securevfl.field.kernels.fifty import doubles

        kernel = doubles.project512 if tier != "avx2" else doubles.project256
        weights, whole = aligned(weights.shape, np.float64), weights
        doubles.centre(whole, weights)
    else:
        return False
    work = aligned((STEP,), np.uint64), aligned((2, STEP), np.uint64), aligned((8,), np.uint64)
    kernel(np.ascontiguousarray(rows), weights, out, most, work)
    return True
