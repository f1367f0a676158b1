"""Leaks of FedVS through choices among honest acts, joint randomness, and knowing who looks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.runs import Outcome
from tests.zoo.encrypted import every
from tests.zoo.fedvs_masks import (
    CLIENTS_DATA,
    UPLOADS,
    each,
    each_rho,
)
from tests.zoo.fedvs_messages import SERVER_DATA
from tests.zoo.planting import (
    Change,
    Leak,
    changed,
    clients,
    masks,
    messages,
    telling_column,
    upload_masks,
)


def bit_of(client: Any, round: int) -> int:
    """A bit of a row of a client's data: whether an entry of a column is above its mean."""
    own = telling_column(client.features["train"])
    return int(own[round % len(own)] > own.mean())


# -- randomness that is fresh, and chosen or shared ------------------------------------------------


def _one_key(protocol: Protocol, parties: dict[int, Any]) -> None:
    """All keys are one, which everybody has."""
    one = os.urandom(32)
    for client in clients(protocol, parties):
        client.secret_bytes = lambda count: one[:count]


def _multiple(client: Any) -> Change:
    """Of two masks the second is three times the first."""

    def change(drawn: np.ndarray, round: int, place: int) -> np.ndarray:
        if round == 0:
            field = client.public.field
            drawn[1] = field.multiply(drawn[0], field.elements(3))
        return drawn

    return change


# -- honest acts that depend on data --------------------------------------------------------------


def _silent(client: Any) -> None:
    """Clients 0 to 2 upload only in rounds whose bit is zero."""
    consistent = client.consistent

    def answering(batch: Any, attempt: Any) -> bool:
        if client.index < 3 and batch.part == "train" and bit_of(client, client.round):
            return False
        return bool(consistent(batch, attempt))

    client.consistent = answering


# -- what is given to whom, and what is done where nobody looks ---------------------------------


def _server_has_columns(protocol: Protocol, parties: dict[int, Any]) -> None:
    server: Any = parties[SERVER]
    server.labels = {**server.labels, "columns": protocol.data.train[1]}


# -- seeing them ---------------------------------------------------------------------------------


def _keys_alike(outcome: Outcome) -> bool:
    parties: Any = outcome.parties
    return len({key for n in outcome.protocol.peers() for key in parties[n].keys.values()}) == 1


def _second_is_multiple(outcome: Outcome) -> bool:
    z, field = masks(outcome, "train-data", 1), outcome.protocol.code.field  # type: ignore[attr-defined]
    return np.array_equal(field.multiply(z[0], field.elements(3)), z[1])


def _silence_tells(outcome: Outcome) -> bool:
    rounds = range(1, 1 + len(outcome.losses))
    sent = {(int(one["sender"]), int(one["round"])) for one in messages(outcome, "embedding")}
    said = {(n, r) for n in range(3) for r in rounds if not bit_of(outcome.parties[n], r)}
    quiet = {(n, r) for n in range(3) for r in rounds} - said
    return bool(sent & said) and not sent & quiet


def _columns_given(outcome: Outcome) -> bool:
    server: Any = outcome.parties[SERVER]
    return any(np.array_equal(one, outcome.protocol.data.train[1])
               for one in server.labels.values())  # fmt: skip


def _rho_zero_in(round: int) -> Callable[[Outcome], bool]:
    def shows(outcome: Outcome) -> bool:
        return not any(one.any() for one in upload_masks(outcome, round).values())

    return shows


_CHOSEN, _JOINT = "fresh randomness that is chosen by the data", "masks that depend on each other"
_ACTS, _HELD = "honest acts that depend on the data", "data that a party is given"
_LOOKS, _LATE = "another act where nobody looks", "content that only lateness allows"


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          options: Any = None, **attributes: Any) -> Leak:  # fmt: skip
    made = changed("fedvs", plant, **attributes)
    return Leak(f"fedvs: {name}", "fedvs", cause, says, made, breaks, options or {}, shows=shows)


LEAKS = (
    _leak(
        "one key for all sets",
        _JOINT,
        "All sets of T clients have the same key.",
        _one_key,
        UPLOADS,
        _keys_alike,
    ),
    _leak(
        "T=2: masks in proportion",
        _JOINT,
        "With T = 2 the second mask is three times the first.",
        each(_multiple),
        CLIENTS_DATA,
        _second_is_multiple,
        {"privacy": 2, "segments": 1},
    ),
    _leak(
        "a bit in who uploads",
        _ACTS,
        "Clients 0 to 2 do not upload in rounds in which a bit of their data is one.",
        every(_silent),
        SERVER_DATA,
        _silence_tells,
    ),
    _leak(
        "columns given to the server",
        _HELD,
        "The server's object is made with columns.",
        _server_has_columns,
        SERVER_DATA,
        _columns_given,
    ),
    _leak(
        "one round of twelve",
        _LATE,
        "In round 11 alone the masks of uploads are zero.",
        each_rho(lambda c: lambda told, values: values * (c.round != 11)),
        UPLOADS,
        _rho_zero_in(11),
        {"rounds": 12},
    ),
)
