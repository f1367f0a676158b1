"""Scaling of features, fitted on training rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

import numpy as np

from securevfl.errors import DataError

Scaling = Literal["minmax", "standard", "none"]

SCALING_RULES: dict[str, str] = {
    "minmax": "min-max on the training rows, clipped to [0, 1]; a constant column becomes 0",
    "standard": "mean 0 and variance 1 on the training rows; a constant column becomes 0",
    "none": "none",
}


_TOLD = 2.0**-24  # of 1: what float32 can tell apart


def check_scaling(scaling: str) -> Scaling:
    """A checked `scaling` rule; DataError for an unknown one."""
    if scaling not in get_args(Scaling):
        raise DataError(f"scaling={scaling!r} does not exist; use minmax, standard or none.")
    return cast("Scaling", scaling)


def flattened(block: np.ndarray, share: float = _TOLD) -> tuple[int, int, float] | None:
    """Column, row and value of the first outlier whose scaling makes other values equal, or None.

    `block` is (M, d), finite. In such a column at least half of the rows have different values
    within `share` of its range around one typical row. By default `share` is the resolution of
    float32.
    """
    if block.dtype.kind != "f" or not len(block):
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # a range beyond float64 is refused apart
        typical = np.median(block[:: max(1, len(block) // 100)].astype(np.float64), axis=0)
        reach = (block.max(axis=0).astype(np.float64) - block.min(axis=0)) * share
        for k in np.flatnonzero(np.isfinite(reach)):
            away = np.abs(block[:, k] - typical[k])
            lost = np.unique(block[(away > 0) & (away <= reach[k]), k], return_counts=True)[1]
            if len(lost) > 1 and 2 * int(lost.sum()) >= len(block):
                row = int(np.argmax(away))
                return int(k), row, float(block[row, k])
    return None


def fit_scaling(
    block: np.ndarray, scaling: Scaling, names: Sequence[str]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Offsets and divisors, one a column of `block` (M, d); a divisor of 0 for constant columns.

    DataError for values that are not finite, or whose range exceeds float64.
    """
    if block.dtype.kind == "f":
        # The smallest and the largest value of a column show every NaN and infinity in it.
        bad = ~np.isfinite(block.min(axis=0)) | ~np.isfinite(block.max(axis=0))
        if bad.any():
            column = int(np.argmax(bad))
            row = int(np.argmin(np.isfinite(block[:, column])))
            kind = "NaN" if np.isnan(block[row, column]) else "infinite"
            raise DataError(
                f"column {names[column]!r}, training row {row}: the value is {kind}; "
                f"give finite numbers (a data frame or a CSV file may leave values missing)."
            )
    if scaling == "none":
        return (0.0,) * block.shape[1], (1.0,) * block.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):  # what follows refuses it
        if scaling == "minmax":
            offset = block.min(axis=0).astype(np.float64)
            divisor = block.max(axis=0).astype(np.float64) - offset
        else:
            offset = block.mean(axis=0, dtype=np.float64)
            divisor = block.std(axis=0, dtype=np.float64)
            # Rounding in the mean leaves a tiny spread in a column that never changes.
            divisor[block.min(axis=0) == block.max(axis=0)] = 0.0
    # Its inverse would overflow: beside rounding such a column never changes.
    divisor[divisor < np.finfo(np.float64).tiny] = 0.0
    if not np.isfinite(divisor).all():
        column = int(np.argmin(np.isfinite(divisor)))
        raise DataError(
            f"column {names[column]!r}: the values span more than the range of float64; "
            f"rescale or drop the column."
        )
    return tuple(map(float, offset)), tuple(map(float, divisor))
