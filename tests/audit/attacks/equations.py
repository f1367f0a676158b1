"""Inner products of rows by plain solving, from a server's sums and its own steps.

A visit of a row gives h equations beyond its first. Modulo a prime a row comes out exactly or not
at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.audit.attacks.gram import Visit
from securevfl.audit.proof.linear_algebra import solve_left
from securevfl.field import PrimeField


def gram_of_rows(visits: Sequence[Visit], rows: int) -> np.ndarray:
    """Estimated inner products of the rows, (rows, rows); NaN for rows with too few equations.

    Parameters
    ----------
    visits : sequence of Visit
        In the order of training.
    rows : int
        M.
    """
    found = np.full((rows, rows), np.nan)
    for row in range(rows):
        left, right = _equations(visits, rows, row)
        scale = np.abs(left).max(initial=0) or 1.0
        if len(left):
            solved, _, rank, _ = np.linalg.lstsq(left / scale, right / scale, rcond=1e-13)
            found[row] = solved if rank == rows else np.nan
    return found


def exact_row_of_gram(
    visits: Sequence[Visit], rows: int, row: int, field: PrimeField
) -> np.ndarray | None:
    """Inner products of one row in whole numbers, (rows,); None if there are too few equations.

    Parameters
    ----------
    visits : sequence of Visit
        Whole numbers, in the order of training.
    rows : int
        M.
    row : int
    field : PrimeField
        Of a prime that is larger than twice all inner products.
    """
    left, right = (field.reduce(np.rint(x).astype(np.int64)) for x in _equations(visits, rows, row))
    solved = solve_left(field, left, right[:, None]) if len(left) >= rows else None
    return None if solved is None else field.signed(solved[:, 0])


def _equations(visits: Sequence[Visit], rows: int, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Equations, ((E - 1) h, M), for a row's inner products: its visits less its first visit."""
    h = visits[0].sums.shape[1]
    before, since = np.zeros((rows, h)), np.zeros((rows, h))
    left, right, first = [np.zeros((0, rows))], [np.zeros(0)], None
    for visit in visits:
        for place in np.flatnonzero(visit.rows == row):
            if first is None:
                first, since = visit.sums[place].astype(np.float64), before.copy()
                continue
            # The sums of row x are x (W + X^T A_t). Their change since its first visit is x X^T
            # (A_t - A_1): h equations in the M inner products of x with all rows, whatever W and
            # the columns are.
            left.append((before - since).T)
            right.append(visit.sums[place] - first)
        before[visit.rows] += visit.step
    return np.concatenate(left), np.concatenate(right)
