"""Columns of the same form and with other values, for runs that differ in secrets alone."""

from __future__ import annotations

import numpy as np

from securevfl.data.dataset import VerticalDataset

OTHER_RANGES = "random columns of other ranges"


def other_columns(data: VerticalDataset, seed: int) -> dict[str, dict[int, np.ndarray]]:
    """Columns mirrored in their range, in another order of rows, random, and in other ranges.

    What a mirror or another order keeps, such as a column's spread, random ones do not keep. Those
    of other ranges keep no column's smallest or largest value either, nor which columns are
    constant: each has a part of the range of the column before it.

    Returns
    -------
    dict of str to dict of int to ndarray, (rows, d_n)
        By name, then by client.
    """
    stream = np.random.Generator(np.random.Philox(seed + 5))
    rows = stream.permutation(data.rows)
    made: dict[str, dict[int, np.ndarray]] = {
        name: {}
        for name in ("mirrored columns", "rows in another order", "random columns", OTHER_RANGES)
    }
    for n, own in enumerate(data.train):
        low, high = own.min(axis=0), own.max(axis=0)
        made["mirrored columns"][n] = (low + high - own).astype(own.dtype)
        made["rows in another order"][n] = np.ascontiguousarray(own[rows])
        values = low + (high - low) * stream.random(own.shape)
        made["random columns"][n] = values.astype(own.dtype)
        made[OTHER_RANGES][n] = _in_other_ranges(low, high, own, stream)
    return made


def _in_other_ranges(
    low: np.ndarray, high: np.ndarray, own: np.ndarray, stream: np.random.Generator
) -> np.ndarray:
    if not (high > low).any():
        high = low + 1
    low, high = np.roll(low, 1), np.roll(high, 1)
    first, last = 0.2 * stream.random(low.shape), 1 - 0.4 * stream.random(low.shape)
    values = low + (high - low) * (first + (last - first) * stream.random(own.shape))
    made: np.ndarray = values.astype(own.dtype)
    return made
