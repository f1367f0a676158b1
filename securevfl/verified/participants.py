"""Parties of the engine that compute with protected values, and protocols that can be proved.

An author derives clients and servers from `Participant` and the protocol from `Provable` and a base
class of the library. The protocol trains as any other. `securevfl.verified.traced.proofs` runs it
again in the same engine, with a trace, and decides its claims.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from securevfl.engine.party import SERVER, Later, Message, Party
from securevfl.engine.streams import Secrets
from securevfl.errors import ProtocolError
from securevfl.verified import functions
from securevfl.verified.ciphertexts import Sealing
from securevfl.verified.functions import FlowError
from securevfl.verified.schedules import UNDISTURBED, Schedule, usual
from securevfl.verified.trace import KEY_BYTES, OPENED, PROTECTED, name_of, received
from securevfl.verified.values import (
    Bytes,
    Ciphertext,
    Element,
    Key,
    Model,
    Noised,
    OpeningKey,
    Protected,
    PublicKey,
    SealingKey,
    Secret,
    current,
    describe,
    home_of,
    wrapped,
)

if TYPE_CHECKING:
    from securevfl.verified.parties import World

PLAIN = ("field", "real")  # kinds whose values are arrays
MISSING = object()
_SMALL = 2**13  # elements
_SIZE, _DTYPE = operator.attrgetter("size"), operator.attrgetter("dtype")
_LEAVES = (Protected, np.ndarray)
_SINGLE = (np.ndarray, bool, int, float, bytes)  # payloads that are one value


class Streams:
    """Secret random streams of one party by purpose; calls with one name repeat the same.

    Parameters
    ----------
    secrets : Secrets
        Source of secret streams.
    index : int
        Number of the party.
    """

    def __init__(self, secrets: Secrets, index: int) -> None:
        self._secrets, self._index = secrets, index

    def __deepcopy__(self, made: Any) -> Streams:
        return self  # it never changes

    def of(self, secrets: Secrets) -> bool:
        """Whether these streams are of that source."""
        return self._secrets is secrets

    def __call__(self, name: str, *keys: int) -> np.random.Generator:
        """Secret generator of purpose `name` and keys, as `Party.secret_stream` gives it."""
        return self._secrets.stream(self._index, name, *keys)

    def state_dict(self) -> dict[str, Any]:
        """State that never changes: numbers that identify the streams."""
        return self._state

    @functools.cached_property
    def _state(self) -> dict[str, Any]:
        return {"first": self("first").integers(2**63, size=2)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: streams have no state."""


def _few(array: Any) -> bool:
    """Whether so few values are possible that two parties may hold equal arrays by chance."""
    values = np.asarray(array)
    cases: int = np.unique(values).size ** min(values.size, 8)
    return cases < 256


class Participant(Sealing, Party):
    """A party whose data, models and messages are protected values.

    Attributes
    ----------
    protected : mapping of str to str or tuple of str
        Types of protected values by kind of message: "field", "real", "key" or "public key";
        "sealing key"; "sealed" (one ciphertext); "number" (a Secret of shape () and dtype float64,
        as a float); "signature" (or the key that verifies it); "bytes" (an Element, as bytes);
        "keys" (a list of keys, as a uint8 array, (keys, 32)) or "seed" (a key, as a uint8 array,
        (32,)). A text with two types, one of arrays and one of bytes, such as "public key, field",
        is for a payload with both. A tuple has one type per part of a tuple payload, "public" for
        parts without protected values; a mapping has the types by key of a dictionary payload,
        whose other keys are public. All other kinds have public numbers and texts, such as a
        batch's rows.
    judged : tuple of str
        Kinds whose payloads the party receives unchanged if they do not match `protected`, and
        judges itself. In all other kinds such a payload ends the run.
    field : PrimeField
        Field F_p of the protocol.
    """

    protected: ClassVar[Mapping[str, str | tuple[str, ...]]] = {}
    judged: ClassVar[tuple[str, ...]] = ()

    def __init__(self, index: int, peers: Iterable[int], field: Any) -> None:
        Party.__init__(self, index, peers)
        self.field = field
        self._dtype, self._modulus = field.dtype, field.modulus
        self.world = current()
        if self.world is not None:
            self.world.members.add(index)
        if self.world is not None and self.world.field.modulus != field.modulus:
            raise FlowError(
                f"{name_of(index)} computes modulo {field.modulus}, and the protocol's field has "
                f"{self.world.field.modulus}: one protocol has one field"
            )

    # -- inputs --------------------------------------------------------------------------------

    def own(self, name: str, array: Any) -> Secret:
        """A protected array of this party, such as its columns; FlowError if another party has it.

        Declared outputs refer to it by `name`.
        """
        if self.world is None:
            return Secret(np.asarray(array), None, self.index, None)
        before = self.world.inputs.get((self.index, name))
        if before is not None:  # of the same party before a crash
            again: Secret = self._again(name, before, np.array_equal(before._value, array))
            return again
        for (owner, other), value in self.world.inputs.items():
            if owner != self.index and np.array_equal(value._value, array) and not _few(array):
                raise FlowError(
                    f"{name} of {name_of(self.index)} is {other} of {name_of(owner)}: a party is "
                    "given its own data alone"
                )
        made: Secret = self.world.input(self.index, name, np.asarray(array), "real")
        return made

    def own_model(self, name: str, model: Any) -> Model:
        """A protected network with its optimiser; FlowError if it is another party's as well."""
        if self.world is None:
            return Model(model, None, self.index, None)
        before = self.world.inputs.get((self.index, name))
        if before is not None:
            same = functions.fingerprint(before._value) == functions.fingerprint(model)
            made: Model = self._again(name, before, same)
            made._value = model
            return made
        own = functions.parts_of(model)
        if any(functions.parts_of(one) & own for one in self.world.models):
            raise FlowError(
                f"{name} of {name_of(self.index)} is another model as well, or has a part or "
                "parameters with it: steps of one would change the other, and nothing was sent"
            )
        self.world.models.append(model)
        there: Model = self.world.input(self.index, name, model, "model")
        return there

    def _again(self, name: str, before: Any, same: bool) -> Any:
        """Input of the beginning, for a party's new object; FlowError unless `same` numbers."""
        if not same:
            raise FlowError(
                f"{name} of {name_of(self.index)} is given twice, with other numbers: a party that "
                "comes back has the inputs that it had, and another input has another name"
            )
        return received(before, self.index)

    # -- checkpoints ---------------------------------------------------------------------------

    def safe_point(self) -> None:
        """Safe point, as for any party; declared outputs may depend on its time (`World.rests`)."""
        self._rest()
        super().safe_point()

    def _rest(self) -> None:
        if self.world is not None:
            self.world.rests.append((self.index, self.epoch, self.round, self.now))

    def to_checkpoint(self, value: Any) -> Any:
        """A value of the state for a checkpoint: protected values bare, with their kind."""
        return _each(value, self._stored)

    def _stored(self, value: Any) -> Any:
        if not isinstance(value, Protected):
            return value
        if self.world is not None:
            return self.world.keep(value)
        return {PROTECTED: _kind(value), "value": value._value}

    def from_checkpoint(self, value: Any) -> Any:
        """Value from a checkpoint (inverse of `to_checkpoint`), owned by this party again."""
        if isinstance(value, dict):
            if PROTECTED not in value:
                return {key: self.from_checkpoint(one) for key, one in value.items()}
            if self.world is not None:
                return received(self.world.kept_at(value), self.index)
            kind = (value[PROTECTED], self.field)
            return wrapped(value["value"], kind, None, self.index, None)
        if isinstance(value, list | tuple):
            return type(value)([self.from_checkpoint(one) for one in value])
        return value

    # -- values that decide --------------------------------------------------------------------

    def opened(self, value: Element | Secret, name: str) -> Any:
        """Numbers of a protected value, so that the protocol may decide on them.

        The decision reveals the numbers to all parties. So they are in every view, like an event of
        the history, and a proof needs them to be a function of the declared outputs. The proof then
        holds for inputs that lead to the traced decisions. Open as little as possible: whether a
        loss is finite, and not the loss.

        Returns
        -------
        array, or a number where the shape is ()

        Raises
        ------
        FlowError
            If it is no Element or Secret of this party.
        """
        if not isinstance(value, Element | Secret):
            raise FlowError(f"opened: {describe(value)} cannot be looked at")
        home_of((value,), self.index)
        if self.world is not None:
            self.world.sent(self.index, None, f"{OPENED}{name}", self.round, value)
        found = np.array(value._value)
        return found[()] if found.shape == () else found

    # -- messages ------------------------------------------------------------------------------

    def send(
        self, to: int, kind: str, payload: Any, *, round: int | None = None, after: float = 0.0
    ) -> None:
        """Send a payload of protected or public values to one party, `after` seconds from now."""
        self._public(to, kind, round, after)
        bare = self._leaving(to, kind, payload, self._round(round), after)
        super().send(to, kind, bare, round=round, after=after)

    def send_later(
        self,
        to: int,
        kind: str,
        make: Callable[[], Element],
        shape: Sequence[int],
        *,
        round: int | None = None,
    ) -> None:
        """Send elements of a public shape to one party; a simulation may compute them later.

        `make` returns them. It must need nothing that changes: a simulation calls it when the
        receiver takes the message, and not at all if the message comes too late. ProtocolError for
        elements of another shape.
        """
        shaped = functools.partial(self._shaped, kind, make, tuple(shape))
        if self.world is not None or to == self.index or not self.engine.defers:
            self.send(to, kind, shaped(), round=round)
            return
        self._public(to, kind, round, *shape)
        found = functools.partial(self._made, to, kind, shaped, self._round(round))
        like = np.broadcast_to(self.field.dtype.type(0), tuple(shape))
        super().send(to, kind, Later(found, like), round=round)

    @staticmethod
    def _shaped(kind: str, make: Callable[[], Element], shape: tuple[int, ...]) -> Element:
        made = make()
        if made.shape != shape:  # its bytes were counted by that shape
            raise ProtocolError(f"send_later: {kind!r} has the shape {made.shape}, not {shape}")
        return made

    def _made(self, to: int, kind: str, make: Callable[[], Element], round: int) -> np.ndarray:
        bare: np.ndarray = self._leaving(to, kind, make(), round)
        return bare

    def share(self, kind: str, shares: Any) -> None:
        """Send ``shares[i]`` to client i, including this party itself."""
        self._public(kind)
        if self.world is None and type(shares) is Element:  # rows of one array go at once
            super().share(kind, self._leaving(self.index, kind, shares, self.round))
            return
        parts = shares
        if isinstance(shares, Element):
            parts = [shares[i] for i in range(shares.shape[0])]
        bare = [self._leaving(n, kind, one, self.round) for n, one in enumerate(parts)]
        super().share(kind, bare)

    def broadcast(self, kind: str, payload: Any, to: Sequence[int] | None = None) -> None:
        """Send one payload to all of `to`, by default to all other clients."""
        self._public(kind, *(to or ()))
        whom = [peer for peer in self.peers if peer != self.index] if to is None else list(to)
        bare = None
        for n in whom if self.world is not None else whom[:1]:
            bare = self._leaving(n, kind, payload, self.round)
        if whom:
            super().broadcast(kind, bare, whom)

    async def receive(self, *kinds: str, **options: Any) -> Any:
        """Next payload of these kinds, owned by this party."""
        if options.get("safe"):
            self._rest()
        payload = await super().receive(*kinds, **options)
        assert self.envelope is not None
        found = self._arrived(self.envelope.kind, payload, self.envelope.sender)
        if self.world is not None:
            m = self.envelope
            self.world.taken(self.index, m.sender, m.kind, m.round)
        if found is not payload:
            self.envelope = self.envelope._replace(payload=found)
        return found

    async def collect(self, kind: str, **options: Any) -> dict[int, Any]:
        """Payloads by sender, owned by this party."""
        found = await super().collect(kind, **options)
        if self.world is not None:
            for sender in found:
                self.world.taken(self.index, sender, kind, self._round(options.get("round")))
        if kind not in self.protected:
            return found
        many, at, field = found.values(), self.index, self.field
        what = self.protected[kind] if self.world is None else None
        if what == "field" and set(map(type, many)) == {np.ndarray}:
            small = max(map(_SIZE, many)) < _SMALL and set(map(_DTYPE, many)) == {self._dtype}
            # One pass finds the largest element of all small arrays.
            if small and int(np.concatenate([*many], None).max(initial=0)) < self._modulus:
                return {n: Element(one, None, at, None, field) for n, one in found.items()}
        return {sender: self._arrived(kind, payload, sender) for sender, payload in found.items()}

    def on(self, kind: str, handler: Callable[[Message], None]) -> None:
        """Call `handler` on each arrival of `kind`, the payload owned by this party."""

        def arrived(m: Message) -> None:
            if self.world is not None:
                self.world.taken(self.index, m.sender, m.kind, m.round)
            handler(m._replace(payload=self._arrived(kind, m.payload, m.sender)))

        super().on(kind, arrived if kind in self.protected else handler)

    def record(self, event: str, **fields: Any) -> None:
        """Record an event in the public history; its fields count as revealed to all.

        A protected number that is NaN, such as an undefined measure, is left out.
        """
        if self.world is not None:
            self.world.sent(self.index, None, f"event {event}", self.round, fields)
        plain = {name: _number(value) for name, value in fields.items()}
        super().record(event, **{name: one for name, one in plain.items() if one is not MISSING})

    @property
    def streams(self) -> Model:
        """Secret streams of this party as a function input, which permits the function to draw.

        They serve rounding and random views of rows. The function receives `Streams`, as in
        ``network.call(rounded, self.streams, self.round)``; a proof takes its draws as dependent on
        all streams.
        """
        made = None if self.world is None else self.world.inputs.get((self.index, "streams"))
        if made is not None and made._value.of(self.engine.secrets):
            kept: Model = received(made, self.index)
            return kept
        return self.own_model("streams", Streams(self.engine.secrets, self.index))

    def secret_stream(self, name: str, *keys: int) -> NoReturn:
        """Raise FlowError: numbers of a generator are no protected values."""
        raise FlowError(
            f"secret_stream({name!r}): its numbers would be public. Draw masks by uniform(), and "
            "give `streams` to the function that makes other secret choices"
        )

    def encrypt(self, value: Element, holder: int) -> NoReturn:
        """Raise FlowError: the engine's parties use `seal` with a scheme's key."""
        raise FlowError("encrypt: parties of the engine have sealing_keys, seal and open_sealed")

    def _public(self, *values: Any) -> None:
        for value in values:
            if isinstance(value, Protected):
                raise FlowError(f"send: receiver, kind and time must be public, not "
                                f"{describe(value)}")  # fmt: skip

    def _leaving(self, to: int, kind: str, payload: Any, round: int, after: float = 0.0) -> Any:
        """Bare payload for the wire, recorded in the trace; FlowError for undeclared values."""
        what = self.protected.get(kind)
        if self.world is None and what in PLAIN and type(payload) in (Element, Secret):
            if payload._home not in (None, self.index):
                home_of((payload,), self.index)
            return payload._value
        if what is None:
            if self.world is None:
                return payload  # of public values alone: the wire refuses all others
            for value in _values(payload):
                if isinstance(value, Protected):
                    raise FlowError(
                        f"send: {kind!r} carries {describe(value)}; name the kind in "
                        f"{type(self).__name__}.protected, as 'field' or 'real'"
                    )
        if self.world is None:
            home_of(list(_values(payload)), self.index)
            return _parts(payload, what, _packed)
        self.world.sent(self.index, to, kind, round, (payload, after) if after else payload)
        bare = _parts(payload, what, self._noted)
        self.world.left.append((self.index, to, kind, bare))
        return bare

    def _noted(self, value: Any, what: str | None) -> Any:
        """Bare value, registered for the receiver's copy; FlowError for a kind but `what`."""
        assert self.world is not None
        if what == "keys" or (what in ("seed", "bytes") and isinstance(value, Protected)):
            packed = _packed(value, what)
            self.world.arriving[id(packed)] = (packed, value)
            return packed
        if not isinstance(value, Protected):
            return value
        found = _kind(value)
        if found == "noised":
            found = "real"
        if what is None or found not in ("real" if what == "number" else what).split(", "):
            raise FlowError(f"send: {describe(value)} is {found!r}, and {what!r} was declared")
        bare = _packed(value, what)
        self.world.arriving[id(bare)] = (bare, value)
        return bare

    def _arrived(self, kind: str, payload: Any, sender: int | None = None) -> Any:
        """Protected values of a payload, owned by this party.

        ProtocolError if an array was not declared, because it would count as public; FlowError, in
        a trace, for what was not sent as protected.
        """
        what = self.protected.get(kind)
        if what is None:
            return payload
        if what == "sealed":  # many bytes, which are one value
            noted = None if self.world is None else self.world.arriving.get(id(payload))
            if self.world is not None and noted is None:
                raise FlowError(f"{kind!r} carries what was not sent as a ciphertext")
            kept = Ciphertext(payload, None, self.index, None) if noted is None else noted[1]
            return received(kept, self.index)
        if self.world is None:
            whole = type(payload) is np.ndarray and payload.dtype == self._dtype
            if what == "field" and whole and int(payload.max(initial=0)) < self._modulus:
                return Element(payload, None, self.index, None, self.field)
            if what == "real" and type(payload) is np.ndarray:
                return Secret(payload, None, self.index, None)
            single = what in PLAIN and type(payload) in _SINGLE
            change = functools.partial(self._wrapped, kind=kind, sender=sender, single=single)
            return _parts(payload, what, change)

        def found(value: Any, what: str | None) -> Any:
            if what == "public":
                return value
            noted = self.world.arriving.get(id(value))  # type: ignore[union-attr]
            if noted is not None:
                return received(noted[1], self.index)
            if isinstance(value, np.ndarray | bytes) or what == "number":
                raise FlowError(
                    f"{kind!r} carries an array that was not sent as a protected one: draw masks "
                    "by uniform or prf, and give arrays of the party's own to own"
                )
            return value

        return _parts(payload, what, found)

    def _wrapped(
        self, value: Any, what: str, *, kind: str, sender: int | None, single: bool
    ) -> Any:
        """Received value in its type; `single`: the whole payload. ProtocolError if no `what`."""
        found = value if what == "public" else self._value_of(value, what)
        raw = single or isinstance(found, np.ndarray | np.generic | bytes)
        if kind in self.judged or what == "public" or not raw or isinstance(found, Protected):
            return found
        form = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else repr(type(value))
        who = "" if sender is None else f" from {name_of(sender)}"
        raise ProtocolError(
            f"{kind!r}{who} to {name_of(self.index)} must hold {what!r} values, with p = "
            f"{self.field.modulus}, and holds {form} that is none. Who sent it departs from the "
            "protocol, or has other options"
        )

    def _value_of(self, value: Any, what: str) -> Any:
        """Protected value for a received one; a value of undeclared form is returned unchanged."""
        if what == "number" and type(value) is float:
            return Secret(np.asarray(value), None, self.index, None)
        form = (value.dtype, value.shape[-1:]) if isinstance(value, np.ndarray) else None
        if what in ("keys", "seed"):
            if form != (np.uint8, (KEY_BYTES,)) or value.ndim != (2 if what == "keys" else 1):
                return value
            found = [Key(row.tobytes(), None, self.index, None) for row in np.atleast_2d(value)]
            return found if what == "keys" else found[0]
        if what == "bytes":
            if type(value) is not bytes or len(value) % self.field.dtype.itemsize:
                return value
            return self._value_of(np.frombuffer(value, self.field.dtype), "field")
        if not isinstance(value, np.ndarray | np.generic | bytes):
            return value
        fit = [k for k in what.split(", ") if (k in PLAIN) != isinstance(value, bytes)]
        if not fit or (fit[0] == "field" and not self._in_field(value)):
            return value
        return wrapped(value, (fit[0], self.field), None, self.index, None)

    def _in_field(self, value: Any) -> bool:
        """Whether an array holds elements of F_p."""
        return bool(value.dtype == self._dtype and int(value.max(initial=0)) < self._modulus)


def _kind(value: Protected) -> str:
    """Kind of a value, as `Participant.protected` names kinds: "field", "key", "real" and so on."""
    kinds = {
        Element: "field", Key: "key", PublicKey: "public key", Bytes: "signature", Noised: "noised",
        SealingKey: "sealing key", OpeningKey: "opening key", Ciphertext: "sealed",
    }  # fmt: skip
    return kinds.get(type(value), "real")


def bare_of(value: Any) -> Any:
    """Numbers of a protected value, or of all values in a party's attribute.

    For evaluation, exports, attacks, tests, and checks of public shapes. A party must not compute
    with the result, because a trace would not record the use of the numbers.
    """
    return _each(value, _bare)


def _values(payload: Any) -> Iterable[Any]:
    """All values in a payload, with mappings, sequences and dataclasses opened."""
    if isinstance(payload, _LEAVES):
        yield payload
    elif isinstance(payload, Mapping):
        for value in payload.values():
            yield from _values(value)
    elif isinstance(payload, list | tuple):
        for value in payload:
            yield from _values(value)
    elif dataclasses.is_dataclass(payload) and not isinstance(payload, type):
        for one in dataclasses.fields(payload):
            yield from _values(getattr(payload, one.name))
    else:
        yield payload


def _each(payload: Any, change: Any) -> Any:
    """A payload with `change` applied to each of its values."""
    if isinstance(payload, _LEAVES):
        return change(payload)
    if isinstance(payload, dict):
        return {key: _each(value, change) for key, value in payload.items()}
    if isinstance(payload, list | tuple):
        return type(payload)([_each(value, change) for value in payload])
    if dataclasses.is_dataclass(payload) and not isinstance(payload, type):
        own = [_each(getattr(payload, f.name), change) for f in dataclasses.fields(payload)]
        return type(payload)(*own)
    return change(payload)


def _parts(payload: Any, what: Any, change: Any) -> Any:
    """A payload with `change` applied to each value, by its declared kind."""
    if isinstance(what, tuple):
        if not isinstance(payload, tuple) or len(payload) != len(what):
            return payload  # of another form: for the receiver to see
        return tuple(_parts(one, w, change) for one, w in zip(payload, what, strict=True))
    if isinstance(what, Mapping):
        if not isinstance(payload, dict):
            return payload
        return {k: _parts(one, what.get(k, "public"), change) for k, one in payload.items()}
    if what == "keys":
        return change(payload, what)
    return _each(payload, lambda value: change(value, what))


def _packed(value: Any, what: str | None) -> Any:
    """A protected value in its form on the wire; FlowError for another than `what` declares."""
    if what == "keys" and isinstance(value, list):
        joined = b"".join(map(_bare, value))
        return np.frombuffer(joined, np.uint8).reshape(len(value), KEY_BYTES)
    if what == "seed" and isinstance(value, Key):
        return np.frombuffer(value._value, np.uint8)
    if what == "bytes" and isinstance(value, Element):
        return value._value.tobytes()
    if what == "public" and isinstance(value, Protected):
        raise FlowError(f"send: {describe(value)} in a part that was declared public")
    if what == "number" and isinstance(value, Secret):
        if value._value.dtype != np.float64 or value.shape:
            raise FlowError(f"send: {describe(value)} is no number of float64; map it to one")
        return float(value._value)
    return _bare(value)


def _bare(value: Any) -> Any:
    return value._value if isinstance(value, Protected) else value


def _number(value: Any) -> Any:
    """Plain number for the history, from a protected or public value."""
    if not isinstance(value, Protected):
        return value
    number = np.asarray(value._value).reshape(()).item()
    return MISSING if number != number else number


class _Shown:
    """A party for the experimenter's evaluation, with bare models."""

    def __init__(self, party: Any) -> None:
        self._party = party

    def __getattr__(self, name: str) -> Any:
        return bare_of(getattr(self._party, name))


class Provable:
    """Declarations of a protocol for a proof, beside its parties. It must be the first base class.

    Attributes
    ----------
    field : PrimeField
        Field F_p of all its messages.
    traced_options : mapping
        Options of the traced run: few rounds, rows and columns.
    role_options : tuple of str
        Names of options, other than sizes, that decide roles or messages. A verdict on a given run
        takes them from that run.
    traced_alone : int
        Number of unaligned rows of each client in the traced run; client 0 has their labels.
    ideal_repeats : bool
        Whether `ideal` declares outputs of rounds that are repeated after a crash; if not, the
        proof is about one undisturbed run.
    """

    field: ClassVar[Any]
    traced_options: ClassVar[Mapping[str, Any]] = {"rounds": 2, "batch": 4, "width": 2}
    role_options: ClassVar[tuple[str, ...]] = ()
    traced_alone: ClassVar[int] = 0
    ideal_repeats: ClassVar[bool] = True

    def ideal(self, world: World) -> None:
        """Declare the outputs: what a trusted party computes from the inputs, and for whom.

        Inputs are ``world.the(party, name)``, with the names that parties use in `own`. Write this
        method independently of the parties' code. Declare each output by ``world.output(name,
        value, to)``. NotImplementedError where a protocol has none.
        """
        raise NotImplementedError

    def schedules(self) -> tuple[Schedule, ...]:
        """Schedules under which the protocol is traced: which parties are late, down, and back.

        The first schedule is undisturbed. By default a client and the server go down and come back,
        at three moments each (`securevfl.verified.usual`); unless the card says that the protocol
        waits for absent parties, clients are late, too. `ideal` reads from ``world.messages`` which
        parties took part: `kind`, `round`, `sender` and `said` of each message and history event
        ("event round").
        """
        if not self.ideal_repeats:
            return (UNDISTURBED,)
        waits = self.card.absence == "waits"  # type: ignore[attr-defined]
        return usual(len(self.peers()), waits=waits)  # type: ignore[attr-defined]

    def colluders(self) -> int:
        """T, the largest number of clients that collude, with or without the server."""
        return int(getattr(self.config, "privacy", 1))  # type: ignore[attr-defined]

    def delta(self) -> float:
        """Delta of the differential privacy claimed for releases with noise."""
        return float(getattr(self.config, "delta", 1e-5))  # type: ignore[attr-defined]

    def coalitions(self) -> tuple[frozenset[int], ...]:
        """Coalitions of the claims: up to T clients, without and with the server."""
        clients = list(self.peers())  # type: ignore[attr-defined]
        groups = [
            frozenset(some)
            for size in range(self.colluders() + 1)
            for some in itertools.combinations(clients, size)
        ]
        return tuple(group for group in groups if group) + tuple(g | {SERVER} for g in groups)

    def scores(self, parties: Mapping[int, Any], features: Sequence[np.ndarray]) -> np.ndarray:
        """Scores without encryption, for the experimenter's evaluation."""
        shown = {n: _Shown(party) for n, party in parties.items()}
        return super().scores(shown, features)  # type: ignore[misc, no-any-return]
