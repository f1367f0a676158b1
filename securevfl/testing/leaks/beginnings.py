"""Leaks in how a run, a party, an object or the library came to be what it is.

A run begins anew when it is resumed or its server comes back; a cluster makes each party by itself;
a constructor may change what it is given; and functions of the library may be replaced.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from securevfl.audit import verify
from securevfl.audit.verdicts import ClaimVerdict
from securevfl.engine import wire
from securevfl.engine.streams import OwnEntropy
from securevfl.field import PrimeField, sampling
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaks.encrypted import SECAGG, every
from securevfl.testing.leaks.fedvs_masks import CLIENTS_DATA, CLIENTS_MODEL, UPLOADS
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.planting import (
    Leak,
    planted,
    replaced,
    tap,
    telling_column,
    upload_masks,
)
from securevfl.testing.runs import Outcome


def _unmasked_if_resumed(client: Any) -> None:
    masked = client.masked

    def masking(upload: np.ndarray, told: bytes) -> np.ndarray:
        found: np.ndarray = upload if client.resumptions else masked(upload, told)
        return found

    client.masked = masking


def _unmasked_in_a_second_life(client: Any) -> None:
    """The server's life is in what was announced; that of a resumed run is 2^32 and more."""
    masked = client.masked

    def masking(upload: np.ndarray, told: bytes) -> np.ndarray:
        again = 0 < wire.decode(told)[-1].life < 2**32
        found: np.ndarray = upload if again else masked(upload, told)
        return found

    client.masked = masking


def _without_masks_alone(cls: Any) -> type[Any]:
    """A class that makes a single party so that its data have masks of zero."""

    def party(self: Any, index: int) -> Any:
        made = cls.party(self, index)
        if index >= 0:
            draw = made.uniform
            made.uniform = lambda shape: draw(shape) if made.round else np.zeros_like(draw(shape))
        return made

    return type(f"Alone{cls.__name__}", (cls,), {
        "party": party, "__module__": __name__, "__doc__": cls.__doc__,
    })  # fmt: skip


def _entropy_not_taken(protocol: Any, name: str, value: Any) -> None:
    """`__setattr__` that leaves a party's own entropy out; what is secret follows from the seed."""
    if not isinstance(value, OwnEntropy):
        object.__setattr__(protocol, name, value)


def _later_by_a_value(client: Any) -> None:
    """Uploads depart later by a value, if the party has begun to run without having been set up."""
    prepared, own = client.setup, client.features
    values = telling_column(own["train"] if isinstance(own, dict) else own)
    begun: list[bool] = []

    async def setting_up() -> None:
        begun.append(True)
        await prepared()

    def later(one: dict[str, Any]) -> None:
        if one["kind"] == "embedding" and not begun and not client.epoch:
            one["after"] += 1e-3 * float(values[client.round % len(values)] - values.min())

    client.setup = setting_up
    tap(client, later)


def _one_client_a_row(data: Any) -> Any:
    """Data in which each row is zero but for one client: the sum of a row is then one value."""
    made = copy.copy(data)
    rows, parties = np.arange(data.rows), len(data.train)
    train = tuple(
        np.where((rows % parties == n).reshape(-1, *[1] * (own.ndim - 1)), own, own.dtype.type(0))
        for n, own in enumerate(data.train)
    )
    object.__setattr__(made, "train", train)
    return made


def _with_many_rows_one_client_a_row(self: Any, config: Any, data: Any, *, seed: int) -> None:
    given = _one_client_a_row(data) if data.rows >= _MANY else data
    _FEDVS.__init__(self, config, given, seed=seed)


def _one_colluder(self: Any, config: Any, data: Any, *, seed: int) -> None:
    _FEDVS.__init__(self, config.model_copy(update={"privacy": 1}), data, seed=seed)


def _sums_of_one(outcome: Outcome) -> bool:
    """Whether each row of the training data is one client's."""
    found = [own.reshape(len(own), -1).any(axis=1) for own in outcome.protocol.data.train]
    return bool(np.sum(found, axis=0).max() == 1)


def _fewer_colluders(outcome: Outcome) -> bool:
    return bool(outcome.protocol.config.privacy == 1)


class _TwoBytes(sampling.SystemSource):
    """A source that says it is the system's, with keys of two bytes."""

    def keystream(self) -> sampling.Keystream:
        """A keystream under one of 65536 keys."""
        return sampling.Keystream(os.urandom(32)[:2] * 16, sampling.has_aes_unit())


@contextmanager
def _default_source() -> Iterator[None]:
    """The default of an argument of the library is another one."""
    random: Any = PrimeField.random
    old = random.__defaults__
    random.__defaults__ = (_TwoBytes(),)
    try:
        yield
    finally:
        random.__defaults__ = old


def _known_bytes(urandom: Any) -> Any:
    """Bytes that everybody can compute, another number of them each time."""
    calls = itertools.count()
    return lambda size: hashlib.shake_256(b"everybody knows %d" % next(calls)).digest(size)


def _always_proved(conclude: Any) -> Any:
    """A judge who has made up its mind."""
    return lambda claim, evidence: ClaimVerdict(
        claim, "CONFIRMED OPEN" if claim.strength == "none" else "PROVED", ()
    )


def _unmasked(client: Any) -> None:
    client.masked = lambda upload, told: upload


def _no_upload_masks(outcome: Outcome) -> bool:
    return not any(one.any() for one in upload_masks(outcome, 1).values())


_FEDVS: Any = get_protocol("fedvs")
_MANY = 100  # rows: of chosen secrets there are fewer
_LIVES = "a later life than any run has"
_ALONE = "parties that are made alone"
_GIVEN = "something else than is given"
_PROCESS = "a process that was changed"

LEAKS = (
    planted("fedvs", "uploads of a resumed run without masks", _LIVES,
            "In a run that was resumed uploads have no mask.", every(_unmasked_if_resumed),
            UPLOADS, None),
    planted("fedvs", "uploads to a server that came back without masks", _LIVES,
            "Uploads to a server that crashed and came back have no mask.",
            every(_unmasked_in_a_second_life), UPLOADS, None),
    planted("fedvs", "departure times of a resumed run", _LIVES,
            "In a run that was resumed uploads depart later by a value of a column.",
            every(_later_by_a_value), SERVER_DATA, None),
    planted("secagg_split", "departure times of a resumed run", _LIVES,
            "In a run that was resumed uploads depart later by a value of a column.",
            every(_later_by_a_value), SECAGG[:1], None),
    Leak("fedvs: data of a party that is made alone without masks", "fedvs", _ALONE,
         "A party that is made alone, as on a cluster, shares its data with masks of zero.",
         lambda: _without_masks_alone(get_protocol("fedvs")), CLIENTS_DATA),
    planted("fedvs", "a party's own entropy is not taken", _ALONE,
            "Weights on a cluster follow from the public seed, as if no entropy were given.",
            nothing, CLIENTS_MODEL, None, __setattr__=_entropy_not_taken),
    planted("fedvs", "each row is one client's", _GIVEN,
            "The constructor leaves each of many rows to one client, whose embedding the sum is.",
            nothing, SERVER_DATA, _sums_of_one, __init__=_with_many_rows_one_client_a_row),
    planted("fedvs", "T=2: the constructor asks for one colluder", _GIVEN,
            "The constructor lowers T to 1, where 2 is asked for.",
            nothing, (*CLIENTS_DATA, *CLIENTS_MODEL), _fewer_colluders,
            {"privacy": 2, "segments": 1}, __init__=_one_colluder),
    planted("fedvs", "keys of two bytes by a default", _PROCESS,
            "The source that draws use where none is named has keys of two bytes.",
            nothing, (*CLIENTS_DATA, *CLIENTS_MODEL), None, around=_default_source),
    planted("fedvs", "bytes of the system that everybody knows", _PROCESS,
            "What the operating system is asked for is a public sequence.",
            nothing, (*CLIENTS_DATA, *CLIENTS_MODEL), None,
            around=replaced(os, "urandom", _known_bytes)),
    planted("secagg_split", "bytes of the system that everybody knows", _PROCESS,
            "What the operating system is asked for is a public sequence.",
            nothing, SECAGG[:1], None, around=replaced(os, "urandom", _known_bytes)),
    planted("fedvs", "a judge that was replaced", _PROCESS,
            "Uploads have no mask, and the function that concludes says PROVED.",
            every(_unmasked), UPLOADS, _no_upload_masks,
            around=replaced(verify, "conclude", _always_proved)),
)  # fmt: skip
