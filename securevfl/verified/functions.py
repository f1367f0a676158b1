"""Public values and pure functions: what may accompany a protected value, and its digest.

A function of protected values is an opaque block of a proof, known only by its identity. Two calls
are one block if the function, its public arguments and its protected inputs are equal. So a
function is identified by its code, not its name, and its result must depend on its inputs only: it
is run twice, and once more when the trace is checked.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from securevfl.errors import SecureVFLError


class FlowError(SecureVFLError, TypeError):
    """A protected value used where only public ones are permitted, or without being sent."""


_SCALARS = frozenset((bool, int, float, str, type(None)))
_CHANGING = (list, dict, set, bytearray)
_DICTS = frozenset((dict, OrderedDict, defaultdict))
_ATOMS = (type, types.FunctionType)  # of which a deep copy is the same
_PLAIN = (bool, int, float, str, bytes, np.generic, type(None))


@functools.cache
def _fields(kind: Any) -> tuple[str, ...] | None:
    """Field names of a frozen dataclass; None for another class."""
    if not dataclasses.is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[union-attr]
        return None
    return tuple(f.name for f in dataclasses.fields(kind) if f.init)


def is_public(value: Any) -> bool:
    """Whether a value is plainly public: numbers, texts, arrays, and containers of these."""
    if isinstance(value, _PLAIN):
        return True
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind != "O")
    if type(value) in (tuple, list):
        return all(is_public(one) for one in value)
    if type(value) is dict:
        return all(is_public(one) for pair in value.items() for one in pair)
    own = _fields(type(value))  # type: ignore[arg-type]  # a class has a hash
    return own is not None and all(is_public(getattr(value, name)) for name in own)


def digest(value: Any) -> str:
    """Digest of a public value; only equal values have equal digests."""
    return hashlib.sha256(_written(value)).hexdigest()[:32]


def content(value: Any) -> bytes | str:
    """A small public value as bytes, or the digest of a larger one; equal for equal values only."""
    written = _written(value)
    return written if len(written) < 256 else hashlib.sha256(written).hexdigest()[:32]


def _written(value: Any) -> bytes:
    if type(value) in _SCALARS:
        return b"v" + f"{type(value).__name__} {value!r}".encode()
    if isinstance(value, np.ndarray):
        return b"a" + _head(value.dtype, value.shape) + value.tobytes()
    if isinstance(value, np.generic):
        return b"g" + repr((value.dtype.str, value.tobytes())).encode()
    if type(value) in (tuple, list):
        return b"l" + _joined(_written(one) for one in value)
    if type(value) is dict:
        pairs = sorted(_joined((_written(k), _written(v))) for k, v in value.items())
        return b"d" + _joined(pairs)
    if isinstance(value, set | frozenset):
        return b"s" + _joined(sorted(_written(one) for one in value))
    if isinstance(value, types.CodeType):
        return b"c" + code_digest(value).encode()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = [f.name for f in dataclasses.fields(value) if f.init]
        fields = _joined(_written(getattr(value, name)) for name in own)
        return b"o" + type(value).__qualname__.encode() + fields
    return b"v" + f"{type(value).__name__} {value!r}".encode()


def _joined(parts: Any) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


@functools.cache
def _names(code: types.CodeType) -> frozenset[str]:
    """Names of globals and attributes in a code object and what is nested in it.

    A comprehension is nested until Python 3.11, a generator or lambda always. A class within has
    annotations of its own.
    """
    nested = (_names(one) for one in code.co_consts if isinstance(one, types.CodeType))
    return frozenset(code.co_names).union(*nested) - {"__annotations__"}


@functools.cache
def code_digest(code: types.CodeType) -> str:
    """Digest of a code object, the same in every process."""
    parts = [code.co_code, _written(list(code.co_consts)), repr(code.co_names).encode()]
    parts.append(repr((code.co_argcount, code.co_kwonlyargcount, code.co_varnames)).encode())
    return hashlib.sha256(_joined(parts)).hexdigest()[:32]


def identity(function: Callable[..., Any]) -> str:
    """Text that identifies a function.

    FlowError if it may depend on more than its arguments: a method, a closure, an object.
    """
    if isinstance(function, functools.partial):
        parts = (*function.args, *(function.keywords or {}).items())
        if not all(is_public(one) for one in parts):
            raise FlowError("map: a partial function may hold public values only; give the "
                            "protected ones to map as arguments")  # fmt: skip
        return f"{identity(function.func)}({digest(list(parts))})"
    if isinstance(function, types.MethodType):
        if not is_public(function.__self__):
            raise FlowError(
                f"map: {function.__qualname__} is a method of an object that may change or hold "
                "protected values; give map a function of the module, and these as arguments"
            )
        return f"{identity(function.__func__)}@{digest(function.__self__)}"
    if isinstance(function, np.ufunc) and getattr(np, function.__name__, None) is function:
        return f"numpy.{function.__name__}"
    if isinstance(function, types.FunctionType):
        if function.__closure__:
            names = ", ".join(function.__code__.co_freevars)
            raise FlowError(
                f"map: {function.__qualname__} holds {names} from around it; a function of the "
                "module takes them as arguments"
            )
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
        if not all(is_public(one) for one in defaults):
            raise FlowError(f"map: defaults of {function.__qualname__} must be public values")
        for name in sorted(_names(function.__code__)):
            if isinstance(function.__globals__.get(name), _CHANGING):
                raise FlowError(
                    f"map: {function.__qualname__} uses {name} of its module, which may change "
                    "between calls or keep what it was given; use a tuple, or give it as argument"
                )
        own = f"{function.__module__}.{function.__qualname__}"
        return f"{own}#{code_digest(function.__code__)}{digest(defaults) if defaults else ''}"
    module, name = (getattr(function, a, None) or "" for a in ("__module__", "__name__"))
    found = getattr(sys.modules.get(module), name, None)
    if callable(function) and module.partition(".")[0] == "numpy" and found is function:
        return f"{module}.{name}"  # no object of a class of numpy: it has what it was made with
    raise FlowError(f"map: {function!r} must be a function of a module, not an object")


def same(one: Any, other: Any) -> bool:
    """Whether two results of a function are equal, down to the last bit."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and one.tobytes() == other.tobytes()
    return fingerprint(one) == fingerprint(other)


def fingerprint(value: Any) -> str:
    """Digest of a model's state (``state_dict``) or of a public value."""
    parts: list[Any] = []
    _feed(parts.append, value.state_dict() if hasattr(value, "state_dict") else value)
    return hashlib.sha256(b"".join(parts)).hexdigest()[:32]


def _feed(take: Callable[[Any], None], value: Any) -> None:
    """Pass a value to `take` as bytes, part by part, each preceded by its kind and size."""
    kind = type(value)
    if kind is str:
        take(_text(value))
    elif kind in _SCALARS:
        text = f"{kind.__name__} {value!r}".encode()
        take(b"v%d:%b" % (len(text), text))
    elif isinstance(value, dict):
        take(b"d%d:" % len(value))
        for key in sorted(value, key=repr if {*map(type, value)} == {str} else _written):
            _feed(take, key)
            _feed(take, value[key])
    elif isinstance(value, list | tuple):
        take(b"l%d:" % len(value))
        for one in value:
            _feed(take, one)
    elif hasattr(value, "detach"):
        array = (value.detach() if value.requires_grad else value).cpu().numpy()
        take(_head(array.dtype, array.shape))
        take(array.tobytes())
    else:
        text = _written(value)
        take(b"w%d:%b" % (len(text), text))


def parts_of(model: Any) -> set[Any]:
    """Objects with a state, and memory of tensors and writeable arrays, inside a model."""
    found: set[Any] = set()
    todo, seen = [model], set()
    while todo:
        one = todo.pop()
        if id(one) in seen or type(one) in _SCALARS:
            continue
        seen.add(id(one))
        if hasattr(one, "untyped_storage"):
            found |= {one.untyped_storage().data_ptr()} - {0}
        elif isinstance(one, np.ndarray):
            if one.flags.writeable and one.size:
                found.add(one.__array_interface__["data"][0])
        elif isinstance(one, dict):
            todo.extend(one.values())
        elif isinstance(one, list | tuple):
            todo.extend(one)
        elif hasattr(one, "state_dict") and not isinstance(one, type):
            found.add(id(one))
            todo.extend(vars(one).values() if hasattr(one, "__dict__") else ())
    return found


@functools.lru_cache(1024)
def _text(value: str) -> bytes:
    text = f"str {value!r}".encode()
    return b"v%d:%b" % (len(text), text)


@functools.lru_cache(1024)
def _head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    return repr((dtype.str, shape)).encode()


def copied(model: Any) -> Any:
    """Deep copy of a model, equal to `copy.deepcopy` but five times as fast.

    Tensors that share their memory have one each afterwards.
    """
    return _copied(model, {})


def _copied(value: Any, made: dict[int, Any]) -> Any:
    """Deep copy of plain containers, and of objects that consist of a state only."""
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    known = made.get(id(value))
    if known is not None:
        return known
    found: Any
    if kind in _DICTS:
        found = kind(value.default_factory) if kind is defaultdict else kind()
        made[id(value)] = found
        for key, one in value.items():  # most are scalars: no call for these
            at = key if type(key) in _SCALARS else _copied(key, made)
            found[at] = one if type(one) in _SCALARS else _copied(one, made)
        return found
    if kind is list:
        found = made[id(value)] = []
        found.extend([_copied(one, made) for one in value])
        return found
    if kind is set and not value:
        found = made[id(value)] = set()
        return found
    if hasattr(value, "detach"):
        return _tensor(value, made)
    if isinstance(value, _ATOMS) or (kind is tuple and _SCALARS.issuperset(map(type, value))):
        return value
    if hasattr(value, "state_dict") and not _copies_itself(kind):
        make, args, state, *items = value.__reduce_ex__(4)
        if args == (kind,) and type(state) is dict and items == [None] * len(items):
            made[id(value)] = found = make(kind)
            made.setdefault(id(made), []).append(state)  # else another object may get its id
            getattr(found, "__setstate__", vars(found).update)(_copied(state, made))
            return found
    return copy.deepcopy(value, made)


def _tensor(value: Any, made: dict[int, Any]) -> Any:
    """Copy of a tensor; torch's own copy of one that is no parameter takes ten times as long."""
    if type(value).__name__ == "Parameter":
        return value.__deepcopy__(made)
    plain = value._base is None and value.is_leaf and not value.is_sparse and not vars(value)
    if not plain or type(value).__name__ != "Tensor" or not value.is_contiguous():
        return copy.deepcopy(value, made)
    found = made[id(value)] = value.detach().clone().requires_grad_(value.requires_grad)
    if value.grad is not None:
        found.grad = value.grad.detach().clone()
    return found


@functools.cache
def _copies_itself(kind: Any) -> bool:
    names = {name for cls in kind.__mro__[:-1] for name in vars(cls)}
    return not names.isdisjoint({"__deepcopy__", "__reduce__", "__reduce_ex__"})


def call(function: Callable[..., Any], values: Iterable[Any]) -> Any:
    """Result of a function called with read-only arrays."""
    return function(*map(locked, values))


def locked(value: Any) -> Any:
    """Read-only view of an array; any other value unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    seen = value.view()
    seen.flags.writeable = False
    return seen
