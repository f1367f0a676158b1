"""Planted leaks: FedVS with one fault each, to show which verifier catches what.

``leaky("label used twice")`` is a protocol like any other, only wrong. Every entry of `LEAKS` says
which tests must accuse it and which stay silent, because what they look at does not change. Not for
use outside tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from securevfl.audit.statistical import digest
from securevfl.errors import UnknownNameError
from securevfl.field import LagrangeCode
from securevfl.field.designs import Blocks, blocks_of
from securevfl.field.prss import KEY, Prss, mask_streams
from securevfl.field.sampling import SeededSource
from securevfl.protocols.base.defaults import DEFAULT
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol

SMALL = 0xFFFF  # largest element of masks that are too small
SHORT = 2  # bits of a short seed

Plant = Callable[[Any, Any], None]


@dataclass(frozen=True)
class Leak:
    """A fault of a sharing layer.

    Attributes
    ----------
    plant : callable
        Changes a client of a run, given the run's own scratch space (a dict).
    caught_by : tuple of str
        Tests of `securevfl.audit.games.on_runs.TESTS` that must accuse it.
    blind : tuple of str
        Tests that cannot see it.
    privacy : int
        T that it needs.
    about : {"features", "model"}
        What it gives away.
    points : callable, optional
        Changes the public code instead.
    """

    plant: Plant
    caught_by: tuple[str, ...]
    blind: tuple[str, ...]
    privacy: int = 1
    about: str = "features"
    points: Callable[[LagrangeCode], LagrangeCode] | None = None


def leaky(name: str) -> type[Protocol]:
    """FedVS with a planted leak.

    Raises
    ------
    UnknownNameError
        When no leak has that name.
    """
    if name not in LEAKS:
        raise UnknownNameError("leak", name, LEAKS)
    leak, base = LEAKS[name], get_protocol(DEFAULT)

    def __init__(self: Any, config: Any, data: Any, *, seed: int) -> None:  # noqa: N807
        base.__init__(self, config, data, seed=seed)
        if leak.points is not None:
            self.public = replace(self.public, code=leak.points(self.public.code))

    def parties(self: Any) -> dict[int, Any]:
        made, scratch = base.parties(self), {}  # type: ignore[var-annotated]
        for n in self.peers():
            leak.plant(made[n], scratch)
        return made

    attributes = {
        "__init__": __init__,
        "parties": parties,
        "name": "leaky",
        "__doc__": f"FedVS with a planted leak: {name}.",
        "__module__": __name__,
    }
    return type("Leaky", (base,), attributes)


# -- the faults ----------------------------------------------------------------------------------


def _redraw(client: Any, change: Callable[[np.ndarray, int, int], np.ndarray]) -> None:
    """Pass what a client draws through ``change(draw, round, place in the round)``."""
    draw, places = client.uniform, {}  # type: ignore[var-annotated]

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        place = places.get(client.round, 0)
        places[client.round] = place + 1
        return change(draw(shape), client.round, place)

    client.uniform = uniform


def _raw_segment(client: Any, _scratch: Any) -> None:
    share = client.share

    def sharing(kind: str, shares: np.ndarray) -> None:
        if kind.endswith("-data"):
            code = client.public.code
            segments = code.decode(shares, range(code.parties), degree=1)
            shares = np.concatenate([segments[:1], shares[1:]])
        share(kind, shares)

    client.share = sharing


def _on_a_data_point(code: LagrangeCode) -> LagrangeCode:
    """Put client 0 on the first data point, which `LagrangeCode` refuses."""
    made = LagrangeCode(
        code.field, parties=code.parties, segments=code.segments, privacy=code.privacy
    )
    made.alphas = (made.betas[0], *made.alphas[1:])
    return made


def _equal_masks(client: Any, _scratch: Any) -> None:
    _redraw(client, lambda z, _, place: z if place else np.repeat(z[:1], len(z), axis=0))


def _fewer_masks(client: Any, _scratch: Any) -> None:
    def change(drawn: np.ndarray, _round: int, place: int) -> np.ndarray:
        if not place:
            drawn[-1] = 0
        return drawn

    _redraw(client, change)


def _shared_masks(client: Any, scratch: Any) -> None:
    def change(drawn: np.ndarray, round: int, _place: int) -> np.ndarray:
        if round:
            return drawn
        first: np.ndarray = scratch.setdefault(drawn.shape, drawn)
        return first.copy()

    _redraw(client, change)


def _reused_models(client: Any, _scratch: Any) -> None:
    kept: list[np.ndarray] = []

    def change(drawn: np.ndarray, round: int, place: int) -> np.ndarray:
        if round == 0 or place:
            return drawn
        kept.append(drawn)
        return kept[0].copy()

    _redraw(client, change)


def _unmasked(client: Any, _scratch: Any) -> None:
    client.masked = lambda upload, _told: upload


def _reused_label(client: Any, _scratch: Any) -> None:
    own, kept = client.rho, list[bytes]()

    def rho(told: bytes, shape: tuple[int, ...]) -> np.ndarray:
        kept.append(told)
        values: np.ndarray = own(kept[0], shape)
        return values

    client.rho = rho


def _one_stream_fewer(client: Any, scratch: Any) -> None:
    """rho has a coefficient less, with the keys that it needs then."""
    code = client.public.code
    unknown = mask_streams(code, degree=2) - 1
    prss = scratch.setdefault("prss", _FewerStreams(code, 2))
    keys = scratch.setdefault("keys", {key: os.urandom(KEY) for key in range(len(prss.blocks))})
    own = {key: keys[key] for key in prss.held(client.index)}
    client.rho = lambda told, shape: prss.part(client.index, own, told, shape, unknown)


class _FewerStreams(Prss):
    """Keys of blocks that do for masks with one coefficient less."""

    @cached_property
    def blocks(self) -> Blocks:
        """Blocks for u - 1."""
        code = self.code
        return blocks_of(code.parties, code.privacy, mask_streams(code, self.degree) - 1)


def _keys_for_all(client: Any, _scratch: Any) -> None:
    """Keys of blocks with client 0 make nothing: what masks there are, client 0 knows."""
    prss, unknown = client.public.prss, mask_streams(client.public.code, degree=2)

    def rho(told: bytes, shape: tuple[int, ...]) -> np.ndarray:
        known = {key: one for key, one in client.keys.items() if 0 not in prss.blocks[key]}
        values: np.ndarray = prss.part(client.index, known, told, shape, unknown)
        return values

    client.rho = rho


def _small_masks(client: Any, _scratch: Any) -> None:
    _redraw(client, lambda drawn, _round, _place: drawn & drawn.dtype.type(SMALL))


def _seeded(source: SeededSource) -> Plant:
    def plant(client: Any, _scratch: Any) -> None:
        client.uniform = lambda shape: client.public.field.random(shape, source)

    return plant


def _nothing(_client: Any, _scratch: Any) -> None:
    """Leave the clients as they are."""


_SHARES = ("equality", "uniformity", "span, clients")
_UPLOADS = ("span, server", "ranks, server", "ranks, server + clients")
_SILENT = (*_SHARES, *_UPLOADS)


def _but(*names: str) -> tuple[str, ...]:
    return tuple(name for name in _SILENT if name not in names)


LEAKS: dict[str, Leak] = {
    "raw segment": Leak(_raw_segment, _SHARES, ()),
    "alpha on a data point": Leak(_nothing, _SHARES, (), points=_on_a_data_point),
    "Z_1 = Z_2": Leak(
        _equal_masks, ("span, clients",), ("ranks, server", "ranks, server + clients"), privacy=2
    ),
    "T-1 masks": Leak(
        _fewer_masks, ("span, clients",), ("ranks, server", "ranks, server + clients"), privacy=2
    ),
    "Z shared by clients": Leak(
        _shared_masks, ("span, clients",), ("ranks, server", "ranks, server + clients")
    ),
    "V reused": Leak(
        _reused_models,
        ("span, clients",),
        ("uniformity", "ranks, server", "ranks, server + clients"),
        about="model",
    ),
    "unmasked uploads": Leak(
        _unmasked, ("span, server", "ranks, server"), ("uniformity", "equality", "span, clients")
    ),
    "label used twice": Leak(_reused_label, ("span, server", "ranks, server"), ("uniformity",)),
    "one stream fewer": Leak(
        _one_stream_fewer, ("ranks, server", "ranks, server + clients"), _SHARES
    ),
    "no unknown key": Leak(
        _keys_for_all, ("ranks, server + clients",), ("span, clients", "equality")
    ),
    "small masks": Leak(_small_masks, ("uniformity",), _but("uniformity")),
    "constant seed": Leak(_seeded(SeededSource(0)), ("repeats", "provenance"), _SILENT),
    "short seed": Leak(
        _seeded(SeededSource(int.from_bytes(os.urandom(1), "big") % (1 << SHORT))),
        ("repeats", "provenance"),
        _SILENT,
    ),
    "64-bit seed": Leak(
        _seeded(SeededSource(os.urandom(8))), ("provenance",), (*_SILENT, "repeats")
    ),
}


def first_masks(name: str | None, modulus: int = 2**31 - 1, elements: int = 64) -> str:
    """Digest of what the first client of a fresh process draws first; a leak's, if one is named."""
    from securevfl.field import PrimeField

    class Stub:
        index = 0
        round = 0

    stub: Any = Stub()
    field = PrimeField(modulus)
    stub.public = type("Public", (), {"field": field})
    stub.uniform = field.random
    if name is not None:
        LEAKS[name].plant(stub, {})
    return digest([stub.uniform((elements,))])
