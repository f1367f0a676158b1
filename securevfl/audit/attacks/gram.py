"""Inner products of rows, from a server's own steps and decoded sums.

Where models are updated by W += X_B^T G_B with steps that the server chose, its sums at time t are
U_t[i] = x_i W_0 + sum_j <x_i, x_j> A_t[j], with A_t[j] the sum of all steps of row j before t. Two
visits of a row give h linear equations in its inner products with all M rows, so E visits with
(E - 1) h >= M give them exactly, by plain solving. That is no threshold of safety: the Gram matrix
has rank d, and sums of all rows at E > d/h + 1 times give it (`gram_by_rank`), as do those of
batches by least squares. It is the rows up to one rotation of all columns together, which known
rows or independent columns take away. What the attack matrix does not run of this is with the tests
in tests/audit/attacks.

Sums and steps of coded protocols are integers. Solved modulo a prime, the equations know no
rounding: a row comes out exactly or not at all, however small the steps were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.audit.proof.linear_algebra import independent_rows
from securevfl.field import PrimeField


@dataclass(frozen=True)
class Visit:
    """One batch as the server saw and answered it.

    Attributes
    ----------
    rows : ndarray, (|B|,)
        Row numbers.
    sums : ndarray, (|B|, h)
        Decoded sums, before the step.
    step : ndarray, (|B|, h)
        Step G of these rows: the models were updated by X_B^T G.
    """

    rows: np.ndarray
    sums: np.ndarray
    step: np.ndarray


def gram_by_rank(visits: Sequence[Visit], field: PrimeField) -> np.ndarray | None:
    """Inner products X X^T of rows X in whole numbers, (M, M), by rank; None if visits are too few.

    With D the changes of the sums since the first visit and A the steps until then, D = X X^T A.
    So X X^T = D_c (A_c^T D_c)^-1 D_c^T for independent columns c of A^T D, as many as its rank. The
    server knows that it has all of them when one column more than that has been seen.

    Parameters
    ----------
    visits : sequence of Visit
        Visits of all rows, with integers.
    field : PrimeField
        Field of a prime larger than twice all inner products.
    """
    steps, changes = (np.rint(x).astype(np.int64) for x in _changes(visits))
    if not steps.size:
        return None
    A, D = field.reduce(steps), field.reduce(changes)
    chosen = independent_rows(field, np.ascontiguousarray(D.T))
    if not chosen or len(chosen) == D.shape[1]:
        return None
    left = np.ascontiguousarray(D[:, chosen])
    small = field.matmul(np.ascontiguousarray(A[:, chosen].T), left)
    if len(independent_rows(field, small)) < len(chosen):
        return None
    solved = field.solve(small, np.ascontiguousarray(left.T))
    found: np.ndarray = field.signed(field.matmul(left, solved))
    return found


def rough_gram_by_rank(visits: Sequence[Visit], rank: int) -> np.ndarray:
    """Inner products of the rows, (M, M) floats, from rounded sums; their rank must be known."""
    # A^T D = A^T (X X^T) A is symmetric but for rounding. Of its eigenvectors V, values L, those of
    # the largest values span the columns c of `gram_by_rank`: X X^T = (D V) L^-1 (D V)^T.
    A, D = _changes(visits)
    middle = A.T @ D
    values, vectors = np.linalg.eigh((middle + middle.T) / 2)
    kept = np.argsort(values)[-rank:]
    part = D @ vectors[:, kept]
    found: np.ndarray = part @ (part / values[kept]).T
    return found


def _changes(visits: Sequence[Visit]) -> tuple[np.ndarray, np.ndarray]:
    """Steps A and changes D of `gram_by_rank`, (M, (E - 1) h), rows in ascending order."""
    M, h = visits[0].sums.shape
    before, steps, changes = np.zeros((M, h)), [np.zeros((M, 0))], [np.zeros((M, 0))]
    first = visits[0].sums[np.argsort(visits[0].rows)]
    for number, visit in enumerate(visits):
        order = np.argsort(visit.rows)
        if number:
            steps.append(before.copy())
            changes.append(visit.sums[order] - first)
        before += visit.step[order]
    return np.concatenate(steps, axis=1), np.concatenate(changes, axis=1)
