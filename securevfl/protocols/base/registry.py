"""Protocols by name: those of this package and those of installed entry points."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.protocols.base.protocol import Protocol


@functools.cache
def find_protocols() -> dict[str, type[Protocol]]:
    """All protocols by name: the library's own and those of installed entry points.

    Raises
    ------
    ConfigurationError
        When two protocols have the same name, or an entry point names no protocol.
    """
    from importlib.metadata import entry_points

    package = importlib.import_module("securevfl.protocols")
    found: dict[str, type[Protocol]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name == "base":
            continue
        name = f"securevfl.protocols.{module.name}"
        for thing in vars(importlib.import_module(name)).values():
            if _is_protocol(thing) and f"{thing.__module__}.".startswith(f"{name}."):
                _add(found, thing)
    for entry in entry_points(group="securevfl.protocols"):
        thing = entry.load()
        if not _is_protocol(thing):
            raise ConfigurationError(f"entry point {entry.name!r}: {entry.value} is no Protocol")
        _add(found, thing)
    return dict(sorted(found.items()))


def _is_protocol(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Protocol) and not inspect.isabstract(thing)


def _add(found: dict[str, type[Protocol]], protocol: type[Protocol]) -> None:
    if found.setdefault(protocol.name, protocol) is not protocol:
        raise ConfigurationError(
            f"two protocols are called {protocol.name!r}: {found[protocol.name]} and {protocol}"
        )


def get_protocol(name: str) -> type[Protocol]:
    """Protocol by name.

    Raises
    ------
    UnknownNameError
        With the nearest names.
    """
    found = find_protocols()
    if name not in found:
        raise UnknownNameError("protocol", name, found)
    return found[name]


def make_config(protocol: type[Protocol], values: Mapping[str, Any]) -> BaseModel:
    """Validated options of a protocol.

    Raises
    ------
    UnknownNameError
        For an option that it does not have.
    ConfigurationError
        For a value out of its range, naming option, value and range.
    """
    known = protocol.Config.model_fields
    for name in values:
        if name not in known:
            raise UnknownNameError(f"option of {protocol.name}", name, known)
    try:
        return protocol.Config(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "options"
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(
            f"{protocol.name}: {name} = {first['input']!r}: {message}"
        ) from None
