"""Parts of a protocol that it is held against and that are not the library's own.

Verifiers recompute messages by the formulas that a protocol declares, with the code, the field and
the quantisers that it computes with, and judge the claims that it makes. A class that changes these
along with its parties agrees with itself. So a verdict that endorses needs them to be the
library's; a class may change how its parties are made, and nothing else.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from typing import Any

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
_TRUSTED = ("securevfl", "builtins", "abc", "typing", "functools", "numpy", "torch", "pydantic")
_WORDS = (str, int, float, type(None))  # values of a class that run nothing
_DEEP = 3  # parts of parts that are looked at


def library_class(protocol: Protocol) -> type[Protocol] | None:
    """The library's class of a protocol; None where more than its parties is another's."""
    if any(foreign(protocol)):
        return None
    return library_base(protocol)


def library_base(protocol: Protocol) -> type[Protocol] | None:
    """The library's method that a protocol's class is, or was made of; None for none."""
    every = [cls for cls in type(protocol).__mro__ if _ours(cls) and issubclass(cls, Protocol)]
    return next((cls for cls in every if not inspect.isabstract(cls)), None)


def unread(protocol: Protocol) -> list[str]:
    """Names under which classes of others put code that parties, or their making, may run.

    In recorded runs it does what the library's does, or that is found there. What it does where a
    run has other values, nobody has looked at.
    """
    return sorted(
        f"{cls.__name__}.{name}"
        for cls in type(protocol).__mro__
        if not _ours(cls)
        for name, value in vars(cls).items()
        if not (_by_python(name) or isinstance(value, _WORDS))
    )


def foreign(protocol: Protocol) -> Iterator[str]:
    """Names of what a protocol is held against and that is not the library's."""
    for cls in type(protocol).__mro__:
        if not _ours(cls):
            yield from (f"{cls.__name__}.{name}" for name in vars(cls) if _specifies(name))
    yield from _replaced(protocol, type(protocol).__name__)
    yield from _unlike_options(protocol)
    for name, part in vars(protocol).items():
        if name not in ("data", "_secrets"):
            yield from _parts(part, name, _DEEP)
    for spec in protocol.messages:
        for formula in (spec.recompute, spec.shape, spec.count):
            if formula is not None and not _ours(_function(formula)):
                yield f"the formula of {spec.kind!r}"


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


def _specifies(name: str) -> bool:
    return name not in _FREE and not _by_python(name)


def _by_python(name: str) -> bool:
    return name in _BY_PYTHON or name.startswith("_abc_")


def _ours(thing: Any) -> bool:
    """Whether a class or function is what stands under its name in a module that is trusted."""
    module = getattr(thing, "__module__", "") or ""
    if module.startswith("securevfl.testing") or module.split(".")[0] not in _TRUSTED:
        return False
    found: Any = sys.modules.get(module)
    for name in getattr(thing, "__qualname__", "").split("."):
        if name == "<locals>":  # made by a function that stands there
            return found is not None and not isinstance(thing, type)
        found = getattr(found, name, None)
    return found is thing or not isinstance(thing, type)


def _function(formula: Any) -> Any:
    while isinstance(formula, functools.partial):
        formula = formula.func
    return getattr(formula, "__func__", formula)


def _parts(part: Any, name: str, deep: int) -> Iterator[str]:
    """Parts of what a protocol computes with whose class is not the library's."""
    cls = type(part)
    if cls.__module__ in ("builtins", "numpy"):
        if isinstance(part, dict) and deep:
            for one in part.values():
                yield from _parts(one, name, deep - 1)
        return
    if not _ours(cls):
        if cls.__module__.startswith("securevfl") or "securevfl" in str(cls.__mro__):
            yield f"{name} is a {cls.__qualname__}"
        return
    if not cls.__module__.startswith("securevfl."):
        return
    yield from _replaced(part, name)
    for field, one in getattr(part, "__dict__", {}).items() if deep else ():
        yield from _parts(one, f"{name}.{field}", deep - 1)


def _replaced(thing: Any, name: str) -> Iterator[str]:
    """Methods that an object has in the place of its class's."""
    for attribute, value in getattr(thing, "__dict__", {}).items():
        own = getattr(type(thing), attribute, None)
        if callable(value) and callable(own) and not isinstance(value, type):
            yield f"{name}.{attribute}"
