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
        Embeddings or uploads of these rows.
    fresh : ndarray, (rows, d)
        Other rows.
    truth : ndarray, (rows, a)
        Embeddings of these rows by the victim's network, or its uploads if only uploads are seen.
    stream : numpy Generator
        Source of random choices.

    Returns
    -------
    Outcome
        Explained fraction of the squared error of a baseline, the mean of `seen`; chance is 0. The
        control is the same surrogate for `seen` in another order.
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
