"""Level covert of secagg_split: a signed history, and each client's ledger of summed rows.

The server signs its announcements of each round with dL/dH, and clients compare them
(`active.history`). Everything announced before uploads is part of the pairwise masks' labels: masks
of clients that received different rows or sharers do not cancel. In one round t clients sign one
set of survivors, 2t > N + T, so there is one sum. A client signs no second sum of rows, over other
clients, until it has received a nonzero gradient; so no t sign one. What remains is a small
gradient between two sums, whose difference is then a sum of whole cohorts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.active.dealt import no_chain
from securevfl.active.history import NOTHING, PROTECTED, Telling
from securevfl.engine import wire
from securevfl.engine.party import SERVER, kept_as
from securevfl.errors import ProtocolError
from securevfl.protocols.base.decoding import is_any
from securevfl.protocols.base.received import refusal
from securevfl.protocols.secagg_split.parameters import Deal
from securevfl.verified import Secret

FULLER = ("deal", "gradient")  # kinds that have more parts at this level
Sums = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # rows and survivors


@wire.message("secagg_split.Summed")
@dataclass(frozen=True)
class Summed:
    """Sum to which a dL/dH belongs; the message has it, also for clients outside that sum.

    Attributes
    ----------
    sharers, survivors : tuple of int
        Client sets U2 and U3.
    life : int
        Incarnation number of the server.
    """

    sharers: tuple[int, ...]
    survivors: tuple[int, ...]
    life: int


def told(round: int, rows: np.ndarray, summed: Summed) -> bytes:
    """Bytes of everything announced in a round: its number, rows, and whom it summed."""
    return wire.encode(("secagg_split", round, rows, summed))


def life(rows: np.ndarray, summed: Summed) -> int:
    """Incarnation number of the server in an announcement."""
    return summed.life


def before_upload(rows: np.ndarray, sharers: Sequence[int]) -> bytes:
    """Bytes of everything announced before uploads, which label the pairwise masks."""
    return wire.encode((rows, tuple(sharers)))


TELLING = Telling("secagg_split", (np.ndarray, Summed), told, life)


def keep(party: Any) -> None:
    """Adapt a party to level covert: protected kinds, and state for checkpoints."""
    party.protected = {**party.protected, **PROTECTED, "deal": ("public key, field", "real")}
    names = ("story", "log") if party.index == SERVER else ("story",)
    own = *kept_as("once", "sworn"), *kept_as("frozen", *names, shares=True)
    ledger = ("sums",) if party.index == SERVER else ("sums", "attempted")
    party.kept = (*party.kept, *own, *kept_as("passing", *ledger, ahead=True))
    party.sworn, party.story, party.shown, party.log = (), (no_chain(party),), {}, ()
    party.sums, party.telling = (), TELLING
    party.attempted, party.round_before = NOTHING, 0


def histories(deals: Mapping[int, Any]) -> dict[int, Secret]:
    """History hash that each client sent beside its shares.

    ProtocolError if a client sent none.
    """
    for n, one in deals.items():
        if not isinstance(one, tuple) or tuple(map(type, one)) != (Deal, Secret):
            raise refusal("secagg_split: 'deal'", n, "one without a history", "one with a history")
    return {n: one[1] for n, one in deals.items()}


def check_rows(rows: Any, length: int) -> None:
    """Raise ProtocolError unless `rows` are unsigned row numbers below `length`."""
    formed = isinstance(rows, np.ndarray) and rows.dtype.kind == "u" and rows.ndim == 1
    if not formed or int(rows.max(initial=0)) >= length:
        raise ProtocolError(
            "secagg_split: the server named rows in another form than as a row of unsigned numbers "
            f"below {length}. Nothing was uploaded"
        )


def sum_of(survivors: Sequence[int]) -> bytes:
    """Bytes of a round's survivors, which identify its sum.

    Rows and U2 are not included, because a resumed server may have others.
    """
    return wire.encode(tuple(sorted(survivors)))


def conflict(sums: Sums, rows: np.ndarray, survivors: Sequence[int]) -> tuple[int, ...]:
    """Survivors of an earlier sum that has a row in common and other survivors; or ()."""
    some, own = frozenset(rows.tolist()), tuple(sorted(survivors))
    for before, others in sums:
        if others != own and not some.isdisjoint(before):
            return others
    return ()


def noted(sums: Sums, rows: np.ndarray, survivors: Sequence[int]) -> Sums:
    """The sums with one more, of `rows` over `survivors`, unless it is there."""
    own = tuple(sorted(rows.tolist())), tuple(sorted(survivors))
    return sums if own in sums else (*sums, own)


def free(sums: Sums, rows: np.ndarray) -> np.ndarray:
    """The rows that are in no sum since the last step; all rows if none is free."""
    left = rows[~np.isin(rows, [row for before, _ in sums for row in before])]
    return left if left.size else rows


def after(party: Any, gradient: Secret) -> Sums:
    """Sums to remember after dL/dH: `party.sums` if it is zero (no model moved), otherwise none."""
    some = gradient.map(is_any, shape=(), dtype=np.bool_)
    return () if bool(party.opened(some, "whether dL/dH moves a model")) else party.sums
