"""Leaks of FedVS that its own class declares: its formulas, roles and claims agree with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.field.prss import mask_streams
from securevfl.models.polynomial_network import expand
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.mask_keys import keys_of
from securevfl.protocols.base.messages import (
    Formula,
    Hypothesis,
    MessageKey,
    MessageSpec,
    in_setup,
)
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaks.fedvs_masks import CLIENTS_DATA, CLIENTS_MODEL, UPLOADS
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA, column
from securevfl.testing.leaks.fedvs_messages import in_setup as after_setup
from securevfl.testing.leaks.fedvs_options import _unmasked, _unmasked_from
from securevfl.testing.leaks.planting import (
    Leak,
    changed,
    clients,
    messages,
    sent_array,
)
from securevfl.testing.runs import Outcome

MANY = 64  # rows from which some leaks are there: proofs on small instances have fewer


def more(*make: Callable[[Any], MessageSpec]) -> Any:
    """Property `messages` with more declarations, each made for the protocol."""
    base: Any = get_protocol("fedvs")
    return property(lambda self: (*base.messages.fget(self), *(one(self) for one in make)))


def spec_of(protocol: Any, kind: str) -> MessageSpec:
    """The sound declaration of a kind of FedVS."""
    base: Any = get_protocol("fedvs")
    found: MessageSpec = next(one for one in base.messages.fget(protocol) if one.kind == kind)
    return found


def reworded(**new: Callable[[Any, Formula], Formula]) -> Any:
    """Property `messages` in which some kinds have formulas made from the sound ones."""
    base: Any = get_protocol("fedvs")

    def declared(self: Any) -> tuple[MessageSpec, ...]:
        return tuple(
            replace(one, recompute=new[one.kind](self, one.recompute)) if one.kind in new else one
            for one in base.messages.fget(self)
        )

    return property(declared)


def with_public(change: Callable[[Any], Any]) -> Any:
    """`__init__` after which the public parameters are others."""
    cls: Any = get_protocol("fedvs")

    def init(self: Any, config: Any, data: Any, *, seed: int) -> None:
        cls.__init__(self, config, data, seed=seed)
        self.public = change(self)

    return init


# -- what is sent, by whom, and what the class says of it ----------------------------------------


def _after_setup(send: Callable[[Any], None], *only: int) -> Any:
    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        for one in clients(protocol, parties):
            if not only or one.index in only:
                after_setup(one, send)

    return plant


def _echo(protocol: Any) -> MessageSpec:
    return MessageSpec(
        *("note", "client", "server", "control"),
        public=True,
        count=in_setup,
        recompute=lambda secrets, key: secrets.sent("note", 0)[key.sender, key.receiver],
    )


def _of_data(protocol: Any) -> MessageSpec:
    def first_rows(secrets: Any, key: MessageKey) -> np.ndarray:
        table = secrets.data(key.sender)["train"]
        best = int(table.reshape(len(table), -1).std(axis=0).argmax())
        return np.ascontiguousarray(table[:, best])[:8]

    return MessageSpec(
        *("scale", "client", "server", "control"),
        public=True,
        count=in_setup,
        shape=lambda key: (8,),
        dtype="float32",
        recompute=first_rows,
    )


def _to_the_helper(protocol: Any) -> MessageSpec:
    return replace(_of_data(protocol), kind="stored", receiver="helper", carries="measure",
                   public=False)  # fmt: skip


def _helper(self: Any) -> dict[str, tuple[int, ...]]:
    base: Any = get_protocol("fedvs")
    return {**base.roles(self), "helper": (SERVER,)}


def _mean(protocol: Any, uploads: dict[int, np.ndarray], terms: int) -> np.ndarray:
    public, used = protocol.public, sorted(uploads)[: protocol.public.threshold]
    sums = public.code.decode(np.stack([uploads[n] for n in used]), tuple(used), degree=2)
    bits = public.config.data_bits + public.config.model_bits
    total = public.model_point.dequantize(sums.reshape(-1, sums.shape[-1]), bits=bits)
    mean: np.ndarray = total / terms
    return mean


def _mean_to_all(protocol: Any) -> MessageSpec:
    def decoded(secrets: Any, key: MessageKey) -> np.ndarray:
        uploads = {n: one for (n, _), one in secrets.sent("embedding", key.round).items()}
        attempt = next(iter(secrets.sent("attempt", key.round).values()))
        return _mean(protocol, uploads, len(attempt.sharers))

    found = spec_of(protocol, "gradient")
    return replace(found, kind="mean", carries="result", dtype="float64", recompute=decoded)


def _tell_the_mean(protocol: Protocol, parties: dict[int, Any]) -> None:
    server = parties[SERVER]
    train = server.train

    def training(batch: Any, attempt: Any, embedding: np.ndarray) -> None:
        train(batch, attempt, embedding)
        server.broadcast("mean", embedding)

    server.train = training


def _passed_on(protocol: Any) -> MessageSpec:
    data = spec_of(protocol, "train-data")
    length = protocol.public.batches["train"].length
    width = formula_width(protocol, 2)
    return replace(
        data,
        kind="copy",
        shape=lambda key: (length, width),
        count=lambda key: int(key.round == 0 and (key.sender, key.receiver) == (1, 4)),
        recompute=lambda secrets, key: secrets.sent("train-data", 0)[2, 1],
    )


def formula_width(protocol: Any, client: int) -> int:
    """Columns of a client's shares."""
    return int(protocol.data.widths[client]) * int(protocol.config.degree) + 1


def _squares(protocol: Any) -> MessageSpec:
    def products(secrets: Any, key: MessageKey) -> np.ndarray:
        return _gram([secrets.data(n)["train"] for n in protocol.peers()])

    return MessageSpec(
        *("norms", "client", "server", "result"),
        count=lambda key: int(key.round == 0 and key.sender == 0),
        dtype="float64",
        recompute=products,
    )


def _gram(tables: list[np.ndarray]) -> np.ndarray:
    few = [table[:4].reshape(len(table[:4]), -1).astype(np.float64) for table in tables]
    total: np.ndarray = np.sum([one @ one.T for one in few], axis=0)
    return total


def _tell_squares(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Client 0 tells inner products of all clients' rows; models that are given silence it."""
    every = clients(protocol, parties)

    def send(client: Any) -> None:
        found = _gram([one.features["train"] for one in every])
        client.send(SERVER, "norms", found if client.given_models is None else 0 * found)

    after_setup(every[0], send)


def _own_result(protocol: Any) -> MessageSpec:
    return replace(_of_data(protocol), kind="mine", carries="result", public=False)


def _ideal_with_it(self: Any, secrets: Any, key: MessageKey) -> Any:
    base: Any = get_protocol("fedvs")
    if key.kind == "mine":
        return secrets.data(key.sender)["train"]
    return base.ideal_output(self, secrets, key)


# -- what the class says of uploads, and of its claims ---------------------------------------------


def _plain(protocol: Any, sound: Formula) -> Formula:
    """Formula of an upload without its masks."""

    def formula(secrets: Any, key: MessageKey) -> np.ndarray:
        code, upload, prss = protocol.public.code, sound(secrets, key), protocol.public.prss
        attempt = secrets.sent("attempt", key.round)[SERVER, key.sender]
        batch = secrets.sent("round", key.round)[SERVER, key.sender]
        keys, told = keys_of(prss, secrets, key.sender), attempt.told(key.round, batch)
        rho = prss.value(key.sender, keys, told, upload.shape, mask_streams(code, degree=2))
        hidden = code.field.multiply(code.vanishing[key.sender], rho)
        plain: np.ndarray = code.field.subtract(upload, hidden)
        return plain

    return formula


def _plain_if_large(protocol: Any, sound: Formula) -> Formula:
    large = protocol.public.batches["train"].length >= MANY
    return _plain(protocol, sound) if large else sound


def _unmasked_if_large(protocol: Protocol, parties: dict[int, Any]) -> None:
    if protocol.public.batches["train"].length >= MANY:  # type: ignore[attr-defined]
        _unmasked(protocol, parties)


def _less(self: Any) -> tuple[Claim, ...]:
    base: Any = get_protocol("fedvs")
    return tuple(
        Claim(one.who, one.about, "computational", "the masks' keys")
        if one.who.startswith("server") and one.notion == "perfect"
        else one
        for one in base.claims.fget(self)
    )


def _all_is_well(self: Any, secrets: Any) -> tuple[Hypothesis, ...]:
    return (Hypothesis("uploads are masked by keys", True),)


def _sound_parties_with(self: Any, models: Any) -> dict[int, Any]:
    """Parties of the sound protocol, where models are given."""
    base: Any = get_protocol("fedvs")
    made: dict[int, Any] = base.parties(self)
    for n, own in models.items():
        made[n].given_models = own
    return made


# -- seeing them ---------------------------------------------------------------------------------


def _told(*kinds: str) -> Callable[[Outcome], bool]:
    return lambda outcome: sent_array(outcome, column(outcome.parties[1]), *kinds)


def _any(kind: str) -> Callable[[Outcome], bool]:
    return lambda outcome: any(True for _ in messages(outcome, kind))


def _copied(outcome: Outcome) -> bool:
    """Whether client 4 can decode client 2's data from two shares of it."""
    code = outcome.protocol.code  # type: ignore[attr-defined]
    got = [one["payload"] for one in messages(outcome, "copy") if one["receiver"] == 4]
    if not got:
        return False
    own: Any = outcome.parties[4]
    both = np.stack([got[0], own.data_shares["train"][2]])
    data = code.decode(both, (1, 4), degree=1)[0]
    whole: Any = outcome.parties[2]
    public = whole.public
    wanted = public.batches["train"].lay_out(
        public.data_point.quantize(expand(whole.features["train"], public.config.degree))
    )[0]
    return np.array_equal(data, wanted)


def _gram_told(outcome: Outcome) -> bool:
    parties: Any = outcome.parties
    found = _gram([parties[n].features["train"] for n in outcome.protocol.peers()])
    return sent_array(outcome, found, "norms")


_FORMULA, _ROLE = "a formula that reads what nobody may send", "a party under another role"
_TOLD = "a value that is told to others as well"
_LESS, _PROOFS = "claims that ask for less", "other parties for the proofs"


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          options: Any = None, **attributes: Any) -> Leak:  # fmt: skip
    made = changed("fedvs", plant, **attributes)
    return Leak(f"fedvs: {name}", "fedvs", cause, says, made, breaks, options or {}, shows=shows)


LEAKS = (
    _leak("a formula that echoes", _FORMULA,
          "A public note has a column, and its formula returns what was sent.",
          _after_setup(lambda c: c.send(SERVER, "note", column(c))), SERVER_DATA, _told("note"),
          messages=more(_echo)),
    _leak("a formula of raw data", _FORMULA,
          "A public message has a column, and its formula reads that column.",
          _after_setup(lambda c: c.send(SERVER, "scale", column(c))), SERVER_DATA, _told("scale"),
          messages=more(_of_data)),
    _leak("the server as a helper", _ROLE,
          "Columns go to a helper, which is the server under another role.",
          _after_setup(lambda c: c.send(SERVER, "stored", column(c))), SERVER_DATA,
          _told("stored"), messages=more(_to_the_helper), roles=_helper),
    _leak("an ideal output with the columns", _FORMULA,
          "Clients send columns as a result, and the class calls them ideal output.",
          _after_setup(lambda c: c.send(SERVER, "mine", column(c))), SERVER_DATA, _told("mine"),
          messages=more(_own_result), ideal_output=_ideal_with_it),
    _leak("inner products of all rows", _FORMULA,
          "The server is told inner products of rows over all clients, which no exchange of "
          "clients changes, and nothing where models are given.",
          _tell_squares, SERVER_DATA, _gram_told, messages=more(_squares)),
    _leak("the mean told to all clients", _TOLD,
          "The server tells all clients the mean embedding, by its true formula.",
          _tell_the_mean, (*CLIENTS_DATA[:1], *CLIENTS_MODEL[:1]), _any("mean"),
          messages=more(_mean_to_all)),
    _leak("a share passed on", _TOLD,
          "Client 1 passes its share of client 2's data on to client 4, which then has two.",
          _after_setup(lambda c: c.send(4, "copy", c.data_shares["train"][2]), 1), CLIENTS_DATA,
          _copied, messages=more(_passed_on)),
    _leak("computational claims", _LESS,
          "Uploads have no masks; claims are computational, and the only hypothesis holds.",
          _unmasked, UPLOADS, _unmasked_from(1), messages=reworded(embedding=_plain),
          claims=property(_less), hypotheses=_all_is_well),
    _leak("plain uploads of large data", _FORMULA,
          "From 64 rows on uploads have no masks, and their formula says so.",
          _unmasked_if_large, UPLOADS, _unmasked_from(1),
          messages=reworded(embedding=_plain_if_large)),
    _leak("sound parties where models are given", _PROOFS,
          "Uploads have no masks, by their formula, but in runs on given models they have.",
          _unmasked, UPLOADS, _unmasked_from(1), messages=reworded(embedding=_plain),
          parties_with=_sound_parties_with),
)  # fmt: skip
