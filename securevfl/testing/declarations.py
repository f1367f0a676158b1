"""Comparison of a run's messages with the protocol's declarations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from securevfl.engine.network import Message
from securevfl.engine.party import ANNOUNCE
from securevfl.protocols.base.messages import SELF, MessageKey, MessageSpec, array_of
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.assembly import rules_of
from securevfl.testing.runs import Outcome

Link = tuple[str, str, str]  # kind, sender's role, receiver's role
_FAR = 10**6  # a round beyond all others: whoever believes in it leaves the one that it is in


def sent_messages(outcome: Outcome) -> Iterator[tuple[MessageKey, float, Any]]:
    """Key, time of sending in seconds, and payload of each message of a run that kept payloads."""
    transcript = outcome.simulation.transcript
    columns, payloads = transcript.columns(), transcript.payloads
    assert payloads is not None, "simulate(payloads=True) keeps them"
    names = ("kind", "round", "sender", "receiver", "sent")
    rows = zip(*(columns[name].tolist() for name in names), payloads, strict=True)
    for kind, round, sender, receiver, sent, payload in rows:
        yield MessageKey(kind, round, sender, receiver), sent / 1e9, payload


def specs_of(protocol: Protocol, key: MessageKey) -> list[MessageSpec]:
    """Declarations that fit a message's kind and roles: two if parties have several roles."""
    roles = protocol.roles()
    return [
        one
        for one in protocol.messages
        if one.kind == key.kind
        and key.sender in roles[one.sender]
        and (one.receiver != SELF and key.receiver in roles[one.receiver])
    ]


def disagreements(outcome: Outcome) -> list[str]:
    """Sentences on messages of a run that are not as the protocol declares; none if all are."""
    found, times = [], Counter[MessageKey]()
    for key, _, payload in sent_messages(outcome):
        times[key] += 1
        specs = specs_of(outcome.protocol, key)
        faults = [_fault(one, key, payload) for one in specs] or ["it is not declared"]
        if all(faults):
            found.append(f"{key}: {faults[0]}")
    found += [f"{key}: it is sent {n} times" for key, n in times.items() if n > 1]
    return found


def _fault(spec: MessageSpec, key: MessageKey, payload: Any) -> str:
    """Sentence on how a payload departs from the declaration `spec` of its kind; else ""."""
    array = array_of(payload)
    shape = None if spec.shape is None else spec.shape(key)
    if spec.count is not None and spec.count(key) < 1:
        return "none is declared in this round"
    if shape is not None and (array is None or array.shape != tuple(shape)):
        return f"its shape is {None if array is None else array.shape}, declared {shape}"
    if spec.dtype and (array is None or array.dtype.name != spec.dtype):
        return f"its dtype is {None if array is None else array.dtype}, declared {spec.dtype}"
    return ""


def never_sent(outcomes: Iterable[Outcome]) -> set[Link]:
    """Declared messages that no run sent, except those to the sender itself."""
    declared, used = set[Link](), set[Link]()
    for outcome in outcomes:
        declared |= {_link(one) for one in outcome.protocol.messages if one.receiver != SELF}
        for key, _, _ in sent_messages(outcome):
            used |= {_link(one) for one in specs_of(outcome.protocol, key)}
    return declared - used


def _link(spec: MessageSpec) -> Link:
    return spec.kind, spec.sender, spec.receiver


def forged_messages(outcome: Outcome) -> list[tuple[float, Message]]:
    """Arrival times, in virtual seconds, and forged messages: each kind, from each wrong party.

    Each copies payload and round of the first message of its kind in the run `outcome`, and arrives
    when that was sent, thus before it. Two kinds that end a run are added, for a distant round.
    """
    protocol, parties = outcome.protocol, sorted(outcome.parties)
    rules = rules_of(protocol)
    assert rules is not None, "the protocol declares no messages"
    first: dict[str, tuple[float, int, Any]] = {}
    for key, at, payload in sent_messages(outcome):
        first.setdefault(key.kind, (at, key.round, payload))
    copies = [
        (kind, *first.get(kind, (0.0, 1, None)))
        for kind in dict.fromkeys(one.kind for one in protocol.messages)
    ]
    copies += [(ANNOUNCE, 0.0, _FAR, "stop"), ("stop", 0.0, _FAR, None)]
    return [
        (at, Message(sender, receiver, kind, payload, round, 0, -1))
        for kind, at, round, payload in copies
        for sender in parties
        for receiver in parties
        if sender != receiver and not rules.allows(kind, sender, receiver)
    ]
