"""Leaks within declared messages of methods that protect nothing but by what they declare.

Kind, roles, round, number, shape and type of each message are as declared. What is in it is not
what the method computes, so only somebody who computes it again can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.runs import Outcome
from tests.zoo.encrypted import every
from tests.zoo.planting import (
    ACCUSED,
    Leak,
    Plant,
    changed,
    messages,
    tap,
    telling_column,
)

DECLARED = (("any party", "messages"),)


# -- what clients send -----------------------------------------------------------------------------


def _column_as(kind: str) -> Plant:
    """Payloads of a kind, or the first array in them, have values of a column from their start."""

    def plant(client: Any) -> None:
        def change(one: dict[str, Any]) -> None:
            if one["kind"] == kind:
                one["payload"] = _filled(one["payload"], telling_column(client.features))

        tap(client, change)
        send, broadcast = client.send, client.broadcast

        def telling(name: str, payload: Any, to: Any = None) -> None:
            if name != kind:
                broadcast(name, payload, to)
                return
            for receiver in to:
                send(receiver, name, payload)

        client.broadcast = telling

    return every(plant)


def _filled(payload: Any, column: np.ndarray) -> Any:
    if isinstance(payload, np.ndarray):
        return np.resize(column, payload.shape).astype(payload.dtype)
    if isinstance(payload, dict):
        name = max(payload, key=lambda one: payload[one].size)
        return {**payload, name: _filled(payload[name], column)}
    if isinstance(payload, tuple):
        return (*payload[:-1], _filled(payload[-1], column))
    return float(column[0]) if isinstance(payload, float) else payload


# -- what the label holders send -------------------------------------------------------------------


def _mean_of_one(protocol: Protocol, parties: dict[int, Any]) -> None:
    """The server sends all clients the upper layers of client 1 in the place of the mean."""
    server = parties[SERVER]
    collect, broadcast, held = server.collect, server.broadcast, {}

    async def collecting(kind: str, **more: Any) -> Any:
        held[kind] = await collect(kind, **more)
        return held[kind]

    def sending(kind: str, payload: Any, to: Any = None) -> None:
        broadcast(kind, held["upper"][1][2] if kind == "mean" else payload, to)

    server.collect, server.broadcast = collecting, sending


# -- seeing them -----------------------------------------------------------------------------------


def _column_in(kind: str) -> Callable[[Outcome], bool]:
    """Test whether the largest array of all such messages begins with the sender's column."""

    def told(outcome: Outcome, one: dict[str, Any]) -> bool:
        payload = one["payload"]
        column = telling_column(outcome.protocol.data.train[int(one["sender"])])
        payload = payload[-1] if isinstance(payload, tuple) else payload
        if isinstance(payload, dict):
            payload = max(payload.values(), key=lambda part: part.size)
        flat = np.asarray(payload).reshape(-1)[:20]
        return np.array_equal(flat, np.resize(column, len(flat)).astype(flat.dtype))

    def shows(outcome: Outcome) -> bool:
        found = [told(outcome, one) for one in messages(outcome, kind)]
        return bool(found) and all(found)

    return shows


def _mean_is_of_one(outcome: Outcome) -> bool:
    upper = {int(m["round"]): m["payload"][2] for m in messages(outcome, "upper")
             if m["sender"] == 1}  # fmt: skip
    return all(
        np.array_equal(one["payload"][name], value)
        for one in messages(outcome, "mean")
        for name, value in upper[int(one["round"])].items()
    )


_COLUMNS = "columns in a declared message"
_ANOTHER = "another's value in a declared message"


def _leak(protocol: str, name: str, cause: str, says: str, plant: Any,
          shows: Callable[[Outcome], bool], options: Any = None) -> Leak:  # fmt: skip
    return Leak(f"{protocol}: {name}", protocol, cause, says, changed(protocol, plant), DECLARED,
                options or {}, ACCUSED, shows)  # fmt: skip


LEAKS = (
    _leak("fedhssl", "columns for projections", _COLUMNS,
          "Projections are values of a column.", _column_as("projection"),
          _column_in("projection")),
    _leak("fedhssl", "a column in upper layers", _COLUMNS,
          "The upper layers that are sent have values of a column.", _column_as("upper"),
          _column_in("upper")),
    _leak("fedhssl", "a value for a loss", _COLUMNS,
          "The loss of a meeting is a raw value.", _column_as("met"), _column_in("met")),
    _leak("fedhssl", "client 1 for the mean", _ANOTHER,
          "All clients are told the upper layers of client 1 in the place of the mean.",
          _mean_of_one, _mean_is_of_one),
)  # fmt: skip
