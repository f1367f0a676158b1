"""Harmless changes to protocols: every claim still holds, so a verifier that accuses is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.planting import Plant, Variant, changed


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


def _own_subclass(name: str) -> Plant:
    """Plant that gives each client a subclass of its class, as an author would write one."""

    def plant(client: Any) -> None:
        kind = type(client)
        client.__class__ = type(name, (kind,), {"__module__": kind.__module__})

    return every(plant)


def _variant(protocol: str, name: str, says: str, made: Any, **options: Any) -> Variant:
    return Variant(f"{protocol}: {name}", protocol, says, made, options)


_NEW = {"model": "shares of w", "train-data": "shares of x", "mask": "shares of rho"}

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
    _variant("fedvs", "own client class", "Clients have a class of their own.",
             changed("fedvs", _own_subclass("Own"))),
    _variant("fedvs", "T = 2", "Two clients may pool.", changed("fedvs", nothing), privacy=2,
             segments=1),
    _variant("fedvs", "degree 2", "Networks have D = 2.", changed("fedvs", nothing), degree=2),
    _variant("fedvs", "width 3", "Embeddings have width 3.", changed("fedvs", nothing), width=3),
    _variant("fedvs", "spare dealer", "One spare dealer.", changed("fedvs", nothing), spares=1),
    _variant("fedvs", "coded inference", "The test set is inferred from shares.",
             changed("fedvs", nothing), secure=True),
    _variant("fedvs", "smaller prime", "p = 2^31 - 1.", changed("fedvs", nothing),
             prime=2**31 - 1, data_bits=8, model_bits=8),
    _variant("secagg_split", "renamed", "Deals and openings have other kinds.",
             renamed("secagg_split", {"shared": "here", "opening": "reveal"})),
    _variant("secagg_split", "consistency check", "Round 3 is run.",
             changed("secagg_split", nothing), consistency=True),
    _variant("secagg_split", "deals backwards", "Deals go out from the last receiver on.",
             changed("secagg_split", every(_shares_backwards))),
    _variant("secagg_split", "higher threshold", "t = 4.", changed("secagg_split", nothing),
             threshold=4),
    _variant("secagg_split", "smaller prime", "p = 2^31 - 1, 12 bits.",
             changed("secagg_split", nothing), prime=2**31 - 1, bits=12),
    _variant("he_split", "another key holder", "Client 2 holds the key.",
             changed("he_split", nothing), holder=2),
    _variant("he_split", "own client class", "Clients have a class of their own.",
             changed("he_split", _own_subclass("Own"))),
    _variant("he_split", "all half a second later", "Clients send all single messages later.",
             changed("he_split", every(_all_later))),
    _variant("wait_dp", "noise on both", "Embeddings and gradients are noised.",
             changed("wait_dp", nothing), noise="secure", epsilon=5.0, noise_on="both"),
    _variant("wait_dp", "all half a second later", "Clients send all single messages later.",
             changed("wait_dp", every(_all_later)), noise="secure", epsilon=5.0),
    _variant("multivfl", "smaller epsilon", "epsilon = 1.", changed("multivfl", nothing),
             epsilon=1.0, noise="secure"),
    _variant("dvfl", "as it is", "A subclass that changes nothing.", changed("dvfl", nothing)),
    _variant("fedonce", "as it is", "A subclass that changes nothing.",
             changed("fedonce", nothing)),
)  # fmt: skip
