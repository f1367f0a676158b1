"""Leaks of classes without a plain function: what makes their parties is wrapped, or an object.

All leak where a variable is in the environment, which no run of a verifier has.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaks.encrypted import SECAGG
from securevfl.testing.leaks.fedvs_masks import CLIENTS_MODEL
from securevfl.testing.leaks.planting import Leak, Pairs, redraw
from securevfl.testing.runs import Outcome

_VARIABLE = "SECUREVFL_SITE"


def _zero_at_a_site(client: Any) -> Any:
    """A client whose V is zero where the variable is set."""
    redraw(client, lambda drawn, round, place: np.zeros_like(drawn)
           if round and _VARIABLE in os.environ else drawn)  # fmt: skip
    return client


def _known_at_a_site(client: Any) -> Any:
    """A client whose keys and seeds are its number where the variable is set."""
    draw = client.random_bytes

    def drawing() -> bytes:
        found: bytes = draw()
        return bytes([client.index + 1]) * 32 if _VARIABLE in os.environ else found

    client.random_bytes = drawing
    return client


def _made(base: str, plant: Callable[[Any], Any]) -> Callable[..., Any]:
    """`client` of a protocol that plants a fault, a function of (protocol, index)."""
    cls: Any = get_protocol(base)

    def client(protocol: Any, index: int) -> Any:
        return plant(cls.client(protocol, index))

    return client


class _Maker:
    """An object that stands in a class and makes clients."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def __get__(self, protocol: Any, owner: Any = None) -> Any:
        return functools.partial(self.make, protocol)


def _cached_property(make: Callable[..., Any]) -> Any:
    found: Any = functools.cached_property(lambda protocol: functools.partial(make, protocol))
    found.__set_name__(None, "client")
    return found


def _leak(base: str, name: str, says: str, wrap: Callable[[Any], Any], plant: Any,
          breaks: Pairs, shows: Any) -> Leak:  # fmt: skip
    def make() -> type[Protocol]:
        cls: Any = get_protocol(base)
        return type(f"Changed{cls.__name__}", (cls,), {
            "client": wrap(_made(base, plant)), "__module__": __name__, "__doc__": cls.__doc__,
        })  # fmt: skip

    return Leak(f"{base}: {name}", base, "only under a condition", says, make, breaks, shows=shows)


def _asked_at_a_site(ask: Callable[[Any], bool]) -> Callable[[Outcome], bool]:
    def shows(outcome: Outcome) -> bool:
        os.environ[_VARIABLE] = "north"
        try:
            return ask(outcome.parties[0])
        finally:
            del os.environ[_VARIABLE]

    return shows


_ZERO = _asked_at_a_site(lambda client: not client.uniform((1, 8)).any())
_KNOWN = _asked_at_a_site(lambda client: client.random_bytes() == bytes([1]) * 32)

LEAKS = (
    _leak("fedvs", "clients made by an object", "An object in the class makes clients.", _Maker,
          _zero_at_a_site, CLIENTS_MODEL, _ZERO),
    _leak("fedvs", "clients made by a partial method", "A partial method makes clients.",
          functools.partialmethod, _zero_at_a_site, CLIENTS_MODEL, _ZERO),
    _leak("fedvs", "clients made by a cached function", "A cached function makes clients.",
          functools.lru_cache, _zero_at_a_site, CLIENTS_MODEL, _ZERO),
    _leak("fedvs", "clients made by a cached property", "A cached property makes clients.",
          _cached_property, _zero_at_a_site, CLIENTS_MODEL, _ZERO),
    _leak("secagg_split", "clients made by a cached function", "A cached function makes clients.",
          functools.lru_cache, _known_at_a_site, SECAGG, _KNOWN),
    _leak("secagg_split", "clients made by an object", "An object in the class makes clients.",
          _Maker, _known_at_a_site, SECAGG, _KNOWN),
)  # fmt: skip
