"""Leaks of FedVS that its own class declares: formulas, draws, code and claims agree."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.engine.streams import SecretSeed
from securevfl.field import FixedPoint, LagrangeCode, PrimeField
from securevfl.field.masking import point_powers
from securevfl.models.polynomial_network import expand
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.messages import (
    Draw,
    Formula,
    Hypothesis,
    MessageKey,
    MessageSpec,
    in_setup,
)
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaks.fedvs_masks import CLIENTS_DATA, CLIENTS_MODEL, UPLOADS, z_zero
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA, column
from securevfl.testing.leaks.fedvs_messages import in_setup as after_setup
from securevfl.testing.leaks.fedvs_options import _others_silent, _unmasked, _unmasked_from
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.planting import (
    Leak,
    changed,
    clients,
    masks,
    messages,
    sent_array,
)
from securevfl.testing.runs import Outcome

SERVER_ALL = (("server", "features"), ("server", "model"))
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
        return _mean(protocol, uploads, len(attempt.terms))

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


# -- what the class draws, encodes and quantises -------------------------------------------------


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


def _vanishing_at_client_one(protocol: Any) -> Any:
    """Parameters whose mask polynomials are zero at client 1's point, from 64 rows on."""
    kind = type(protocol.public)
    if protocol.public.batches["train"].length < MANY:
        return protocol.public

    def powers(self: Any) -> np.ndarray:
        sound = point_powers(self.code)
        rooted: np.ndarray = self.code.field.subtract(sound, np.broadcast_to(sound[1], sound.shape))
        rooted[:, 0] = rooted[:, 1]
        return rooted

    cached = functools.cached_property(powers)
    rooted = type(f"Rooted{kind.__name__}", (kind,), {"mask_powers": cached,
                                                      "__module__": __name__})  # fmt: skip
    cached.__set_name__(rooted, "mask_powers")
    fields = {name: getattr(protocol.public, name) for name in kind.__dataclass_fields__}
    return rooted(**fields)


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


def _plain(protocol: Any, sound: Formula) -> Formula:
    """Formula of an upload without its masks."""

    def formula(secrets: Any, key: MessageKey) -> np.ndarray:
        code, upload = protocol.public.code, sound(secrets, key)
        attempt = secrets.sent("attempt", key.round)[SERVER, key.sender]
        dealt = secrets.sent("mask", key.round)
        values = [dealt[j, key.sender] for j in attempt.dealers]
        total = functools.reduce(code.field.add, values)
        hidden = code.field.multiply(code.vanishing[key.sender], total)
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
        Claim(one.who, one.about, "computational", "the dealers' masks")
        if one.who.startswith("server") and one.notion == "perfect"
        else one
        for one in base.claims.fget(self)
    )


def _all_is_well(self: Any, secrets: Any) -> tuple[Hypothesis, ...]:
    return (Hypothesis("uploads are masked by T + 1 dealers", True),)


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
    got = [one["payload"] for one in messages(outcome, "mask") if one["receiver"] == 1]
    return not any(one.any() for one in got)


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


_FORMULA, _ROLE = "a formula that reads what nobody may send", "a party under another role"
_TOLD, _PARTS = "a value that is told to others as well", "parts that do not do what they are"
_PUBLIC = "secret choices that are public"
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
    _leak("Z declared for half of the rows", _PARTS,
          "Z is drawn for half of the rows and used twice, and draws and formulas say so.",
          _draw_half, CLIENTS_DATA, _halves_alike, draws=property(_half_declared),
          messages=reworded(**{"train-data": _with_half})),
    _leak("a code that drops masks", _PARTS,
          "The code itself leaves the masks of one row out, from 64 rows on.",
          nothing, CLIENTS_DATA, z_zero(-1, 0, 1, 2), __init__=with_public(_dropping)),
    _leak("powers that vanish at a client", _PARTS,
          "From 64 rows on mask polynomials are zero at client 1, whose uploads have no mask.",
          nothing, UPLOADS, _nothing_for_client_one,
          __init__=with_public(_vanishing_at_client_one),
          mask_powers=property(lambda self: point_powers(self.public.code))),
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
