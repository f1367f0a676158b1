"""Leaks by state of the process, by changed objects that everybody has, and on rare conditions."""

from __future__ import annotations

import contextvars
import datetime
import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.field import PrimeField
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.fedvs.algorithm import Server
from securevfl.protocols.secagg_split.parameters import Deal
from securevfl.testing.leaks.encrypted import SECAGG, every
from securevfl.testing.leaks.fedvs_masks import CLIENTS_DATA, CLIENTS_MODEL, UPLOADS, model_mask
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA
from securevfl.testing.leaks.outsider.prepared_tables import (
    bare_first_models,
    bare_models,
    uploads_bare,
)
from securevfl.testing.leaks.outsider.rare_events import zero
from securevfl.testing.leaks.planting import clients, masks, messages, planted, tap, telling_column
from securevfl.testing.runs import Outcome

_VARIABLE = "SECUREVFL_SITE"
_TOLD: contextvars.ContextVar[int] = contextvars.ContextVar("told", default=0)


def _value(client: Any) -> int:
    """An entry of a client's columns as an integer, another one in each round."""
    own = telling_column(client.features["train"])
    return int(np.rint(1000 * abs(own[(7 * client.round) % len(own)]))) + 1


# -- state of the process ------------------------------------------------------------------------


def _through(tell: Callable[[int], None], hear: Callable[[], int]) -> Any:
    """Plant: client 0 tells a value before it says that it has shared; the server hears it later.

    The server forgets what it heard with the run; it stands in no state that is kept.
    """

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        server, client = parties[SERVER], clients(protocol, parties)[0]
        server.heard, train = [], server.train

        def change(one: dict[str, Any]) -> None:
            if one["kind"] == "shared":
                tell(_value(client))

        def training(*of: Any) -> Any:
            server.heard.append(hear())
            return train(*of)

        server.train = training
        tap(client, change)

    return plant


def _seed(value: int) -> None:
    np.random.seed(value)  # noqa: NPY002


def _seeded() -> int:
    return int(np.random.get_state()[1][0])  # type: ignore[index]  # noqa: NPY002


def _to_the_thread(value: int) -> None:
    threading.main_thread().told = value  # type: ignore[attr-defined]


def _of_the_thread() -> int:
    return int(getattr(threading.main_thread(), "told", 0))


def _to_the_context(value: int) -> None:
    _TOLD.set(value)


def _to_the_collector(value: int) -> None:
    gc.set_threshold(*gc.get_threshold()[:2], value)


def _of_the_collector() -> int:
    return gc.get_threshold()[2]


def _to_the_server(client: Any) -> None:
    """A client looks for the server among all objects of the process, and tells it its columns."""
    setup = client.setup

    async def telling() -> None:
        for one in gc.get_objects():
            if type(one) is Server and one.public is client.public:
                vars(one).setdefault("columns", {})[client.index] = client.features["train"]
        await setup()

    client.setup = telling


# -- objects that everybody has ------------------------------------------------------------------


def _plain_constants(client: Any) -> None:
    """The code of a run has a method of its own that shares models without masks."""
    code = client.public.code
    factors = code._constant_basis[:, 0]
    field = code.field

    def encode(value: np.ndarray, *, masks: np.ndarray) -> np.ndarray:
        return np.stack([field.multiply(value, one) for one in factors])

    vars(code)["encode_constant"] = encode


def _own_field(client: Any) -> None:
    """The field of a run has a method of its own, which draws small elements."""
    field = client.public.field

    def random(shape: tuple[int, ...]) -> np.ndarray:
        drawn: np.ndarray = PrimeField.random(field, shape) & field.dtype.type(255)
        return drawn

    vars(field)["random"] = random


def _streams_of_zeros(client: Any) -> None:
    """The parameters of a run have a method of their own, whose masks are zero."""
    public = client.public
    vars(public)["stream"] = lambda seed, shape: np.zeros(shape, public.field.dtype)


def _other_streams(client: Any) -> None:
    """The sums of streams are of a class of their own, and are zero."""
    streams = client.public.prss._streams
    kind = type(streams)

    def value(self: Any, prss: Any, party: int, keys: Any, label: bytes, size: int,
              unknown: int) -> np.ndarray:  # fmt: skip
        return np.zeros(size, prss.code.field.dtype)

    streams.__class__ = type(
        kind.__name__, (kind,), {"value": value, "__module__": kind.__module__}
    )


def _attribute_of_deals(client: Any) -> None:
    """Deals have an attribute that no message has: the secrets that they share."""
    deal = client.deal

    def dealing(pairing: Any, seed: bytes) -> list[Deal]:
        found: list[Deal] = deal(pairing, seed)
        for one in found:
            vars(one)["both"] = (pairing.secret, seed)
        return found

    client.deal = dealing


# -- conditions that no run of a verifier has ----------------------------------------------------


def _at_a_site(client: Any, round: int, place: int) -> bool:
    return model_mask(client, round, place) and _VARIABLE in os.environ


def _next_year(client: Any, round: int, place: int) -> bool:
    late = datetime.datetime.now(datetime.UTC).year >= 2040
    return model_mask(client, round, place) and late


def _now_and_then(client: Any) -> None:
    """A model is shared without masks where 16 bits of its mask are zero."""
    draw = client.uniform

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        drawn: np.ndarray = draw(shape)
        if client.round and int(drawn.flat[0]) % 2**16 == 0:
            return np.zeros_like(drawn)
        return drawn

    client.uniform = uniform


def _third_life(client: Any) -> None:
    """Once the server has come back twice uploads have no masks."""
    rho = client.rho

    def none(told: bytes, shape: tuple[int, ...]) -> np.ndarray:
        values: np.ndarray = rho(told, shape)
        return np.zeros_like(values) if max(client.answered, default=0) >= 3 else values

    client.rho = none


def _resumed_twice(client: Any, round: int, place: int) -> bool:
    return model_mask(client, round, place) and client.resumptions >= 2


def _of_strangers(client: Any) -> None:
    """All keys of a holder are its first where it has more than five neighbours."""
    draw, kept = client.secret_bytes, []

    def drawing(count: int) -> bytes:
        found: bytes = draw(count)
        kept.append(found)
        return kept[0] if len(client.peers) > 5 else found

    client.secret_bytes = drawing


# -- seeing them ---------------------------------------------------------------------------------


def _heard(outcome: Outcome) -> bool:
    """Whether the server knows values of the first client's columns."""
    client: Any = outcome.parties[0]
    own = telling_column(client.features["train"])
    heard = getattr(outcome.parties[SERVER], "heard", [])
    wanted = [int(np.rint(1000 * abs(own[(7 * n) % len(own)]))) + 1 for n in range(1, 5)]
    return list(heard) == wanted


def _columns_heard(outcome: Outcome) -> bool:
    heard = getattr(outcome.parties[SERVER], "columns", {})
    return bool(heard) and all(
        np.array_equal(heard[n], outcome.parties[n].features["train"])  # type: ignore[attr-defined]
        for n in outcome.protocol.peers()
    )


def _no_pair_masks(outcome: Outcome) -> bool:
    """Whether uploads are small signed numbers, as embeddings are."""
    public = outcome.protocol.public  # type: ignore[attr-defined]
    signed = [np.abs(public.field.signed(one["payload"])) for one in messages(outcome, "embedding")]
    return max(int(one.max()) for one in signed) < int(public.field.modulus) // 1000


def _secrets_attached(outcome: Outcome) -> bool:
    return all("both" in vars(one["payload"]) for one in messages(outcome, "deal"))


def _small_model_masks(outcome: Outcome) -> bool:
    return int(masks(outcome, "train-data", 0).max()) < 256


def _one_key(outcome: Outcome) -> bool:
    party: Any = outcome.parties[0]
    dealt = outcome.protocol.prss.dealt(0)  # type: ignore[attr-defined]
    return len(dealt) > 1 and len({party.keys[key] for key in dealt}) == 1


def _draws_zero(client: Any) -> bool:
    client.round = 99
    return not client.uniform((1, 8)).any()


def _zero_at_a_site(outcome: Outcome) -> bool:
    os.environ[_VARIABLE] = "north"
    try:
        return _draws_zero(outcome.parties[0])
    finally:
        del os.environ[_VARIABLE]


def _zero_if_resumed_twice(outcome: Outcome) -> bool:
    outcome.parties[0].resumptions = 2
    return _draws_zero(outcome.parties[0])


def _zero_in_a_third_life(outcome: Outcome) -> bool:
    client: Any = outcome.parties[0]
    client.answered = {3: (1, b"")}
    return not client.rho(b"label", (1, 8)).any()


_STATE, _SHARED = "through the state of the process", "objects that everybody has are changed"
_RARE, _NAMES = "only under a condition", "values in what surrounds a payload"

LEAKS = (
    planted("fedvs", "the seed of numpy's generator", _STATE,
            "A client seeds numpy's global generator with a value, which the server reads.",
            _through(_seed, _seeded), SERVER_DATA, _heard),
    planted("fedvs", "an attribute of the main thread", _STATE,
            "A client sets an attribute of the main thread, which the server reads.",
            _through(_to_the_thread, _of_the_thread), SERVER_DATA, _heard),
    planted("fedvs", "a variable of the context", _STATE,
            "A client sets a variable of the context, which the server reads.",
            _through(_to_the_context, _TOLD.get), SERVER_DATA, _heard),
    planted("fedvs", "a threshold of the collector", _STATE,
            "A client sets a threshold of the garbage collector, which the server reads.",
            _through(_to_the_collector, _of_the_collector), SERVER_DATA, _heard),
    planted("fedvs", "a server found among all objects", _STATE,
            "A client looks for the server among all objects, and gives it its columns.",
            every(_to_the_server), SERVER_DATA, _columns_heard),
    planted("fedvs", "a code with a method of its own", _SHARED,
            "The code of a run has a method of its own, without masks.",
            every(_plain_constants), CLIENTS_MODEL, bare_models),
    planted("fedvs", "a field with a method of its own", _SHARED,
            "The field of a run has a method of its own, which draws small elements.",
            every(_own_field), CLIENTS_DATA, _small_model_masks),
    planted("fedvs", "streams of another class", _SHARED,
            "The streams of a run are of another class, and are zero.",
            every(_other_streams), UPLOADS, uploads_bare),
    planted("secagg_split", "parameters with a method of their own", _SHARED,
            "The parameters of a run have a method of their own, whose masks are zero.",
            every(_streams_of_zeros), SECAGG, _no_pair_masks),
    planted("secagg_split", "attributes of deals", _NAMES,
            "Deals carry the secrets that they share, beside their fields.",
            every(_attribute_of_deals), (("server + T clients", "features"),), _secrets_attached),
    planted("coded_split", "a code with a method of its own", _SHARED,
            "The code of a run has a method of its own, without masks.",
            every(_plain_constants), (("T clients", "model"),), bare_first_models),
    planted("coded_split", "one key of many", _RARE,
            "All keys that a holder draws are one where it has more than five neighbours.",
            every(_of_strangers), UPLOADS, _one_key),
    planted("fedvs", "V zero at one site", _RARE,
            "V is zero where a variable is in the environment.", zero(_at_a_site),
            CLIENTS_MODEL, _zero_at_a_site),
    planted("fedvs", "V zero from 2040 on", _RARE,
            "V is zero from the year 2040 on.", zero(_next_year), CLIENTS_MODEL, None),
    planted("fedvs", "V zero once in 65536 draws", _RARE,
            "V is zero where 16 bits of what was drawn are.", every(_now_and_then),
            CLIENTS_MODEL, None),
    planted("fedvs", "rho zero in the server's third life", _RARE,
            "Once the server came back twice uploads have no masks.", every(_third_life),
            UPLOADS, _zero_in_a_third_life),
    planted("fedvs", "V zero after a second resume", _RARE,
            "V is zero in a run that was resumed twice.", zero(_resumed_twice),
            CLIENTS_MODEL, _zero_if_resumed_twice),
)  # fmt: skip
