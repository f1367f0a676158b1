"""Parts of a protocol that it is held against and that are not the library's own.

Verifiers recompute messages by the formulas that a protocol declares, with the code, the field and
the quantisers that it computes with, and judge the claims that it makes. A class that changes these
along with its parties agrees with itself. So a verdict that endorses needs them to be the
library's; a class may change how its parties are made, and nothing else.
"""

from __future__ import annotations

import abc
import functools
import inspect
import sys
import threading
import typing
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any, Generic

from securevfl.audit.following.sources import is_compared, is_defined
from securevfl.protocols.base.protocol import Protocol

# What a class may define without a change of what is specified: how its parties are made.
# Options of the runs that verifiers make (`fault_options`, `small_options`) are not among it.
_FREE = frozenset({"parties", "party", "client", "server", "name", "card", "apart", "twin"})
_BY_PYTHON = frozenset(  # of special names those that Python itself gives a class
    f"__{name}__"
    for name in (
        *("module", "qualname", "name", "doc", "dict", "weakref", "slots", "annotations"),
        *("annotate", "annotate_func", "annotations_cache", "conditional_annotations"),
        *("abstractmethods", "firstlineno", "static_attributes", "parameters", "orig_bases"),
        "slotnames",  # when an object is copied
    )
)
# Classes that no module of the library defines, in the ancestry of a method and of its parts.
_ANCESTORS = (object, abc.ABC, Generic, typing.Protocol)
_HEAP = (functools.partial, type(threading.Lock()), type(threading.RLock()), OrderedDict)
_WORDS = (str, int, float, bool, type(None))  # values of a class that run nothing
_MADE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class without it is C, and Python code cannot make one
# Of special names: `__annotations__`, `__slotnames__`, `__dict__`, what is in `__slots__`.
_PYTHONS = (dict, list, GetSetDescriptorType, MemberDescriptorType)
_ABC_DATA = type(vars(abc.ABC)["_abc_impl"])
_DEEP = 3  # parts of parts that are looked at


def library_class(protocol: Protocol) -> type[Protocol] | None:
    """The library's class of a protocol; None where more than its parties is another's."""
    if any(foreign(protocol)):
        return None
    return library_base(protocol)


def library_base(protocol: Protocol) -> type[Protocol] | None:
    """The library's method that a protocol's class is, or was made of; None for none."""
    every = [cls for cls in _ancestry(type(protocol)) if _ours(cls) and issubclass(cls, Protocol)]
    return next((cls for cls in every if not inspect.isabstract(cls)), None)


def unread(protocol: Protocol) -> list[str]:
    """Names under which classes of others put code that parties, or their making, may run.

    In recorded runs it does what the library's does, or that is found there. What it does where a
    run has other values, nobody has looked at.
    """
    others = [cls for cls in _ancestry(type(protocol)) if not _ours(cls)]
    made = {f"the class of {_called(cls)}" for cls in others if type(cls) is not abc.ABCMeta}
    return sorted(
        made
        | {
            f"{_called(cls)}.{name}"
            for cls in others
            for name, value in _names(cls).items()
            if not (_by_python(name, value) or _says(value))
        }
    )


def foreign(protocol: Protocol) -> Iterator[str]:
    """Names of what a protocol is held against and that is not the library's."""
    for cls in _ancestry(type(protocol)):
        if not _ours(cls):
            specified = {n for n, value in _names(cls).items() if _specifies(n, value)}
            yield from (f"{_called(cls)}.{name}" for name in specified)
    yield from _replaced(protocol, _called(type(protocol)))
    yield from _unlike_options(protocol)
    for name, part in vars(protocol).items():
        if name not in ("data", "_secrets"):
            yield from _parts(part, name, _DEEP)
    for spec in protocol.messages:
        for formula in (spec.recompute, spec.shape, spec.count):
            if formula is not None and not is_defined(_function(formula)):
                yield f"the formula of {spec.kind!r}"


# What a class says of itself its metaclass may answer: these are Python's own answers.
_mro_of = type.__dict__["__mro__"].__get__
_dict_of = type.__dict__["__dict__"].__get__
_name_of = type.__dict__["__name__"].__get__
_path_of = type.__dict__["__qualname__"].__get__
_flags_of = type.__dict__["__flags__"].__get__


def _is_one_of(cls: type, known: Iterable[type]) -> bool:
    """Whether a class is one of these, which ``in`` would let its metaclass answer."""
    return any(cls is one for one in known)


def _ancestry(cls: type) -> tuple[type, ...]:
    """The classes in which Python looks for methods."""
    found: tuple[type, ...] = _mro_of(cls)
    return found


def _names(cls: type) -> Mapping[str, Any]:
    """Names that a class itself defines, and their values."""
    found: Mapping[str, Any] = _dict_of(cls)
    return found


def _called(cls: type) -> str:
    return str(_name_of(cls))


def _says(value: Any) -> bool:
    """Whether a value of a class is of those that run nothing, whoever looks at them."""
    if _is_one_of(type(value), (tuple, frozenset)):
        return all(map(_says, value))
    return _is_one_of(type(value), _WORDS)


def _unlike_options(protocol: Protocol) -> Iterator[str]:
    """Parameters of a code that are not those that the options ask for."""
    code = getattr(getattr(protocol, "public", None), "code", None)
    if code is None:
        return
    asked = {"privacy": code.privacy, "segments": code.segments, "prime": code.field.modulus}
    for option, found in asked.items():
        wanted = getattr(protocol.config, option, None)
        if wanted is not None and wanted != found:
            yield f"the code's {option} = {found}, where {wanted} is asked for"


def _specifies(name: str, value: Any) -> bool:
    return name not in _FREE and not _by_python(name, value)


def _by_python(name: str, value: Any) -> bool:
    """Whether Python puts such a value there itself, which runs nothing."""
    if name not in _BY_PYTHON:
        return name == "_abc_impl" and type(value) is _ABC_DATA
    return _is_one_of(type(value), _PYTHONS) or _says(value)


def _ours(cls: type) -> bool:
    """Whether a class is what stands under its name in a module of the library's files.

    Those modules are compared with their files by `securevfl.audit.following.sources.altered`.
    """
    if _is_one_of(cls, _ANCESTORS):
        return True
    module = _names(cls).get("__module__", "")
    if type(module) is not str or not is_compared(module):
        return False
    found: Any = sys.modules.get(module)
    for name in str(_path_of(cls)).split("."):
        found = None if found is None else vars(found).get(name)
    return found is cls


def _function(formula: Any) -> Any:
    while isinstance(formula, functools.partial):
        formula = formula.func
    return getattr(formula, "__func__", formula)


def _parts(part: Any, name: str, deep: int) -> Iterator[str]:
    """Parts of what a protocol computes with whose class is not the library's."""
    cls = type(part)
    if not _flags_of(cls) & _MADE or _is_one_of(cls, _HEAP):
        yield from _held(part, name, deep)
    elif not _ours(cls):
        yield f"{name} is a {_path_of(cls)}"
    else:
        yield from _replaced(part, name)
        for field, one in getattr(part, "__dict__", {}).items() if deep else ():
            yield from _parts(one, f"{name}.{field}", deep - 1)


def _held(part: Any, name: str, deep: int) -> Iterator[str]:
    """The same of what a container holds, and a function computes with."""
    if isinstance(part, FunctionType):
        if not is_defined(part):
            yield f"{name} is a function of others"
        cells = [cell.cell_contents for cell in part.__closure__ or ()]
        part = (*cells, *(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).values())
    if isinstance(part, functools.partial):
        part = (part.func, *part.args, *part.keywords.values())
    if isinstance(part, MethodType):
        part = (part.__func__, part.__self__)
    if isinstance(part, dict):
        part = tuple(part.values())
    for one in part if isinstance(part, list | tuple | set | frozenset) and deep else ():
        yield from _parts(one, name, deep - 1)


def _replaced(thing: Any, name: str) -> Iterator[str]:
    """Methods that an object has in the place of its class's."""
    for attribute, value in getattr(thing, "__dict__", {}).items():
        own = getattr(type(thing), attribute, None)
        if callable(value) and callable(own) and not isinstance(value, type):
            yield f"{name}.{attribute}"
