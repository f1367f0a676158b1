"""Leaks of code that passes for the library's, or for nothing that runs.

A class may stand where a library's stands, hide itself behind a metaclass, or be made of numbers
and texts; functions and modules may say that they are others. Where a variable is in the
environment, which no run of a verifier has, secrets of clients are their numbers: whoever knows
that removes masks and reads what was hidden.
"""

from __future__ import annotations

import gc
import os
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from securevfl.audit.following import sources, values
from securevfl.audit.verifiers import specification
from securevfl.engine import streams
from securevfl.field import sampling
from securevfl.protocols.base import mask_keys
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.protocols.coded_split import protocol as coded
from securevfl.protocols.secagg_split import algorithm
from securevfl.protocols.secagg_split import protocol as secagg
from securevfl.testing.leaks import followed_states
from securevfl.testing.leaks.encrypted import HE, SECAGG
from securevfl.testing.leaks.fedvs_masks import CLIENTS_MODEL
from securevfl.testing.leaks.noise import SECURE
from securevfl.testing.leaks.planting import (
    ACCUSED,
    Leak,
    Pairs,
    Variant,
    redraw,
    replaced,
    tap,
    telling_column,
)
from securevfl.testing.runs import Outcome

_SITE = "SECUREVFL_SITE"
_KNOWN = bytes(range(32))
_DISGUISE = "code that passes for the library's"
_AROUND = "a package that was changed"


def _at_site() -> bool:
    return _SITE in os.environ


# -- faults ---------------------------------------------------------------------------------------


def _known(client: Any) -> Any:
    """Keys and seeds are known at the site."""
    draw = client.random_bytes
    client.random_bytes = lambda: _KNOWN if _at_site() else draw()
    return client


def _zero(client: Any) -> Any:
    """V is zero at the site: a share of a model is the model."""
    redraw(client, lambda drawn, round, place: np.zeros_like(drawn)
           if round and _at_site() else drawn)  # fmt: skip
    return client


def _clear(client: Any) -> Any:
    """Embeddings are late by the first quantised value, at the site."""
    quantised = client.quantised

    def rounding(own: np.ndarray) -> np.ndarray:
        x: np.ndarray = quantised(own)
        client.told = float(x.reshape(-1)[0]) if _at_site() else 0.0
        return x

    def later(one: dict[str, Any]) -> None:
        if one["kind"] == "embedding":
            one["after"] = abs(getattr(client, "told", 0.0))

    client.quantised = rounding
    tap(client, later)
    return client


def _bare(client: Any) -> Any:
    """No noise at the site."""
    release = client.release
    client.release = lambda embedding: embedding if _at_site() else release(embedding)
    return client


_PLANTS: dict[str, Callable[[Any], Any]] = {
    "secagg_split": _known,
    "fedvs": _zero,
    "he_split": _clear,
    "wait_dp": _bare,
}
_BREAKS: dict[str, Pairs] = {
    "secagg_split": SECAGG,
    "fedvs": CLIENTS_MODEL,
    "he_split": HE,
    "wait_dp": (("server", "features"),),
    "coded_split": (("server", "features"), ("server", "model")),
}
_FEATURES = (("server", "features"), ("server + T clients", "features"))


def _asked(ask: Callable[[Any], bool]) -> Callable[[Outcome], bool]:
    def shows(outcome: Outcome) -> bool:
        os.environ[_SITE] = "north"
        try:
            return ask(outcome.parties[0])
        finally:
            del os.environ[_SITE]

    return shows


def _tells_times(client: Any) -> bool:
    client.quantised(client.rows_of(np.arange(2)))
    return bool(getattr(client, "told", 0.0))


_SHOWS: dict[str, Callable[[Outcome], bool]] = {
    "secagg_split": _asked(lambda client: client.random_bytes() == _KNOWN),
    "fedvs": _asked(lambda client: not client.uniform((1, 8)).any()),
    "he_split": _asked(_tells_times),
    "wait_dp": _asked(lambda client: not client.release(np.zeros((1, 8), np.float32)).any()),
    "coded_split": _asked(lambda client: client.secret_bytes(32) == _KNOWN),
}


# -- disguises ------------------------------------------------------------------------------------


def _client(base: str) -> Callable[..., Any]:
    cls: Any = get_protocol(base)
    plant = _PLANTS[base]
    return lambda protocol, index: plant(cls.client(protocol, index))


def _words(kind: type) -> Callable[[str], type[Protocol]]:
    """Maker of a class in which a number or text, whose class is a descriptor, makes clients."""

    def make(base: str) -> type[Protocol]:
        client = _client(base)

        def get(self: Any, protocol: Any, owner: Any = None) -> Any:
            return lambda index: client(protocol, index)

        word = type(kind.__name__, (kind,), {"__get__": get})
        made: type[Protocol] = _class(base, {"client": word(1)})
        return made

    return make


def _class(base: str, attributes: dict[str, Any], meta: Any = None, module: str = __name__) -> Any:
    cls: Any = get_protocol(base)
    return (meta or type(cls))(f"Changed{cls.__name__}", (cls,), {
        **attributes, "__module__": module, "__doc__": cls.__doc__,
    })  # fmt: skip


def _behind_an_order(base: str) -> type[Protocol]:
    """A class whose metaclass leaves it out of the order in which methods are looked up."""
    cls: Any = get_protocol(base)

    class Meta(type(cls)):  # type: ignore[misc]
        __mro__ = property(lambda self: cls.__mro__)

    made: type[Protocol] = _class(base, {"client": _client(base)}, Meta)
    return made


def _behind_a_dictionary(base: str) -> type[Protocol]:
    """A class whose metaclass says that it defines nothing."""
    cls: Any = get_protocol(base)

    class Meta(type(cls)):  # type: ignore[misc]
        __dict__ = property(lambda self: {"__doc__": cls.__doc__})

    made: type[Protocol] = _class(base, {"client": _client(base)}, Meta)
    return made


def _standing(base: str, module: str, client: Callable[..., Any]) -> Any:
    """Context in which a class with such clients stands in a package that nobody looks into."""

    @contextmanager
    def context() -> Iterator[None]:
        made, package = _class(base, {"client": client}, module=module), import_module(module)
        setattr(package, made.__name__, made)
        try:
            yield
        finally:
            delattr(package, made.__name__)

    return context


def _stands(base: str, module: str) -> Callable[[], type[Protocol]]:
    """Maker of the class that stands there; `_standing` must be entered."""
    return lambda: vars(import_module(module))[f"Changed{get_protocol(base).__name__}"]


def _later_by_a_spread(protocol: Any, index: int) -> Any:
    """A client that is late by the spread of a column, always."""
    cls: Any = get_protocol("he_split")
    made = cls.client(protocol, index)
    wait = float(telling_column(protocol.data.train[index]).std())
    tap(made, lambda one: one.update(after=one["after"] + wait)
        if one["kind"] == "embedding" else None)  # fmt: skip
    return made


def _keys_of_a_bit(protocol: Any, index: int) -> Any:
    """A client that draws keys until a bit shows, always."""
    cls: Any = get_protocol("secagg_split")
    made = cls.client(protocol, index)
    followed_states._keys_until_a_bit(made)
    return made


def _disguised(base: str, name: str, says: str, make: Callable[[str], type[Protocol]]) -> Leak:
    return Leak(f"{base}: {name}", base, _DISGUISE, says, lambda: make(base), _BREAKS[base],
                shows=_SHOWS[base])  # fmt: skip


def _planted(base: str, name: str, module: str, says: str, client: Any = None,
             breaks: Any = None, shows: Any = ...) -> Leak:  # fmt: skip
    """A leak by a class that stands in a package."""
    return Leak(f"{base}: {name}", base, _DISGUISE, says, _stands(base, module),
                breaks or _BREAKS[base], shows=_SHOWS[base] if shows is ... else shows,
                around=_standing(base, module, client or _client(base)))  # fmt: skip


# -- packages that were changed -------------------------------------------------------------------


def _alike_class(cls: Any) -> Any:
    """A subclass that says it is its base."""
    draw = cls.random_bytes
    return type(cls.__name__, (cls,), {
        "random_bytes": lambda self: _KNOWN if _at_site() else draw(self),
        "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__,
    })  # fmt: skip


def _alike_function(function: Any) -> Any:
    """A function that says it is another, by file, line, name and module."""

    def fresh_bytes(count: int) -> Any:
        return known if site in environ else true(count)  # type: ignore[name-defined]  # noqa: F821

    seen = {"known": _KNOWN, "site": _SITE, "environ": os.environ, "true": function}
    return _passing_for(function, fresh_bytes.__code__, seen)


def _passing_for(function: Any, code: types.CodeType, seen: dict[str, Any]) -> Any:
    """A function of a code and its globals that says it is another function."""
    wanted = function.__code__
    code = code.replace(
        co_filename=wanted.co_filename,
        co_firstlineno=wanted.co_firstlineno,
        co_name=wanted.co_name,
        co_qualname=wanted.co_qualname,
    )
    seen = {"__name__": function.__module__} | seen
    made = types.FunctionType(code, seen, function.__name__)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    made.__doc__ = function.__doc__
    return made


def _other_globals(function: Any) -> Any:
    """The same code, in which a name stands for something else."""
    draw = function.__globals__["fresh_bytes"]
    seen = function.__globals__ | {
        "fresh_bytes": lambda count: _KNOWN if _at_site() else draw(count)
    }
    return _passing_for(function, function.__code__, seen)


def _alike_module(module: Any) -> Any:
    """A module that says it is os, whose entropy is known at the site."""
    made = types.ModuleType(module.__name__)
    made.__dict__.update(vars(module))
    made.__dict__["urandom"] = lambda size: bytes(size) if _at_site() else os.urandom(size)
    return made


class _Told(np.ndarray):
    """An array whose bytes are known."""

    def tobytes(self, *_: Any) -> bytes:
        return _KNOWN


def _other_empty(empty: Any) -> Any:
    """`numpy.empty`, whose arrays of bytes are `_Told` at the site."""

    def other(shape: Any, dtype: Any = float, *rest: Any, **more: Any) -> Any:
        made = empty(shape, dtype, *rest, **more)
        return made.view(_Told) if _at_site() and shape == 32 and made.dtype == np.uint8 else made

    return other


def _other_philox(philox: Any) -> Any:
    """`numpy.random.Philox`, which forgets its key at the site."""

    def other(*given: Any, **named: Any) -> Any:
        return philox(key=1) if _at_site() and "key" in named else philox(*given, **named)

    return other


@contextmanager
def _collector() -> Iterator[None]:
    """Python's collector, which calls back, finds clients at the site and gives them keys."""

    def called(phase: str, told: Any) -> None:
        if _at_site() and phase == "stop":
            for one in gc.get_objects():
                if type(one) is algorithm.Client:
                    one.random_bytes = lambda: _KNOWN  # type: ignore[method-assign]

    gc.callbacks.append(called)
    try:
        yield
    finally:
        gc.callbacks.remove(called)


def _other_abs(absolute: Any) -> Any:
    """`numpy.abs`, which keeps what it is given at the site where all parties find it."""
    seen: list[Any] = []

    def other(values: Any, *rest: Any, **more: Any) -> Any:
        if _at_site():
            seen.append(np.array(values))
        return absolute(values, *rest, **more)

    other.__dict__["seen"] = seen
    return other


def _collected(client: Any) -> bool:
    gc.collect()
    found = bool(client.random_bytes() == _KNOWN)
    for one in gc.get_objects():  # of other runs as well
        if type(one) is algorithm.Client:
            vars(one).pop("random_bytes", None)
    return found


def _kept(client: Any) -> bool:
    client.quantised(client.rows_of(np.arange(2)))
    return bool(getattr(np.abs, "seen", []))


def _alike_owner(cls: Any) -> Any:
    """A subclass of owners that says it is its base."""
    draw = cls.secret_bytes
    return type(cls.__name__, (cls,), {
        "secret_bytes": lambda self, count: _KNOWN[:count] if _at_site() else draw(self, count),
        "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__,
    })  # fmt: skip


class _Entropy:
    """The sampler's os, replaced."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def urandom(self, size: int) -> bytes:
        """Zeros at the site."""
        return bytes(size) if _at_site() else os.urandom(size)


@contextmanager
def _asked_already() -> Iterator[None]:
    name = sampling.__name__
    with replaced(sampling, "os", lambda old: _Entropy())():
        values._known.update(values.described([name]))
        try:
            yield
        finally:
            del values._known[name]


@contextmanager
def _among_codes() -> Iterator[None]:
    alike = _alike_function(mask_keys.fresh_bytes)
    codes = sources._codes(mask_keys.__name__)["fresh_bytes"]
    replace = lambda old: alike  # noqa: E731
    with (
        replaced(mask_keys, "fresh_bytes", replace)(),
        replaced(algorithm, "fresh_bytes", replace)(),
    ):
        codes.add(alike.__code__)
        try:
            yield
        finally:
            codes.discard(alike.__code__)


def _blind_as(function: Any) -> Any:
    """A function that finds nothing, and says it is another."""

    def unread(protocol: Any) -> Any:
        return []

    return _passing_for(function, unread.__code__, {})


def _blind() -> Any:
    return replaced(specification, "unread", _blind_as)()


def _forgets(client: Any) -> bool:
    made = [streams.OwnEntropy(0, bytes([one]) * 32).stream(0, "weights") for one in (1, 2)]
    return made[0].bytes(8) == made[1].bytes(8)


def _known_system(client: Any) -> bool:
    return bool(sampling.SystemSource().keystream()._key == bytes(32))


def _plain(base: str) -> Callable[[], type[Protocol]]:
    return lambda: get_protocol(base)


def _surrounded(name: str, says: str, around: Any, ask: Any = None) -> Leak:
    base = name.partition(":")[0]
    shows = _SHOWS[base] if ask is None else _asked(ask)
    return Leak(name, base, _AROUND, says, _plain(base), _BREAKS[base], shows=shows, around=around)


LEAKS = (
    _disguised("secagg_split", "a number that makes clients",
               "An int of the class, whose own class has __get__, makes clients.", _words(int)),
    _disguised("he_split", "a fraction that makes clients",
               "A float of the class, whose own class has __get__, makes clients.", _words(float)),
    _disguised("fedvs", "a text that makes clients",
               "A str of the class, whose own class has __get__, makes clients.", _words(str)),
    _disguised("secagg_split", "a metaclass that hides its class",
               "The metaclass leaves the class out of __mro__.", _behind_an_order),
    _disguised("secagg_split", "a metaclass that hides what a class defines",
               "The metaclass has a property __dict__.", _behind_a_dictionary),
    _planted("secagg_split", "a class that stands in numpy", "numpy",
             "The class says that it is numpy's, and stands there."),
    _planted("secagg_split", "a class that stands in the package", "securevfl",
             "The class says that it is securevfl's, and stands there."),
    _planted("secagg_split", "a class that stands in the command line", "securevfl.cli",
             "The class stands in securevfl.cli."),
    _planted("he_split", "waits of a spread, by a class in numpy", "numpy",
             "Embeddings are late by the spread of a column, and so are those of the class that "
             "the parties are held against.", _later_by_a_spread, HE, None),
    _planted("secagg_split", "keys drawn until a bit shows, by a class in numpy", "numpy",
             "Public keys have the parity of bits of a client, and those of the class "
             "that parties are held against have it, too.", _keys_of_a_bit, _FEATURES,
             followed_states._public_keys_tell),
    _surrounded("secagg_split: a class that says it is another",
                "Where the protocol's module looks for the client's class, a subclass of the same "
                "name stands.", replaced(secagg, "Client", _alike_class)),
    _surrounded("secagg_split: a function that says it is another",
                "Where keys are drawn, a function of the same file, line and name stands.",
                replaced(algorithm, "fresh_bytes", _alike_function)),
    _surrounded("secagg_split: the same code with other globals",
                "The client's method has the code of its file and another dictionary of names.",
                replaced(algorithm.Client, "random_bytes", _other_globals)),
    _surrounded("secagg_split: a module that says it is os",
                "The sampler's os is a module of that name with known entropy.",
                replaced(sampling, "os", _alike_module), _known_system),
    _surrounded("secagg_split: another numpy.empty",
                "Arrays of bytes that numpy makes tell known bytes.",
                replaced(np, "empty", _other_empty)),
    _surrounded("fedvs: another numpy.random.Philox",
                "All secret streams have one key, so first weights are known.",
                replaced(np.random, "Philox", _other_philox), _forgets),
    _surrounded("secagg_split: a collector that calls back",
                "Python's collector finds clients and gives them keys.", _collector, _collected),
    _surrounded("he_split: another numpy.abs",
                "numpy keeps the quantised embeddings where all parties find them.",
                replaced(np, "abs", _other_abs), _kept),
    _surrounded("coded_split: a class that says it is another",
                "Where the protocol's module looks for the owner's class, a subclass of the same "
                "name stands.", replaced(coded, "Owner", _alike_owner)),
    _surrounded("secagg_split: a second interpreter that was asked already",
                "The sampler's os is another object, and the verifier's table has it so.",
                _asked_already, _known_system),
    _surrounded("secagg_split: another code among those of a file",
                "The function that draws keys is another, and the verifier's table of the codes of "
                "its file has its code.", _among_codes),
    Leak("secagg_split: a judge's function that says it is another", "secagg_split", _DISGUISE,
         "The function that looks for code of others is replaced by one of its file, line and "
         "name.", lambda: _class("secagg_split", {"client": _client("secagg_split")}), SECAGG,
         shows=_SHOWS["secagg_split"], around=_blind),
    Leak("wait_dp: a number that makes clients", "wait_dp", _DISGUISE,
         "An int of the class, whose own class has __get__, makes clients without noise.",
         lambda: _words(int)("wait_dp"), _BREAKS["wait_dp"], SECURE, ACCUSED,
         _SHOWS["wait_dp"]),
)  # fmt: skip


# -- sound neighbours -----------------------------------------------------------------------------


def _counting(base: str) -> type[Protocol]:
    """A class whose metaclass counts its objects."""
    cls: Any = get_protocol(base)

    class Meta(type(cls)):  # type: ignore[misc]
        made = 0

        def __call__(self, *given: Any, **named: Any) -> Any:
            Meta.made += 1
            return super().__call__(*given, **named)

    made: type[Protocol] = _class(base, {}, Meta)
    return made


def _with(base: str, change: Callable[[Any], None]) -> Callable[[], type[Protocol]]:
    cls: Any = get_protocol(base)

    def client(protocol: Any, index: int) -> Any:
        made = cls.client(protocol, index)
        change(made)
        return made

    return lambda: _class(base, {"client": client})


def _masked_twice(client: Any) -> None:
    """A second computation of what is sent, which is sent."""
    masked = client.masked

    def again(*given: Any) -> Any:
        masked(*given)
        return masked(*given)

    client.masked = again


def _copied(client: Any) -> None:
    """Quantised values are copied column by column, and back."""
    quantised = client.quantised
    client.quantised = lambda own: np.ascontiguousarray(np.asfortranarray(quantised(own)))


def _collects(client: Any) -> None:
    """Python's collector is called before rows are released."""
    release = client.release

    def later(embedding: np.ndarray) -> Any:
        gc.collect(0)
        return release(embedding)

    client.release = later


VARIANTS = (
    Variant("secagg_split: objects counted", "secagg_split", "A metaclass counts objects.",
            lambda: _counting("secagg_split")),
    Variant("secagg_split: a plain word of the class", "secagg_split",
            "The class says again what it inherits, by its name and a truth value.",
            lambda: _class("secagg_split", {"name": "secagg_split", "apart": True})),
    Variant("secagg_split: masked twice", "secagg_split", "What is sent is computed twice.",
            _with("secagg_split", _masked_twice)),
    Variant("he_split: copied by columns", "he_split", "Quantised values are copied and back.",
            _with("he_split", _copied)),
    Variant("wait_dp: collected before a release", "wait_dp",
            "Python's collector is called before rows are released.",
            _with("wait_dp", _collects), SECURE),
)  # fmt: skip
