"""Leaks of FedVS through messages: what is sent, to whom, how often, how large and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaks.planting import (
    Leak,
    changed,
    clients,
    masks,
    messages,
    sent_array,
    tap,
    telling_column,
)
from securevfl.testing.runs import Outcome

SERVER_DATA = (("server", "features"), ("server + T clients", "features"))
POOLED = (("server + T clients", "features"), ("server + T clients", "model"))
SHARED = (("T clients", "features"), ("server + T clients", "features"))


def column(client: Any) -> np.ndarray:
    """The column of a client that varies most, some rows of it."""
    return telling_column(client.features["train"])[:8]


def bit(client: Any) -> int:
    """One bit of a client's data: whether the first entry of a column is above its mean."""
    own = telling_column(client.features["train"])
    return int(own[0] > own.mean())


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


def _second_shared(protocol: Protocol, parties: dict[int, Any]) -> None:
    for one in clients(protocol, parties):
        at_shared(one, lambda c, send: send(SERVER, "shared", column(c)))


def _upload_in_another_round(protocol: Protocol, parties: dict[int, Any]) -> None:
    for one in clients(protocol, parties):
        at_shared(one, lambda c, send: send(SERVER, "embedding", column(c), round=c.round + 1000))


def _upload_in_setup(protocol: Protocol, parties: dict[int, Any]) -> None:
    for one in clients(protocol, parties):
        in_setup(one, lambda c: c.send(SERVER, "embedding", column(c)))


def _as_gradient(protocol: Protocol, parties: dict[int, Any]) -> None:
    for one in clients(protocol, parties):
        at_shared(one, lambda c, send: send(SERVER, "gradient", column(c)))


def _note(protocol: Protocol, parties: dict[int, Any]) -> None:
    for one in clients(protocol, parties):
        at_shared(one, lambda c, send: send(SERVER, "note", column(c)))


def _plain_beside(protocol: Protocol, parties: dict[int, Any]) -> None:
    def plant(client: Any) -> None:
        masked = client.masked

        def both(upload: np.ndarray, told: bytes) -> np.ndarray:
            client.send(SERVER, "embedding", upload, round=client.round + 1000)
            hidden: np.ndarray = masked(upload, told)
            return hidden

        client.masked = both

    for one in clients(protocol, parties):
        plant(one)


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


def _share_to_the_server(protocol: Protocol, parties: dict[int, Any]) -> None:
    def plant(client: Any) -> None:
        share = client.share

        def sharing(kind: str, values: Any) -> None:
            share(kind, values)
            if kind == "train-data":
                client.send(SERVER, kind, values[-1])

        client.share = sharing

    for one in clients(protocol, parties):
        plant(one)


def _with_server_shares(self: Any) -> tuple[MessageSpec, ...]:
    base: Any = get_protocol("fedvs")
    found: tuple[MessageSpec, ...] = base.messages.fget(self)
    more = [replace(one, receiver="server") for one in found if one.kind == "train-data"]
    return (*found, *more)


def _masks_told(protocol: Protocol, parties: dict[int, Any]) -> None:
    def plant(client: Any) -> None:
        own = client.rho

        def rho(told: bytes, shape: tuple[int, ...]) -> np.ndarray:
            values: np.ndarray = own(told, shape)
            client.send(SERVER, "shared", values, round=client.round + 1000)
            return values

        client.rho = rho

    for one in clients(protocol, parties):
        plant(one)


def _copies(protocol: Protocol, parties: dict[int, Any]) -> None:
    def more(client: Any, send: Any) -> None:
        for _ in range(bit(client)):
            send(SERVER, "shared", None)

    for one in clients(protocol, parties):
        at_shared(one, more)


def _departure(protocol: Protocol, parties: dict[int, Any]) -> None:
    def plant(client: Any) -> None:
        def later(one: dict[str, Any]) -> None:
            if one["kind"] == "shared":
                one["after"] += 5.0 * bit(client)

        tap(client, later)

    for one in clients(protocol, parties):
        plant(one)


def _order(protocol: Protocol, parties: dict[int, Any]) -> None:
    def plant(client: Any) -> None:
        share = client.share

        def sharing(kind: str, values: Any) -> None:
            if kind != "model" or not bit(client):
                share(kind, values)
                return
            for n in reversed(range(len(values))):
                client.send(n, kind, values[n])

        client.share = sharing

    for one in clients(protocol, parties):
        plant(one)


def _size(protocol: Protocol, parties: dict[int, Any]) -> None:
    def plant(client: Any) -> None:
        def padded(one: dict[str, Any]) -> None:
            if one["kind"] == "shared" and one["payload"] is None and bit(client):
                one["payload"] = ()

        tap(client, padded)

    for one in clients(protocol, parties):
        plant(one)


# -- seeing them ---------------------------------------------------------------------------------


def _columns_sent(*kinds: str) -> Callable[[Outcome], bool]:
    def shows(outcome: Outcome) -> bool:
        return sent_array(outcome, column(outcome.parties[1]), *kinds)

    return shows


def _some_more(kind: str) -> Callable[[Outcome], bool]:
    return lambda outcome: any(one["round"] > 1000 for one in messages(outcome, kind))


def _sizes_tell(outcome: Outcome) -> bool:
    first = {one["sender"]: one["bytes"] for one in messages(outcome, "shared", 1)}
    return _splits(outcome, first)


def _counts_tell(outcome: Outcome) -> bool:
    senders = [int(one["sender"]) for one in messages(outcome, "shared", 1)]
    return _splits(outcome, {n: senders.count(n) for n in senders})


def _times_tell(outcome: Outcome) -> bool:
    arrived = {int(one["sender"]): one["arrived"] for one in messages(outcome, "shared", 1)}
    return _splits(outcome, {n: time > 4_500_000_000 for n, time in arrived.items()})


def _order_tells(outcome: Outcome) -> bool:
    said: dict[int, list[int]] = {}
    for one in messages(outcome, "model", 1):
        said.setdefault(int(one["sender"]), []).append(int(one["receiver"]))
    return _splits(outcome, {n: to[0] > to[-1] for n, to in said.items()})


def _splits(outcome: Outcome, seen: dict[int, Any]) -> bool:
    bits = {n: bit(outcome.parties[n]) for n in seen}
    apart = [{seen[n] for n in seen if bits[n] == b} for b in (0, 1)]
    return all(apart) and not apart[0] & apart[1]


def _mask_values(outcome: Outcome) -> bool:
    return any(isinstance(one["payload"], np.ndarray) for one in messages(outcome, "shared"))


def _server_shares(outcome: Outcome) -> bool:
    known = masks(outcome, "train-data", 1) is not None
    return known and any(one["receiver"] == SERVER for one in messages(outcome, "train-data"))


_GRADIENT = MessageSpec("gradient", "client", "server", "gradient")
_NOTE = MessageSpec("note", "client", "server", "control", public=True)
_CLEAR, _COVERT = "raw columns in a message", "values in what surrounds a payload"
_EXTRA = "an extra message of a declared kind"


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          **attributes: Any) -> Leak:  # fmt: skip
    made = changed("fedvs", plant, **attributes)
    return Leak(f"fedvs: {name}", "fedvs", cause, says, made, breaks, shows=shows)


LEAKS = (
    _leak("columns under shared", _CLEAR, "A second message `shared` has a column.",
          _second_shared, SERVER_DATA, _columns_sent("shared")),
    _leak("columns as an upload of a later round", _EXTRA,
          "An upload of a round that will never be has a column.",
          _upload_in_another_round, SERVER_DATA, _columns_sent("embedding")),
    _leak("columns as an upload in setup", _EXTRA, "An upload of round 0 has a column.",
          _upload_in_setup, SERVER_DATA, _columns_sent("embedding")),
    _leak("columns as a gradient", _CLEAR,
          "A gradient from client to server, declared without a formula, has a column.",
          _as_gradient, SERVER_DATA, _columns_sent("gradient"), messages=declared(_GRADIENT)),
    _leak("columns as a note", _CLEAR,
          "A new kind, declared as public control, has a column.",
          _note, SERVER_DATA, _columns_sent("note"), messages=declared(_NOTE)),
    _leak("plain upload beside the masked one", _EXTRA,
          "Each upload is sent once more, in a round that will never be, without its mask.",
          _plain_beside, (*SERVER_DATA, *POOLED), _some_more("embedding")),
    _leak("more shares for client 0", _EXTRA,
          "Client 0 gets four shares of each model, and T = 1 must be all that it takes.",
          _all_shares_to_one, (("T clients", "model"), ("server + T clients", "model")),
          _some_more("model")),
    _leak("the last share for the server", "a receiver of -1",
          "The server is declared to get data shares, and gets that of the last client.",
          _share_to_the_server, (("server + T clients", "features"),), _server_shares,
          messages=property(_with_server_shares)),
    _leak("masks told", _EXTRA, "Clients tell the server their values of rho.",
          _masks_told, (*SERVER_DATA, ("server", "model")), _mask_values),
    _leak("a bit in the number of messages", _COVERT,
          "`shared` is sent twice where a bit of the data is one.",
          _copies, SERVER_DATA, _counts_tell),
    _leak("a bit in departure times", _COVERT,
          "`shared` departs later where a bit of the data is one.",
          _departure, SERVER_DATA, _times_tell),
    _leak("a bit in the order of messages", _COVERT,
          "Model shares go out in reverse where a bit of the data is one.",
          _order, SHARED, _order_tells),
    _leak("a bit in the size of a message", _COVERT,
          "`shared` has an empty tuple in the place of None where a bit of the data is one.",
          _size, SERVER_DATA, _sizes_tell),
)  # fmt: skip
