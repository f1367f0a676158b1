"""Privacy cost of Gaussian noise in (epsilon, delta), by the dp-accounting library.

A *noise multiplier* is sigma over the L2 sensitivity, which depends on the data sets that count as
neighbours: `sensitivity` takes that relation, `Released` uses "replace".
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from securevfl.errors import ConfigurationError, needs
from securevfl.privacy.mechanisms import MOST_BOUND

Relation = Literal["replace", "add or remove"]


def sensitivity(bound: float, relation: Relation) -> float:
    """Largest L2 distance between one row, clipped to C, before and after a change of the data.

    Parameters
    ----------
    bound : float
        Clipping bound C.
    relation : {"replace", "add or remove"}
        "replace": another row takes its place, 2C. "add or remove": zeros take its place, C.

    Raises
    ------
    ConfigurationError
        For another relation, and a bound that is not positive and finite.
    """
    if relation not in get_args(Relation) or not 0 < bound < math.inf:
        raise ConfigurationError(
            f"sensitivity: the bound {bound} must be positive and finite, and the relation "
            f"{relation!r} be one of {', '.join(map(repr, get_args(Relation)))}"
        )
    return 2 * bound if relation == "replace" else bound


@functools.lru_cache(maxsize=64)
def noise_multiplier(epsilon: float, delta: float) -> float:
    """Smallest noise multiplier of one (epsilon, delta)-DP release.

    Computed by the analytic Gaussian mechanism (Balle and Wang, ICML 2018), which is exact; the
    classical formula needs epsilon < 1 and gives more noise. The result is rounded up by 1e-9, more
    than the error of the search, so that the release costs at most epsilon.

    Parameters
    ----------
    epsilon : float
        Positive and finite.
    delta : float
        Delta, in (0, 1).

    Raises
    ------
    ConfigurationError
        When one is out of range, or the package dp-accounting is missing.

    Examples
    --------
    >>> round(noise_multiplier(1.0, 1e-5), 7)
    3.7306316
    """
    needs("privacy accounting", "dp", "dp_accounting")
    import dp_accounting

    _check(epsilon, delta)
    return float(dp_accounting.get_sigma_gaussian(epsilon, delta)) * (1 + 1e-9)


@functools.lru_cache(maxsize=1024)
def gaussian_epsilon(multiplier: float, releases: int, delta: float) -> float:
    """Epsilon of `releases` releases of one row with fresh noise each; exact.

    Adaptively composed Gaussian mechanisms are one with noise multiplier z / sqrt(n).

    Parameters
    ----------
    multiplier : float
        Noise multiplier z, positive.
    releases : int
        Number n of releases, at least 0.
    delta : float
        Delta, in (0, 1).

    Raises
    ------
    ConfigurationError
        When one is out of range, or the package dp-accounting is missing.
    """
    needs("privacy accounting", "dp", "dp_accounting")
    import dp_accounting

    _check(multiplier, delta)
    if not isinstance(releases, int | np.integer) or releases < 0:
        raise ConfigurationError(
            f"accountant: {releases} releases; they are a whole number, at least 0"
        )
    if releases == 0:
        return 0.0
    # n releases x + z N(0, I) of the same x have their mean as sufficient statistic, x + z /
    # sqrt(n) N(0, I): one release with less noise (Dong, Roth, Su, "Gaussian differential privacy",
    # 2022, corollary 3.3).
    return float(dp_accounting.get_epsilon_gaussian(multiplier / math.sqrt(releases), delta))


@dataclass(frozen=True)
class Released:
    """Clipping and analytic Gaussian noise of released rows, with the privacy cost.

    Attributes
    ----------
    epsilon, delta : float
        Cost of one release of a row; delta also holds for all releases together.
    clip : float
        C, bound on the L2 norm of a row.
    """

    epsilon: float
    delta: float
    clip: float

    @property
    def multiplier(self) -> float:
        """Noise multiplier z: standard deviation over sensitivity."""
        return noise_multiplier(self.epsilon, self.delta)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise of each entry: 2 C z, C the clip, z the `multiplier`."""
        return self.multiplier * sensitivity(self.clip, "replace")

    def refuse_faint_noise(self, method: str) -> None:
        """Refuse noise that is too small to hide anything (C > 200 sigma), as `release_rows` does.

        ConfigurationError if C > 200 sigma; the message names the method, epsilon, sigma and C.
        """
        if self.clip > MOST_BOUND * self.sigma:
            raise ConfigurationError(
                f"{method}: epsilon = {self.epsilon:g} asks for noise of {self.sigma:.3g} on rows "
                f"of norm {self.clip:g}, which is next to none; lower epsilon"
            )

    def composed(self, releases: int) -> float:
        """Epsilon of `releases` releases of one row together, at the same delta."""
        if releases == 1:
            return self.epsilon  # what it was calibrated for
        return gaussian_epsilon(self.multiplier, releases, self.delta)

    def releases_within(self, budget: float) -> int:
        """Largest number of releases of one row that cost no more than the budget.

        ConfigurationError for a budget that is not finite.
        """
        if not math.isfinite(budget):
            raise ConfigurationError(f"accountant: a budget of {budget} must be finite")
        if self.composed(1) > budget:
            return 0
        # composed(n) grows with n: double n until the budget is exceeded, then bisect.
        most = 2
        while self.composed(most) <= budget:
            most *= 2
        least = most // 2  # within the budget, and `most` is not
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if self.composed(middle) <= budget else (least, middle)
        return least


def _check(positive: float, delta: float) -> None:
    if not 0 < positive < math.inf:
        raise ConfigurationError(
            f"accountant: epsilon or noise multiplier {positive} must be positive and finite"
        )
    if not 0 < delta < 1:
        raise ConfigurationError(f"accountant: delta {delta} must lie between 0 and 1")
