"""The acts of a party in a step that others can see, besides the contents of its messages.

Others see which message leaves when and in which order. Whoever runs the experiment sees events,
lines on the screen and in logs, and how a run ends. All of this a party can choose by its secrets,
so it is compared with what the library's own party does in the same step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from securevfl.engine.network import PartyState, Sending, Wait

EVENT, LINE, SENDING, WAIT, CALL, END = "event", "line", "sending", "wait", "call", "end"
_DEEP, _MANY = 3, 64  # parts of parts of a payload, and parts of each, whose form is compared
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
    """One act; `fields` are those of an event, which a party may change afterwards."""

    sort: str
    said: str
    fields: Mapping[str, Any] | None = None

    def describe(self) -> str:
        """The act in words."""
        said = self.said if len(self.said) <= _LONG else f"{self.said[:_LONG]}..."
        return f"{_WORDS[self.sort]} {said}"


def event(party: PartyState, name: str, fields: Mapping[str, Any]) -> Act:
    """An event of a party, as the history would have it."""
    return Act(EVENT, text_of([name, party.round, fields]), fields)


def sendings(sending: Sending) -> Iterator[Act]:
    """Time at which each message of a sending leaves: the step's, later by what is asked for.

    The work that a message is, and for which conditions may charge, is part of it.
    """
    party, to, kind, payloads, round, after = sending
    work = [party.activities.get(kind), party.operations(kind)]
    common = text_of([kind, round, after, party.epoch, *work, form(kind), form(round)])
    for receiver, payload in zip(to, payloads, strict=True):
        yield Act(SENDING, f"{common} to {text_of(receiver)}, {text_of(form(payload))}")


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
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    elif fields:
        value = [getattr(value, name) for name in fields]
    parts = value if isinstance(value, (list, tuple)) else ()
    return found + [form(one, deep - 1) for one in parts[:_MANY]]


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
    if len(found) > len(wanted):
        return found[len(wanted)].describe()
    if len(wanted) > len(found):
        return f"it leaves out what the library's does: {wanted[len(found)].describe()}"
    return ""


def text_of(value: Any) -> str:
    """A value as the files of a run have it: numbers of other types with the same digits."""
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError):  # keys that are no text, or a value that holds itself
        return repr(value)


def _plain(value: Any) -> Any:
    made = getattr(value, "tolist", None)  # of NumPy's numbers and arrays, and of tensors
    return repr(value) if made is None else made()
