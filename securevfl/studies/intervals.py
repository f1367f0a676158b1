"""Means over seeds, their intervals, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def mean_interval(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float]:
    """Mean and half-width of its Student t interval; the half-width is NaN for one value.

    Examples
    --------
    >>> mean, half = mean_interval([1.0, 2.0, 3.0])
    >>> round(mean, 3), round(half, 3)
    (2.0, 2.484)
    """
    from scipy.stats import t

    numbers = np.asarray(values, np.float64)
    if len(numbers) < 2:
        return float(numbers.mean()), math.nan
    half = t.ppf((1 + level) / 2, len(numbers) - 1) * numbers.std(ddof=1) / math.sqrt(len(numbers))
    return float(numbers.mean()), float(half)


def paired_difference(
    ours: Sequence[float], theirs: Sequence[float], *, level: float = 0.95
) -> tuple[float, float]:
    """Mean of ``ours - theirs``, pair by pair, and the half-width of its interval."""
    return mean_interval(np.subtract(ours, theirs).tolist(), level=level)
