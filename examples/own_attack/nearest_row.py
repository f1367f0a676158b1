"""An attack of one's own: a server that knows some rows looks for the nearest embedding.

The server knows the columns of a few rows of one client, and sees the client's embeddings of all
rows. For every other row it guesses the columns of the known row whose embedding is nearest. It
trains nothing, so what it reaches is a lower bound on what embeddings tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from securevfl.audit.attack_matrix.setting import AttackCase, AttackSettings
from securevfl.audit.attacks.outcome import NoView, Outcome, explained


@dataclass(frozen=True)
class NearestRow:
    """Guess a row's columns by the known row with the nearest embedding."""

    name: str = "nearest_row"
    against: str = "server"
    asset: str = "features"

    def run(self, seen: AttackCase, settings: AttackSettings) -> Outcome | NoView:
        """Attack one run."""
        table = seen.observed.embeddings  # one embedding for each training row that was sent
        if isinstance(table, NoView):
            return table
        if settings.auxiliary < 1:
            return NoView("the server knows no row of the client")
        columns, known = seen.columns(table), seen.auxiliary(len(table.rows))
        unknown = np.setdiff1d(np.arange(len(table.rows)), known)
        guess = columns[known][nearest(table.values[known], table.values[unknown])]
        # Chance is the guess of who has seen no message: the mean of the known rows.
        mean = columns[known].mean(axis=0)
        part, low, high = explained(guess, columns[unknown], mean, seen.stream)
        metric = "part of the squared error of the mean row that the guess takes away"
        return Outcome(metric, part, 0.0, low, high, len(unknown))


def nearest(known: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Number of the nearest known embedding of each other one, (len(others),)."""
    # |a - b|^2 = |a|^2 - 2 a b + |b|^2, and |b|^2 is the same for all a.
    distance = (known**2).sum(axis=1) - 2 * others @ known.T
    found: np.ndarray = distance.argmin(axis=1)
    return found


ATTACK = NearestRow()
