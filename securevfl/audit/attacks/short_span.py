"""Columns from a span of sums that lacks some dimensions of columns, squares and ones.

Where a row has c sums and [x | x^2 | 1] has r > c dimensions, k = r - c dimensions of the space are
missing, and no square lies in the rest exactly. The columns can be determined nevertheless: c sums
of M rows are M c equations for M d columns and r c weights, so that any c > d will do for rows
enough. It is found in two stages. Directions whose squares lie nearest to the known part are near
columns as long as k is small. Some p > k of them are then moved, row by row, until [v | v^2 | 1]
meets the known part in 2 p + 1 - k dimensions, as true columns do; wrong ones never fit, so that
the attacker knows when it has won. What is found fills up the space, and
`securevfl.audit.attacks.squares` finds the other columns in it.
"""

from __future__ import annotations

import numpy as np

from securevfl.audit.attacks.squares import Directions, columns_of_span
from securevfl.errors import needs

EXACT = 1e-8  # squared sines that are left where the columns are found
_STEPS = 60
_SLOW = 0.3  # part of the misfit that ten steps must take away
_SPARE = 1.05  # equations over unknowns, at least
TRIES = 60


def filled_span(
    basis: np.ndarray,
    missing: int,
    most: int,
    stream: np.random.Generator,
    *,
    tries: int = TRIES,
    near: Directions | None = None,
) -> np.ndarray | None:
    """The space of columns and squares, from a part that lacks dimensions; None if not found.

    Parameters
    ----------
    basis : ndarray, (M, c)
        Orthonormal, of mean 0.
    missing : int
        Number k of missing dimensions.
    most : int
        Number d of columns, which is public.
    stream : numpy Generator
        Source of random choices.
    tries : int
        Largest number of choices of initial directions.
    near : Directions, optional
        Result of `columns_of_span`, if computed before.

    Returns
    -------
    ndarray, (M, c + k) or None
        Orthonormal, of mean 0.
    """
    near = near or columns_of_span(basis, stream)
    sizes = [p for p in range(missing + 1, most + 1) if _determined(basis.shape, missing, p)]
    if not sizes:
        return None
    weights = 0.5 ** np.arange(len(sizes))
    for number in range(tries):
        size = int(stream.choice(sizes, p=weights / weights.sum()))
        columns, misfit = fitted(_chosen(near, basis, size, stream, number == 0), basis, missing)
        if misfit < EXACT:
            powers = np.concatenate([basis * np.sqrt(len(basis)), columns, columns**2], axis=1)
            left = np.linalg.svd(powers - powers.mean(axis=0), full_matrices=False)[0]
            return left[:, : basis.shape[1] + missing]
    return None


def _determined(shape: tuple[int, ...], missing: int, size: int) -> bool:
    """Whether `size` columns, `missing` from a span (M, h), have fewer unknowns than equations."""
    rows, width = shape
    shared = 2 * size - missing
    return rows * (size - missing) > _SPARE * shared * (missing + width)


def _chosen(
    near: Directions, basis: np.ndarray, size: int, stream: np.random.Generator, first: bool
) -> np.ndarray:
    """Starting directions, (M, size): good, dissimilar ones of `near`, then random in the basis."""
    noise = 0.0 if first else stream.gumbel(size=len(near.misfits))
    order = np.argsort(2 * np.log(near.misfits + 1e-9) + noise)
    alike = np.abs(near.values.T @ near.values) / len(near.values)
    limit, kept = stream.uniform(0.5, 0.95), [int(order[0])]
    for place in order:
        if len(kept) < size and (alike[place, kept] < limit).all():
            kept.append(int(place))
    if not first and stream.random() < 0.5:
        kept = kept[: max(1, len(kept) - int(stream.integers(3)))]
    found = near.values[:, kept]
    while found.shape[1] < size:
        more = basis @ stream.normal(size=basis.shape[1])
        known = np.linalg.qr(found)[0]
        more -= known @ (known.T @ more)
        found = np.concatenate([found, (more / more.std())[:, None]], axis=1)
    return found


def fitted(columns: np.ndarray, basis: np.ndarray, missing: int) -> tuple[np.ndarray, float]:
    """Columns fitted to the known part of the space, and the remaining misfit.

    Parameters
    ----------
    columns : ndarray, (M, p)
        Starting point.
    basis : ndarray, (M, c)
        Orthonormal basis of the known part, of mean 0.
    missing : int
        Number k < p of missing dimensions.

    Returns
    -------
    columns : ndarray, (M, p)
        Of mean 0 and variance 1.
    misfit : float
        Sum of the 2 p - k least squared sines between the two spaces.
    """
    shared = 2 * columns.shape[1] - missing
    V, damping = _standard(columns), 1e-2
    state = _meeting(V, basis, shared)
    mark = misfit = state[-1]
    for number in range(_STEPS):
        for _ in range(12):
            step = _step(V, basis, state, damping)
            if step is None:
                damping *= 10
                continue
            moved = _standard(V + step)
            new = _meeting(moved, basis, shared)
            if new[-1] < misfit:
                break
            damping *= 5
        else:
            break
        V, state, misfit, damping = moved, new, new[-1], max(damping / 4, 1e-9)
        if misfit < EXACT**1.5:
            break
        if number % 10 == 9:
            if misfit > (1 - _SLOW) * mark:
                break
            mark = misfit
    return V, misfit


def _standard(values: np.ndarray) -> np.ndarray:
    centred = values - values.mean(axis=0)
    found: np.ndarray = centred / centred.std(axis=0)
    return found


_Meeting = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]


def _meeting(V: np.ndarray, basis: np.ndarray, shared: int) -> _Meeting:
    """Comparison of F = [V | V^2], centred, with the known part, spanned by `basis`.

    Returns F; coefficients B of the `shared` combinations of F nearest to the known part, and T of
    the others; the part of F B outside it; and the sum of the squared sines.
    """
    needs("attacks", "attacks", "scipy")
    from scipy.linalg import eigh

    F = np.concatenate([V, V**2], axis=1)
    F -= F.mean(axis=0)
    inside = basis.T @ F
    gram = F.T @ F
    outside = gram - inside.T @ inside
    ridge = 1e-12 * np.trace(gram) * np.eye(len(gram))
    sines, vectors = eigh((outside + outside.T) / 2, gram + ridge)
    B, T = vectors[:, :shared], vectors[:, shared:]
    rest = F @ B - basis @ (inside @ B)
    return F, B, T, rest, float(np.abs(sines[:shared]).sum())


def _step(V: np.ndarray, basis: np.ndarray, state: _Meeting, damping: float) -> np.ndarray | None:
    """A damped Gauss-Newton step of V, (M, p); None where the damping is too small.

    Unknowns are V, row by row, and for all rows together how B moves along T and what of the known
    part F B is. Rows are eliminated first, so that a system for the common ones is left.
    """
    needs("attacks", "attacks", "scipy")
    from scipy.linalg import cho_factor, cho_solve

    F, B, T, rest, _ = state
    (M, p), shared = V.shape, B.shape[1]
    common = np.concatenate([F @ T, -basis], axis=1)
    s = common.shape[1]
    slope = B[None, :p] + 2 * V[:, :, None] * B[None, p:]  # (M, p, shared)
    normal = slope @ slope.transpose(0, 2, 1) + damping / M * np.eye(p)
    solved = np.linalg.solve(normal, slope)
    left = np.eye(shared) - slope.transpose(0, 2, 1) @ solved
    pairs = (common[:, :, None] * common[:, None, :]).reshape(M, s * s)
    whole = (left.reshape(M, -1).T @ pairs).reshape(shared, shared, s, s)
    system = whole.transpose(0, 2, 1, 3).reshape(shared * s, shared * s)
    system[np.diag_indices(len(system))] += damping * 1e-2 + 1e-12
    right = -((left @ rest[:, :, None])[:, :, 0].T @ common).reshape(-1)
    try:
        factor = cho_factor(system, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    moved = cho_solve(factor, right).reshape(shared, s).T
    found: np.ndarray = -(solved @ (rest + common @ moved)[:, :, None])[:, :, 0]
    return found
