"""Budget of sums: parties count how often each row was released in a decoded sum.

A release gives h equations about a row, whose unknowns are its independent columns (docs/sums.md).

Each party counts its own shares and uploads, independently of the server, and refuses to exceed the
budget. It writes the count before it sends (`securevfl.engine.party.Party.write_ahead`), so that no
crash, resume or restarted server lowers the count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.models.polynomial_network import expand
from securevfl.privacy.release_counts import after_release, most_releases
from securevfl.privacy.released_equations import (
    Odometer,
    independent_columns,
    refuse_width,
    visits_allowed,
)
from securevfl.protocols.base.messages import MessageSpec, in_setup
from securevfl.protocols.base.received import check_number
from securevfl.protocols.base.schedule import Post

UNKNOWNS = "unknowns"  # kind of message
_MOST = 2**31
_EXACT_BITS = 20  # of float32 columns in [0, 1]


def unknowns_of(
    columns: Sequence[np.ndarray], config: Any, unseen: Collection[int] = ()
) -> tuple[int, int | None]:
    """Number of independent columns of all parties, and rank of their powers and a column of ones.

    Parameters
    ----------
    columns : sequence of ndarray, (M, d_n)
        Columns of each party.
    config : protocol options
        Options with ``degree``, and ``data_bits`` of fixed-point numbers, if any.
    unseen : collection of int
        Parties whose columns are placeholders; each of their columns counts as independent.

    Returns
    -------
    int, int or None
        Unknowns and rank; no rank if embeddings are not polynomial.
    """
    unit = 2.0 ** -getattr(config, "data_bits", _EXACT_BITS)

    def count(n: int, degree: int) -> int:
        if n in unseen:
            return degree * int(columns[n].shape[1])
        return independent_columns(expand(columns[n], degree)[:, :-1], unit)

    own = sum(count(n, 1) for n in range(len(columns)))
    if getattr(config, "client_kind", "pn") != "pn":
        return own, None
    return own, sum(count(n, config.degree) for n in range(len(columns))) + 1


def rounds_allowed(config: Any, unknowns: int, per_epoch: int) -> int:
    """Rounds of training: those configured, but no more epochs than the budget of sums allows."""
    if not config.budget:
        return int(config.rounds)
    allowed = visits_allowed(unknowns, config.width, config.budget)
    return min(int(config.rounds), allowed * per_epoch)


def odometer(
    config: Any,
    unknowns: int,
    rank: int | None,
    per_epoch: int,
    rounds: int | None = None,
    *,
    at_most: bool = False,
) -> Odometer:
    """Count of revealed equations after `rounds` rounds, or after all that the budget allows.

    A row is in at most one batch of an epoch, of `per_epoch` rounds. Other arguments are those of
    `Odometer`.
    """
    budget = getattr(config, "budget", 0.0)
    planned = math.ceil(config.rounds / per_epoch)
    allowed = planned
    if budget:
        allowed = min(planned, visits_allowed(unknowns, config.width, budget))
    visits = allowed if rounds is None else math.ceil(rounds / per_epoch)
    return Odometer(config.width, unknowns, rank, visits, planned, per_epoch, budget, at_most)


async def agree_on_unknowns(
    party: Party, protocol: str, own: int | None, columns: Mapping[int, int | None], config: Any
) -> int:
    """Send the own number of independent columns to all others; return the sum of all.

    ProtocolError if a party sends no number from 0 to that of its columns. ConfigurationError if a
    single sum would exceed the budget.

    Parameters
    ----------
    protocol : str
        Name, for errors.
    own : int or None
        Number of this party's independent columns; None if it has no columns.
    columns : mapping of int to int or None
        Number of columns of each party that has any, an upper bound of its independent ones; None
        if unknown.
    config : TrainingConfig
        Options with `width` and `sum_budget`.

    Returns
    -------
    int
        Unknowns of a row.
    """
    if own is not None:
        party.broadcast(UNKNOWNS, own, to=(*party.peers, SERVER))
    told = await party.collect(UNKNOWNS, senders=columns)
    for n, number in told.items():
        most = columns[n]
        check_number(f"{protocol}: '{UNKNOWNS}'", n, number, 0, _MOST if most is None else most)
    total: int = sum(told.values())
    refuse_width(protocol, total, config.width, config.budget)
    return total


def unknowns_messages(sender: str = "client") -> tuple[MessageSpec, ...]:
    """Declaration of messages with independent-column counts, to all holders and the server."""
    return tuple(
        MessageSpec(
            UNKNOWNS, sender, receiver, "measure", count=in_setup, source="ours: docs/sums.md"
        )
        for receiver in ("client", "server")
    )


def unknowns_posts(
    columns: Sequence[int], senders: Callable[[int], Sequence[int]] | None = None
) -> list[Post]:
    """Planned messages of `unknowns_messages`, with the largest possible counts."""
    payloads = tuple(columns)
    return [Post(UNKNOWNS, to, payloads, senders) for to in ("peers", "server")]


def allowance(unknowns: int, config: Any) -> str:
    """The limit on sums of a row, in words, for errors."""
    return (
        f"its {unknowns} unknowns, at h = {config.width} equations a sum and "
        f"sum_budget = {config.budget:g}, allow"
    )


def affords(released: Mapping[str, bytes], part: str, rows: np.ndarray, limit: int) -> bool:
    """Whether every one of these rows has been released fewer than `limit` times."""
    counts = np.frombuffer(released.get(part, b""), "<u4")
    return limit > 0 and not (counts.size and rows.size and int(counts[rows].max()) >= limit)


def counted(
    released: Mapping[str, bytes], part: str, rows: np.ndarray, held: int
) -> dict[str, bytes]:
    """Counts of releases by part, after one more release of `rows` (of `held` rows)."""
    return {**released, part: after_release(released.get(part, b""), rows, held)}


def most_visits(released: Mapping[str, bytes]) -> int:
    """Largest number of times that a training row was released."""
    return most_releases(released.get("train", b""))


def budget_spent(visits: int, unknowns: int, config: Any) -> dict[str, int | str]:
    """Fields of the event that ends a run for its budget: what sums revealed, and the limit."""
    equations = visits * config.width
    return {
        "visits": visits,
        "equations": equations,
        "unknowns": unknowns,
        "why": f"sums gave {equations} equations about rows of {unknowns} unknowns ({visits} "
        f"visits, h = {config.width}); one more visit is not in sum_budget = {config.budget:g}",
    }
