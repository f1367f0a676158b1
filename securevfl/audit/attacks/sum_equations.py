"""Rows from sums of embeddings; the server knows the initial weights and the rounding.

The sum of all polynomial embeddings of a row x (all clients' columns side by side) is

    u = b + sum over i of x^i P_i,    i = 1, ..., D,

h equations in d unknowns, where P_i, (d, h), are the clients' weights of the i-th powers one below
the other. The powers are powers of the same unknowns, so d <= h equations are enough where all but
x^1 are known to be functions of it; they need not be D d.

`solve_rows` finds x by projected Gauss-Newton with damping (Levenberg and Marquardt), all rows at
once, from several starts. `unfold` goes on from batch to batch: with the rows of one batch and the
gradients that the server itself sent, it repeats the clients' own optimiser steps, and so has the
weights of the next batch. Each row that is solved beyond doubt is rounded to the grid of the
clients' fixed-point numbers, so that the repeated steps are theirs to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from securevfl.audit.attacks.outcome import Outcome, bootstrap
from securevfl.audit.attacks.sums import commonest
from securevfl.errors import ConfigurationError

METRIC = "elements within 0.0001"
_NEAR = 1e-4
_STEPS = 60  # of Gauss-Newton from one start
_BEYOND_DOUBT = 4.0  # times the residual that rounding alone leaves, on average
_FLOAT = 1e-12  # mean squared residual that floating point leaves at most
_MORE = 6  # starts from scattered points, after which some follow near solved rows


@dataclass(frozen=True)
class Step:
    """One step as the server saw it.

    Attributes
    ----------
    rows : ndarray of int, (B,)
        Training rows; -1 for padding.
    joint : ndarray, (B, h)
        Mean of the clients' embeddings.
    gradient : ndarray, (B, h), float32
        dL/dH of the mean, which the server computed.
    """

    rows: np.ndarray
    joint: np.ndarray
    gradient: np.ndarray


class Replica(Protocol):
    """Interface of the attacker's copy of one client's network, which repeats its training."""

    def weights(self, step: int) -> np.ndarray:
        """Client's weights in a step (counted from 0), (d_n D + 1, h)."""

    def update(self, rows: np.ndarray, gradient: np.ndarray) -> None:
        """Repeat the client's optimiser step with these rows and this gradient."""


def solve_rows(
    sums: np.ndarray,
    powers: Sequence[np.ndarray],
    *,
    bounds: tuple[float, float],
    tolerance: float,
    stream: np.random.Generator,
    starts: int = 12,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows x with ``sums = sum_i x^i P_i``, and the squared residual of each.

    Parameters
    ----------
    sums : ndarray, (M, h)
        Without the constant b.
    powers : sequence of ndarray, (d, h)
        Weights P_1 to P_D.
    bounds : (float, float)
        Range of all columns.
    tolerance : float
        A row with a smaller squared residual counts as solved, and is not started again.
    stream : numpy Generator
        Draws the starts.
    starts : int
        For each row, at most; six where no row at all is solved by then.

    Returns
    -------
    rows : ndarray, (M, d)
        The best solutions found.
    residuals : ndarray, (M,)
        Their squared residuals.
    """
    low, high = bounds
    best = np.full((len(sums), len(powers[0])), (low + high) / 2)
    error = np.full(len(sums), np.inf)
    for number in range(starts):
        todo = np.flatnonzero(error > tolerance)
        if not len(todo):
            break
        solved = best[error <= tolerance]
        if number >= _MORE and not len(solved):
            break  # the weights are others
        start = _start(number, (len(todo), best.shape[1]), solved, bounds, stream)
        found, left = _gauss_newton(sums[todo], powers, start, bounds)
        better = left < error[todo]
        best[todo[better]], error[todo[better]] = found[better], left[better]
    # A start may have ended on its way: go on to where floating point ends.
    return _gauss_newton(sums, powers, best, bounds)


def _start(
    number: int,
    shape: tuple[int, int],
    solved: np.ndarray,
    bounds: tuple[float, float],
    stream: np.random.Generator,
) -> np.ndarray:
    """Starting points (rows, d) in `bounds` of attempt `number`: equal, then random or solved."""
    low, high = bounds
    if number == 0:
        return np.full(shape, low + 0.3 * (high - low))
    if number >= _MORE and len(solved) and number % 2:
        chosen = solved[stream.integers(len(solved), size=shape[0])]
        near: np.ndarray = chosen + 0.1 * (high - low) * stream.normal(size=shape)
        cut: np.ndarray = np.clip(near, low, high)
        return cut
    return low + (high - low) * stream.random(shape) ** 2


def _gauss_newton(
    sums: np.ndarray,
    powers: Sequence[np.ndarray],
    start: np.ndarray,
    bounds: tuple[float, float],
) -> tuple[np.ndarray, np.ndarray]:
    """End points, (rows, d), of damped Gauss-Newton steps in `bounds`, and squared residuals.

    `powers` has the weights of X, X^2, ..., each (d, h); `sums` is (rows, h).
    """
    x = start.copy()
    residual = _sums_of(x, powers) - sums
    cost = (residual**2).sum(axis=1)
    damping = np.full(len(x), 1e-2)
    first = np.broadcast_to(powers[0], (*x.shape, powers[0].shape[-1]))
    for _ in range(_STEPS):
        # J^T of each row, (rows, d, h): the derivative of x^i is i x^(i-1).
        higher = enumerate(powers[1:], 1)
        slope = sum(((i + 1) * (x**i)[:, :, None] * P for i, P in higher), start=first)
        new = np.clip(x - _damped(slope, residual, damping), *bounds)
        changed = _sums_of(new, powers) - sums
        new_cost = (changed**2).sum(axis=1)
        good = new_cost < cost
        x[good], residual[good], cost[good] = new[good], changed[good], new_cost[good]
        damping = np.where(good, damping * 0.2, np.minimum(damping * 4, 1e3))
        damping = np.maximum(damping, 1e-14)
        if (damping >= 1e3).all() or (cost < 1e-24).all():
            break
    return x, cost


def _damped(slope: np.ndarray, residual: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """Steps, (rows, d), (J^T J + c I)^-1 J^T r of each row: J^T is slope, r residual, c damping."""
    _, d, h = slope.shape
    transposed = slope.transpose(0, 2, 1)
    normal = slope @ transposed if d <= h else transposed @ slope
    size = np.arange(min(d, h))
    normal[:, size, size] += damping[:, None]
    column = residual[:, :, None]
    if d <= h:
        found: np.ndarray = np.linalg.solve(normal, slope @ column)[:, :, 0]
    else:
        found = (slope @ np.linalg.solve(normal, column))[:, :, 0]
    return found


def _sums_of(x: np.ndarray, powers: Sequence[np.ndarray]) -> np.ndarray:
    total: np.ndarray = sum(x ** (i + 1) @ P for i, P in enumerate(powers))
    return total


def unfold(
    steps: Sequence[Step],
    replicas: Sequence[Replica],
    widths: Sequence[int],
    degree: int,
    *,
    bounds: tuple[float, float],
    stream: np.random.Generator,
    grid: float = 0.0,
    starts: int = 12,
    told: Callable[[int, np.ndarray, np.ndarray], None] | None = None,
) -> list[np.ndarray]:
    """All clients' columns of each step's rows, (B, d) a step, recovered from sums; 0 for padding.

    Parameters
    ----------
    steps : sequence of Step
        From the first one on, without a gap.
    replicas : sequence of Replica
        Initial replicas of all clients.
    widths : sequence of int
        Number d_n of columns of each client.
    degree : int
        Degree D of the clients' networks.
    bounds : (float, float)
        Range of all columns.
    stream : numpy Generator
        Source of random choices.
    grid : float
        Distance of the fixed-point numbers to which the clients round each power; 0 for none.
    starts : int
        Largest number of random starts of the solver for each row.
    told : callable, optional
        Called with the number of each step, its rows, and which of them are certainly solved.

    Raises
    ------
    ConfigurationError
        If a replica's weights do not fit columns and degree.
    """
    ends = np.cumsum([0, *widths])
    found = []
    for number, step in enumerate(steps):
        weights = [replica.weights(number).astype(np.float64) for replica in replicas]
        for W, d in zip(weights, widths, strict=True):
            if len(W) != d * degree + 1:
                raise ConfigurationError(
                    f"equality solving: weights of {len(W)} rows do not belong to a client of {d} "
                    f"columns and degree {degree}"
                )
        powers = [
            np.concatenate([W[i * d : (i + 1) * d] for W, d in zip(weights, widths, strict=True)])
            for i in range(degree)
        ]
        true = step.rows >= 0
        sums = step.joint[true].astype(np.float64) * len(replicas) - sum(W[-1] for W in weights)
        # Each power is rounded by itself, uniformly within half of the grid's distance.
        rounding = grid**2 / 12 * sum(float((P**2).sum()) for P in powers)
        tolerance = _BEYOND_DOUBT * rounding + _FLOAT * sums.shape[1]
        x, residual = solve_rows(
            sums, powers, bounds=bounds, tolerance=tolerance, stream=stream, starts=starts
        )
        solved = residual <= tolerance
        if grid:
            x[solved] = np.round(x[solved] / grid) * grid
        whole = np.zeros((len(step.rows), ends[-1]), np.float32)
        whole[true] = x
        found.append(whole)
        if told is not None:
            told(number, whole[true], solved)
        share = step.gradient / np.float32(len(replicas))
        for replica, a, b in zip(replicas, ends, ends[1:], strict=False):
            replica.update(np.ascontiguousarray(whole[:, a:b]), share)
    return found


def equality_solving_of_sums(
    steps: Sequence[Step],
    replicas: Sequence[Replica],
    features: Sequence[np.ndarray],
    degree: int,
    stream: np.random.Generator,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    grid: float = 0.0,
    starts: int = 12,
) -> Outcome:
    """Fraction of all clients' elements that `unfold` recovers within 0.0001, as an outcome.

    Parameters
    ----------
    steps, replicas, degree, bounds, grid, starts
        Arguments of `unfold`, which solves the sums.
    features : sequence of ndarray, (rows, d_n)
        The truth, of all training rows.
    stream : numpy Generator
        Source of random choices.

    Returns
    -------
    Outcome
        Chance is guessing each column's commonest value, which the attacker does not know.
    """
    widths = [x.shape[1] for x in features]
    doubtless: list[np.ndarray] = []
    found = unfold(
        steps,
        replicas,
        widths,
        degree,
        bounds=bounds,
        stream=stream,
        grid=grid,
        starts=starts,
        told=lambda number, rows, solved: doubtless.append(solved),
    )
    numbers = np.concatenate([step.rows for step in steps])
    true = numbers >= 0
    truth = np.concatenate(features, axis=1)[numbers[true]]
    if grid > _NEAR:  # what was rounded so coarsely is all that anybody could find
        truth = np.round(truth / grid) * grid
    right = np.abs(np.concatenate(found)[true] - truth) < _NEAR
    guess = np.array([commonest(column) for column in truth.T])
    chance = float((np.abs(guess - truth) < _NEAR).mean())
    by_step = [float(part.mean()) for part in np.split(right, _ends(steps))]
    low, high = bootstrap(lambda rows: float(right[rows].mean()), len(right), stream)
    note = (
        f"{steps[0].joint.shape[1]} equations a row, {sum(widths)} columns, degree {degree}; "
        f"{len(steps)} steps, of the first {by_step[0]:.1%}, of the last {by_step[-1]:.1%}; "
        f"{np.concatenate(doubtless).mean():.1%} of the rows fit their sums"
    )
    return Outcome(METRIC, float(right.mean()), chance, low, high, len(right), {}, note)


def _ends(steps: Sequence[Step]) -> list[int]:
    counts = [int((step.rows >= 0).sum()) for step in steps]
    ends: list[int] = np.cumsum(counts)[:-1].tolist()
    return ends
