"""Means over seeds, their intervals, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.errors import needs

_LEVEL = 0.95
_EQUAL = 1e-9  # of a mean, up to which differences are one number, rounded


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean of values, and half-width of its 95 % Student t interval (NaN for a single value).

    Examples
    --------
    >>> mean, half = mean_interval([1.0, 2.0, 3.0])
    >>> round(mean, 3), round(half, 3)
    (2.0, 2.484)
    """
    needs("intervals", "report", "scipy")
    from scipy.stats import t

    numbers = np.asarray(values, np.float64)
    if len(numbers) < 2:
        return float(numbers.mean()), math.nan
    half = t.ppf((1 + _LEVEL) / 2, len(numbers) - 1) * numbers.std(ddof=1) / math.sqrt(len(numbers))
    return float(numbers.mean()), float(half)


def number_or_none(value: float) -> float | None:
    """The value, or None for NaN and infinite values, which JSON does not have."""
    return value if math.isfinite(value) else None


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Mean of paired differences ``ours - theirs``, and the half-width of its interval.

    ValueError unless both have as many values.
    """
    if len(ours) != len(theirs):
        raise ValueError(
            f"paired difference: {len(ours)} and {len(theirs)} values are no pairs; give those of "
            "the seeds that both have"
        )
    return mean_interval(np.subtract(ours, theirs).tolist())


def differing(entries: Sequence[Mapping[str, Any]]) -> list[bool | None]:
    """Whether each paired difference differs from 0, corrected for multiple tests.

    Each entry has ``mean``, ``half_width_95`` of its Student t interval and ``pairs``. None where
    there is no interval, as of one pair; it counts for no correction. Holm's step-down ("A
    simple sequentially rejective multiple test procedure", 1979): the chance that *any* of the
    differences that are 0 is called one is at most 5 %, whatever their dependence.

    Examples
    --------
    >>> differing([{"mean": 2.0, "half_width_95": 1.9, "pairs": 5}])
    [True]
    >>> differing([{"mean": 2.0, "half_width_95": 1.9, "pairs": 5}] * 2)
    [False, False]
    """
    chances = [_chance(each) for each in entries]
    order = sorted((p, place) for place, p in enumerate(chances) if p is not None)
    found: list[bool | None] = [None if p is None else False for p in chances]
    for done, (p, place) in enumerate(order):
        if p > (1 - _LEVEL) / (len(order) - done):
            break
        found[place] = True
    return found


def _chance(entry: Mapping[str, Any]) -> float | None:
    """Two-sided p value of Student's t test from mean, interval and pairs; None for one pair."""
    needs("intervals", "report", "scipy")
    from scipy.stats import t

    mean, half, freedom = abs(entry["mean"]), entry["half_width_95"], entry["pairs"] - 1
    if half is None or freedom < 1 or math.isnan(half):
        return None
    if half <= _EQUAL * mean:  # few test rows: what all pairs share says no more than their sign
        return 2.0**-freedom if mean else 1.0
    return float(2 * t.sf(mean / half * t.ppf(0.975, freedom), freedom))
