"""The server copies a client's network from the embeddings of a few known rows.

A copy that maps columns to embeddings lets the server embed any row it likes: it can use the
client's part of the model without the client, or search for the row behind an embedding.
"""

from __future__ import annotations

import numpy as np

from securevfl.audit.attacks.outcome import MOST, Outcome, explained
from securevfl.audit.attacks.regression import fit
from securevfl.models.polynomial_network import expand

METRIC = "error explained"
_DEGREE = 2  # powers of the columns that the surrogate gets


def steal(
    known: np.ndarray,
    seen: np.ndarray,
    fresh: np.ndarray,
    truth: np.ndarray,
    stream: np.random.Generator,
) -> Outcome:
    """Fit a surrogate network and compare it with the victim's on other rows.

    Parameters
    ----------
    known : ndarray, (pairs, d)
        Rows that the server knows.
    seen : ndarray, (pairs, a)
        What it saw of them.
    fresh : ndarray, (rows, d)
        Other rows.
    truth : ndarray, (rows, a)
        What the victim's network makes of them; where only uploads are seen, its uploads of them.
    stream : numpy Generator

    Returns
    -------
    Outcome
        The part of the squared error of a decoy, the mean of `seen`, that is explained; chance 0.
        The control is the same surrogate for `seen` in another order.
    """
    rows = stream.permutation(len(fresh))[:MOST]
    decoy = seen.mean(axis=0)
    new, right = expand(fresh[rows], _DEGREE), truth[rows]
    guess = fit(expand(known, _DEGREE), seen, stream)(new)
    blind = fit(expand(known, _DEGREE), seen[stream.permutation(len(seen))], stream)(new)
    success, low, high = explained(guess, right, decoy, stream)
    control, *_ = explained(blind, right, decoy, stream)
    note = f"{len(known)} rows known"
    return Outcome(METRIC, success, 0.0, low, high, len(rows), {"shuffled rows": control}, note)
