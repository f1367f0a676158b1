"""Registry of protocols by name: those of this package and of installed entry points."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.plugins import Registry
from securevfl.protocols.base.defaults import NO_OPTION, our_name
from securevfl.protocols.base.protocol import Protocol

_GROUP = "securevfl.protocols"


@functools.cache
def find_protocols() -> dict[str, type[Protocol]]:
    """All protocols by name: the library's own and those of installed entry points.

    Entry points of the group ``securevfl.protocols`` name a class. `find_protocols.cache_clear()`
    makes the next call search again.

    An entry point that names no protocol, or whose name is taken, is skipped with a warning.
    ConfigurationError if two protocols of this package have one name.
    """
    _alone.cache_clear()
    _PROTOCOLS.forget()
    return dict(sorted(_PROTOCOLS.all().items()))


def _built_in() -> dict[str, type[Protocol]]:
    found: dict[str, type[Protocol]] = {}
    for module in _modules():
        for protocol in _of_module(module):
            _add(found, protocol)
    return found


def _modules() -> list[str]:
    package = importlib.import_module("securevfl.protocols")
    return [one.name for one in pkgutil.iter_modules(package.__path__) if one.name != "base"]


def _of_module(method: str) -> Iterator[type[Protocol]]:
    """The protocols defined by a method's module, or by modules below it."""
    name = f"securevfl.protocols.{method}"
    for thing in vars(importlib.import_module(name)).values():
        if _is_protocol(thing) and f"{thing.__module__}.".startswith(f"{name}."):
            yield thing


def _is_protocol(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, Protocol) and not inspect.isabstract(thing)


def _add(found: dict[str, type[Protocol]], protocol: type[Protocol]) -> None:
    if found.setdefault(protocol.name, protocol) is not protocol:
        raise ConfigurationError(
            f"two protocols are called {protocol.name!r}: {found[protocol.name]} and {protocol}; "
            "rename one of them"
        )


def get_protocol(name: str) -> type[Protocol]:
    """Class of the protocol with this name.

    If no other package adds protocols, only the module of the name is imported, which halves the
    start time of a party's process. UnknownNameError for an unknown name; the message lists the
    nearest names. ConfigurationError if another package's protocol of this name is broken, or
    `name` is no text, such as a class.
    """
    if not isinstance(name, str):
        raise ConfigurationError(
            f"a protocol is given by its name, not by {name!r}: a run's folder holds the name, by "
            f"which it is resumed. Declare yours in pyproject.toml, [project.entry-points."
            f'"{_GROUP}"], install the package, and give the name (docs/own-protocol.md).'
        )
    alone = _alone(name)
    if alone is not None:
        return alone
    found = find_protocols()
    _PROTOCOLS.refuse_broken(name)
    if name not in found:
        raise UnknownNameError("protocol", name, found)
    return found[name]


_PROTOCOLS: Registry[type[Protocol]] = Registry(
    _GROUP, "protocol", _built_in, _is_protocol, lambda cls: cls.name, all_needed=False
)


@functools.cache
def _alone(name: str) -> type[Protocol] | None:
    """The package's protocol of this name; None if installed packages may define it, too."""
    from importlib.metadata import entry_points

    if name not in _modules() or entry_points(group=_GROUP):
        return None
    return next((one for one in _of_module(name) if one.name == name), None)


def make_config(protocol: type[Protocol], values: Mapping[str, Any]) -> BaseModel:
    """Validated options of a protocol.

    UnknownNameError for an unknown option. ConfigurationError for a value out of range; the message
    names option, value and range.
    """
    known = protocol.Config.model_fields
    for name in values:
        if name not in known:
            raise unknown_option(protocol.name, name, known)
    try:
        return protocol.Config(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "options"
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(
            f"{protocol.name}: {name} = {first['input']!r}: {message}"
        ) from None


def unknown_option(protocol: str, name: str, known: Collection[str]) -> ConfigurationError:
    """Error for an unknown option, with the reason or the nearest known names."""
    why = why_refused(protocol, name)
    if why is not None:
        return ConfigurationError(why)
    ours = our_name(name, known)
    if ours != name:
        return ConfigurationError(f"unknown option of {protocol} {name!r}: it is called {ours}")
    if name in NO_OPTION:
        return ConfigurationError(f"unknown option of {protocol} {name!r}: {NO_OPTION[name]}")
    return UnknownNameError(f"option of {protocol}", name, known)


def why_refused(protocol: str, name: str) -> str | None:
    """Reason why a method cannot have an option; None if there is none."""
    cls = find_protocols().get(protocol)
    if cls is not None and name == "security" and name not in cls.Config.model_fields:
        return _only_semi_honest(protocol)
    why = None if cls is None else cls.refused_options.get(name)
    return None if why is None else f"{protocol}: there is no option {name}: {why}"


def levels_of(protocol: type[Protocol]) -> tuple[str, ...]:
    """Security levels of a protocol: "semi-honest", and others if it has the option."""
    field = protocol.Config.model_fields.get("security")
    return ("semi-honest",) if field is None else typing.get_args(field.annotation)


def _only_semi_honest(protocol: str) -> str:
    """Error text for a level of security that a protocol does not have."""
    others = [
        f"{name} has {', '.join(levels_of(cls))}"
        for name, cls in sorted(find_protocols().items())
        if "security" in cls.Config.model_fields
    ]
    return (
        f"{protocol}: there is no option security: its only level is semi-honest, where all "
        f"parties follow the protocol. {'; '.join(others)}"
    )
