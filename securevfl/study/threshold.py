"""Where exact recovery ends: measured over N, K, T and the number of stragglers.

Theorem 5.1 of FedVS: the sum of embeddings is recovered exactly with up to N - 2(K+T-1) - 1
stragglers. Here every cell is tried: full-range random data and models are encoded, all N clients
evaluate ``sum_n X_n W_n`` on their shares, and random sets of stragglers are left out of decoding.
A cell is "exact" when every try returned the plaintext sum bit for bit, "refused" when every try
raised `NotEnoughResultsError`, and "wrong" for anything else; there must be no such cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError, NotEnoughResultsError
from securevfl.field import LagrangeCode, PrimeField

Outcome = Literal["exact", "refused", "wrong"]


@dataclass(frozen=True)
class Cell:
    """Outcome of one (N, K, T, stragglers).

    Attributes
    ----------
    tolerated : int
        N - 2(K+T-1) - 1, what the theorem says; below 0 the code itself is refused.
    outcome : {"exact", "refused", "wrong"}
    """

    N: int
    K: int
    T: int
    stragglers: int
    tolerated: int
    outcome: Outcome

    @property
    def as_predicted(self) -> bool:
        """Whether the outcome is on the theorem's side."""
        predicted = "exact" if self.stragglers <= self.tolerated else "refused"
        return self.outcome == predicted


def map_threshold(
    parties: Sequence[int],
    *,
    largest_segments: int,
    privacies: Sequence[int],
    prime: int = 2**61 - 1,
    tries: int = 3,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Cell]:
    """Measure every cell with K up to `largest_segments` and 0 to N stragglers.

    Parameters
    ----------
    parties, privacies : sequence of int
        Values of N and of T.
    largest_segments : int
        K goes from 1 to this.
    prime : int
        Field modulus.
    tries : int
        Random sets of stragglers tried for each cell.
    seed : int
        Chooses the sets; data, models and masks are from the operating system's entropy.
    progress : callable, optional
        Told (codes done, codes in all).
    """
    field = PrimeField(prime)
    shapes = [
        (N, K, T)
        for N in parties
        for T in privacies
        if T < N
        for K in range(1, largest_segments + 1)
    ]
    cells: list[Cell] = []
    for done, (N, K, T) in enumerate(shapes):
        stream = keyed_stream(seed, 0, "threshold", N, K, T)
        cells += _measure_code(field, N, K, T, tries, stream)
        if progress is not None:
            progress(done + 1, len(shapes))
    return cells


def _measure_code(
    field: PrimeField, N: int, K: int, T: int, tries: int, stream: np.random.Generator
) -> list[Cell]:
    tolerated = N - 2 * (K + T - 1) - 1
    try:
        code = LagrangeCode(field, parties=N, segments=K, privacy=T)
    except ConfigurationError:
        outcome: Outcome = "refused" if tolerated < 0 else "wrong"
        return [Cell(N, K, T, s, tolerated, outcome) for s in range(N + 1)]
    results, expected = _evaluate(field, code)
    return [
        Cell(N, K, T, s, tolerated, _try_cell(code, results, expected, s, tries, stream))
        for s in range(N + 1)
    ]


def _evaluate(field: PrimeField, code: LagrangeCode) -> tuple[np.ndarray, np.ndarray]:
    """Uploads of all clients for two data holders, and the plaintext sum, (K, rows, h)."""
    rows, width, h = 3, 4, 2
    uploads = np.zeros((code.parties, rows, h), field.dtype)
    expected = np.zeros((code.segments, rows, h), field.dtype)
    for _ in range(2):
        data = field.random((code.segments, rows, width))
        model = field.random((width, h))
        data_shares, model_shares = code.encode(data), code.encode_constant(model)
        for n in range(code.parties):
            uploads[n] = field.add(uploads[n], field.matmul(data_shares[n], model_shares[n]))
        for k in range(code.segments):
            expected[k] = field.add(expected[k], field.matmul(data[k], model))
    return uploads, expected


def _try_cell(
    code: LagrangeCode,
    results: np.ndarray,
    expected: np.ndarray,
    stragglers: int,
    tries: int,
    stream: np.random.Generator,
) -> Outcome:
    outcomes: set[Outcome] = set()
    for _ in range(tries):
        fast = np.sort(stream.permutation(code.parties)[stragglers:])
        try:
            decoded = code.decode(results[fast], fast.tolist(), degree=2)
        except NotEnoughResultsError:
            outcomes.add("refused")
        else:
            outcomes.add("exact" if np.array_equal(decoded, expected) else "wrong")
    return outcomes.pop() if len(outcomes) == 1 else "wrong"


def report(cells: Sequence[Cell]) -> dict[str, Any]:
    """Counts, the cells off the theorem's side, and all cells, for ``--json``."""
    return {
        "cells": len(cells),
        "exact": sum(cell.outcome == "exact" for cell in cells),
        "refused": sum(cell.outcome == "refused" for cell in cells),
        "not_as_predicted": [asdict(cell) for cell in cells if not cell.as_predicted],
        "map": [asdict(cell) for cell in cells],
    }


def draw_threshold(cells: Sequence[Cell], path: Path) -> None:
    """Heat map of the outcomes with the theorem's boundary, one panel for each (N, T)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sizes, privacies = sorted({c.N for c in cells}), sorted({c.T for c in cells})
    shape = (len(sizes), len(privacies))
    figure = Figure(figsize=(2.8 * shape[1], 2.6 * shape[0]), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(*shape, squeeze=False)
    for row, N in zip(axes, sizes, strict=True):
        for panel, T in zip(row, privacies, strict=True):
            _draw_panel(panel, [cell for cell in cells if (cell.N, cell.T) == (N, T)], N, T)
    figure.suptitle("blue: exact, grey: refused, red: wrong; line: N - 2(K+T-1) - 1")
    figure.savefig(path, dpi=130)


def _draw_panel(panel: Any, cells: Sequence[Cell], N: int, T: int) -> None:
    from matplotlib.colors import ListedColormap

    panel.set(title=f"N = {N}, T = {T}", xlabel="segments K", ylabel="stragglers")
    if not cells:
        return
    code = {"wrong": 0, "refused": 1, "exact": 2}
    largest = max(cell.K for cell in cells)
    grid = np.zeros((N + 1, largest))
    for cell in cells:
        grid[cell.stragglers, cell.K - 1] = code[cell.outcome]
    panel.imshow(
        grid,
        origin="lower",
        aspect="auto",
        cmap=ListedColormap(["#d7191c", "#e6e6e6", "#2c7fb8"]),
        vmin=0,
        vmax=2,
        extent=(0.5, largest + 0.5, -0.5, N + 0.5),
        interpolation="nearest",
    )
    K = np.arange(1, largest + 1)
    boundary = np.maximum(N - 2 * (K + T - 1) - 1, -1) + 0.5
    edges = np.append(K - 0.5, largest + 0.5)
    panel.step(edges, np.append(boundary, boundary[-1]), where="post", color="black", linewidth=1.5)
