"""A statistical test of views, with its probability of a false accusation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from securevfl.errors import needs

LEVEL = 1e-7  # failure probability of each test


@dataclass(frozen=True)
class Outcome:
    """Result of one statistical test.

    Attributes
    ----------
    test : str
        Name of the test.
    p_value : float
        Probability of evidence at least as strong where nothing leaks.
    level : float
        Probability of a rejection where nothing leaks: the test rejects if `p_value` is smaller.
    detail : str
        Description of the samples.
    """

    test: str
    p_value: float
    level: float
    detail: str

    @property
    def rejected(self) -> bool:
        """Whether `p_value` is below `level`, so that the test counts as evidence of a leak."""
        return self.p_value < self.level


def two_sample(one: np.ndarray, two: np.ndarray) -> Outcome:
    """Kolmogorov-Smirnov test of each coordinate of two samples of views, Bonferroni-corrected.

    Parameters
    ----------
    one, two : ndarray, (runs, coordinates), elements
        Views of runs with two secrets that have the same ideal output.
    """
    needs("tests of uniformity", "attacks", "scipy")
    from scipy.stats import ks_2samp

    values = [
        float(ks_2samp(a.astype(np.float64), b.astype(np.float64), method="exact").pvalue)
        for a, b in zip(one.T, two.T, strict=True)
    ]
    total = min(1.0, min(values) * len(values))
    detail = f"{len(one)} and {len(two)} runs, {len(values)} coordinates"
    return Outcome("two-sample", total, LEVEL, detail)


def digest(arrays: Iterable[np.ndarray]) -> str:
    """SHA-256 of arrays, to compare masks between processes without storing them."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()
