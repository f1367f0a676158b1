"""Linear algebra over F_p for verifiers: echelon form, rank, null spaces, solutions."""

from __future__ import annotations

import functools
import math

import numpy as np

from securevfl.field import PrimeField


def echelon(field: PrimeField, matrix: np.ndarray, columns: int | None = None) -> list[int]:
    """Bring a matrix to reduced row echelon form, in place.

    Parameters
    ----------
    field : PrimeField
        Field of the elements.
    matrix : ndarray, (m, n), elements
        Overwritten.
    columns : int, optional
        Pivots are looked for in the first so many columns; in all if not given.

    Returns
    -------
    list of int
        The pivot columns; row i of the result has its leading 1 in the i-th of them.
    """
    pivots: list[int] = []
    for column in range(matrix.shape[1] if columns is None else columns):
        row = len(pivots)
        if row == len(matrix):
            break
        below = np.flatnonzero(matrix[row:, column])
        if not below.size:
            continue
        first = row + int(below[0])
        if first != row:
            matrix[[row, first]] = matrix[[first, row]]
        matrix[row] = field.multiply(matrix[row], field.reciprocal(matrix[row, column]))
        others = np.flatnonzero(matrix[:, column])
        others = others[others != row]
        if others.size:
            change = field.multiply(matrix[others, column][:, None], matrix[row][None])
            matrix[others] = field.subtract(matrix[others], change)
        pivots.append(column)
    return pivots


def rank(field: PrimeField, matrix: np.ndarray) -> int:
    """Rank of a matrix of field elements."""
    return len(echelon(field, np.array(matrix)))


def independent_rows(field: PrimeField, matrix: np.ndarray) -> list[int]:
    """Numbers of the first rows that span the row space."""
    return echelon(field, np.array(matrix.T))


def left_null(field: PrimeField, matrix: np.ndarray) -> np.ndarray:
    """Basis N, (m - rank, m), of all rows with N matrix = 0, m the matrix's rows."""
    rows, columns = matrix.shape
    # Row operations E turn [A | I] into [E A | E]; where a row of E A is 0, that row of E is in the
    # null space, and there are m - rank of them.
    work = np.concatenate([matrix, np.eye(rows, dtype=field.dtype)], axis=1)
    found = len(echelon(field, work, columns))
    null: np.ndarray = work[found:, columns:]
    return null


def solve_left(field: PrimeField, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """x, (n, k), with a x = b for `a` of full column rank; None without a unique solution.

    Parameters
    ----------
    field : PrimeField
        Field of the elements.
    a : ndarray, (m, n)
        Left side, elements.
    b : ndarray, (m, k)
        Right side, elements.
    """
    n = a.shape[1]
    # [a | b] becomes [I | x] over [0 | rest]; a rest that is not 0 contradicts every x.
    work = np.concatenate([a, b], axis=1)
    found = len(echelon(field, work, n))
    if found < n or work[n:, n:].any():
        return None
    solution: np.ndarray = work[:n, n:]
    return solution


def solve_right(field: PrimeField, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """x with x a = b for `a` of full row rank, (n, m); None without a unique solution."""
    turned = solve_left(field, np.ascontiguousarray(a.T), np.ascontiguousarray(b.T))
    return None if turned is None else np.ascontiguousarray(turned.T)


@functools.lru_cache(maxsize=1024)
def coefficients(points: tuple[int, ...], at: int, p: int) -> tuple[int, ...]:
    """Values at `at`, modulo p, of the polynomials l_i that are 1 at point i, 0 at the others."""
    found = []
    for i, x in enumerate(points):
        others = points[:i] + points[i + 1 :]
        above = math.prod(at - y for y in others)
        found.append(above * pow(math.prod(x - y for y in others), -1, p) % p)
    return tuple(found)
