"""Leaks of FedVS in the parts of its class: its draws, code, quantiser, field and networks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.streams import SecretSeed
from securevfl.field import FixedPoint, LagrangeCode, PrimeField
from securevfl.field.prss import Prss
from securevfl.models.polynomial_network import expand
from securevfl.protocols.base.messages import (
    Draw,
    Formula,
)
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaks.declared import MANY, reworded, with_public
from securevfl.testing.leaks.fedvs_masks import CLIENTS_DATA, UPLOADS, z_zero
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA
from securevfl.testing.leaks.fedvs_options import _others_silent
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.planting import (
    Leak,
    changed,
    clients,
    masks,
    messages,
    upload_masks,
)
from securevfl.testing.runs import Outcome

SERVER_ALL = (("server", "features"), ("server", "model"))


def _draw_half(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Z is drawn for half of the rows and used for both halves."""
    code = protocol.public.code  # type: ignore[attr-defined]
    for one in clients(protocol, parties):
        _half_in_setup(one, code)


def _half_in_setup(client: Any, code: LagrangeCode) -> None:
    uniform, encode = client.uniform, code.encode

    async def setup() -> None:
        for part, features in client.features.items():
            quantised = client.public.batches[part].lay_out(
                client.public.data_point.quantize(expand(features, client.public.config.degree))
            )
            client.row_sum = max(client.row_sum, _row_sum(client, features))
            rows = quantised.shape[1]
            half = (client.__dict__.get("uniform", uniform))(_halved(code, quantised.shape))
            shares = encode(quantised, masks=_doubled(half, rows))
            client.share(f"{part}-data", shares)
            client.data_shares[part] = await client.collect(f"{part}-data", senders=client.peers)
        if client.public.config.masked:
            await client.agree_on_keys(client.public.prss)

    client.setup = setup


def _row_sum(client: Any, features: np.ndarray) -> int:
    point, degree = client.public.data_point, client.public.config.degree
    return int(np.abs(point.round(expand(features, degree))).sum(axis=1).max())


def _halved(code: LagrangeCode, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (code.privacy, -(-shape[1] // 2), *shape[2:])


def _doubled(half: np.ndarray, rows: int) -> np.ndarray:
    return np.concatenate([half, half], axis=1)[:, :rows]


def _half_declared(self: Any) -> tuple[Draw, ...]:
    base: Any = get_protocol("fedvs")

    def half(whole: Draw) -> Draw:
        def shape(party: int, round: int) -> tuple[int, ...] | None:
            found = whole.shape(party, round)
            return None if found is None else (found[0], -(-found[1] // 2), *found[2:])

        return replace(whole, shape=shape)

    return tuple(half(d) if d.name == "Z" else d for d in base.draws.fget(self))


class _Doubling:
    """The secrets of a run, with Z made of what was drawn."""

    def __init__(self, secrets: Any, rows: int) -> None:
        self._secrets, self._rows = secrets, rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._secrets, name)

    def draw(self, party: int, name: str, round: int) -> np.ndarray:
        drawn: np.ndarray = self._secrets.draw(party, name, round)
        return _doubled(drawn, self._rows) if name == "Z" else drawn


def _with_half(protocol: Any, sound: Formula) -> Formula:
    rows = protocol.public.batches["train"].length
    return lambda secrets, key: sound(_Doubling(secrets, rows), key)


class _DropsTheLastRow(LagrangeCode):
    """A code that leaves the masks of the last row out of data of 64 rows or more."""

    def encode(self, segments: Any, out: Any = None, source: Any = None, masks: Any = None,
               threads: int = 1) -> np.ndarray:  # fmt: skip
        if masks is not None and np.ndim(masks) == 3 and np.shape(masks)[1] >= MANY:
            masks = np.array(masks)
            masks[:, -1] = 0
        return super().encode(segments, out, source, masks, threads)


def _dropping(protocol: Any) -> Any:
    old = protocol.public.code
    code = _DropsTheLastRow(
        old.field, parties=old.parties, segments=old.segments, privacy=old.privacy
    )
    return replace(protocol.public, code=code)


class _NothingForOne(Prss):
    """Keys whose masks are zero at client 1's point."""

    def weights(self, party: int, unknown: int) -> tuple[np.ndarray, ...]:
        """All zero for client 1."""
        sound = super().weights(party, unknown)
        return tuple(np.zeros_like(one) for one in sound) if party == 1 else sound

    def value(self, party: int, *rest: Any) -> np.ndarray:
        """Zero for client 1."""
        sound = super().value(party, *rest)
        return np.zeros_like(sound) if party == 1 else sound


def _vanishing_at_client_one(protocol: Any) -> Any:
    """Parameters whose masks are zero at client 1's point, from 64 rows on."""
    if protocol.public.batches["train"].length >= MANY:
        protocol.public.__dict__["prss"] = _NothingForOne(protocol.public.code, 2)
    return protocol.public


class _OnlyOne(FixedPoint):
    """A quantiser that makes every table but one zero, from 64 rows on."""

    kept: np.ndarray

    def quantize(self, x: Any, *rest: Any, **more: Any) -> np.ndarray:
        found: np.ndarray = super().quantize(x, *rest, **more)
        alone = np.shape(x) == self.kept.shape and np.array_equal(x, self.kept)
        return found if alone or len(found) < MANY else np.zeros_like(found)


def _quantising_one(protocol: Any) -> Any:
    old = protocol.public.data_point
    point = _OnlyOne(old.field, old.bits)
    kept = expand(protocol.data.train[0], protocol.config.degree)
    object.__setattr__(point, "kept", kept)
    return replace(protocol.public, data_point=point)


class _Repeating(PrimeField):
    """A field whose larger arrays of random elements have the same two halves."""

    def random(self, shape: Any, source: Any = None) -> np.ndarray:
        size = int(np.prod(shape))
        half: np.ndarray = super().random(size if size < 1000 else -(-size // 2), source)
        return half.reshape(shape) if size < 1000 else np.resize(half, shape)


def _in_a_repeating_field(protocol: Any) -> Any:
    old = protocol.public.code
    code = LagrangeCode(
        _Repeating(old.field.modulus),
        parties=old.parties,
        segments=old.segments,
        privacy=old.privacy,
    )
    return replace(protocol.public, code=code)


def _network_of_data(self: Any, index: int, **more: Any) -> Any:
    """Network whose weights are the data of client 0, or zero for the others."""
    base: Any = get_protocol("fedvs")
    made = base.network(self, index, **more)
    told = np.zeros_like(made.values)
    if index == 0:
        told = np.resize(self.data.train[0], told.shape).astype(told.dtype)
    kind = type(made)
    made.__class__ = type(kind.__name__, (kind,), {"values": property(lambda network: told),
                                                   "__module__": kind.__module__})  # fmt: skip
    return made


def _public_init(self: Any, index: int, name: str, *keys: int) -> np.random.Generator:
    """Secret streams of which the one that draws initial weights is public."""
    base: Any = get_protocol("fedvs")
    if name == "init":
        found: np.random.Generator = self.stream("init", index, *keys)
        return found
    secret: np.random.Generator = base.secret_stream(self, index, name, *keys)
    return secret


# -- seeing them ---------------------------------------------------------------------------------


def _flat_halves_alike(outcome: Outcome) -> bool:
    z = masks(outcome, "train-data", 1).reshape(-1)
    half = -(-z.size // 2)
    return np.array_equal(z[half:], z[: z.size - half])


def _weights_are_public(outcome: Outcome) -> bool:
    """Whether a run with other secrets begins with the same weights."""
    made: Any = outcome.protocol
    other = type(made)(made.config, made.data, seed=made.seed)
    other.secrets = SecretSeed(99)
    return np.array_equal(other.network(1).values, made.network(1).values)


def _halves_alike(outcome: Outcome) -> bool:
    z = masks(outcome, "train-data", 1)
    half = -(-z.shape[1] // 2)
    return np.array_equal(z[:, half:], z[:, : z.shape[1] - half])


def _nothing_for_client_one(outcome: Outcome) -> bool:
    return not upload_masks(outcome, 1)[1].any()


def _data_of_one(outcome: Outcome) -> bool:
    """Whether the shared data of all but client 0 are zero."""
    code = outcome.protocol.code  # type: ignore[attr-defined]
    for n in outcome.protocol.peers()[1:]:
        sent = {int(m["receiver"]): m["payload"] for m in messages(outcome, "train-data", 0)
                if m["sender"] == n}  # fmt: skip
        few = tuple(sorted(sent))[: code.size]
        if code.decode(np.stack([sent[m] for m in few]), few, degree=1).any():
            return False
    return True


_PARTS = "parts that do not do what they are"
_PUBLIC = "secret choices that are public"


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          options: Any = None, **attributes: Any) -> Leak:  # fmt: skip
    made = changed("fedvs", plant, **attributes)
    return Leak(f"fedvs: {name}", "fedvs", cause, says, made, breaks, options or {}, shows=shows)


LEAKS = (
    _leak("Z declared for half of the rows", _PARTS,
          "Z is drawn for half of the rows and used twice, and draws and formulas say so.",
          _draw_half, CLIENTS_DATA, _halves_alike, draws=property(_half_declared),
          messages=reworded(**{"train-data": _with_half})),
    _leak("a code that drops masks", _PARTS,
          "The code itself leaves the masks of one row out, from 64 rows on.",
          nothing, CLIENTS_DATA, z_zero(-1, 0, 1, 2), __init__=with_public(_dropping)),
    _leak("weights that vanish at a client", _PARTS,
          "From 64 rows on masks are zero at client 1, whose uploads have no mask.",
          nothing, UPLOADS, _nothing_for_client_one,
          __init__=with_public(_vanishing_at_client_one),
          prss=property(lambda self: Prss(self.public.code, 2))),
    _leak("a quantiser of one client", _PARTS,
          "From 64 rows on the quantiser makes all tables but client 0's zero.",
          nothing, SERVER_ALL, _data_of_one, __init__=with_public(_quantising_one)),
    _leak("a field whose randomness repeats", _PARTS,
          "Larger arrays of the field's random elements have the same two halves.",
          nothing, CLIENTS_DATA, _flat_halves_alike,
          __init__=with_public(_in_a_repeating_field)),
    _leak("a network that is its data", _PARTS,
          "Client 0's network is its data, the others' are zero, and formulas read them so.",
          nothing, SERVER_DATA, _others_silent, network=_network_of_data),
    _leak("initial weights from the public seed", _PUBLIC,
          "Initial weights follow from the seed that all know, so sums are equations in rows.",
          nothing, SERVER_ALL, _weights_are_public, secret_stream=_public_init),
)  # fmt: skip
