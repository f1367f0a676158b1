"""Slow active parties: which ones count as slow, and their gradients' factor (equation 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from securevfl.models.objective import amplification, chosen_exponent
from securevfl.protocols.cvfl.parameters import CvflConfig, named_parties

_SLOW = 0.75  # a party with a smaller part of the fastest party's updates counts as slow
_GRACE = 5  # updates of the fastest party before which no party does


def pace_of(updates: np.ndarray, party: int) -> float:
    """Updates of a party relative to the fastest; 1 while there are too few to compare.

    Parameters
    ----------
    updates : ndarray of int, (L,)
        Updates of each active party so far.
    """
    most = int(updates.max())
    return 1.0 if most < _GRACE else float(updates[party]) / most


def is_slow(config: CvflConfig, pace: float, party: int) -> bool:
    """Whether an active party's objective is F_l^q: named in options, or too far behind."""
    if config.q == 1 or config.slow == "none":
        return False
    if config.slow == "measured":
        return pace < _SLOW
    return party in named_parties(config.slow)


@dataclass(frozen=True)
class Objective:
    """Objective F_l^q of a batch (equation 3), with public numbers only.

    Attributes
    ----------
    q : float or "auto"
        Exponent q; 1 if the party is not slow. "auto" solves for a factor of 1 / pace.
    pace : float
        The party's number of updates over the fastest party's, in [0, 1].
    weight_decay : float
        Weight decay lambda.
    at_most : float
        Largest factor.
    """

    q: float | str
    pace: float
    weight_decay: float
    at_most: float

    @classmethod
    def of(cls, config: CvflConfig, pace: float, *, slow: bool) -> Objective:
        """Objective of an active party, from options and its pace."""
        return cls(config.q if slow else 1.0, pace, config.weight_decay, config.amplify_at_most)

    def factor(self, loss: float, penalties: Iterable[float]) -> float:
        """Factor q F_l^(q-1) on gradients, F_l the batch's loss with all penalties.

        Parameters
        ----------
        penalties : iterable of float
            r(theta_m) of all parties; none where the party is not slow.

        Returns
        -------
        float
            At least 1, and at most `at_most`.
        """
        F = loss + self.weight_decay * sum(penalties)  # equation 2
        if not isinstance(self.q, str):
            return min(amplification(F, self.q), self.at_most)
        # A party with a part p of the fastest one's updates moves the model as far if each counts
        # 1/p.
        wanted = min(1 / max(self.pace, 1e-9), self.at_most)
        return amplification(F, chosen_exponent(F, wanted))


def amplified(
    factor: float, dh: np.ndarray, dw: dict[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Gradients dF/dh and dF/dw_0 times the factor; the same arrays for factor 1."""
    if factor == 1:
        return dh, dw
    return dh * np.float32(factor), {name: g * np.float32(factor) for name, g in dw.items()}
