"""A traced run: origin of each protected value, messages sent, outputs declared.

The trace is a graph of nodes, without algebra. Prover and checker each interpret it in their own
algebra, so that a fault of one is not in the other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.verified import functions
from securevfl.verified.functions import FlowError
from securevfl.verified.values import (
    IDEAL,
    Ciphertext,
    Element,
    Key,
    Model,
    Protected,
    Sealed,
    SealingKey,
    Secret,
    _advanced,
    bare,
    describe,
    fitted,
    wrapped,
)

SERVER = -1
KEY_BYTES = 32
Array = np.ndarray[Any, Any]

#: Key of the dictionary that stands for a protected value in a checkpoint.
PROTECTED = "__protected__"

#: Beginning of the kind of a message that stands for a value that was looked at.
OPENED = "opened "


class Node:
    """One step of a trace.

    Attributes
    ----------
    number : int
        Its index in the trace.
    op : str
        "secret" (an input), "uniform" (a tape), "key"; "map" (a function), "prf" (a stream, a
        derived key or a tag, of a key and the protected part of a label), "agreed", "public key",
        "release" (of differential privacy); and the exact operations "public" (an array), "sum"
        (of arguments, each times a number), "weigh", "index" and "matmul".
    args : tuple of Node
        Arguments of the operation.
    data : object
        Further arguments of the operation: a factor, an array, a call, a label.
    shape : tuple of int
        Shape of the value.
    kind : str
        "field", "real", "model", "key", "public key", "signature" or "noised".
    owner : int or None
        Party that has the leaf from the beginning.
    value : object
        The value in this run; None for the exact operations, which are evaluated.
    """

    __slots__ = ("args", "data", "kind", "name", "number", "op", "owner", "shape", "value")

    def __init__(
        self,
        number: int,
        op: str,
        args: tuple[Node, ...],
        data: Any,
        shape: tuple[int, ...],
        kind: str,
        name: str,
        owner: int | None,
        value: Any,
    ) -> None:
        self.number, self.op, self.args, self.data = number, op, args, data
        self.shape, self.kind, self.name, self.owner, self.value = shape, kind, name, owner, value

    def origin(self, most: int = 3) -> str:
        """Names of the leaves from which the node is computed."""
        found: dict[str, None] = {}
        todo, seen = [self], set()
        while todo and len(found) <= most:
            node = todo.pop()
            if node.number in seen:
                continue
            seen.add(node.number)
            if node.name:
                found[node.name] = None
            if node.op not in ("prf", "agreed", "public key"):
                todo.extend(node.args)
        names = list(found)
        return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


class Call:
    """A call of a function in a trace: the function and its arguments in order."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Node | Any],
        named: Mapping[str, Any],
    ) -> None:
        self.function, self.inputs, self.named = function, tuple(inputs), dict(named)
        own = [functions.identity(f) for f in (function, *named.values())]
        publics = [None if isinstance(one, Node) else functions.content(one) for one in inputs]
        self.code = tuple(own)
        self.identity = self.code, tuple(publics)
        self.title = getattr(named.get("function", function), "__name__", "function")

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Protected arguments of the call."""
        return tuple(one for one in self.inputs if isinstance(one, Node))

    def run(self, values: Iterable[Any], *, looks: bool = True) -> Any:
        """Run the function on values of its protected arguments, in order.

        With `looks`, FlowError if it changes a model that it is given.
        """
        given = iter(values)
        args = [next(given) if isinstance(one, Node) else one for one in self.inputs]
        # The models of a step are copied by `_advanced` itself, which is given their number first.
        own = 1 + args[0] if self.function is _advanced else 0
        states = [one for one in args[own:] if looks and _is_state(one)]
        before = [functions.fingerprint(one) for one in states]
        found = functions.call(_named(self.function, self.named), args)
        if [functions.fingerprint(one) for one in states] != before:
            raise FlowError(
                f"{self.title} changes the model that it is given: use step, which keeps the change"
            )
        return found


def _named(function: Callable[..., Any], named: Mapping[str, Any]) -> Callable[..., Any]:
    return lambda *args: function(*args, **named)


def _is_state(value: Any) -> bool:
    return hasattr(value, "load_state_dict")


class _Made:
    """Result of a call, before wrapping."""

    def __init__(self, world: Trace, call: Call, found: Any) -> None:
        self._world, self._call, self._found = world, call, found

    def result(
        self, place: int | None, shape: tuple[int, ...], kind: tuple[str, Any], home: int | None
    ) -> Any:
        """The result (or that at `place`) as `home`'s protected value; FlowError: other prime."""
        if kind[0] == "field" and kind[1].modulus != self._world.field.modulus:
            raise FlowError(
                f"map: elements of F_p with p = {kind[1].modulus} in a trace of p = "
                f"{self._world.field.modulus}: one protocol has one field"
            )
        found = self._found if place is None else self._found[place]
        with self._world.watched(self._call.title):
            value = fitted(found, shape, kind)
        node = self._world.node(
            "map",
            self._call.nodes,
            (self._call, place, kind),
            shape=shape,
            kind=kind[0],
            name="",
            value=value,
        )
        return wrapped(value, kind, node, home, self._world)


@dataclasses.dataclass(frozen=True)
class Part:
    """A protected value in a message; `holder` can open it, or everybody if None."""

    node: Node
    value: Any
    holder: int | None


@dataclasses.dataclass(frozen=True)
class Message:
    """A message, or an event of the public history (`to` is None).

    `said` is the public part, with "part 1", ... in place of protected values. Outputs may depend
    on it (`Provable.ideal`), because it is public which parties are in time.
    """

    sender: int
    to: int | None
    kind: str
    round: int
    parts: tuple[Part, ...]
    public: str  # digest of what is public in it
    said: Any = dataclasses.field(default=None, compare=False, repr=False)

    def seen_by(self, coalition: frozenset[int]) -> bool:
        """Whether a coalition receives the message from a party outside it."""
        return self.sender not in coalition and (self.to is None or self.to in coalition)

    def __str__(self) -> str:
        to = "the history" if self.to is None else name_of(self.to)
        return f"{self.kind} of round {self.round} from {name_of(self.sender)} to {to}"


def name_of(party: int) -> str:
    """Name of a party for texts."""
    return "the server" if party == SERVER else f"party {party}"


@dataclasses.dataclass(frozen=True)
class Output:
    """A declared output: a value that parties `to` may learn; None for everybody."""

    name: str
    node: Node
    value: Any
    to: frozenset[int] | None
    alone: bool = False  # declared to be of one party, which a reader must judge
    together: bool = False  # given to coalitions of all of `to` only


class Trace:
    """A traced run: nodes, messages and declared outputs.

    Parameters
    ----------
    modulus : int
        p, a prime below 2^62.
    """

    def __init__(self, modulus: int = 2**31 - 1) -> None:
        self.field = field_of(modulus)
        self.nodes: list[Node] = []
        self.messages: list[Message] = []
        self.outputs: list[Output] = []
        self.equal: list[tuple[Node, Node, str]] = []  # must have one form
        self.faults: list[str] = []  # why no verdict may be good
        self._round = 0
        self.members: set[int] = set()  # parties that are there
        self._streams: dict[Any, tuple[Any, ...]] = {}
        self._asked: dict[Any, tuple[bool, bool]] = {}  # of a key: no label, a protected part
        self.keys: dict[bytes, Node] = {}
        self.commitments: dict[str, Any] = {}  # by name: `Hands.coins`
        self.arriving: dict[int, tuple[Any, Any]] = {}  # arrays on their way, by id
        self.left: list[tuple[int, int, str, Any]] = []  # sender, to, kind and payload
        self.models: list[Any] = []  # objects that parties brought
        self.checkpointed: list[Any] = []  # protected values in parties' checkpoints
        self._ran: dict[Any, tuple[Any, Any]] = {}  # results of calls, and the models given
        self._copies: dict[int, tuple[Any, Any]] = {}  # models that parties brought, and copies
        self.repeats = True  # a function is run twice on the same values, and must give the same
        self.may_abort = False  # an error of the library in a function ends the run for all
        self.coalitions: tuple[frozenset[int], ...] = ()
        self._told: dict[str, dict[int, Any]] = {}  # public payloads by kind and round
        #: Party, life, round and seconds of each safe point that a party came to: public, too.
        self.rests: list[tuple[int, int, int, float]] = []
        self._took: dict[str, dict[int, list[tuple[int, int]]]] = {}
        self.inputs: dict[tuple[int, str], Any] = {}  # by owner and name, for declared outputs
        self.delta = 1e-5  # of what is said of releases

    @property
    def round(self) -> int:
        """Round of the messages, a public number."""
        return self._round

    @round.setter
    def round(self, number: int) -> None:
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise FlowError(f"round = {describe(number)}: a public whole number is needed")
        self._round = int(number)

    @contextlib.contextmanager
    def watched(self, title: str) -> Iterator[None]:
        """Context that notes an error as a fault, since it may depend on values, and raises it."""
        try:
            yield
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            self.faults.append(
                f"{title} ended in an error ({said:.120}), which may depend on protected values, "
                "and what the run does then is not in the trace. Make the error a part of the "
                "result, and declare it as an output if somebody learns it"
            )
            raise

    # -- nodes -------------------------------------------------------------------------------

    def node(
        self,
        op: str,
        args: Sequence[Node],
        data: Any = None,
        *,
        shape: Sequence[int],
        kind: str = "field",
        name: str = "",
        owner: int | None = None,
        value: Any = None,
    ) -> Node:
        """Add a node of operation `op` to the trace; FlowError for args of another run."""
        made = Node(len(self.nodes), op, tuple(args), data, tuple(shape), kind, name, owner, value)
        for one in made.args:
            if one is None or not self.holds(one):
                raise FlowError(
                    "a value of another run, or of an untraced one: make all of them inside"
                )
        self.nodes.append(made)
        return made

    def holds(self, node: Node) -> bool:
        """Whether a node belongs to this trace."""
        return node.number < len(self.nodes) and self.nodes[node.number] is node

    def called(self, function: Callable[..., Any], values: Sequence[Any], /, **named: Any) -> _Made:
        """Record and run a call of a function, twice if the trace `repeats` (FlowError if unequal).

        A declared output takes the result of an equal call that ran before. Calls of parties always
        run: they differ if a model or a number was changed unseen.
        """
        given = [bare(value) for value in values]
        inputs = [
            value._node if isinstance(value, Protected) else plain
            for value, plain in zip(values, given, strict=True)
        ]
        call = Call(function, inputs, named)
        protected = [p for v, p in zip(values, given, strict=True) if isinstance(v, Protected)]
        key = (call.identity, *map(self._content, protected))
        ideal = any(isinstance(v, Protected) and v._home == IDEAL for v in values)
        if ideal and key in self._ran:
            return _Made(self, call, self._ran[key][0])
        with self.watched(call.title):
            found = call.run(protected, looks=self.repeats)
            if self.repeats and not _alike(found, call.run(protected)):
                raise FlowError(
                    f"map: {call.title} gave two results for the same inputs. What it draws must "
                    "be an argument (a Secret, or an Element of uniform or prf), and so must its "
                    "state"
                )
        # The models are kept, so that no other object gets their ids.
        self._ran[key] = found, [one for one in protected if _is_state(one)]
        return _Made(self, call, found)

    def _content(self, value: Any) -> Any:
        """Digest of an array, or the identity of a model's object, which a step copies."""
        if not _is_state(value):
            return functions.content(value)
        return id(self._copies[id(value)][1]) if id(value) in self._copies else id(value)

    # -- inputs and outputs ------------------------------------------------------------------

    def secret(self, owner: int, name: str, value: Any, *, real: bool = False) -> Any:
        """An input of one party.

        Parameters
        ----------
        owner : int
            Number of the party.
        name : str
            Name of the input.
        value : tuple of int or array
            Shape of random numbers, or the numbers.
        real : bool
            Whether the input is a Secret of real numbers; otherwise an Element.
        """
        shaped = type(value) is tuple
        if real:
            rng = np.random.default_rng([len(self.nodes), 7])
            array = rng.standard_normal(value) if shaped else np.array(value)
            return self.input(owner, name, array, "real")
        array = self.field.random(value) if shaped else self.field.reduce(np.array(value))
        return self.input(owner, name, array, "field")

    def input(self, owner: int, name: str, value: Any, kind: str) -> Any:
        """Protected value of a party's input called `name`: array or (kind "model") model."""
        self.members.add(owner)
        shape = () if kind == "model" else np.shape(value)
        if isinstance(value, np.ndarray):
            value = value.copy()
        node = self.node("secret", (), shape=shape, kind=kind, name=name, owner=owner, value=value)
        if kind == "model":
            node.value = functions.copied(value)
            self._copies[id(value)] = value, node.value
        self.inputs[owner, name] = wrapped(node.value, (kind, self.field), node, None, self)
        return wrapped(value, (kind, self.field), node, owner, self)

    def the(self, owner: int, name: str) -> Any:
        """Initial value of an owner's input, for declared outputs (IDEAL's); FlowError if none."""
        if (owner, name) not in self.inputs:
            own = ", ".join(repr(other) for at, other in self.inputs if at == owner)
            raise FlowError(f"the: {name_of(owner)} has no input {name!r}, but {own or 'none'}")
        return received(self.inputs[owner, name], IDEAL)

    def released(self, owner: int, name: str) -> Any:
        """A party's release under a name that it used once, for declared outputs.

        An output may be computed from it. In verdicts on coalitions that receive such an output,
        the release counts towards the epsilon of those whose rows or labels it contains.
        FlowError unless the party made exactly one release of that name.
        """
        own = [node for node in self.nodes if node.op == "release" and node.owner == owner]
        found = [node for node in own if node.name == f"{name} by {owner}"]
        if len(found) != 1:
            raise FlowError(f"released: {name_of(owner)} made {len(found)} releases named {name}")
        return wrapped(found[0].value, ("noised", None), found[0], IDEAL, self)

    def spec(self, value: Any) -> Any:
        """An Element or Secret (else FlowError) as no party's value, for declared outputs."""
        if isinstance(value, Element):
            return Element(value._value, value._node, IDEAL, self, value._field)
        if isinstance(value, Secret | Model):
            return received(value, IDEAL)
        raise FlowError(f"spec of {describe(value)}: an Element or a Secret is needed")

    def output(
        self,
        name: str,
        value: Any,
        to: Iterable[int] | None = None,
        *,
        alone: bool = False,
        together: bool = False,
    ) -> None:
        """Declare a value that some parties may learn; all parties if `to` is not given.

        The value must be a function of inputs, computed with `spec` independently of the parties'
        code. Outputs that together depend on one honest party only are refused, except those marked
        by `alone`. With `together`, the parties in `to` learn the value only by pooling all their
        knowledge. FlowError if it is no Element or Secret.
        """
        if not isinstance(value, Element | Secret):
            raise FlowError(f"output {name}: an Element or a Secret is needed, not "
                            f"{describe(value)}")  # fmt: skip
        assert value._node is not None
        whom = None if to is None else frozenset(to)
        self.outputs.append(Output(name, value._node, value._value, whom, alone, together))

    def rounds(self, kind: str) -> list[int]:
        """Rounds in which a message of a kind was sent, each once, ascending.

        An event NAME counts as a message of kind "event NAME", such as "event given_up".

        The parties in time are public, so declared outputs may depend on them.
        """
        return sorted({message.round for message in self.messages if message.kind == kind})

    def outputs_of(self, coalition: Iterable[int]) -> list[Output]:
        """Outputs that a member of the coalition may have."""
        some = frozenset(coalition)
        return [
            one
            for one in self.outputs
            if one.to is None or (one.to <= some if one.together else one.to & some)
        ]

    # -- checkpoints ---------------------------------------------------------------------------

    def keep(self, value: Protected) -> dict[str, Any]:
        """Reference to a value for a party's checkpoint; of a model, to a copy as it is now."""
        kept = received(value, value._home)
        if isinstance(value, Model):
            kept._value = functions.copied(value._value)
        self.checkpointed.append(kept)
        return {PROTECTED: "traced", "value": len(self.checkpointed) - 1}

    def kept_at(self, place: Mapping[str, Any]) -> Any:
        """The value stored by `keep`."""
        return self.checkpointed[place["value"]]

    # -- messages ----------------------------------------------------------------------------

    def sent(self, sender: int, to: int | None, kind: str, round: int, payload: Any) -> None:
        """Record a message, or (`to` None) a history event; FlowError for others' values."""
        found: list[Part] = []
        public = _parts(payload, sender, found)
        if not all(self.holds(part.node) for part in found):
            raise FlowError("send: a value of another run")
        self._bare_inputs(public)
        self._told.setdefault(kind, {}).setdefault(round, public)
        self.messages.append(
            Message(sender, to, kind, round, tuple(found), functions.digest(public), public)
        )

    def told(self, kind: str) -> Mapping[int, Any]:
        """Public part of the first message of a kind by round, such as the parties in time.

        Declared outputs, which belong to a schedule, may use it. Tuples become lists.
        """
        return dict(self._told.get(kind, {}))

    def taken(self, to: int, sender: int, kind: str, round: int) -> None:
        """Record that party `to` has taken up the sender's message of a kind and round."""
        self._took.setdefault(kind, {}).setdefault(round, []).append((to, sender))

    def took(self, kind: str) -> Mapping[int, list[tuple[int, int]]]:
        """Receiver and sender of each message of a kind that was taken, by round.

        A party that is down, or has continued, takes none. This is public.
        """
        return self._took.get(kind, {})

    def whom(self, kind: str) -> Mapping[int, list[int]]:
        """Receivers of a kind of message in each round."""
        found: dict[int, list[int]] = {}
        for message in self.messages:
            if message.kind == kind and message.to is not None:
                found.setdefault(message.round, []).append(message.to)
        return found

    def _bare_inputs(self, public: Any) -> None:
        """Raise FlowError for numbers of an input sent as public ones, beside their wrapper.

        A constant array is not refused: it may equal constant labels without being computed from
        them.
        """
        if isinstance(public, dict | list):
            for one in public.values() if isinstance(public, dict) else public:
                self._bare_inputs(one)
        elif isinstance(public, np.ndarray) and (public != public.reshape(-1)[:1]).any():
            for (owner, name), value in self.inputs.items():
                if isinstance(value._value, np.ndarray) and np.array_equal(value._value, public):
                    raise FlowError(
                        f"send: an array of public numbers is the input {name} of "
                        f"{name_of(owner)}; send the protected value"
                    )

    def compare(self, sent: Sequence[tuple[int, int, str, bytes]]) -> None:
        """Note a fault if the messages that parties recorded are not those of the engine."""
        from securevfl.engine import wire

        noted = [
            (sender, to, kind, wire.encode(bare))
            for sender, to, kind, bare in self.left
            if sender != to
        ]
        if noted != list(sent):
            first = next(
                (one for one, other in zip(sent, noted, strict=False) if one != other), None
            )
            said = "their numbers differ" if first is None else f"{first[2]} to {first[1]}"
            self.faults.append(f"messages that left are not those that parties noted: {said}")

    def stream(self, key: Node, label: bytes | None, form: tuple[Any, ...]) -> None:
        """Refuse one key and label in two forms: one stream would be part of the other.

        Without a label the key is the seed of a single stream, and has no others.

        Parameters
        ----------
        form : tuple
            Use of the stream, whether its label has a protected part, and its shape.

        Raises
        ------
        FlowError
            For a second form, and for labels with and without a protected part.
        """
        own = key_of(key)
        seed, part = self._asked.setdefault(own, (label is None, form[1]))
        if seed != (label is None):
            raise FlowError(f"expand({key.name}): a seed of one stream has no labels beside it")
        if part != form[1]:
            raise FlowError(
                "prf: labels of one key with and without a protected part: two of them could be "
                "one. Use two keys"
            )
        if self._streams.setdefault((own, label), form) != form:
            raise FlowError(
                f"prf: one key and label in two forms, {self._streams[own, label]} and {form}: the "
                "shorter stream is a part of the longer one. Put the shape into the label"
            )

    # -- the trace as a whole ----------------------------------------------------------------

    def items(self) -> Iterable[tuple[str, str]]:
        """Steps, messages and outputs as descriptions with a hash, without protected values."""
        yield "the field", str(self.field.modulus)
        for node in self.nodes:
            data = node.data
            if node.op == "map":
                call, place, kind = data
                data = (call.identity, place, str(kind[1]))
            whole = (
                *(node.op, [arg.number for arg in node.args], functions.digest(data)),
                *(node.shape, node.kind, node.name, node.owner),
            )
            title = node.data[0].title if node.op == "map" else node.name
            yield f"a step {node.op} {title}", repr(whole)
        for m in self.messages:
            parts = [(part.node.number, part.holder) for part in m.parts]
            yield str(m), repr((m.sender, m.to, m.kind, m.round, parts, m.public))
        for out in self.outputs:
            to = None if out.to is None else sorted(out.to)
            yield (
                f"output {out.name}",
                repr((out.name, out.node.number, to, out.alone, out.together)),
            )

    def digest(self) -> str:
        """Digest of a trace; equal only for equal steps, messages and outputs."""
        text = hashlib.sha256()
        for _, item in self.items():
            text.update(hashlib.sha256(item.encode()).digest())
        return text.hexdigest()

    def forget(self) -> None:
        """Free the values of the run; steps, messages and outputs stay, and can be read."""
        for node in self.nodes:
            node.value = None
        self.messages = [
            dataclasses.replace(m, parts=tuple(Part(p.node, None, p.holder) for p in m.parts))
            for m in self.messages
        ]
        self.outputs = [dataclasses.replace(one, value=None) for one in self.outputs]
        run = (self.left, self.models, self.checkpointed, self.arriving, self.inputs)
        for kept in (*run, self._ran, self._copies):
            kept.clear()

    def differs(self, other: Trace) -> str:
        """First step, message or output in which another trace differs; "" if none."""
        for one, two in itertools.zip_longest(self.items(), other.items()):
            if one is None or two is None or one[1] != two[1]:
                return (one or two)[0]
        return ""


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return functions.same(one, other) if not np.isscalar(one) else repr(one) == repr(other)


def _parts(payload: Any, sender: int, found: list[Part]) -> Any:
    """Append a payload's protected values to `found`; return the public rest, or FlowError."""
    if isinstance(payload, Model):
        raise FlowError(f"send: {describe(payload)} is not sent as a whole")
    if isinstance(payload, Protected):
        if payload._home not in (None, sender):
            raise FlowError(f"{name_of(sender)} sends {describe(payload)}: it does not have it")
        if isinstance(payload, SealingKey):  # made of chance alone
            return f"a key for party {payload._holder}"
        if payload._node is None:
            raise FlowError(f"send: {describe(payload)} was made outside of the trace")
        holder, value = None, payload._value
        if isinstance(payload, Sealed):
            holder, value = payload._holder, payload._value._value
        elif isinstance(payload, Ciphertext):
            assert payload._inside is not None
            holder, value = payload._holder, payload._inside._value
        elif isinstance(payload, Key):
            value = payload._node.value
        found.append(Part(payload._node, value, holder))
        return f"part {len(found)}"
    if type(payload) is dict:
        if not all(isinstance(key, str | int | bytes) for key in payload):
            raise FlowError("send: the keys of a dictionary must be public texts or integers")
        return {key: _parts(value, sender, found) for key, value in payload.items()}
    if type(payload) in (list, tuple):
        return [_parts(value, sender, found) for value in payload]
    if dataclasses.is_dataclass(payload) and not isinstance(payload, type):
        fields = dataclasses.fields(payload)
        if set(vars(payload)) != {field.name for field in fields}:
            raise FlowError(f"send: {type(payload).__name__} has attributes beside its fields")
        name = type(payload).__name__
        return [name, *(_parts(getattr(payload, f.name), sender, found) for f in fields)]
    if isinstance(payload, np.ndarray) or not functions.is_public(payload):
        if isinstance(payload, np.ndarray) and payload.dtype != object:
            return payload
        raise FlowError(
            f"send: a {type(payload).__name__} is neither a protected value nor a public one; "
            "payloads are values, tuples, lists, dictionaries and dataclasses of them"
        )
    return payload


def key_of(node: Node) -> Any:
    """Identity of a key: its node, or the origin of an agreed or derived key."""
    if node.op == "agreed":
        use, ends = node.data or ((), (0, 0))
        pair = node.args[0].number, node.args[1].args[0].number
        return frozenset(zip(pair, ends, strict=True)), use
    if node.op == "prf":
        return ("derived", key_of(node.args[0]), node.data)
    return node.number


def received(payload: Any, to: int | None) -> Any:
    """The payload as held by its receiver: the same values, owned by it."""
    if isinstance(payload, Protected):
        made = object.__new__(type(payload))
        for cls in type(payload).__mro__:
            for name in getattr(cls, "__slots__", ()):
                setattr(made, name, getattr(payload, name))
        made._home = to
        return made
    if type(payload) is dict:
        return {key: received(value, to) for key, value in payload.items()}
    if type(payload) in (list, tuple):
        return type(payload)(received(value, to) for value in payload)
    if dataclasses.is_dataclass(payload) and not isinstance(payload, type):
        values = {
            f.name: received(getattr(payload, f.name), to) for f in dataclasses.fields(payload)
        }
        return type(payload)(**values)
    return payload


@dataclasses.dataclass(frozen=True)
class _Two:
    """Field of two elements, which `PrimeField` excludes; for small counting tests."""

    modulus: int = 2

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint32)

    def reduce(self, values: Any) -> Array:
        return np.asarray(np.mod(np.asarray(values, dtype=object), 2)).astype(self.dtype)

    def elements(self, values: Any, name: str = "elements") -> Array:
        array = np.asarray(values)
        if array.size and int(array.max()) > 1:
            raise FlowError("elements of F_2 are 0 and 1")
        return array.astype(self.dtype)

    def random(self, shape: Any, source: Any = None) -> Array:
        from securevfl.field import sampling

        return sampling.uniform(2, self.dtype, shape, source)

    def add(self, one: Any, other: Any) -> Array:
        return self.reduce(np.add(one, other))

    subtract = add

    def multiply(self, one: Any, other: Any) -> Array:
        return self.reduce(np.multiply(one, other))

    def matmul(self, one: Any, other: Any, *, trusted: bool = False) -> Array:
        return self.reduce(np.asarray(one, np.int64) @ np.asarray(other, np.int64))


def field_of(modulus: int) -> Any:
    """Arithmetic of F_p on arrays, also of p = 2."""
    if modulus == 2:
        return _Two()
    from securevfl.field.prime_field import PrimeField

    return PrimeField(modulus)


MOST_CALLS = 50  # in each other, before what a value is computed from is looked at in order


def in_order(number: int, below: Callable[[int], Iterable[int]]) -> list[int]:
    """Blocks from which a block is computed, each after its own origins.

    It avoids recursion, which Python limits to about a thousand calls: a model of many rounds is a
    longer chain.
    """
    order, todo, seen = list[int](), [(number, False)], set[int]()
    while todo:
        one, done = todo.pop()
        if done:
            order.append(one)
        elif one not in seen:
            seen.add(one)
            todo.append((one, True))
            todo.extend((b, False) for b in below(one) if b not in seen)
    return order[:-1]
