"""Rows of few columns, from a server's own steps and decoded sums of batches.

The sums of a batch are X_B (W + X^T A_t), with A_t the sum of all steps of each row before t, which
the server knows. X has d columns, so E epochs give E M h equations for M d + d h - d(d-1)/2
unknowns: they are solved by least squares from random starts, about d/h epochs being enough. What
is found is X up to one rotation of all columns together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.audit.attacks.gram import Visit
from securevfl.errors import needs

STARTS = 16
_EXACT = 1e-9  # of the sums' length: what a solution leaves of them at most
_TOLERANCE = 1e-15


@dataclass(frozen=True)
class Solved:
    """Best solution over all random starts.

    Attributes
    ----------
    gram : ndarray, (M, M)
        X X^T of the best one.
    misfit : float
        Length of what it leaves of the sums, over theirs.
    starts : int
    """

    gram: np.ndarray
    misfit: float
    starts: int

    @property
    def fits(self) -> bool:
        """Whether the solution explains the sums to the precision of floating point."""
        return self.misfit < _EXACT


def solve_low_rank(
    visits: Sequence[Visit],
    rows: int,
    columns: int,
    stream: np.random.Generator,
    *,
    starts: int = STARTS,
) -> Solved:
    """Solve for rows X with `columns` columns; the first start that explains the sums is taken.

    Parameters
    ----------
    visits : sequence of Visit
        In the order of training, as real numbers of moderate size.
    rows, columns : int
        M and d; a few hundred unknowns, as the Jacobian is held whole.
    stream : numpy Generator
        Of the starts.
    starts : int
        At most.
    """
    needs("attacks", "attacks", "scipy")
    from scipy.optimize import least_squares

    system = _System(visits, rows, columns)
    best = Solved(np.zeros((rows, rows)), np.inf, 0)
    for number in range(1, starts + 1):
        start = stream.normal(size=system.unknowns) / np.sqrt(columns)
        tight = {"xtol": _TOLERANCE, "ftol": _TOLERANCE, "gtol": _TOLERANCE}
        found = least_squares(system.residual, start, jac=system.jacobian, max_nfev=200, **tight)
        misfit = float(np.linalg.norm(found.fun) / system.length)
        if misfit < best.misfit:
            X, _ = system.split(found.x)
            best = Solved(X @ X.T, misfit, number)
        if best.fits:
            break
    return best


class _System:
    """System of equations: residuals and Jacobian, with all unknowns in one vector."""

    def __init__(self, visits: Sequence[Visit], rows: int, columns: int) -> None:
        self.visits, self.shape = visits, (rows, columns)
        self.width = visits[0].sums.shape[1]
        before = np.zeros((rows, self.width))
        self.before = []
        for visit in visits:
            self.before.append(before.copy())
            before[visit.rows] += visit.step
        self.length = float(np.linalg.norm(np.concatenate([v.sums for v in visits])))
        self.unknowns = columns * (rows + self.width)

    def split(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Matrices of rows X and weights W, from the vector of unknowns."""
        rows, columns = self.shape
        return (
            vector[: rows * columns].reshape(rows, columns),
            vector[rows * columns :].reshape(columns, self.width),
        )

    def residual(self, vector: np.ndarray) -> np.ndarray:
        """Residuals X_B (W + X^T A_t) - U_t of all visits."""
        X, W = self.split(vector)
        pairs = zip(self.visits, self.before, strict=True)
        return np.concatenate([(X[v.rows] @ (W + X.T @ A) - v.sums).ravel() for v, A in pairs])

    def jacobian(self, vector: np.ndarray) -> np.ndarray:
        """Derivative of the residuals, (equations, unknowns)."""
        X, W = self.split(vector)
        (rows, d), h, parts = self.shape, self.width, []
        for visit, A in zip(self.visits, self.before, strict=True):
            own = X[visit.rows]
            # d(x_i Y)_c = dx_i Y_c + x_i dW_c + sum_m A[m, c] x_i dx_m, with Y = W + X^T A
            through = np.einsum("ik,mc->icmk", own, A)
            through[np.arange(len(own)), :, visit.rows] += (W + X.T @ A).T
            direct = np.einsum("ik,cb->ickb", own, np.eye(h))
            size = len(own) * h
            parts.append(
                np.concatenate([through.reshape(size, rows * d), direct.reshape(size, d * h)], 1)
            )
        return np.concatenate(parts)
