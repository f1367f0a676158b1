"""Distinguishing games: from a run's view, a test guesses which of two secrets it used.

Where the two distributions of views are equal, every guess is right with probability 1/2 whatever
the rule, so the binomial tail of the number of right guesses is an exact failure probability; only
the power depends on the rule. The secrets of a game have the same ideal output, because a sum that
both know is no leak.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from securevfl.audit.proof.linear_algebra import rank
from securevfl.audit.statistical import LEVEL, Outcome
from securevfl.field import PrimeField

_SLACK = 4  # views in a row that lie in the span before it counts as whole
_TRAINING = 4  # runs with each secret before the guesses of a rank game


@dataclass(frozen=True)
class Played:
    """A finished distinguishing game.

    Attributes
    ----------
    name : str
    right, rounds : int
        Number of right guesses, and of all guesses.
    trained : int
        Number of runs on which the rule was fitted before.
    """

    name: str
    right: int
    rounds: int
    trained: int

    @property
    def p_value(self) -> float:
        """Probability of at least so many right guesses by chance, exact."""
        return guessing_tail(self.right, self.rounds)

    def outcome(self, level: float = LEVEL) -> Outcome:
        """The game as a statistical test, which accuses if its p-value is below the level."""
        detail = f"{self.name} told two secrets with the same output apart in {self.right} of "
        detail += f"{self.rounds} runs"
        return Outcome(self.name, self.p_value, level, detail)


def guessing_tail(right: int, rounds: int) -> float:
    """P(at least `right` of `rounds` fair coins fall heads).

    Examples
    --------
    >>> guessing_tail(3, 3), guessing_tail(0, 5)
    (0.125, 1.0)
    """
    ways = sum(math.comb(rounds, k) for k in range(right, rounds + 1))
    return float(ways / 2**rounds)


def coin(stream: np.random.Generator | None) -> int:
    """A random bit from a stream, or from the operating system if None."""
    import secrets

    return secrets.randbits(1) if stream is None else int(stream.integers(2))


Sample = Callable[[int], np.ndarray]


def span_game(
    field: PrimeField,
    sample: Sample,
    *,
    rounds: int = 40,
    stream: np.random.Generator | None = None,
) -> Played:
    """Game A: play with the affine span of views (rank of view differences over runs).

    Views with secret 0 are collected until four of them in a row lie in the affine span of
    those before. A view in that span is guessed to be of secret 0. Masks that are too few, equal,
    shared or reused confine the views to a span that depends on the secret.

    Parameters
    ----------
    field : PrimeField
    sample : callable
        Function from a bit to the view of a new run, (coordinates,) elements.
    rounds : int
    stream : Generator, optional
        Generator of the bits; by default the operating system's entropy.
    """
    span, trained = Span(field, sample(0)), 1
    # A view outside raises the rank, so this ends. If views fill a larger space evenly, four of
    # them in a row lie in a proper subspace by chance with probability at most p^-4.
    inside = 0
    while inside < _SLACK:
        inside = 0 if span.add(sample(0)) else inside + 1
        trained += 1
    right = 0
    for _ in range(rounds):
        bit = coin(stream)
        right += (not span.contains(sample(bit))) == bool(bit)
    name = f"span of views (rank {span.rank} of {span.origin.size})"
    return Played(name, right, rounds, trained)


class Span:
    """Affine span of points over F_p, kept as an echelon basis of their differences."""

    def __init__(self, field: PrimeField, origin: np.ndarray) -> None:
        self.field, self.origin = field, origin
        self._rows: list[tuple[int, np.ndarray]] = []

    @property
    def rank(self) -> int:
        """Dimension of the affine span."""
        return len(self._rows)

    def _reduced(self, point: np.ndarray) -> np.ndarray:
        field, rest = self.field, self.field.subtract(point, self.origin)
        # Each row has a 1 at its pivot and 0 at the pivots of the rows before it, so that one pass
        # in this order clears all pivots.
        for pivot, row in self._rows:
            if rest[pivot]:
                rest = field.subtract(rest, field.multiply(rest[pivot], row))
        return rest

    def contains(self, point: np.ndarray) -> bool:
        """Whether a point lies in the span."""
        return self.rank == self.origin.size or not self._reduced(point).any()

    def add(self, point: np.ndarray) -> bool:
        """Extend the span by a point; return True if the point was new."""
        rest = self._reduced(point)
        places = np.flatnonzero(rest)
        if not places.size:
            return False
        pivot = int(places[0])
        inverse = self.field.reciprocal(rest[pivot])
        self._rows.append((pivot, self.field.multiply(rest, inverse)))
        return True


def rank_game(
    statistic: Callable[[int], Hashable],
    *,
    rounds: int = 40,
    stream: np.random.Generator | None = None,
) -> Played:
    """Game B: play with the ranks of blocks of a view.

    The rule guesses the secret under which the same ranks were seen more often in training, and
    secret 0 where that does not decide.

    Parameters
    ----------
    statistic : callable
        Bit to the ranks of the view of a fresh run; see `block_ranks`.
    rounds : int
        Guesses, after four runs with each secret.
    stream : Generator, optional
    """
    seen = [Counter(statistic(bit) for _ in range(_TRAINING)) for bit in (0, 1)]
    right = 0
    for _ in range(rounds):
        bit = coin(stream)
        ranks = statistic(bit)
        right += (seen[1][ranks] > seen[0][ranks]) == bool(bit)
    return Played("ranks of blocks", right, rounds, 2 * _TRAINING)


def block_ranks(field: PrimeField, blocks: np.ndarray) -> tuple[int, ...]:
    """Ranks of a view's blocks, which are full if masks have full degree.

    Parameters
    ----------
    blocks : ndarray, (attempts, m, |B|, h)
        Unwanted blocks of each attempt on the same rows, in the same order.

    Returns
    -------
    tuple of int
        Rank of every block, of every block's difference to the first attempt's, and of all blocks
        side by side.
    """
    ranks = [rank(field, block) for attempt in blocks for block in attempt]
    for attempt in blocks[1:]:
        ranks += [
            rank(field, field.subtract(a, b)) for a, b in zip(attempt, blocks[0], strict=True)
        ]
    side_by_side = np.concatenate([block for attempt in blocks for block in attempt], axis=1)
    return (*ranks, rank(field, side_by_side))
