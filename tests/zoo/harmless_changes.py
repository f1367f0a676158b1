"""Harmless changes to protocols: every claim still holds, so a verifier that accuses is wrong."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.messages import MessageSpec, in_setup
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from tests.zoo.encrypted import every
from tests.zoo.planting import Plant, Variant, changed


def nothing(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Leave the parties as they are."""


def renamed(base: str, names: Mapping[str, str]) -> Any:
    """Maker of a protocol whose messages have other kinds on the wire."""
    old = {new: kind for kind, new in names.items()}
    cls: Any = get_protocol(base)

    class Back:
        """The secrets of a run, under the kinds of message that the formulas were written for."""

        def __init__(self, secrets: Any) -> None:
            self._secrets = secrets

        def __getattr__(self, name: str) -> Any:
            return getattr(self._secrets, name)

        def sent(self, kind: str, round: int) -> Any:
            return self._secrets.sent(names.get(kind, kind), round)

        def state(self, key: Any) -> Any:
            return self._secrets.state(key._replace(kind=names.get(key.kind, key.kind)))

    def formula(one: MessageSpec) -> Any:
        inner = one.recompute
        if inner is None:
            return None

        def recompute(secrets: Any, key: Any) -> Any:
            return inner(Back(secrets), key._replace(kind=old.get(key.kind, key.kind)))

        return recompute

    def declared(self: Any) -> tuple[MessageSpec, ...]:
        found = cls.messages.fget(self)
        return tuple(
            replace(one, kind=names.get(one.kind, one.kind), recompute=formula(one))
            for one in found
        )

    def ideal(self: Any, secrets: Any, key: Any) -> Any:
        return cls.ideal_output(self, Back(secrets), key._replace(kind=old.get(key.kind, key.kind)))

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        for party in parties.values():
            _rename(party, names)

    return changed(base, plant, messages=property(declared), ideal_output=ideal)


def _rename(party: Any, names: Mapping[str, str]) -> None:
    send, share, broadcast = party.send, party.share, party.broadcast
    receive, collect = party.receive, party.collect

    def receiving(*kinds: str, **more: Any) -> Any:
        return receive(*(names.get(kind, kind) for kind in kinds), **more)

    party.send = lambda to, kind, *rest, **more: send(to, names.get(kind, kind), *rest, **more)
    party.share = lambda kind, shares: share(names.get(kind, kind), shares)
    party.broadcast = lambda kind, *rest, **more: broadcast(names.get(kind, kind), *rest, **more)
    party.receive = receiving
    party.collect = lambda kind, **more: collect(names.get(kind, kind), **more)


def _shares_backwards(client: Any) -> None:
    def sharing(kind: str, shares: Any) -> None:
        for n in reversed(range(len(shares))):
            client.send(n, kind, shares[n])

    client.share = sharing


def _all_later(client: Any) -> None:
    send = client.send

    def sending(to: int, kind: str, payload: Any, *, round: int | None = None,
                after: float = 0.0) -> None:  # fmt: skip
        send(to, kind, payload, round=round, after=after + 0.5)

    client.send = sending


def _copied_draws(client: Any) -> None:
    draw = client.uniform
    client.uniform = lambda shape: np.array(draw(shape))


def _two_draws(client: Any) -> None:
    """The masks of the data are drawn in two parts, which are put together."""
    draw = client.uniform

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        if client.round or shape[1] < 2:
            found: np.ndarray = draw(shape)
            return found
        first = shape[1] // 2
        parts = [draw((shape[0], rows, *shape[2:])) for rows in (first, shape[1] - first)]
        return np.concatenate(parts, axis=1)

    client.uniform = uniform


def _random_waits(client: Any) -> None:
    """`shared` departs up to a fifth of a second later, by chance alone."""
    send = client.send

    def sending(to: int, kind: str, payload: Any, *, round: int | None = None,
                after: float = 0.0) -> None:  # fmt: skip
        late = int.from_bytes(os.urandom(2), "big") / 2**16 / 5 if kind == "shared" else 0.0
        send(to, kind, payload, round=round, after=after + late)

    client.send = sending


def _greeting(client: Any) -> None:
    setup = client.setup

    async def more() -> None:
        client.send(SERVER, "hello", ("securevfl", 1))
        await setup()

    client.setup = more


def _with_greeting(self: Any) -> tuple[MessageSpec, ...]:
    base: Any = get_protocol("fedvs")
    hello = MessageSpec(
        *("hello", "client", "server", "control"),
        public=True,
        count=in_setup,
        recompute=lambda secrets, key: ("securevfl", 1),
        source="ours: a greeting",
    )
    return (hello, *base.messages.fget(self))


def _term_by_term(client: Any) -> None:
    """The evaluation adds the product of each client instead of making one product."""

    def evaluate(batch: Any, attempt: Any, shares: Any) -> np.ndarray:
        field, held = client.public.field, client.data_shares[batch.part]
        products = [field.matmul(held[n][batch.rows], shares[n]) for n in reversed(attempt.sharers)]
        total: np.ndarray = functools.reduce(field.add, products)
        return total

    client.evaluate = evaluate


def _own_subclass(name: str) -> Plant:
    """Plant that gives each client a subclass of its class, as an author would write one."""

    def plant(client: Any) -> None:
        kind = type(client)
        client.__class__ = type(name, (kind,), {"__module__": kind.__module__})

    return every(plant)


def _variant(protocol: str, name: str, says: str, made: Any, **options: Any) -> Variant:
    return Variant(f"{protocol}: {name}", protocol, says, made, options)


_NEW = {"model": "shares of w", "train-data": "shares of x", "key": "keys of masks"}

VARIANTS = (
    _variant("fedvs", "renamed shares", "Shares have other kinds.", renamed("fedvs", _NEW)),
    _variant("fedvs", "renamed uploads", "Uploads and gradients have other kinds.",
             renamed("fedvs", {"embedding": "result", "gradient": "slope"})),
    _variant("fedvs", "shares backwards", "Shares go out from the last receiver to the first.",
             changed("fedvs", every(_shares_backwards))),
    _variant("fedvs", "all half a second later", "Clients send all single messages later.",
             changed("fedvs", every(_all_later))),
    _variant("fedvs", "copied draws", "Each draw is copied before its use.",
             changed("fedvs", every(_copied_draws))),
    _variant("fedvs", "Z in two draws", "The masks of the data are drawn in two parts.",
             changed("fedvs", every(_two_draws))),
    _variant("fedvs", "random waits", "Control messages wait for a random time.",
             changed("fedvs", every(_random_waits))),
    _variant("fedvs", "a greeting", "Clients greet the server, by a declared formula.",
             changed("fedvs", every(_greeting), messages=property(_with_greeting))),
    _variant("fedvs", "term by term", "Uploads are summed client by client, the last one first.",
             changed("fedvs", every(_term_by_term))),
    _variant("fedvs", "own client class", "Clients have a class of their own.",
             changed("fedvs", _own_subclass("Own"))),
    _variant("fedvs", "T = 2", "Two clients may pool.", changed("fedvs", nothing), privacy=2,
             segments=1),
    _variant("fedvs", "degree 2", "Networks have D = 2.", changed("fedvs", nothing), degree=2),
    _variant("fedvs", "width 3", "Embeddings have width 3.", changed("fedvs", nothing), width=3),
    _variant("fedvs", "one segment", "K = 1.", changed("fedvs", nothing), segments=1),
    _variant("fedvs", "coded inference", "The test set is inferred from shares.",
             changed("fedvs", nothing), secure=True),
    _variant("fedvs", "smaller prime", "p = 2^31 - 1.", changed("fedvs", nothing),
             prime=2**31 - 1, data_bits=8, model_bits=8),
    _variant("dvfl", "as it is", "A subclass that changes nothing.", changed("dvfl", nothing)),
)  # fmt: skip
