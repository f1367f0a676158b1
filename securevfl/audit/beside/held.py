"""Possessions of parties before anything is sent: common objects, values that others determine.

In a simulation all parties live in one process, and any object that two of them have is a channel
without a message. A party may also be made with something that hides another's columns, such as a
function that encloses them in another form. So parties are made with other columns of some clients,
and nothing that others have may change.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from securevfl.data.dataset import VerticalDataset
from securevfl.engine.party import Party
from securevfl.engine.streams import Reseeded, SecretSeed
from securevfl.protocols.base.protocol import Protocol

# Sources of the streams of all parties of a simulation, in which none is another party's.
_SOURCES = (SecretSeed, Reseeded)
_MUTABLE = (list, dict, set, bytearray, collections.deque)
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), np.generic)


def in_common(parties: Mapping[int, Party]) -> str:
    """Objects that two parties share besides those of the library, in words; empty for none."""
    owner: dict[int, int] = {}
    kept = []  # so that no identity is used twice
    for index, party in parties.items():
        for one in _reached(vars(party), whole=False):
            if isinstance(one, Party) and one is not party:
                return f"party {index} has the object of party {one.index}"
            if isinstance(one, (Protocol, VerticalDataset)):
                return f"party {index} has an object with everybody's data"
            if isinstance(one, _MUTABLE):
                kept.append(one)
                if owner.setdefault(id(one), index) != index:
                    return f"parties {owner[id(one)]} and {index} have one {type(one).__name__}"
    return ""


def digests(parties: Mapping[int, Party]) -> dict[int, str]:
    """Of each party a digest of all values that it has."""
    return {index: _digest(party) for index, party in parties.items()}


def arrays_of(party: Party) -> list[np.ndarray]:
    """All arrays that a party has, in the order in which they are reached."""
    return [one for one in _reached(vars(party), whole=True) if isinstance(one, np.ndarray)]


def _digest(party: Party) -> str:
    found = hashlib.sha256()
    for one in _reached(vars(party), whole=True):
        if isinstance(one, np.ndarray):
            found.update(repr((one.dtype.str, one.shape)).encode())
            found.update(np.ascontiguousarray(one).tobytes() if one.dtype != object else b"")
        elif isinstance(one, _PLAIN):
            found.update(repr(one).encode())
    return found.hexdigest()


def _reached(start: Any, *, whole: bool) -> Iterator[Any]:
    """Objects that can be reached: attributes, elements, and what functions enclose.

    Parameters
    ----------
    start
    whole : bool
        Whether attributes of the library's objects are looked into, and not those of the protocol
        and its data.
    """
    seen, left, kept = {id(start)}, [start], []
    while left:
        one = left.pop()
        kept.append(one)
        yield one
        if whole and (isinstance(one, (Protocol, VerticalDataset)) or type(one) in _SOURCES):
            continue
        for part in _parts(one, whole=whole):
            if isinstance(part, _PLAIN) or id(part) not in seen:
                seen.add(id(part))
                left.append(part)


def _parts(one: Any, *, whole: bool) -> Iterator[Any]:
    if isinstance(one, dict):
        for key, value in one.items():
            yield from (key, value)
    elif isinstance(one, (list, tuple, set, frozenset, collections.deque)):
        yield from sorted(one, key=repr) if isinstance(one, (set, frozenset)) else one
    elif isinstance(one, functools.partial):
        yield from (one.func, one.args, one.keywords)
    elif isinstance(one, types.MethodType):
        yield from (one.__func__, one.__self__)
    elif isinstance(one, types.FunctionType):
        yield from _enclosed(one)
    elif hasattr(one, "detach") and hasattr(one, "numpy"):
        yield one.numpy(force=True)
    elif not isinstance(one, (type, types.ModuleType, np.ndarray, *_PLAIN)):
        library = type(one).__module__.startswith(("securevfl.", "torch.", "numpy"))
        if whole or not library or isinstance(one, Party):
            yield dict(getattr(one, "__dict__", {}))


def _enclosed(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # of a name that is not set yet
            continue
    yield from (function.__defaults__ or (), tuple((function.__kwdefaults__ or {}).values()))
