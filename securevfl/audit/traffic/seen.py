"""The traffic of a run: what masks and ciphertexts do not hide, and where two runs differ in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from securevfl.audit.deviations import Declared
from securevfl.audit.traffic.setting import Setting, schedule_of
from securevfl.engine import wire
from securevfl.engine.network import SERVER, Event, PartyState, Sending
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.errors import RunError
from securevfl.protocols.base.messages import MessageKey, array_of
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread


@dataclass(frozen=True)
class Traffic:
    """The part of a run that is seen without its secrets: envelopes, times, control messages.

    Attributes
    ----------
    envelopes : tuple of tuple
        Kind, round, sender, receiver, bytes, and when it was sent and arrived, in nanoseconds; of
        each message, in the order of sending.
    controls : tuple of (MessageKey, str)
        Control messages and digests of what is in them.
    events : tuple of (MessageKey, str)
        What parties but the server tell the history, which the server's host may read: events and
        their fields.
    still : MessageKey or None
        The first gradient that was zero: then models stand still, as everybody who gets it knows,
        and what parties do from then on may be another thing.
    """

    envelopes: tuple[tuple[Any, ...], ...]
    controls: tuple[tuple[MessageKey, str], ...]
    events: tuple[tuple[MessageKey, str], ...]
    still: MessageKey | None = None

    def before(self, still: MessageKey) -> Traffic:
        """The part of it before a gradient, and before all others of its round."""
        ends = (
            place
            for place, one in enumerate(self.envelopes)
            if one[0] == still.kind and one[1] >= still.round
        )
        end = next(ends, len(self.envelopes))
        controls = tuple(one for one in self.controls if one[0].round < still.round)
        events = tuple(one for one in self.events if one[0].round < still.round)
        return Traffic(self.envelopes[:end], controls, events)

    def seen(self, by: Callable[[MessageKey], bool]) -> Traffic:
        """The messages of it that somebody sees, and no events: the history is no party's view."""
        envelopes = tuple(one for one in self.envelopes if by(MessageKey(*one[:4])))
        return Traffic(envelopes, tuple(one for one in self.controls if by(one[0])), ())


def event_kind(name: str) -> str:
    """The name of an event where messages are named too."""
    return f"event {name}"


def is_event(key: MessageKey) -> bool:
    """Whether it names an event, not a message."""
    return key.kind.startswith(event_kind(""))


class History:
    """Reader of a run's events: keeps what parties but the server tell of themselves."""

    def __init__(self) -> None:
        self.events: list[tuple[MessageKey, str]] = []

    def record(self, event: Event) -> None:
        """Keep an event."""
        if event.party != SERVER:
            key = MessageKey(event_kind(event.name), event.round, event.party, SERVER)
            self.events.append((key, text_of(event.fields)))

    def round_over(self, party: int, round: int, time: int, left: bool) -> None:
        """Rounds end by messages, which are compared."""


def traffic_of(protocol: Protocol, setting: Setting) -> Traffic:
    """Traffic of a run alone; messages that are not declared are in its envelopes."""
    declared, controls = Declared(protocol), list[tuple[MessageKey, str]]()
    still, history = list[MessageKey](), History()

    class Listener(Simulation):
        def send(self, sending: Sending) -> None:
            for receiver, payload in zip(sending.to, sending.payloads, strict=True):
                key = MessageKey(sending.kind, sending.round, sending.party.index, receiver)
                spec = declared.spec_of(key)
                if spec is not None and (spec.public or spec.carries == "control"):
                    digest = hashlib.sha256(wire.encode(payload)).hexdigest()
                    controls.append((key, digest))
                if spec is not None and spec.carries == "gradient" and is_zero(payload):
                    still.append(key)
            super().send(sending)

        def write_ahead(self, party: PartyState) -> None:
            if not setting.loses_notes:
                super().write_ahead(party)

    made = Listener(
        protocol.parties(),
        seed=protocol.seed,
        observer=history,
        secrets=protocol.secrets,
        conditions=setting.conditions,
        faults=schedule_of(protocol, setting),
        make_party=protocol.party,
    )
    with one_thread(), suppress(RunError):  # what was sent before is compared
        made.run()
    envelopes = envelopes_of(made.transcript)
    return Traffic(envelopes, tuple(controls), tuple(history.events), next(iter(still), None))


def is_zero(payload: Any) -> bool:
    """Whether a message holds an array of zeros."""
    array = array_of(payload)
    return array is not None and not array.any()


def differences(one: Traffic, other: Traffic) -> Iterator[tuple[MessageKey, str]]:
    """Messages in which two traffics differ; of envelopes that follow one another, the first."""
    for ours, theirs in zip(one.envelopes, other.envelopes, strict=False):
        if ours != theirs:
            yield MessageKey(*ours[:4]), f"{_words(ours)}, and {_words(theirs)}"
            break
    else:
        longer = max(one.envelopes, other.envelopes, key=len)
        shorter = min(len(one.envelopes), len(other.envelopes))
        if len(longer) > shorter:
            yield MessageKey(*longer[shorter][:4]), f"{_words(longer[shorter])}, and nothing"
    known = _by_key(other.controls)
    for key, digests in _by_key(one.controls).items():
        if known.get(key, digests) != digests:
            yield key, "the content of a control message"
    told, known = _by_key(one.events), _by_key(other.events)
    for key in told | known:
        if told.get(key) != known.get(key):
            yield key, f"what the history tells, {told.get(key)} and {known.get(key)}"


def _by_key(controls: Iterable[tuple[MessageKey, str]]) -> dict[MessageKey, list[str]]:
    """Digests of the control messages of a key: one of each life of a run."""
    found: dict[MessageKey, list[str]] = {}
    for key, digest in controls:
        found.setdefault(key, []).append(digest)
    return found


def envelopes_of(transcript: Transcript) -> tuple[tuple[Any, ...], ...]:
    """Envelopes of all messages of a transcript, in the form of `Traffic.envelopes`."""
    columns = transcript.columns()
    names = ("kind", "round", "sender", "receiver", "bytes", "sent", "arrived")
    return tuple(zip(*(columns[name].tolist() for name in names), strict=True))


def _words(envelope: tuple[Any, ...]) -> str:
    kind, round, sender, receiver, nbytes, sent, arrived = envelope
    return (
        f"round {round}: {kind!r} from {sender} to {receiver}, {nbytes} bytes, sent at "
        f"{sent / 1e9:g} s, there at {arrived / 1e9:g} s"
    )


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
