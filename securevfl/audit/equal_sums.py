"""Another table with equal sums, computed: the content of Theorem 1 of docs/sums.md.

A run of split training is a smooth map F from rows and first weights to all decoded sums, where
labels, batches and the server's first model are fixed. With fewer equations than unknowns its fibre
through a table is a manifold; here a second point of it is found by Newton's method, a table in
which every row is another and that gives the server the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

_STEPS = 60  # of Newton's method
_HIDDEN = 5  # width of the server model's hidden layer
_NEAR = 1e-11  # of sums that count as equal; they are of order 1


@dataclass(frozen=True)
class EqualSums:
    """Two tables with equal sums of embeddings.

    Attributes
    ----------
    rows, other : ndarray, (M, d), float64
        The first table, and the other one.
    first, second : ndarray, (equations,), float64
        All sums of the run with each table.
    free : int
        Dimension of the set of tables with these sums at the first one: unknowns less rank of dF.
    promised : int
        Lower bound of Theorem 1: sum_i (d - E_i h) + w h, w the width of an expanded row.
    """

    rows: np.ndarray
    other: np.ndarray
    first: np.ndarray
    second: np.ndarray
    free: int
    promised: int

    @property
    def distance(self) -> float:
        """Largest difference between a sum of one table and that of the other."""
        return float(np.abs(self.first - self.second).max())

    @property
    def least_change(self) -> float:
        """Smallest Euclidean distance between a row and the same row of the other table."""
        return float(np.linalg.norm(self.rows - self.other, axis=1).min())

    @property
    def equal(self) -> bool:
        """Whether the two tables' sums agree to rounding although every row differs."""
        return self.distance < _NEAR and self.least_change > 1e-3


def equal_sums(
    *,
    rows: int = 12,
    columns: int = 5,
    width: int = 1,
    degree: int = 2,
    epochs: int = 4,
    batch: int = 4,
    optimizer: str = "adam",
    seed: int = 0,
) -> EqualSums:
    """A table, and another table with the same sums in a whole run.

    Parameters
    ----------
    rows, columns, width, degree, epochs, batch : int
        M, d, h, D, E and rows of a batch; each epoch takes all rows in a new order.
    optimizer : {"sgd", "adam"}
        Optimiser of clients and server, with momentum 0.9 and learning rate 0.05.
    seed : int
        Seed of tables, weights, labels and batches.
    """
    import torch

    rng = np.random.default_rng(seed)
    orders = [rng.permutation(rows) for _ in range(epochs)]
    batches = [
        torch.from_numpy(order[start : start + batch].copy())
        for order in orders
        for start in range(0, rows, batch)
    ]
    weights = columns * degree + 1
    labels = torch.from_numpy(rng.integers(0, 2, rows).astype(np.float64))
    head = [torch.from_numpy(rng.normal(size=s) * 0.5) for s in ((width, _HIDDEN), (_HIDDEN,))]
    table = rng.random((rows, columns))
    first = rng.uniform(-1, 1, (weights, width)) / np.sqrt(columns * degree)

    def sums(values: torch.Tensor) -> torch.Tensor:
        X = values[: table.size].reshape(rows, columns)
        W = values[table.size :].reshape(weights, width)
        return _train(X, W, head, batches, labels, degree, optimizer)

    start = torch.from_numpy(np.concatenate([table.ravel(), first.ravel()]))
    known = sums(start).numpy()
    values, free = _another(sums, start, known, rng)
    other = values[: table.size].reshape(rows, columns)
    promised = rows * columns - known.size + weights * width
    return EqualSums(table, other, known, sums(torch.from_numpy(values)).numpy(), free, promised)


def _another(
    sums: Callable[[torch.Tensor], torch.Tensor],
    start: torch.Tensor,
    known: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, int]:
    """(another point near `start` whose `sums` are `known`, dimension of all such points)."""
    import torch

    def derivative(at: np.ndarray) -> np.ndarray:
        jacobian: Any = torch.autograd.functional.jacobian
        found = jacobian(sums, torch.from_numpy(at))
        return np.asarray(found.numpy())

    values = start.numpy().copy()
    _, scale, right = np.linalg.svd(derivative(values), full_matrices=True)
    rank = int((scale > scale.max() * 1e-10).sum())
    null = right[rank:]
    if len(null):
        values += 0.1 * np.sqrt(values.size / len(null)) * (rng.normal(size=len(null)) @ null)
    for _ in range(_STEPS):
        left = sums(torch.from_numpy(values)).numpy() - known
        if np.abs(left).max() < _NEAR / 10:
            break
        values -= np.linalg.lstsq(derivative(values), left, rcond=1e-12)[0]
    return values, values.size - rank


def _train(
    X: torch.Tensor,
    W: torch.Tensor,
    head: list[torch.Tensor],
    batches: list[torch.Tensor],
    labels: torch.Tensor,
    degree: int,
    optimizer: str,
) -> torch.Tensor:
    """All sums of a run of split training on `batches`, differentiable in rows X and weights W."""
    import torch

    powers = [X**i for i in range(1, degree + 1)]
    X = torch.cat([*powers, torch.ones(len(X), 1, dtype=X.dtype)], dim=1)
    models, found = [W, *head], []
    moments: list[Any] = [(torch.zeros_like(m), torch.zeros_like(m)) for m in models]
    for step, rows in enumerate(batches, 1):
        U = X[rows] @ models[0]
        found.append(U.reshape(-1))
        gradients = _gradients(U, models[1:], labels[rows])
        every = [X[rows].T @ gradients[0], *gradients[1:]]
        for place, gradient in enumerate(every):
            first, second = moments[place]
            first = 0.9 * first + (gradient if optimizer == "sgd" else 0.1 * gradient)
            second = 0.999 * second + 0.001 * gradient**2
            moments[place] = first, second
            moved = first
            if optimizer == "adam":  # eps inside the root keeps it smooth
                even = second / (1 - 0.999**step)
                moved = first / (1 - 0.9**step) / torch.sqrt(even + 1e-12)
            models[place] = models[place] - 0.05 * moved
    return torch.cat(found)


def _gradients(U: torch.Tensor, head: list[torch.Tensor], labels: torch.Tensor) -> list[Any]:
    """Closed-form gradients for U, A, b of the mean logistic loss of tanh(U A) b; head: A, b."""
    import torch

    A, b = head
    inner = torch.tanh(U @ A)
    error = (torch.sigmoid(inner @ b) - labels) / len(labels)
    through = error[:, None] * b * (1 - inner**2)
    return [through @ A.T, U.T @ through, inner.T @ error]
