"""Privacy cost of the noisy releases that a proof counts, by the library's accountant."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from securevfl.privacy.accountant import gaussian_epsilon, sensitivity
from securevfl.verified.trace import Node, Trace, name_of


def price(world: Trace, numbers: Iterable[int]) -> str:
    """(epsilon, delta) of all releases of one row, by the party that releases it.

    Neighbouring data sets differ in one row before clipping, or in one label. A row is charged for
    each release that contains it; releases by two mechanisms, or of two parties, are listed
    separately. An adaptive composition of Gaussian mechanisms with noise multipliers z_i is one
    with multiplier z, 1/z^2 = sum 1/z_i^2 (Dong, Roth, Su, 2022, corollary 3.3).

    Parameters
    ----------
    world : Trace
        The traced run.
    numbers : iterable of int
        Numbers of the released nodes.
    """
    found: dict[str, list[str]] = {}
    for party, epsilon, delta, what in costs(world, numbers):
        said = f"({epsilon:.4g}, {delta:g}) for one {what}"
        found.setdefault(said, []).append(name_of(party))
    return "; ".join(f"{said} of {', '.join(whose)}" for said, whose in found.items())


def costs(world: Trace, numbers: Iterable[int]) -> list[tuple[int, float, float, str]]:
    """Party, epsilon, delta, and "row" or "label", of each cost that `price` names."""
    found = []
    nodes = [world.nodes[number] for number in sorted(set(numbers))]
    for owner in sorted({node.owner for node in nodes if node.owner is not None}):
        own = [node for node in nodes if node.owner == owner]
        rows, labels = _of_rows(own, world.delta), _of_labels(own)
        found += [(owner, rows, world.delta, "row")] * (rows > 0)
        found += [(owner, labels, 0.0, "label")] * (labels > 0)
    return found


def _of_rows(nodes: Iterable[Node], delta: float) -> float:
    """Epsilon of Gaussian mechanisms for the row in most releases; 0 without any."""
    return epsilon_of(counted([node for node in nodes if node.data[0] == "gaussian"]), delta)


def epsilon_of(total: float, delta: float) -> float:
    """Epsilon of Gaussian mechanisms by the sum of their 1 / z_i^2; 0 without any."""
    return gaussian_epsilon(1 / math.sqrt(total), 1, delta) if total else 0.0


def cost_of(node: Node) -> float:
    """Cost of a release of one row, which adds up: 1 / z^2 of noise, epsilon of a label."""
    if node.data[0] == "labels":
        return float(node.data[1])
    _, bound, sigma, _ = node.data
    square: float = (sensitivity(bound, "replace") / sigma) ** 2
    return square


def counted(nodes: Iterable[Node]) -> float:
    """Sum of `cost_of` for the row, or label, in most releases by one mechanism."""
    every, of_row = 0.0, dict[int, float]()
    for node in nodes:
        rows = node.data[3] if node.data[0] == "gaussian" else None
        if rows is None:
            every += cost_of(node)
            continue
        names, often = np.unique(rows[rows >= 0], return_counts=True)
        for row, times in zip(names.tolist(), often.tolist(), strict=True):
            # Entries have noise of their own, so a row that is twice in a release is in two.
            of_row[row] = of_row.get(row, 0.0) + times * cost_of(node)
    return every + max(of_row.values(), default=0.0)


def _of_labels(nodes: Iterable[Node]) -> float:
    """Epsilon of a label by randomised response: the sum over releases."""
    return counted([node for node in nodes if node.data[0] == "labels"])
