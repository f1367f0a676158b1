"""Values with which a party of a verified protocol computes.

A protected value has a public shape, a home (the party that has it) and, in a traced run, a node of
the trace, which records its origin. It also has its numbers, so that the same code trains in an
ordinary, untraced run. It cannot be converted to a boolean, a number, a NumPy array or a text, so
it cannot decide control flow, a size or a time. Only the listed operations exist, and a proof
treats `map` as an opaque function of all arguments.

- `Element`: an array over F_p. Linear operations with public numbers are exact in a proof.
- `Secret`: an array of real numbers or of another type; only `map` computes on it.
- `Model`: the state of a network and its optimiser; only functions passed to it can use it.
- `Key`: 32 bytes for `prf`, and for nothing else.
- `Bytes`: a signature, or the key that verifies it.
- `PublicKey`, `Sealed`, `Clipped`, `Noised`: see the methods of `parties` that return them.
- `Ciphertext`, `SealingKey`, `OpeningKey`: see `ciphertexts`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from securevfl.verified import functions
from securevfl.verified.functions import FlowError

if TYPE_CHECKING:
    from securevfl.field.prime_field import PrimeField

Node: TypeAlias = Any  # of `securevfl.verified.trace`, which is written with these values
Trace: TypeAlias = Any
Array = np.ndarray[Any, Any]

_current: list[Trace] = []
#: Home of values of declared outputs: no party has them.
IDEAL = -2


@contextlib.contextmanager
def tracing(world: Trace) -> Iterator[Trace]:
    """Context that traces values made inside; parties made here record in `world`."""
    _current.append(world)
    try:
        yield world
    finally:
        _current.pop()


def current() -> Trace | None:
    """Trace being recorded; None in an ordinary run."""
    return _current[-1] if _current else None


def _refuse(what: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *args: Any, **named: Any) -> NoReturn:
        raise FlowError(f"{what} of {describe(self)}: it is protected. {instead}")

    return refuse


_COMPUTE = "Field elements have field operations; all else is map(function, ...)"
_FLOW = "It must not decide what happens next; send it, or make it part of a declared output"
_SHOWN = "It must not leave its wrapper; send it, or map it"


class Protected:
    """A value that is accessible only through its own methods."""

    __slots__ = ("_field", "_home", "_node", "_value", "_world")
    __hash__ = object.__hash__
    __array_ufunc__ = None
    for _name in ("bool", "eq", "ne", "lt", "le", "gt", "ge", "contains"):
        locals()[f"__{_name}__"] = _refuse("a truth value", _FLOW)
    for _name in ("len", "index", "int", "float", "complex", "round", "trunc", "floor", "ceil"):
        locals()[f"__{_name}__"] = _refuse("a number", f"{_FLOW}. Sizes are in .shape")
    for _name in ("iter", "reversed", "setitem", "delitem", "array"):
        locals()[f"__{_name}__"] = _refuse("the entries", _COMPUTE)
    for _name in ("format", "str", "bytes", "buffer", "reduce", "reduce_ex", "copy", "deepcopy"):
        locals()[f"__{_name}__"] = _refuse("a text or a copy", _SHOWN)
    for _name in (
        *("add", "sub", "mul", "matmul", "divmod", "truediv", "floordiv", "mod", "pow"),
        *("and", "or", "xor", "lshift"),
    ):
        locals()[f"__{_name}__"] = _refuse(f"the operation {_name}", _COMPUTE)
        locals()[f"__r{_name}__"] = _refuse(f"the operation {_name}", _COMPUTE)
    for _name in ("neg", "pos", "abs", "invert"):
        locals()[f"__{_name}__"] = _refuse(f"the operation {_name}", _COMPUTE)
    __getitem__: Any = _refuse("the entries", _COMPUTE)
    del _name

    def __init__(
        self,
        value: Any,
        node: Node | None,
        home: int | None,
        world: Trace | None,
        field: PrimeField | None = None,
    ) -> None:
        if world is not None and isinstance(value, np.ndarray):  # a trace tells values by views
            value = value.view()
            value.flags.writeable = False
        self._value, self._node, self._home = value, node, home
        self._world, self._field = world, field

    def __repr__(self) -> str:
        return f"<{describe(self)}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value, which is public."""
        return tuple(np.shape(self._value))


def describe(value: Any) -> str:
    """Kind, party and origin of a value, for an error."""
    if not isinstance(value, Protected):
        return f"{type(value).__name__} {value!r:.60}"
    kind = type(value).__name__
    shape = "" if isinstance(value, Key | Bytes | Model) else f" {value.shape}"
    home = "" if value._home is None else f" of {_party(value._home)}"
    source = "" if value._node is None else f", made of {value._node.origin()}"
    return f"{kind}{shape}{home}{source}"


def _party(index: int) -> str:
    if index == IDEAL:
        return "the declared outputs"
    return "the server" if index == -1 else f"party {index}"


def home_of(values: Sequence[Any], at: int | None = None) -> int | None:
    """Party that owns all of these values.

    FlowError if they belong to two parties, or not to party `at`.
    """
    home = at
    for value in values:
        if not isinstance(value, Protected) or value._home is None or value._home == home:
            continue
        one = value._home
        if home is None:
            home = one
            continue
        said = "; ".join(describe(v) for v in values if isinstance(v, Protected))
        every = {at, *(value._home for value in values if isinstance(value, Protected))}
        whose = " and ".join(_party(n) for n in sorted(n for n in every if n is not None))
        raise FlowError(
            f"values of {whose} in one operation, and nothing was sent: {said}. Send it first, and "
            "use what the receiver gets"
        )
    return home


class Element(Protected):
    """An array of elements of F_p.

    ``+``, ``-``, public integers on either side of ``*``, public integer matrices on either side of
    ``@``, slices, `rows`, ``.T``, `reshape`, `sum` and `concatenate` are linear, and exact in a
    proof. The matrix product of two Elements is exact, too. ``*`` of two Elements is opaque.
    """

    __slots__ = ()
    _field: PrimeField

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value, which is public."""
        return self._value.shape  # type: ignore[no-any-return]

    def _made(self, value: Array, op: str, args: Sequence[Any], data: Any = None) -> Element:
        """Element that results from an operation; `args` are Elements."""
        home, world, node = self._home, self._world, None
        for one in args:
            if one._home != home:
                home = home_of(args)
        if world is not None:
            nodes = [one._node for one in args]
            node = world.node(op, nodes, data, shape=value.shape)
        return Element(value, node, home, world, self._field)

    def _operand(self, other: Any, what: str) -> Element:
        """Other operand; public integers become a public element; FlowError for another field."""
        if isinstance(other, Element):
            if other._field.modulus != self._field.modulus:
                raise FlowError(
                    f"{what} of elements of two fields, modulo {self._field.modulus} and "
                    f"{other._field.modulus}"
                )
            return other
        if isinstance(other, Protected):
            raise FlowError(
                f"{what} of {describe(self)} and {describe(other)}: a real value becomes field "
                "elements by map(FixedPoint.quantize), an element a real one by map(dequantize)"
            )
        array = integers(other, what)
        reduced = np.reshape(self._field.reduce(array), array.shape)
        return public_element(reduced, self._field, self._world)

    def _sum(self, other: Any, factor: int, turned: bool = False) -> Element:
        added = self._operand(other, "sum")
        if not isinstance(other, Element) and added.shape != self.shape:
            added = public_element(self._spread(added), self._field, self._world)
        if added.shape != self.shape:
            raise FlowError(
                f"sum of {describe(self)} and {describe(added)}: the shapes must be equal"
            )
        one, two = (added, self) if turned else (self, added)
        if factor == 1:
            return self._made(self._field.add(one._value, two._value), "sum", (one, two), (1, 1))
        value = self._field.subtract(one._value, two._value)
        return self._made(value, "sum", (one, two), (1, self._field.modulus - 1))

    def __add__(self, other: Any) -> Element:
        return self._sum(other, 1)

    def __radd__(self, other: Any) -> Element:
        if isinstance(other, int) and not isinstance(other, bool) and other == 0:
            return self  # so that sum() works
        return self._sum(other, 1, turned=True)

    def __sub__(self, other: Any) -> Element:
        return self._sum(other, -1)

    def __rsub__(self, other: Any) -> Element:
        return self.times(-1)._sum(other, 1)

    def __neg__(self) -> Element:
        return self.times(-1)

    def __pos__(self) -> Element:
        return self

    def _spread(self, public: Element) -> Array:
        """Public number, row or array broadcast to this value's shape; FlowError if it does not."""
        try:
            return np.broadcast_to(public._value, self.shape)
        except ValueError:
            raise FlowError(
                f"a public array {public.shape} does not fit {describe(self)}; reshape this value, "
                "or write a product with a public matrix"
            ) from None

    def times(self, factor: Any) -> Element:
        """Product with one public integer.

        FlowError if it is no integer, because a field has no fractions.
        """
        c = self._factor(factor)
        value = self._field.multiply(self._value, self._field.reduce(c))
        return self._made(value, "sum", (self,), (c,))

    def _factor(self, factor: Any) -> int:
        """Public integer `factor` modulo p; FlowError for any other type."""
        if isinstance(factor, bool) or not isinstance(factor, (int, np.integer)):
            raise FlowError(
                f"times({describe(factor)}) of {describe(self)}: a whole number is needed. A real "
                "factor belongs before quantisation, in a map"
            )
        return int(factor) % self._field.modulus

    def __mul__(self, other: Any) -> Element:
        if isinstance(other, int | np.integer | bool | float):
            return self.times(other)
        factor = self._operand(other, "product")
        if not isinstance(other, Element):
            weights = self._spread(factor)
            value = self._field.multiply(self._value, weights)
            return self._made(value, "weigh", (self,), np.ascontiguousarray(weights))
        product: Element = self.map(elementwise_product, other, self._field)
        return product

    __rmul__ = __mul__

    def __matmul__(self, other: Any) -> Element:
        return self._matmul(self, self._operand(other, "matrix product"))

    def __rmatmul__(self, other: Any) -> Element:
        return self._matmul(self._operand(other, "matrix product"), self)

    def _matmul(self, one: Element, two: Element) -> Element:
        if len(one.shape) != 2 or len(two.shape) != 2 or one.shape[1] != two.shape[0]:
            raise FlowError(
                f"matrix product of {describe(one)} and {describe(two)}: two matrices are needed, "
                "with as many columns as rows; reshape vectors first"
            )
        value = self._field.matmul(one._value, two._value, trusted=True)
        return self._made(value, "matmul", (one, two))

    def _index(self, places: Array, value: Any) -> Element:
        """New element with the numbers `value`: entries of this one at flat positions `places`."""
        return self._made(np.array(value, order="C"), "index", (self,), np.array(places))

    def _seen(self, value: Any) -> Element:
        """Entries of this value in an ordinary run, as a view if NumPy permits."""
        return Element(np.asarray(value), None, self._home, None, self._field)

    def _places(self) -> Array:
        return np.arange(math.prod(self.shape), dtype=np.int64).reshape(self.shape)

    def __getitem__(self, key: Any) -> Element:
        """Publicly chosen entries, as from a NumPy array; FlowError for protected or no indices."""
        try:
            if self._world is None:
                return self._seen(self._value[key])
            return self._index(np.asarray(self._places()[key]), self._value[key])
        except IndexError as error:
            raise FlowError(f"entries of {describe(self)}: {error}") from None

    def rows(self, chosen: Any) -> Element:
        """Rows by public whole numbers, (m,), from the end if negative; FlowError for others."""
        if isinstance(chosen, Protected):
            raise FlowError(f"rows chosen by {describe(chosen)}: the choice must be public")
        numbers = np.asarray(chosen)
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
            raise FlowError(
                f"rows of {describe(self)}: whole numbers in one dimension are needed, not "
                f"{numbers.dtype} {numbers.shape}; np.flatnonzero makes them of a mask"
            )
        return self[numbers.astype(np.int64)]

    @property
    def T(self) -> Element:
        """The transposed array."""
        if self._world is None:
            return self._seen(self._value.T)
        return self._index(self._places().T, self._value.T)

    def reshape(self, *shape: Any) -> Element:
        """The same entries in another shape; FlowError for another number of entries."""
        whole = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        try:
            if self._world is None:
                return self._seen(self._value.reshape(whole))
            return self._index(self._places().reshape(whole), self._value.reshape(whole))
        except ValueError:
            raise FlowError(f"reshape of {describe(self)} to {whole}: another size") from None

    def sum(self, axis: int | None = None) -> Element:
        """Sum of all entries, (), or along an axis."""
        if axis is None:
            places, values = self._places().reshape(-1), self._value.reshape(-1)
        else:
            places, values = (np.moveaxis(a, axis, 0) for a in (self._places(), self._value))
        each = zip(places, values, strict=True)
        return combination((1, self._index(np.asarray(place), value)) for place, value in each)

    def map(
        self,
        function: Callable[..., Any],
        *others: Any,
        shape: Sequence[int] | None = None,
        real: bool = False,
        dtype: Any = np.float64,
    ) -> Any:
        """A local function of this and other values; in proofs it depends on all of them.

        Parameters
        ----------
        function : callable
            Function of a module. It receives read-only arrays, and its result must depend on its
            arguments only.
        *others
            Protected values (not in lists), and public ones.
        shape : sequence of int, optional
            Public shape of the result; by default that of this value.
        real : bool
            Whether the result is a Secret of `dtype`, else an Element.

        Raises
        ------
        FlowError
            If an argument is neither protected nor public, or values belong to two parties; in a
            traced run also if the function may depend on more than its arguments.
        """
        kind = ("real", np.dtype(dtype)) if real else ("field", self._field)
        return mapped(function, (self, *others), self.shape if shape is None else shape, kind)


class Secret(Protected):
    """An array of numbers that are no field elements: columns, labels, weights, gradients."""

    __slots__ = ()

    def map(
        self,
        function: Callable[..., Any],
        *others: Any,
        shape: Sequence[int] | None = None,
        field: PrimeField | None = None,
        dtype: Any = None,
    ) -> Any:
        """A local function of this and other values; an Element if `field` is given.

        Parameters and errors are those of `Element.map`.
        """
        kind: tuple[str, Any] = ("field", field)
        if field is None:
            kind = ("real", self._value.dtype if dtype is None else np.dtype(dtype))
        return mapped(function, (self, *others), self.shape if shape is None else shape, kind)

    def clip(self, bound: float) -> Clipped:
        """Each row scaled to an L2 norm of at most `bound`.

        FlowError unless it is a matrix, and `bound` above 0 and finite.
        """
        from securevfl.privacy.mechanisms import clip_finite_rows

        if not 0 < bound < math.inf:
            raise FlowError(f"clip({bound}) of {describe(self)}: positive and finite, please")
        if len(self.shape) != 2:
            raise FlowError(f"clip of {describe(self)}: a norm is bounded of each row of a matrix, "
                            "so give each record one row")  # fmt: skip
        found = self.map(clip_finite_rows, float(bound), dtype=np.float64)
        return Clipped(found._value, found._node, found._home, found._world, float(bound))


class Clipped(Secret):
    """Rows with bounded L2 norm, which a noise mechanism may release."""

    __slots__ = ("_bound",)

    def __init__(
        self, value: Array, node: Node | None, home: int | None, world: Trace | None, bound: float
    ) -> None:
        super().__init__(value, node, home, world)
        self._bound = bound


class Noised(Secret):
    """Released rows with noise of a differentially private mechanism, counted in the cost."""

    __slots__ = ()


class Key(Protected):
    """Key of 32 secret bytes for `prf` and `agree`, which can also be sent."""

    __slots__ = ()


class Bytes(Protected):
    """Bytes made by a function, such as a signature; they can be sent and mapped."""

    __slots__ = ()

    def map(
        self,
        function: Callable[..., Any],
        *others: Any,
        shape: Sequence[int] = (),
        dtype: Any = np.int64,
    ) -> Any:
        """A local function of these bytes and `others`: a Secret of `shape` and `dtype`.

        Arguments and errors are those of `Element.map`.
        """
        return mapped(function, (self, *others), shape, ("real", np.dtype(dtype)))


class PublicKey(Bytes):
    """Public half of a key, which anybody may have."""

    __slots__ = ()


class Sealed(Protected):
    """Ciphertext under one party's key; anybody can add ciphertexts."""

    __slots__ = ("_holder",)

    def __init__(
        self, inside: Any, node: Node | None, home: int | None, world: Trace | None, holder: int
    ) -> None:
        super().__init__(inside, node, home, world)
        self._holder = holder

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the plaintext."""
        return tuple(self._value.shape)

    def __add__(self, other: Any) -> Sealed:
        if not isinstance(other, Sealed) or other._holder != self._holder:
            raise FlowError(f"sum of {describe(self)} and {describe(other)}: two ciphertexts under "
                            "one key are needed")  # fmt: skip
        home = home_of((self, other))
        inside = self._value + other._value
        return Sealed(inside, inside._node, home, self._world, self._holder)


class SealingKey(Protected):
    """Public key under which anybody can encrypt for the party that made it."""

    __slots__ = ("_holder",)

    def __init__(
        self, value: Any, node: Any, home: int | None, world: Any, holder: int | None = None
    ) -> None:
        super().__init__(value, node, home, world)
        self._holder = holder


class OpeningKey(Protected):
    """Secret key for decryption, which stays with the party that made it."""

    __slots__ = ()


class Ciphertext(Protected):
    """Ciphertexts of a block of field elements: bytes that the key's holder can decrypt.

    In a trace `_inside` is their plaintext, which only the trace reads.
    """

    __slots__ = ("_holder", "_inside")

    def __init__(
        self,
        value: Any,
        node: Any,
        home: int | None,
        world: Any,
        holder: int | None = None,
        inside: Element | None = None,
    ) -> None:
        super().__init__(value, node, home, world)
        self._holder, self._inside = holder, inside


class Model(Protected):
    """A network with its optimiser: a protected state, passed to functions as an object.

    `call` computes with it, `step` changes it. A proof takes results as dependent on the whole
    state. The object has ``state_dict`` and ``load_state_dict``, for the engine's checkpoints.
    """

    __slots__ = ()

    def call(
        self,
        function: Callable[..., Any],
        *others: Any,
        shape: Sequence[int] = (),
        dtype: Any = np.float32,
        field: PrimeField | None = None,
        shapes: Sequence[Sequence[int]] = (),
        of: Sequence[Any] = (),
    ) -> Any:
        """Result of ``function(model, *others)``, which must not change the model.

        With `shapes` the function returns one array per shape, of the fields or dtypes in `of`;
        FlowError as in `step`.
        """
        if shapes:
            return self._results(function, others, shapes, of, changes=0)
        kind = ("field", field) if field is not None else ("real", np.dtype(dtype))
        return mapped(function, (self, *others), shape, kind)

    def step(
        self,
        function: Callable[..., Any],
        *others: Any,
        shapes: Sequence[Sequence[int]] = (),
        of: Sequence[Any] = (),
        changes: int = 1,
    ) -> tuple[Any, ...]:
        """Results of ``function(model, *others)``, which changes the model and returns arrays.

        Parameters
        ----------
        shapes : sequence
            Shapes of the returned arrays; by default it returns none.
        of : sequence of PrimeField or dtype
            Field or dtype of each array; float32 by default.
        changes : int
            Number of models that it changes: this one and the first ``changes - 1`` of `others`.

        Raises
        ------
        FlowError
            If an argument is neither protected nor public, or values belong to two parties.
        """
        return self._results(function, others, shapes, of, changes=changes)

    def _results(
        self,
        function: Callable[..., Any],
        others: Sequence[Any],
        shapes: Sequence[Sequence[int]],
        of: Sequence[Any],
        *,
        changes: int,
    ) -> tuple[Any, ...]:
        """A function's results, of `shapes` and kinds `of`; the first `changes` models are moved.

        FlowError if fewer of the first values are models.
        """
        values = (self, *others)
        home, _, given = _taken(values)
        models = values[:changes]
        if len({id(one) for one in models if isinstance(one, Model)}) < changes:
            said = ", ".join(map(describe, models))
            raise FlowError(f"step: {changes} models are to be changed, and the first are {said}")
        kinds = [_kind(one) for one in of or [np.float32] * len(shapes)]
        if self._world is None:
            found = function(*given)
            every = zip(_tuple(found, shapes), shapes, kinds, strict=True)
            return tuple(
                wrapped(_shaped(one, shape, kind), kind, None, home, None)
                for one, shape, kind in every
            )
        if changes:
            made = self._world.called(_advanced, (changes, *values), function=function)
        else:
            made = self._world.called(function, values)
        results = tuple(
            made.result(k, tuple(shape), kind, home)
            for k, (shape, kind) in enumerate(zip(shapes, kinds, strict=True), changes)
        )
        for k, model in enumerate(models):
            advanced = made.result(k, (), ("model", None), home)
            model._node, model._value = advanced._node, advanced._value
        return results

    def state_dict(self) -> Any:
        """State for the engine's checkpoints; in a trace, a reference to the model."""
        if self._world is not None:
            return self._world.keep(self)
        return self._value.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Restore the state returned by `state_dict`."""
        if self._world is not None:
            kept = self._world.kept_at(state)
            self._value, self._node = functions.copied(kept._value), kept._node
            return
        self._value.load_state_dict(state)


def _advanced(changes: int, *values: Any, function: Callable[..., Any]) -> tuple[Any, ...]:
    """The first `changes` values, which are models, after a step, followed by its results."""
    after = [functions.copied(model) for model in values[:changes]]
    found = function(*after, *values[changes:])
    return (*after, *(found if isinstance(found, tuple) else () if found is None else (found,)))


@functools.lru_cache
def _kind(of: Any) -> tuple[str, Any]:
    """Kind of a result: ("field", the field) for elements, ("real", dtype) for numbers."""
    return ("field", of) if hasattr(of, "modulus") else ("real", np.dtype(of))


def _shaped(found: Any, shape: Sequence[int], kind: tuple[str, Any]) -> Any:
    if kind[0] == "field":
        return fitted(found, shape, kind)
    return np.asarray(found, kind[1]).reshape(shape)


def _tuple(found: Any, shapes: Sequence[Any]) -> tuple[Any, ...]:
    if not shapes:
        return ()
    return found if isinstance(found, tuple) else (found,)


def elementwise_product(one: Array, other: Array, field: PrimeField) -> Array:
    """Products of two arrays of elements, entry by entry."""
    return field.multiply(one, other)


_UNSEEN = (Sealed, Key, Ciphertext, SealingKey, OpeningKey)


def bare(value: Any) -> Any:
    """Plain array or number that a function receives for an argument of `map`.

    FlowError for a key or ciphertext, and for what is neither protected nor public.
    """
    if isinstance(value, Protected):
        if isinstance(value, _UNSEEN):
            raise FlowError(f"map of {describe(value)}: keys are for prf, ciphertexts for decrypt")
        return value._value
    if functions.is_public(value):
        return value
    raise FlowError(
        f"map: {type(value).__name__} is neither a protected value by itself nor a public one; "
        "give protected values one by one, as map(f, *values), not in a list or an object"
    )


def _taken(values: Sequence[Any]) -> tuple[int | None, Trace | None, list[Any]]:
    """Owner and trace of a function's arguments, and the bare arguments.

    Only a traced run checks that the other arguments are public.
    """
    home, world, given = None, None, []
    for value in values:
        if isinstance(value, Protected):
            if value._world is not None:
                world = value._world
            if value._home != home and value._home is not None:
                home = value._home if home is None else home_of(values)
            value = value._value if not isinstance(value, _UNSEEN) else bare(value)
        if isinstance(value, np.ndarray) and value.flags.writeable:
            value = functions.locked(value)
        given.append(value)
    return home, world, given


def fitted(found: Any, shape: Sequence[int], kind: tuple[str, Any]) -> Any:
    """A function's result with its declared shape and kind (`_kind`); FlowError for others."""
    what, of = kind
    if what == "model":
        return found
    if isinstance(found, Protected):
        raise FlowError("map: the function returned a protected value; it gets and returns arrays")
    if what == "signature":
        return bytes(found)
    array = np.asarray(found)
    if array.shape != tuple(shape):
        raise FlowError(
            f"map: the function returned the shape {array.shape}, and {tuple(shape)} was declared; "
            "a shape must not depend on protected values"
        )
    if what == "field":
        if array.dtype.kind == "f":
            raise FlowError("map: real numbers are no field elements; quantise them, or say real")
        found = of.elements(array) if array.dtype.kind == "u" else of.reduce(array)
        return np.asarray(found).reshape(array.shape)  # () is an array, too
    if array.dtype == object:
        raise FlowError("map: an array of objects is no number")
    return array.astype(of)


def mapped(
    function: Callable[..., Any],
    values: Sequence[Any],
    shape: Sequence[int],
    kind: tuple[str, Any],
    **named: Callable[..., Any],
) -> Any:
    """Protected result of a call on `values`, traced; `named`: arguments that are functions."""
    home, world, given = _taken(values)
    shape = tuple(map(int, shape))
    if world is not None:
        return world.called(function, values, **named).result(None, shape, kind, home)
    return wrapped(fitted(function(*given, **named), shape, kind), kind, None, home, None)


_KINDS: Mapping[str, type[Protected]] = {
    "model": Model,
    "key": Key,
    "public key": PublicKey,
    "signature": Bytes,
    "noised": Noised,
    "sealing key": SealingKey,
    "opening key": OpeningKey,
    "sealed": Ciphertext,
}


def picked(place: Callable[..., int], given: Sequence[Any], among: Sequence[Secret]) -> Secret:
    """One of several values of one shape, at a secret place; it depends on all of them.

    Parameters
    ----------
    place : callable
        Function of a module that returns the place from `given`.
    given : sequence
        Protected values (not in lists), and public ones.
    among : sequence of Secret
        Values to pick from. An ordinary run reads only the one at the place, so there may be many.
    """
    first = among[0]
    if first._world is None:
        found = among[functions.call(place, [bare(one) for one in given])]
        home = home_of((found, *given))
        return Secret(found._value, None, home, None)
    kind = ("real", first._value.dtype)
    values = (len(given), *given, *among)
    chosen: Secret = mapped(_picked, values, first.shape, kind, place=place)
    return chosen


def _picked(count: int, *values: Any, place: Callable[..., int]) -> Array:
    """The value at the place found from the first `count` values, among the others."""
    found: Array = values[count:][place(*values[:count])]
    return found


def wrapped(
    value: Any, kind: tuple[str, Any], node: Node | None, home: int | None, world: Trace | None
) -> Any:
    """A bare value in the protected type of its kind (`_kind`), owned by `home` (None: all)."""
    what, of = kind
    if what == "field":
        return Element(value, node, home, world, of)
    return _KINDS.get(what, Secret)(value, node, home, world)


def integers(value: Any, what: str) -> Array:
    """Public array of integers, checked.

    FlowError for other numbers, because a field has no fractions.
    """
    array = np.asarray(value)
    whole = array.dtype.kind in "iu" or (
        array.dtype == object and all(type(one) is int for one in array.flat)
    )
    if not whole:
        raise FlowError(
            f"{what} of field elements and {describe(value)}: whole numbers are needed; quantise "
            "real ones first"
        )
    return array


def public_element(value: Array, field: PrimeField, world: Trace | None) -> Element:
    """A public array as an Element known to everybody."""
    value = np.array(value, order="C")
    node = None if world is None else world.node("public", (), value, shape=value.shape)
    return Element(value, node, None, world, field)


def concatenate(values: Sequence[Element], axis: int = 0) -> Element:
    """Elements joined along an axis, as in numpy.concatenate; FlowError for other values."""
    values = list(values)
    if set(map(type, values)) != {Element}:
        raise FlowError("concatenate: a list of Elements is needed")
    return _placed(values, np.concatenate([one._value for one in values], axis), axis)


def stack(values: Sequence[Element]) -> Element:
    """Elements of one shape stacked, as in numpy.stack; FlowError for other values."""
    values = list(values)
    if set(map(type, values)) != {Element}:
        raise FlowError("stack: a list of Elements is needed")
    return _placed(values, np.stack([one._value for one in values]), 0)


def _placed(values: Sequence[Element], whole: Array, axis: int) -> Element:
    """Values joined along an axis; in a trace, the sum of all values at their places."""
    home, first = home_of(values), values[0]
    world, node = first._world, None
    if world is not None:
        parts, start = [], 0
        for one in values:
            numbers = np.full(whole.shape, -1, np.int64)
            size = one.shape[axis] if len(one.shape) == whole.ndim else 1
            place = (*(slice(None),) * axis, slice(start, start + size))
            numbers[place] = one._places().reshape(numbers[place].shape)
            parts.append(world.node("index", (one._node,), numbers, shape=whole.shape))
            start += size
        node = world.node("sum", parts, (1,) * len(parts), shape=whole.shape)
    return Element(whole, node, home, world, first._field)


def combination(pairs: Any, value: Array | None = None) -> Element:
    """Linear combination sum_i c_i x_i with public integers c_i; `value` is the result if known.

    FlowError if the values have different fields, shapes or parties.
    """
    pairs = list(pairs)
    first: Element = pairs[0][1]
    if value is None and first._world is None:
        terms: list[Element] = [one.times(c) for c, one in pairs]
        return sum(terms[1:], terms[0])
    weights = [one._factor(c) for c, one in pairs]
    parts = [first._operand(one, "sum") for _, one in pairs]  # of one field
    if any(one.shape != first.shape for one in parts):
        raise FlowError("sum of " + ", ".join(map(describe, parts)) + ": the shapes must be equal")
    if value is None:
        every = np.stack([one._value for one in parts]).reshape(len(parts), -1)
        row = np.array([weights], first._value.dtype)
        value = first._field.matmul(row, every).reshape(first.shape)
    return first._made(value, "sum", parts, tuple(weights))
