"""Leaks of FedVS through messages: what is sent, to whom, how often, how large and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import Outcome
from tests.zoo.planting import (
    Leak,
    changed,
    clients,
    messages,
    sent_array,
    telling_column,
)

SERVER_DATA = (("server", "features"), ("server + T clients", "features"))


def column(client: Any) -> np.ndarray:
    """The column of a client that varies most, some rows of it."""
    return telling_column(client.features["train"])[:8]


def declared(*specs: MessageSpec) -> Any:
    """Property `messages` with more declarations than FedVS has."""
    base: Any = get_protocol("fedvs")
    return property(lambda self: (*base.messages.fget(self), *specs))


def at_shared(client: Any, also: Callable[[Any, Any], None]) -> None:
    """Do something more when a client tells the server that it has shared."""
    send = client.send

    def sending(to: int, kind: str, payload: Any, **more: Any) -> None:
        send(to, kind, payload, **more)
        if kind == "shared":
            also(client, send)

    client.send = sending


def in_setup(client: Any, also: Callable[[Any], None]) -> None:
    """Do something more when setup is over."""
    setup = client.setup

    async def more() -> None:
        await setup()
        also(client)

    client.setup = more


# -- the faults ----------------------------------------------------------------------------------


def _as_gradient(protocol: Protocol, parties: dict[int, Any]) -> None:
    for one in clients(protocol, parties):
        at_shared(one, lambda c, send: send(SERVER, "gradient", column(c)))


def _all_shares_to_one(protocol: Protocol, parties: dict[int, Any]) -> None:
    def plant(client: Any) -> None:
        share = client.share

        def sharing(kind: str, values: Any) -> None:
            share(kind, values)
            if kind == "model" and client.index:
                for n in range(2, 2 + 4):
                    client.send(0, kind, values[n % len(values)], round=client.round + 1000 * n)

        client.share = sharing

    for one in clients(protocol, parties):
        plant(one)


# -- seeing them ---------------------------------------------------------------------------------


def _columns_sent(*kinds: str) -> Callable[[Outcome], bool]:
    def shows(outcome: Outcome) -> bool:
        return sent_array(outcome, column(outcome.parties[1]), *kinds)

    return shows


def _some_more(kind: str) -> Callable[[Outcome], bool]:
    return lambda outcome: any(one["round"] > 1000 for one in messages(outcome, kind))


_GRADIENT = MessageSpec("gradient", "client", "server", "gradient")
_CLEAR, _COVERT = "raw columns in a message", "values in what surrounds a payload"
_EXTRA = "an extra message of a declared kind"


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          **attributes: Any) -> Leak:  # fmt: skip
    made = changed("fedvs", plant, **attributes)
    return Leak(f"fedvs: {name}", "fedvs", cause, says, made, breaks, shows=shows)


LEAKS = (
    _leak(
        "columns as a gradient",
        _CLEAR,
        "A gradient from client to server, declared without a formula, has a column.",
        _as_gradient,
        SERVER_DATA,
        _columns_sent("gradient"),
        messages=declared(_GRADIENT),
    ),
    _leak(
        "more shares for client 0",
        _EXTRA,
        "Client 0 gets four shares of each model, and T = 1 must be all that it takes.",
        _all_shares_to_one,
        (("T clients", "model"), ("server + T clients", "model")),
        _some_more("model"),
    ),
)
