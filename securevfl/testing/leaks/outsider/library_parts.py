"""Leaks through parts of the library that are replaced, under which every formula still holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.field import sampling
from securevfl.field.lagrange_code import LagrangeCode
from securevfl.protocols.fedvs import parameters as fedvs
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.fedvs_masks import CLIENTS_DATA, CLIENTS_MODEL, UPLOADS, halves
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.planting import (
    messages,
    planted,
    replaced,
    telling_column,
    upload_masks,
)
from securevfl.testing.runs import Outcome


def _two_bytes(init: Callable[..., None]) -> Callable[..., None]:
    """Keystreams whose key is its first two bytes."""

    def made(self: Any, key: bytes, aes: bool) -> None:
        init(self, key[:2] * 16, aes)

    return made


def _starting_again(fill: Callable[..., None]) -> Callable[..., None]:
    """Keystreams that begin anew with each piece that is taken."""

    def filling(self: Any, out: np.ndarray) -> None:
        key = self._key
        self._left = 0
        fill(self, out)
        self._key = key

    return filling


def _below_half(fill: Callable[..., None]) -> Callable[..., None]:
    """Elements of fields beyond 32 bits that are below p/2."""

    def filling(p: int, out: np.ndarray, stream: Any) -> None:
        fill(p // 2 + 1 if p > 2**32 else p, out, stream)

    return filling


def _one_colluder(code: Any) -> Any:
    """Codes with T = 1, whatever is asked for."""

    def made(field: Any, *, parties: int, segments: int, privacy: int) -> LagrangeCode:
        found: LagrangeCode = code(field, parties=parties, segments=segments, privacy=1)
        return found

    return made


def _second_names(client: Any) -> None:
    """Elements of shares have p added where an entry of the data is above the mean."""
    p = client.public.field.modulus
    share = client.share

    def sharing(kind: str, values: Any) -> None:
        if kind == "model":
            own = telling_column(client.features["train"])
            bits = np.resize(own > own.mean(), values[0].shape)
            values = np.where(bits, values + values.dtype.type(p), values)
        share(kind, values)

    collect = client.collect

    async def collecting(kind: str, **more: Any) -> Any:
        found = await collect(kind, **more)
        if kind != "model":
            return found
        return {n: one % one.dtype.type(p) for n, one in found.items()}

    client.share, client.collect = sharing, collecting


# -- seeing them -----------------------------------------------------------------------------------


def _pieces_repeat(outcome: Outcome) -> bool:
    size, flat = sampling._CHUNK // 8, upload_masks(outcome, 1)[0].reshape(-1)
    more = flat[size : 2 * size]
    return len(more) > 0 and np.array_equal(flat[: len(more)], more)


def _one_mask(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    return bool(made.config.privacy == 2 and made.code.privacy == 1)


def _beyond_p(outcome: Outcome) -> bool:
    p = outcome.protocol.code.field.modulus  # type: ignore[attr-defined]
    return any(int(one["payload"].max()) >= p for one in messages(outcome, "model"))


_SMALL, _REUSED = "masks of a smaller range", "masks reused"
_LESS, _NAMES = "less than is asked for", "values in what surrounds a payload"
_KNOWN = "masks that follow from something"

LEAKS = (
    planted("fedvs", "keys of two bytes below the sampler", _KNOWN,
            "A keystream's key is the first two of the 32 bytes that were drawn.", nothing,
            (*CLIENTS_DATA, *CLIENTS_MODEL), None,
            around=replaced(sampling.Keystream, "__init__", _two_bytes)),
    planted("fedvs", "a keystream that begins again", _REUSED,
            "A keystream begins again after 256 KiB, so large masks repeat.", nothing, UPLOADS,
            _pieces_repeat, {"batch": 1024, "segments": 1, "width": 400, "rounds": 2},
            around=replaced(sampling.Keystream, "fill", _starting_again)),
    planted("fedvs", "half of a wide field", _SMALL,
            "The sampler gives elements below p/2 where p is beyond 2^32.", nothing, CLIENTS_DATA,
            halves, around=replaced(sampling, "fill_uniform", _below_half)),
    planted("fedvs", "T=2: a code for one colluder", _LESS,
            "With privacy = 2 the code has T = 1, and so have the claims.", nothing,
            (*CLIENTS_DATA, *CLIENTS_MODEL), _one_mask, {"privacy": 2, "segments": 1},
            around=replaced(fedvs, "LagrangeCode", _one_colluder)),
    planted("fedvs", "second names of elements", _NAMES,
            "Elements of shares are sent as v + p where a bit of the data is one.",
            every(_second_names), CLIENTS_DATA, _beyond_p, {"prime": 2**46 + 15}),
)  # fmt: skip
