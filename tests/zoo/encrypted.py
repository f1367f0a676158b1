"""Leaks of he_split."""

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
    Plant,
    changed,
    clients,
    messages,
)

HE = (("server", "features"), ("server", "model"))


def every(plant: Callable[[Any], None]) -> Plant:
    """Plant one fault in every client."""

    def planting(protocol: Protocol, parties: dict[int, Any]) -> None:
        for one in clients(protocol, parties):
            plant(one)

    return planting


def _beyond(kind: str) -> Callable[[Outcome], bool]:
    return lambda outcome: any(one["round"] > 1000 for one in messages(outcome, kind))


# -- homomorphic encryption ----------------------------------------------------------------------


def _plaintext_beside(client: Any) -> None:
    quantised = client.quantised

    def telling(own: np.ndarray) -> np.ndarray:
        x: np.ndarray = quantised(own)
        client.send(SERVER, "plain", x)
        return x

    client.quantised = telling


def _secret_key_told(client: Any) -> None:
    setup = client.setup

    async def more() -> None:
        await setup()
        if client.secret_key:
            client.send(SERVER, "key", client.secret_key, round=1000)

    client.setup = more


def _sums_of_one(protocol: Protocol, parties: dict[int, Any]) -> None:
    """The server asks the key holder for single embeddings, once more in each round."""
    server = parties[SERVER]
    holder = server.public.holder
    train = parties[holder].train
    party = parties[holder]

    async def training(batch: np.ndarray) -> None:
        x = party.quantised(party.rows_of(batch))
        party.send(SERVER, "opened", x, round=party.round + 1000)
        await train(batch)

    party.train = training


def _with_plain(self: Any) -> tuple[MessageSpec, ...]:
    base: Any = get_protocol("he_split")
    found: tuple[MessageSpec, ...] = base.messages.fget(self)
    return (*found, MessageSpec("plain", "client", "server", "control", public=True))


def _secret_in_key(outcome: Outcome) -> bool:
    holder: Any = outcome.parties[0]
    return any(holder.secret_key in (one["payload"], bytes(one["payload"]))
               for one in messages(outcome, "key"))  # fmt: skip


def _leak(protocol: str, name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          options: Any = None, **attributes: Any) -> Leak:  # fmt: skip
    made = changed(protocol, plant, **attributes)
    return Leak(f"{protocol}: {name}", protocol, cause, says, made, breaks, options or {},
                shows=shows)  # fmt: skip


_PLAIN, _KEY, _CIPHER = "plaintext beside what hides it", "the secret key sent", "ciphertexts"

LEAKS = (
    _leak(
        "he_split",
        "plaintext beside the ciphertext",
        _PLAIN,
        "A new kind, declared as public control, has the embedding.",
        every(_plaintext_beside),
        HE,
        lambda outcome: any(messages(outcome, "plain")),
        messages=property(_with_plain),
    ),
    _leak(
        "he_split",
        "secret key told",
        _KEY,
        "The key holder sends the server its secret key.",
        every(_secret_key_told),
        HE,
        _secret_in_key,
    ),
    _leak(
        "he_split",
        "a sum of one",
        _CIPHER,
        "The key holder gives the server its own embedding in the place of a sum.",
        _sums_of_one,
        HE,
        _beyond("opened"),
    ),
)
