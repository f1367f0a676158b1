"""The objective of CVFL: the losses of slow parties to the power q (equation (3)).

The gradient of ``F^q`` is ``q F^(q-1)`` times that of F. The factor is above 1 while ``F >
q^(1/(1-q))``; below that the paper uses q = 1. (Its text prints ``q^{1-q}``, at which the factor
would not be 1.)
"""

from __future__ import annotations

import math

_SHORTEST = 1 / math.e  # no q > 1 amplifies a loss at or below 1/e: q^(1/(1-q)) > 1/e


def amplification(loss: float, q: float) -> float:
    """Factor ``max(1, q F^(q-1))`` on a slow party's gradients, F its loss.

    Parameters
    ----------
    loss : float
        F, its regularised loss, at least 0.
    q : float
        Exponent q, at least 1.

    Examples
    --------
    >>> amplification(2.0, 3.0), amplification(0.5, 3.0)
    (12.0, 1.0)
    """
    if q <= 1 or loss <= q ** (1 / (1 - q)):
        return 1.0
    return float(q * loss ** (q - 1))


def chosen_exponent(loss: float, wanted: float) -> float:
    """Smallest q >= 1 that amplifies this loss `wanted` times, or the best possible q.

    Ours: the paper fixes q = 3 and asks for an automatic choice. A party that makes a part p of the
    fastest party's updates would contribute as much with its gradients times 1/p; q is solved for
    that factor. It decays by itself: for F < 1 the factor ``q F^(q-1)`` has a largest value, at
    ``q = -1 / ln F``, which falls with the loss and is 1 at F = 1/e.

    Parameters
    ----------
    loss : float
        Loss F, at least 0.
    wanted : float
        Factor, at least 1 and finite.
    """
    if wanted <= 1 or loss <= _SHORTEST:
        return 1.0
    # d/dq ln(q F^(q-1)) = 1/q + ln F vanishes at q = -1/ln F, the largest factor where F < 1.
    best = math.inf if loss >= 1 else -1 / math.log(loss)
    if math.isfinite(best) and best * loss ** (best - 1) <= wanted:
        return best
    low, high = 1.0, best if loss < 1 else wanted  # for F >= 1 the factor at q is at least q
    # Up to there the factor grows with q, so bisection finds the smallest q; 60 halvings exhaust a
    # double.
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * loss ** (middle - 1) < wanted else (low, middle)
    return high
