"""Success of an attack compared with chance or an outsider, with an interval.

Scores: balanced accuracy for classes and the area under the ROC curve (AUC) for two of them, so
that unequal classes fake no success; for real values the part of the mean squared error of a decoy
that guesses the mean of known rows which the attack takes away; for exact attacks the fraction that
was found. Intervals are percentile bootstraps over the attacked rows, at 95 %.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from securevfl.errors import ConfigurationError, needs

RESAMPLES = 400
LEVEL = 0.95
MOST = 2000  # rows that are attacked, at most: more would only narrow the interval


@dataclass(frozen=True)
class Outcome:
    """Result of one attack on one run.

    Attributes
    ----------
    metric : str
        Name of the measure; larger is better for the attacker.
    success : float
        The measure for the attack.
    chance : float
        Success without the attacked messages.
    low, high : float
        95 % interval of `success` over the attacked rows; equal to `success` for an exact attack.
    samples : int
        Number of attacked rows, or other objects.
    controls : mapping
        The measure, by name, for control attacks that lack the attacked information.
    note : str
        Further text for readers.
    """

    metric: str
    success: float
    chance: float
    low: float
    high: float
    samples: int
    controls: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    def noted(self, note: str) -> Outcome:
        """The same outcome with this text at the beginning of its note."""
        return replace(self, note=note + self.note)


@dataclass(frozen=True)
class NoView:
    """Result of an attack whose adversary sees nothing to work on; `reason` is a text."""

    reason: str


Result = Outcome | NoView


@dataclass(frozen=True)
class Failed:
    """Result of an attack that ended in an error, the text `reason`; it says nothing of leaks."""

    reason: str


def bootstrap(
    measure: Callable[[np.ndarray], float], rows: int, stream: np.random.Generator
) -> tuple[float, float]:
    """95 % bootstrap interval (low, high) of a measure, over rows drawn with replacement.

    Parameters
    ----------
    measure : callable
        Function of row numbers, (rows,) with repetitions, that returns a value; NaN if undefined.
    rows : int
        Number of rows.
    stream : numpy Generator
        Source of random choices.
    """
    values = [measure(stream.integers(rows, size=rows)) for _ in range(RESAMPLES)]
    edge = (1 - LEVEL) / 2
    low, high = np.nanquantile(values, [edge, 1 - edge])
    return float(low), float(high)


def ratio_interval(
    errors: np.ndarray, decoys: np.ndarray, stream: np.random.Generator
) -> tuple[float, float]:
    """95 % bootstrap interval (low, high) of 1 - sum(errors) / sum(decoys), each (rows,) >= 0."""

    def measure(rows: np.ndarray) -> float:
        total = decoys[rows].sum()
        return 1 - errors[rows].sum() / total if total else float("nan")

    return bootstrap(measure, len(errors), stream)


def explained(
    guess: np.ndarray, truth: np.ndarray, decoy: np.ndarray, stream: np.random.Generator
) -> tuple[float, float, float]:
    """Fraction of the decoy's squared error that a guess removes, and its 95 % interval over rows.

    Parameters
    ----------
    guess, truth : ndarray, (rows, columns)
        Guessed values, and true ones.
    decoy : ndarray, (columns,)
        Guess for every row without any view. Constant columns are left out.

    Returns
    -------
    success, low, high : float
        1 for the truth, 0 for the decoy, below 0 for worse than that.

    Raises
    ------
    ConfigurationError
        If no column varies.
    """
    varies = truth.std(axis=0) > 0
    if not varies.any():
        raise ConfigurationError(
            f"attacks: none of the {truth.shape[1]} attacked columns varies over {len(truth)} "
            "rows; name another client"
        )
    errors = ((guess - truth)[:, varies] ** 2).sum(axis=1)
    decoys = ((decoy - truth)[:, varies] ** 2).sum(axis=1)
    low, high = ratio_interval(errors, decoys, stream)
    return float(1 - errors.sum() / decoys.sum()), low, high


def area(scores: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve; ties count half, NaN if one class is missing."""
    needs("attacks", "attacks", "scipy")
    from scipy.stats import rankdata

    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return float("nan")
    return float((rankdata(scores)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def balanced_accuracy(guess: np.ndarray, labels: np.ndarray) -> float:
    """Fraction of rows guessed right in each class that occurs, averaged over the classes."""
    return float(np.mean([(guess[labels == c] == c).mean() for c in np.unique(labels)]))
