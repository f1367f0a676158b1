"""Rows from their inner products, with other rows of the population and their labels.

X X^T determines the rows up to one rotation of all columns. Other rows of the population, such as
an old list of customers, have nearly the same principal axes. Class means and third moments give
the signs of the axes, since a server has the labels. Then two steps alternate: rows are assigned to
other rows of their class, and the best rotation is computed. No attacked row is known.
"""

from __future__ import annotations

import numpy as np

from securevfl.errors import needs

_ROUNDING = 1e-9  # of the largest eigenvalue: what is taken for 0
_STEPS = 40
_SETTLED = 1e-6


def rows_by_others(
    gram: np.ndarray,
    labels: np.ndarray,
    others: np.ndarray,
    other_labels: np.ndarray,
    stream: np.random.Generator,
) -> np.ndarray:
    """Estimate of the rows X, (M, d), from inner products and other rows of the population.

    Parameters
    ----------
    gram : ndarray, (M, M)
        Inner products X X^T.
    labels : ndarray of int, (M,)
        Classes of these rows.
    others : ndarray, (m, d)
        Other rows, scaled as X is.
    other_labels : ndarray of int, (m,)
        Classes of the other rows.
    stream : numpy Generator
        Draws as many other rows of a class as it has attacked ones.
    """
    rows = _principal(gram)
    mean, axes = others.mean(axis=0), _axes(others)
    rank = min(rows.shape[1], axes.shape[1])
    rows, axes = rows[:, :rank], axes[:, :rank]
    known = (others - mean) @ axes
    pairs = _classes(labels, other_labels)
    turned = rows * _signs(rows, labels, known, other_labels)
    for _ in range(_STEPS):
        mine, theirs = _assigned(turned, known, pairs, stream)
        new = rows @ _rotation(rows[mine], known[theirs])
        settled = np.abs(new - turned).max() < _SETTLED
        turned = new
        if settled:
            break
    guess: np.ndarray = turned @ axes.T + mean
    return guess


def _principal(gram: np.ndarray) -> np.ndarray:
    """Centred rows along their principal axes, largest first, (M, r); signs are arbitrary."""
    centred = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    kept = np.flatnonzero(values > _ROUNDING * values[-1])[::-1]
    found: np.ndarray = vectors[:, kept] * np.sqrt(values[kept])
    return found


def _axes(others: np.ndarray) -> np.ndarray:
    """Principal axes of the population, largest first, (d, d)."""
    centred = others - others.mean(axis=0)
    axes: np.ndarray = np.linalg.eigh(centred.T @ centred)[1][:, ::-1]
    return axes


def _signs(
    rows: np.ndarray, labels: np.ndarray, known: np.ndarray, other_labels: np.ndarray
) -> np.ndarray:
    """Signs of the axes, (r,), 1 or -1, that make attacked rows most like rows `known` (others)."""
    agree = _marks(rows, labels, other_labels) * _marks(known, other_labels, labels)
    return np.where(agree.sum(axis=0) < 0, -1.0, 1.0)


def _marks(rows: np.ndarray, labels: np.ndarray, as_well: np.ndarray) -> np.ndarray:
    """Odd statistics of each axis, (n, r): third moment, means of classes also in `as_well`."""
    spread = rows.std(axis=0) + 1e-12
    marks = [(rows**3).mean(axis=0) / spread**3]
    for one in np.intersect1d(labels, as_well):
        mine = labels == one
        marks.append(3 * np.sqrt(mine.mean()) * rows[mine].mean(axis=0) / spread)
    return np.array(marks)


def _classes(labels: np.ndarray, other_labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    common = np.intersect1d(labels, other_labels)
    return [(np.flatnonzero(labels == c), np.flatnonzero(other_labels == c)) for c in common]


def _assigned(
    rows: np.ndarray,
    known: np.ndarray,
    pairs: list[tuple[np.ndarray, np.ndarray]],
    stream: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """(attacked rows, rows of `known`): pairs within classes of least total squared distance."""
    needs("attacks", "attacks", "scipy")
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    mine, theirs = [], []
    for a, b in pairs:
        drawn = stream.choice(b, len(a), replace=len(b) < len(a))
        i, j = linear_sum_assignment(cdist(rows[a], known[drawn], "sqeuclidean"))
        mine.append(a[i])
        theirs.append(drawn[j])
    return np.concatenate(mine), np.concatenate(theirs)


def _rotation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The orthogonal Q, (h, h), for which `a` Q is nearest to `b` in squares; both (rows, h)."""
    u, _, v = np.linalg.svd(a.T @ b)
    found: np.ndarray = u @ v
    return found
