"""Leaks whose parties run no function of another: by values, and by callable objects."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.field import LagrangeCode
from securevfl.field.prss import Prss
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.fedvs.algorithm import Client
from securevfl.testing.leaks.encrypted import SECAGG, every
from securevfl.testing.leaks.fedvs_masks import CLIENTS_MODEL, UPLOADS
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.outsider.prepared_tables import bare_models, of_the_library
from securevfl.testing.leaks.planting import clients, planted, replaced
from securevfl.testing.runs import Outcome


def _with(**attributes: Any) -> Callable[[Any], None]:
    """Plant that gives a party's class other values, and no function."""

    def plant(client: Any) -> None:
        kind = type(client)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        client.__class__ = type(kind.__name__, (kind,), {**names, **attributes})

    return plant


def _no_memory(client: Any) -> None:
    """A client remembers no sum, as in plain evaluation: it uploads rows to two sums."""
    client.ledger.threshold = len(client.peers) + 1


def _no_memory_of_all(protocol: Protocol, parties: dict[int, Any]) -> None:
    parties[SERVER].ledger.threshold = len(parties)
    for one in clients(protocol, parties):
        _no_memory(one)


def _from_an_iterator(client: Any) -> None:
    """Draws come from an iterator, which gives zeros after the shapes that it was told of."""
    public = client.public
    T, d = public.code.privacy, len(client.network.values)
    length = public.batches["train"].length
    shapes = [(T, length, d), *[(T, *client.network.values.shape)] * 40]
    zeros = np.zeros((T, *client.network.values.shape), public.field.dtype)
    draws = itertools.chain(map(public.field.random, shapes), itertools.repeat(zeros))
    client.uniform = functools.partial(next, draws)


def _keys_of_one(client: Any) -> None:
    """With T = 2 the keys of masks are those for one colluder."""
    code = client.public.code
    one = LagrangeCode(code.field, parties=code.parties, segments=code.segments + 1, privacy=1,
                       alphas=code.alphas, betas=code.betas)  # fmt: skip
    vars(client.public)["prss"] = Prss(one, degree=2)


class _Callable:
    """An object that is called like a method, and is none: it shares without masks."""

    def __init__(self, old: Any) -> None:
        self.__wrapped__ = old
        functools.update_wrapper(self, old)

    def __get__(self, code: Any, owner: Any = None) -> Any:
        if code is None:
            return self
        return functools.partial(self, code)

    def __call__(self, code: Any, value: Any, masks: Any = None, **more: Any) -> Any:
        return self.__wrapped__(code, value, masks=np.zeros_like(masks), **more)


# -- seeing them ---------------------------------------------------------------------------------


def _nothing_ahead(outcome: Outcome) -> bool:
    """Whether a client writes nothing down before an upload leaves."""
    return not outcome.parties[0].kept_ahead


def _nothing_forgotten(outcome: Outcome) -> bool:
    return not outcome.parties[0].kept_before


def _forgets(outcome: Outcome) -> bool:
    """Whether a client's memory holds no sum, whatever it uploaded to."""
    ledger: Any = outcome.parties[0].ledger  # type: ignore[attr-defined]
    return bool(ledger.threshold > 1)


def _runs_out(outcome: Outcome) -> bool:
    """Whether a client's draws become zeros."""
    client: Any = outcome.parties[0]
    T, shape = client.public.code.privacy, client.network.values.shape
    return not [client.uniform((T, *shape)) for _ in range(50)][-1].any()


def _fewer_keys(outcome: Outcome) -> bool:
    public: Any = outcome.protocol.public  # type: ignore[attr-defined]
    return bool(public.prss.code.privacy < public.config.privacy)


_STATE, _PARTS = "states that are not kept", "another part in the library's place"
_LESS = "less than is asked for"

_LEAKS = (
    planted("fedvs", "nothing written ahead", _STATE,
            "A crash makes a client forget that it uploaded, and masks are used again.",
            every(_with(kept_ahead=())), UPLOADS, _nothing_ahead),
    planted("fedvs", "nothing written ahead by the library", _STATE,
            "The library's class of clients has another list of what is written ahead.",
            nothing, UPLOADS, _nothing_ahead,
            around=replaced(Client, "kept_ahead", lambda old: ())),
    planted("fedvs", "a memory as in plain evaluation", _STATE,
            "Server and clients remember no sum, so rows stand in two of them.",
            _no_memory_of_all, UPLOADS, _forgets),
    planted("fedvs", "draws from an iterator", "masks that are not there",
            "After 40 rounds an iterator, which is no function, gives zeros for V.",
            every(_from_an_iterator), CLIENTS_MODEL, _runs_out),
    planted("fedvs", "T=2: keys for one colluder", _LESS,
            "With privacy = 2 keys of masks are dealt as for T = 1.", every(_keys_of_one),
            (("server + T clients", "features"),), _fewer_keys, {"privacy": 2, "segments": 1}),
    planted("fedvs", "an object in a method's place", _PARTS,
            "What shares models is an object that can be called, and leaves masks away.",
            nothing, CLIENTS_MODEL, bare_models,
            around=replaced(LagrangeCode, "encode_constant", _Callable)),
    planted("coded_split", "what is answered is kept over a crash", _STATE,
            "A holder restores from a checkpoint what it must not.", every(_with(kept_before=())),
            UPLOADS, _nothing_forgotten),
    planted("secagg_split", "identities that are drawn again", _STATE,
            "Signing keys are not kept, so a client that returns has none.",
            every(_with(kept_once=())), SECAGG, lambda outcome: not outcome.parties[0].kept_once,
            {"consistency": True}),
)  # fmt: skip
LEAKS = tuple(map(of_the_library, _LEAKS))
