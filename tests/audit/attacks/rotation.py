"""Rows from their inner products: two ways to find the rotation left open.

A Gram matrix X X^T determines the rows up to one rotation of all columns. As many known rows as
columns determine the rotation (K. Liu, C. Giannella, H. Kargupta, "An Attacker's View of Distance
Preserving Maps for Privacy Preserving Data Mining", PKDD 2006). Nearly independent columns need no
known rows: independent component analysis finds them (S. Guo, X. Wu, "Deriving Private Information
from Arbitrarily Projected Data", PAKDD 2007).
"""

from __future__ import annotations

import warnings

import numpy as np

from securevfl.errors import needs

_ROUNDING = 1e-9  # of the largest eigenvalue: what is taken for 0


def rows_from_known(gram: np.ndarray, known: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """All rows, (M, d), from inner products and the known rows.

    Parameters
    ----------
    gram : ndarray, (M, M)
    known : ndarray, (m,)
        Their numbers; as many independent rows as X has.
    columns : ndarray, (m, d)
        Their columns.
    """
    # X X_known^T is part of the Gram matrix, and X_known has full column rank.
    found: np.ndarray = gram[:, known] @ np.linalg.pinv(columns.T, rcond=_ROUNDING)
    return found


def independent_columns(gram: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Estimates of the columns, (M, r), unordered, each up to sign, mean and scale."""
    needs("attacks", "attacks", "sklearn")
    from sklearn.decomposition import FastICA

    # Column means leave X X^T with C X (C X)^T, C = I - 1 1^T / M. Its eigenvectors are the columns
    # up to a rotation and scales: whitened data, which ICA turns until columns are independent.
    centred = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    kept = values > _ROUNDING * values.max()
    white = vectors[:, kept] * np.sqrt(len(gram))
    seed = int(stream.integers(2**31))
    with warnings.catch_warnings():  # on dependent columns it need not converge
        warnings.simplefilter("ignore")
        found: np.ndarray = FastICA(
            whiten=False, max_iter=1000, tol=1e-6, random_state=seed
        ).fit_transform(white)
    return found


def best_matches(guesses: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Largest absolute correlation of each varying true column with an estimate."""
    true = columns[:, columns.std(axis=0) > 0]
    both = np.corrcoef(guesses.T, true.T)
    largest: np.ndarray = np.abs(both[: guesses.shape[1], guesses.shape[1] :]).max(axis=0)
    return largest
