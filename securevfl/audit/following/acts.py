"""The acts of a party in a step that others can see, besides the contents of its messages.

Others see which message leaves when and in which order. Whoever runs the experiment sees events,
lines on the screen and in logs, and how a run ends. All of this a party can choose by its secrets,
so it is compared with what the library's own party does in the same step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from securevfl.engine.network import PartyState, Sending, Wait

EVENT, LINE, SENDING, WAIT, CALL, END = "event", "line", "sending", "wait", "call", "end"
_DEEP, _MANY = 3, 64  # parts of parts of a payload, and parts of each, whose form is compared
_ARRAY = '["numpy.ndarray"]'  # traits of most payloads
_LONG = 100  # characters of an act that are told

_WORDS = {
    EVENT: "it records",
    LINE: "it prints or logs",
    SENDING: "it sends at another time or in another order, in",
    WAIT: "it waits for something else, in",
    CALL: "it tells the engine",
    END: "it ends by",
}


class Act(NamedTuple):
    """One act.

    Attributes
    ----------
    sort, said : str
    fields : mapping or None
        Those of an event, which a party may change afterwards.
    behind : tuple of str
        Of a message: longer arrays of which it is a part, and which its receiver has as well where
        both are in one process.
    """

    sort: str
    said: str
    fields: Mapping[str, Any] | None = None
    behind: tuple[str, ...] = ()

    def describe(self) -> str:
        """The act in words."""
        said = self.said if len(self.said) <= _LONG else f"{self.said[:_LONG]}..."
        return f"{_WORDS[self.sort]} {said}"


def event(party: PartyState, name: str, fields: Mapping[str, Any]) -> Act:
    """An event of a party, as the history would have it."""
    return Act(EVENT, text_of([name, party.round, fields]), fields)


def sendings(sending: Sending, given: Mapping[int, Any] | None = None) -> Iterator[Act]:
    """Time at which each message of a sending leaves: the step's, later by what is asked for.

    The work that a message is, and for which conditions may charge, is part of it.

    Parameters
    ----------
    sending : Sending
    given : mapping of int to ndarray, optional
        Longer arrays by identity that came with messages: who passes a part on adds nothing.
    """
    party, to, kind, payloads, round, after = sending
    work = [party.activities.get(kind), party.operations(kind)]
    common = text_of([kind, round, after, party.epoch, *work, form(kind), form(round)])
    known: dict[int, str] = {}
    shown, traits = None, ""
    for receiver, payload in zip(to, payloads, strict=True):
        if payload is not shown or not traits:  # a broadcast sends one object to all
            shown, traits = payload, _traits(payload)
        said = f"{common} to {text_of(receiver)}, {traits}"
        wholes = [one for one in longer_arrays(payload) if (given or {}).get(id(one)) is not one]
        for one in wholes:  # shares of all receivers are mostly parts of one array
            if id(one) not in known:
                known[id(one)] = _digest(one)
        yield Act(SENDING, said, behind=tuple(known[id(one)] for one in wholes))


def _traits(payload: Any) -> str:
    if type(payload) is np.ndarray:  # it has neither parts nor attributes of its own
        return _ARRAY
    return text_of(form(payload))


def form(value: Any, deep: int = _DEEP) -> list[Any]:
    """Traits of an object, besides its content, that its receiver sees in one process.

    Its type, and attributes that its type does not have.
    """
    cls = type(value)
    found: list[Any] = [f"{cls.__module__}.{cls.__qualname__}"]
    own = [name for name in getattr(value, "__dict__", {}) if not hasattr(cls, name)]
    fields = getattr(cls, "__dataclass_fields__", {})
    found += sorted(set(own) - set(fields))
    if not deep:
        return found
    return found + [form(one, deep - 1) for one in _parts(value)[:_MANY]]


def longer_arrays(value: Any, deep: int = _DEEP) -> Iterator[Any]:
    """Longer arrays, tensors or memory of which arrays in a payload are parts.

    A wire carries the parts alone.
    """
    if isinstance(value, np.ndarray):
        whole: Any = value
        while (base := getattr(whole, "base", None)) is not None:
            whole = base
        held = _bytes_of(whole)
        if held is None or held.nbytes > value.nbytes:
            yield whole
    elif deep:
        for one in _parts(value):
            yield from longer_arrays(one, deep - 1)


def _digest(whole: Any) -> str:
    held = _bytes_of(whole)
    return type(whole).__name__ if held is None else hashlib.sha256(held.tobytes()).hexdigest()


def _bytes_of(whole: Any) -> np.ndarray | None:
    """Memory that an array lies in; None where it cannot be told."""
    if hasattr(whole, "untyped_storage"):  # a tensor
        whole = whole.detach().new_empty(0).set_(whole.untyped_storage()).numpy()
    try:
        held = np.asarray(whole if isinstance(whole, np.ndarray) else memoryview(whole))
    except TypeError:
        return None
    return None if held.dtype == object else held


def _parts(value: Any) -> Sequence[Any]:
    """Elements of a sequence, keys and values of a mapping, fields of a dataclass."""
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    fields = getattr(type(value), "__dict__", {}).get("__dataclass_fields__", {})
    if fields:
        return [getattr(value, name) for name in fields]
    return value if isinstance(value, (list, tuple)) else ()


def call(name: str, *values: Any) -> Act:
    """Something that a party tells the engine."""
    return Act(CALL, text_of([name, *values]))


def waiting(wait: Wait | None, handled: Iterable[str]) -> Act:
    """The wait of a party at the end of a step; None where it has ended.

    Parameters
    ----------
    wait : Wait or None
    handled : iterable of str
        Kinds that it takes meanwhile.
    """
    if wait is None:
        return Act(WAIT, "no wait")
    senders = None if wait.senders is None else sorted(wait.senders)
    limits = [wait.count, wait.timeout, wait.safe, wait.announced]
    return Act(WAIT, text_of([[*wait.kinds], wait.round, senders, *limits, *handled]))


def ending(error: BaseException) -> Act:
    """An error with which a party ends the run; its text is published."""
    return Act(END, f"{type(error).__name__}: {error}")


def difference(found: Sequence[Act], wanted: Sequence[Act]) -> str:
    """The first act in which two steps differ, in words; empty for none."""
    for one, other in zip(found, wanted, strict=False):
        if one[:2] != other[:2]:
            return one.describe()
        if one.behind and one.behind != other.behind:
            return f"it sends a part of a longer array, in {one.said[:_LONG]}..."
    if len(found) > len(wanted):
        return found[len(wanted)].describe()
    if len(wanted) > len(found):
        return f"it leaves out what the library's does: {wanted[len(found)].describe()}"
    return ""


def text_of(value: Any) -> str:
    """A value as the files of a run have it: numbers of other types with the same digits."""
    if type(value) is int:
        return str(value)
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError):  # keys that are no text, or a value that holds itself
        return repr(value)


def _plain(value: Any) -> Any:
    made = getattr(value, "tolist", None)  # of NumPy's numbers and arrays, and of tensors
    return repr(value) if made is None else made()
