"""Measurement of exact recovery over N, K, T and stragglers, compared with the theorem's limit.

Theorem 5.1 of FedVS: the sum of embeddings is recovered exactly with up to N - 2(K+T-1) - 1
stragglers. Here every cell is tried: full-range random data and models are encoded, all N clients
evaluate ``sum_n X_n W_n`` on their shares, and random sets of stragglers are left out of decoding.
A cell is "exact" when every try returned the plaintext sum bit for bit, "refused" when every try
raised `NotEnoughResultsError`, and "wrong" for anything else; there must be no such cell.

What K and T cost is measured beside it: the virtual time of a round under the paper's delays, and
the real computing of all parties together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError, NotEnoughResultsError, needs
from securevfl.field import LagrangeCode, PrimeField
from securevfl.protocols.base.defaults import DEFAULT

Outcome = Literal["exact", "refused", "wrong"]


@dataclass(frozen=True)
class Cell:
    """Outcome of decoding for one N, K, T and number of stragglers.

    Attributes
    ----------
    N, K, T, stragglers : int
        Numbers of parties, data segments, colluding parties, and missing results.
    tolerated : int
        N - 2(K+T-1) - 1, the theorem's limit; if negative, the code itself is refused.
    outcome : {"exact", "refused", "wrong"}
        Result of decoding.
    """

    N: int
    K: int
    T: int
    stragglers: int
    tolerated: int
    outcome: Outcome

    @property
    def as_predicted(self) -> bool:
        """Whether the outcome is "exact" up to `tolerated` stragglers and "refused" above."""
        predicted = "exact" if self.stragglers <= self.tolerated else "refused"
        return self.outcome == predicted


def map_threshold(
    parties: Sequence[int],
    *,
    largest_segments: int,
    privacies: Sequence[int],
    prime: int = 2**61 - 1,
    tries: int = 3,
    progress: Callable[[int, int], None] | None = None,
) -> list[Cell]:
    """Outcomes of decoding for all N, T, K up to `largest_segments`, and 0 to N stragglers.

    Parameters
    ----------
    parties, privacies : sequence of int
        Values of N and of T.
    largest_segments : int
        K goes from 1 to this.
    prime : int
        Field modulus.
    tries : int
        Random sets of stragglers tried for each cell; data, models and masks are from the
        operating system's entropy.
    progress : callable, optional
        Called with (codes done, all codes).
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
        stream = keyed_stream(0, 0, "threshold", N, K, T)
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
    """Uploads of all clients for data of two holders, and their plain sum, (K, rows, h)."""
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


def time_rounds(
    parties: int,
    *,
    privacies: Sequence[int],
    prime: int = 2**61 - 1,
    rounds: int = 50,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Mean time of a round of the default protocol for every feasible K and each T.

    Eight features and 128 rows a client, 128 samples a batch and an embedding of 32; the delays of
    section 6.2 of the paper, the same ones in every cell. The first round is not counted.

    Parameters
    ----------
    parties : int
        Number N of parties.
    privacies : sequence of int
        Values of T.
    prime : int
        Field modulus.
    rounds : int
        Rounds of each cell, at least 2; else ConfigurationError.
    progress : callable, optional
        Called with (cells done, all cells).

    Returns
    -------
    list of dict
        ``N``, ``K``, ``T``, ``R``, ``virtual_seconds``, and ``real_seconds`` that all parties
        together compute in one process on one thread.
    """
    from securevfl.bench.rounds import Rounds, RoundSize, uniform
    from securevfl.engine.conditions import paper
    from securevfl.planning.field_choice import RowSums, choose_bits
    from securevfl.runs.threads import one_thread

    if rounds < 2:
        raise ConfigurationError(f"bench decoding: {rounds} rounds; at least 2 are needed")
    size = RoundSize(parties, rows=128 * parties, features=8 * parties, batch=128, width=32)
    data = uniform(size)
    sums = [RowSums(9.0)] * parties
    bits = choose_bits(sums, 16.0, 1, {"prime": prime})
    cells = [(K, T) for T in privacies for K in range(1, parties) if parties >= 2 * (K + T - 1) + 1]
    results = []
    with one_thread():
        for done, (K, T) in enumerate(cells):
            options = {
                "rounds": rounds, "batch": size.batch, "width": size.width, "hidden": size.width,
                "degree": 1, "segments": K, "privacy": T, "masked": parties >= T + 2,
                "prime": prime, "data_bits": bits.data_bits, "model_bits": bits.model_bits,
            }  # fmt: skip
            conditions = paper(parties, batch_rows=max(1, size.batch // K))
            run = Rounds(DEFAULT, data, options, conditions)
            run.advance(1)
            first = len(run.times)
            elapsed = run.advance(rounds - first)
            counted = len(run.times) - first
            results.append(
                {
                    "N": parties,
                    "K": K,
                    "T": T,
                    "R": 2 * (K + T - 1) + 1,
                    "virtual_seconds": (run.times[-1] - run.times[first - 1]) / counted,
                    "real_seconds": elapsed / counted,
                }
            )
            if progress is not None:
                progress(done + 1, len(cells))
    return results


def report(cells: Sequence[Cell]) -> dict[str, Any]:
    """Counts, cells that contradict the theorem, and all cells, for ``--json``."""
    return {
        "cells": len(cells),
        "exact": sum(cell.outcome == "exact" for cell in cells),
        "refused": sum(cell.outcome == "refused" for cell in cells),
        "not_as_predicted": [asdict(cell) for cell in cells if not cell.as_predicted],
        "map": [asdict(cell) for cell in cells],
    }


def draw_threshold(cells: Sequence[Cell], path: Path, times: Sequence[dict[str, Any]] = ()) -> None:
    """Draw outcomes (`map_threshold`), a panel for each (N, T), and N - 2(K+T-1) - 1, as a PNG.

    `times`, if given, are results of `time_rounds`, drawn below.
    """
    needs("pictures", "report", "matplotlib")
    from matplotlib.figure import Figure

    sizes, privacies = sorted({c.N for c in cells}), sorted({c.T for c in cells})
    width, height = max(2.8 * len(privacies), 6.4), 2.6 * len(sizes)
    figure = Figure(figsize=(width, height + (3.2 if times else 0.0)), layout="constrained")
    parts: Any = (figure,)
    if times:
        parts = figure.subfigures(2, 1, height_ratios=(height, 3.2))
    axes = parts[0].subplots(len(sizes), len(privacies), squeeze=False)
    for row, N in zip(axes, sizes, strict=True):
        for panel, T in zip(row, privacies, strict=True):
            _draw_panel(panel, [cell for cell in cells if (cell.N, cell.T) == (N, T)], N, T)
    parts[0].suptitle("blue: exact, grey: refused, red: wrong; line: N - 2(K+T-1) - 1")
    if times:
        _draw_times(parts[1].subplots(1, 2), times)
    figure.savefig(path, dpi=130)


def _draw_times(panels: Any, times: Sequence[dict[str, Any]]) -> None:
    kinds = (("virtual_seconds", 1, "virtual time of a round (s)"),
             ("real_seconds", 1e3, "computing of a round (ms)"))  # fmt: skip
    for panel, (kind, scale, words) in zip(panels, kinds, strict=True):
        for T in sorted({row["T"] for row in times}):
            own = [row for row in times if row["T"] == T]
            panel.plot(
                [row["K"] for row in own],
                [scale * row[kind] for row in own],
                ".-",
                label=f"T = {T}",
            )
        panel.set(xlabel="segments K", ylabel=words, ylim=(0, None))
        panel.grid(alpha=0.25)
    panels[0].legend(frameon=False, title=f"N = {times[0]['N']}")


def _draw_panel(panel: Any, cells: Sequence[Cell], N: int, T: int) -> None:
    from matplotlib.colors import ListedColormap

    panel.set(title=f"N = {N}, T = {T}", xlabel="segments K", ylabel="stragglers")
    if not cells:
        panel.set_axis_off()
        panel.text(0.5, 0.5, "refused: T >= N", ha="center", va="center")
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
