"""A distinguishing game: from a run's view, a rule guesses which of two secrets it used.

Where the two distributions of views are equal, every guess is right with probability 1/2 whatever
the rule; only the power depends on it. The secrets of a game have the same ideal output, because a
sum that both know is no leak.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable

import numpy as np

from securevfl.audit.proof.linear_algebra import rank
from securevfl.field import PrimeField

_TRAINING = 4  # runs with each secret before the guesses of a rank game


def coin(stream: np.random.Generator | None) -> int:
    """A random bit from a stream, or from the operating system if None."""
    import secrets

    return secrets.randbits(1) if stream is None else int(stream.integers(2))


def rank_game(
    statistic: Callable[[int], Hashable],
    *,
    rounds: int = 40,
    stream: np.random.Generator | None = None,
) -> int:
    """Number of right guesses of a secret bit from the ranks of blocks of a view.

    The rule guesses the secret under which the same ranks were seen more often in training, and
    secret 0 where that does not decide.

    Parameters
    ----------
    statistic : callable
        Function from a bit to the ranks of the view of a new run; see `block_ranks`.
    rounds : int
        Number of guesses, after four runs with each secret.
    stream : Generator, optional
        Source of random choices; by default the system's.
    """
    seen = [Counter(statistic(bit) for _ in range(_TRAINING)) for bit in (0, 1)]
    right = 0
    for _ in range(rounds):
        bit = coin(stream)
        ranks = statistic(bit)
        right += (seen[1][ranks] > seen[0][ranks]) == bool(bit)
    return right


def block_ranks(field: PrimeField, blocks: np.ndarray) -> tuple[int, ...]:
    """Ranks over F_p of a view's blocks, which are full if masks have full degree.

    Parameters
    ----------
    field : PrimeField
        Field of the elements.
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
