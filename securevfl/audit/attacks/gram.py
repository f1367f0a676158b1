"""Inner products of rows, from a server's own steps and the sums that it decoded.

Where models are updated by W += X_B^T G_B with steps that the server chose, its sums at time t are
U_t[i] = x_i W_0 + sum_j <x_i, x_j> A_t[j], with A_t[j] the sum of all steps of row j before t. Two
visits of a row give h linear equations in its inner products with all M rows, so E visits with
(E - 1) h >= M give them exactly, by plain solving. The Gram matrix is the rows up to one rotation
of all columns together. (It has rank d, so solving for rows of d columns needs only about d/h
epochs; this is not done here, and the number of visits below is no threshold of safety.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Visit:
    """One batch, as the server saw and answered it.

    Attributes
    ----------
    rows : ndarray, (|B|,)
        Row numbers.
    sums : ndarray, (|B|, h)
        Decoded sums, before the step.
    step : ndarray, (|B|, h)
        What was added to the models times these rows.
    """

    rows: np.ndarray
    sums: np.ndarray
    step: np.ndarray


def gram_of_rows(visits: Sequence[Visit], rows: int) -> np.ndarray:
    """Estimate of X X^T, (rows, rows); rows of NaN where the equations are too few.

    Parameters
    ----------
    visits : sequence of Visit
        In the order of training.
    rows : int
        M.
    """
    width = visits[0].sums.shape[1]
    before = np.zeros((rows, width))
    equations: list[list[np.ndarray]] = [[] for _ in range(rows)]
    values: list[list[np.ndarray]] = [[] for _ in range(rows)]
    for visit in visits:
        for row, seen in zip(visit.rows.tolist(), visit.sums, strict=True):
            equations[row].append(before.T.copy())
            values[row].append(seen.astype(np.float64))
        before[visit.rows] += visit.step
    return np.stack([_solved(*one, rows) for one in zip(equations, values, strict=True)])


def _solved(equations: Sequence[np.ndarray], values: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """One row of the Gram matrix from the differences of its visits to the first."""
    if len(equations) > 1:
        left = np.concatenate([one - equations[0] for one in equations[1:]])
        right = np.concatenate([one - values[0] for one in values[1:]])
        scale = np.abs(left).max() or 1.0
        found, _, rank, _ = np.linalg.lstsq(left / scale, right / scale, rcond=1e-13)
        if rank == rows:
            solved: np.ndarray = found
            return solved
    return np.full(rows, np.nan)
