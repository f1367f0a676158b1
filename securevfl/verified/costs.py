"""Privacy cost of the noisy releases that a proof counts, by the library's accountant."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import numpy as np

from securevfl.privacy.accountant import gaussian_epsilon, sensitivity
from securevfl.verified.trace import Node, Output, Trace, name_of


def price(world: Trace, numbers: Iterable[int], coalition: Iterable[int] = ()) -> str:
    """(epsilon, delta) of all releases of one row or label, by the party that brought it.

    Neighbouring data sets differ in one row before clipping, or in one label. A row is charged for
    each release that contains it, whoever made it. An adaptive composition of Gaussian mechanisms
    with noise multipliers z_i is one with multiplier z, 1/z^2 = sum 1/z_i^2 (Dong, Roth, Su, 2022,
    corollary 3.3). If an input is also released by randomised response, both epsilons add up.

    Parameters
    ----------
    world : Trace
        The traced run.
    numbers : iterable of int
        Numbers of the released nodes.
    coalition : iterable of int
        Parties that see the releases, and do not pay for their own rows.
    """
    found: dict[str, list[str]] = {}
    for party, epsilon, delta, what in costs(world, numbers, coalition):
        said = f"({epsilon:.4g}, {delta:g}) for one {what}"
        found.setdefault(said, []).append(name_of(party))
    return "; ".join(f"{said} of {', '.join(whose)}" for said, whose in found.items())


def costs(
    world: Trace, numbers: Iterable[int], coalition: Iterable[int] = ()
) -> list[tuple[int, float, float, str]]:
    """Party, epsilon, delta, and "row" or "label", of each cost that `price` names."""
    found = []
    for owner, nodes in sorted(charged(world, numbers, coalition).items()):
        rows = {node: of for node, of in nodes.items() if node.data[0] == "gaussian"}
        labels = {node: of for node, of in nodes.items() if node.data[0] == "labels"}
        by_noise, by_answers = epsilon_of(counted(rows), world.delta), counted(labels)
        if set().union(*rows.values()) & set().union(*labels.values()):
            found.append((owner, by_noise + by_answers, world.delta, "label"))
            continue
        found += [(owner, by_noise, world.delta, "row")] * bool(rows)
        found += [(owner, by_answers, 0.0, "label")] * bool(labels)
    return found


def charged(
    world: Trace, numbers: Iterable[int], coalition: Iterable[int] = ()
) -> dict[int, dict[Node, frozenset[int]]]:
    """Releases that tell of a party's rows, with the numbers of its inputs, by party.

    A release of nobody else's arrays, but of models, say, is charged to the party that made it; one
    that is computed from other counted releases costs nothing.
    """
    found: dict[int, dict[Node, frozenset[int]]] = {}
    every, some = set(numbers), set(coalition)
    for node in (world.nodes[number] for number in sorted(every)):
        if not inputs_of(node.args, every, models=True) and inputs_of(node.args, (), models=True):
            continue  # it is computed from what is paid
        honest = [one for one in inputs_of(node.args, every) if one.owner not in some]
        for owner in {one.owner for one in honest} or {node.owner}:
            own = frozenset(one.number for one in honest if one.owner == owner)
            assert owner is not None
            found.setdefault(owner, {})[node] = own
    return found


def inputs_of(nodes: Iterable[Node], paid: Collection[int], *, models: bool = False) -> list[Node]:
    """Arrays that parties brought, on which values depend otherwise than through what is `paid`.

    Costs are given the weights, so what models tell is left out, unless `models`.
    """
    todo, seen, found = list(nodes), set(paid), []
    while todo:
        node = todo.pop()
        if node.number in seen or (node.kind == "model" and not models):
            continue
        seen.add(node.number)
        todo.extend(node.args)
        if node.op == "secret" and node.kind != "model":
            found.append(node)
    return found


def exact(
    world: Trace, numbers: Iterable[int], coalition: Iterable[int], outputs: Iterable[Output]
) -> tuple[str, ...]:
    """Names of outputs that tell of rows for which releases are paid, and have no epsilon.

    Parameters
    ----------
    world : Trace
        The traced run.
    numbers : iterable of int
        Numbers of the released nodes.
    coalition : iterable of int
        Parties that see the releases.
    outputs : iterable of Output
        Outputs that the coalition receives.
    """
    every, some = set(numbers), set(coalition)
    rows, labels = set(), set[int]()
    for owner, nodes in charged(world, every, some).items() if every else ():
        if any(of and node.data[0] == "gaussian" for node, of in nodes.items()):
            rows.add(owner)
        labels.update(*nodes.values())
    found = dict[str, None]()
    for output in outputs if rows or labels else ():
        for one in inputs_of([output.node], every):
            if one.owner not in some and (one.owner in rows or one.number in labels):
                found[output.name] = None
    return tuple(found)


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
