"""A recorded run of any protocol: every message, the sender's state when it sent it, all draws.

The recorder is a simulation that writes down what passes through it. It changes no party, but for
`uniform`, the method through which a party draws secret field elements: its results are copied.

A run of hundreds of rounds does not fit into memory. So whoever reads it can be told of each
message as it is sent, and the run forgets its oldest rounds beyond a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from securevfl.audit import views
from securevfl.audit.tapes import Tape, record_draws, replay_draws
from securevfl.audit.views import View
from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.mailbox import ANNOUNCE
from securevfl.engine.network import PartyState
from securevfl.engine.party import SERVER, Party
from securevfl.engine.party_state import snapshot
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread

_T = TypeVar("_T")
_CACHED = 12  # kinds of message of a round whose decoded payloads are kept: those of two rounds


class ForgottenError(LookupError):
    """What is asked for lies in a round that the run has forgotten."""


@dataclass(frozen=True)
class RecordedMessage:
    """One message as it left its sender; to itself, too.

    Attributes
    ----------
    key : MessageKey
    content : bytes
        The encoded payload.
    state : Snapshot
        The sender's state at that moment; one object for all receivers of one sending.
    """

    key: MessageKey
    content: bytes
    state: Snapshot

    @property
    def payload(self) -> Any:
        """The payload, decoded anew; its arrays cannot be written to."""
        return wire.decode(self.content)


class Snapshot:
    """State of a party; of its networks and optimisers the ``state_dict``."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.made: dict[Hashable, Any] = {}  # what was computed from it: `RecordedRun.once`

    def attributes(self) -> dict[str, Any]:
        """Kept attributes by name."""
        kept: dict[str, Any] = wire.decode(self.content["kept"])
        return kept | dict(self.content["once"]) | dict(self.content["frozen"])


class RecordedRun:
    """Everything that an observer of a whole run knows: a `RunSecrets` of the declarations.

    Parameters
    ----------
    protocol : Protocol
    parties : mapping of int to Party
    transcript : Transcript
        Sizes and times of what passed between two parties.
    limit : int, optional
        Bytes of messages beyond which the oldest rounds are forgotten, but for the setup and the
        newest six.

    Attributes
    ----------
    messages : list of RecordedMessage
        In the order of sending; those to oneself among them. Without those that were forgotten.
    tapes : dict of int to Tape
        What parties drew through `uniform`.
    forgotten : int
        Last round that was forgotten; 0 for none.
    """

    def __init__(
        self,
        protocol: Protocol,
        parties: Mapping[int, Party],
        transcript: Transcript,
        limit: int | None = None,
    ) -> None:
        self.protocol = protocol
        self.parties = parties
        self.transcript = transcript
        self.messages: list[RecordedMessage] = []
        self.tapes: dict[int, Tape] = {}
        self.by_key: dict[MessageKey, list[RecordedMessage]] = {}
        self.forgotten = 0
        self._by_kind: dict[tuple[str, int], dict[tuple[int, int], RecordedMessage]] = {}
        self._decoded: dict[tuple[str, int], dict[tuple[int, int], Any]] = {}
        self._limit, self._held = limit, 0

    def add(self, message: RecordedMessage) -> None:
        """Take in a message that is sent."""
        kind, round, sender, receiver = message.key
        self.messages.append(message)
        self.by_key.setdefault(message.key, []).append(message)
        self._by_kind.setdefault((kind, round), {}).setdefault((sender, receiver), message)
        self._decoded.pop((kind, round), None)
        self._held += len(message.content)
        if self._limit is not None and self._held > self._limit:
            self._forget(self._limit // 2)

    def _forget(self, limit: int) -> None:
        """Drop the oldest rounds, until no more bytes than the limit are held."""
        sizes: dict[int, int] = {}
        for message in self.messages:
            sizes[message.key.round] = sizes.get(message.key.round, 0) + len(message.content)
        for round in sorted(n for n in sizes if n > 0)[:-6]:
            if self._held <= limit:
                break
            self._held -= sizes[round]
            self.forgotten = round
        gone = range(1, self.forgotten + 1)
        self.messages = [m for m in self.messages if m.key.round not in gone]
        self.by_key = {key: held for key, held in self.by_key.items() if key.round not in gone}
        self._by_kind = {at: held for at, held in self._by_kind.items() if at[1] not in gone}
        for tape in self.tapes.values():
            tape.forget(self.forgotten)

    @property
    def sent_to_others(self) -> Iterator[RecordedMessage]:
        """Messages between two different parties."""
        return (m for m in self.messages if m.key.sender != m.key.receiver)

    def data(self, party: int) -> Any:
        """A client's columns by part; the server's labels by part."""
        data = self.protocol.data
        if party == SERVER:
            return {"train": data.train_labels, "test": data.test_labels}
        return {"train": data.train[party], "test": data.test[party]}

    def state(self, key: MessageKey) -> Mapping[str, Any]:
        """Kept attributes of the sender when it sent the message.

        Raises
        ------
        KeyError
            When there was no such message.
        ForgottenError
            When there may have been.
        """
        self._check(key.round)
        attributes = self.by_key[key][0].state.attributes  # KeyError where there is none
        return self.once(key, "state", attributes)

    def once(self, key: MessageKey, name: str, make: Callable[[], _T]) -> _T:
        """What `make` returns, made once for all receivers of one sending of a message."""
        self._check(key.round)
        if key not in self.by_key:  # of a message that goes by another name on the wire
            return make()
        made: dict[Hashable, Any] = self.by_key[key][0].state.made
        place = (name, key.kind, key.round)
        if place not in made:
            made[place] = make()
        value: _T = made[place]
        return value

    def before_round(self, round: int) -> Mapping[str, Any]:
        """Kept attributes of the server when it announced a round."""
        self._check(round)
        for (kind, number), held in self._by_kind.items():
            if (kind, number) == (ANNOUNCE, round):
                for (sender, _), message in held.items():
                    if sender == SERVER:
                        return message.state.attributes()
        raise KeyError(f"round {round} was not announced")

    def draw(self, party: int, name: str, round: int) -> np.ndarray:
        """A declared secret draw: draws of a round are in the order of their declarations."""
        self._check(round)
        declared = self.protocol.draws  # a shape that depends on chance is not known: None
        names = [d.name for d in declared if d.name == name or d.shape(party, round) is not None]
        return self.tapes[party].at(round)[names.index(name)]

    def sent(self, kind: str, round: int) -> Mapping[tuple[int, int], Any]:
        """Payloads of a kind in a round by (sender, receiver); of several the first."""
        self._check(round)
        found = self._decoded.get((kind, round))
        if found is None:
            held = self._by_kind.get((kind, round), {})
            found = {ends: message.payload for ends, message in held.items()}
            self._decoded[kind, round] = found
            while len(self._decoded) > _CACHED:
                self._decoded.pop(next(iter(self._decoded)))
        return found

    def _check(self, round: int) -> None:
        if 0 < round <= self.forgotten:
            raise ForgottenError(f"round {round} was forgotten; the run holds later ones")

    def view(self, coalition: Coalition) -> View:
        """What a coalition has at the end: messages, and its members' draws."""
        return views.cut(self.transcript, coalition, tapes=self.tapes)

    def departures(self) -> list[tuple[int, int]]:
        """When each message left and arrived, in virtual nanoseconds."""
        columns = self.transcript.columns()
        return list(zip(columns["sent"].tolist(), columns["arrived"].tolist(), strict=True))


class Recorder(Simulation):
    """A simulation that keeps every message with its sender's state.

    Parameters
    ----------
    parties : dict of int to Party
    recorded : RecordedRun
        Takes in the messages.
    follow : callable, optional
        Told of each message once the run holds it.
    **options
        As for `Simulation`.
    """

    def __init__(
        self,
        parties: dict[int, Party],
        *,
        recorded: RecordedRun,
        follow: Callable[[RecordedMessage], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(parties, **options)
        self.recorded = recorded
        self._follow = follow

    def send(
        self,
        party: PartyState,
        to: tuple[int, ...],
        kind: str,
        payloads: Any,
        round: int,
        after: float,
    ) -> None:
        """Keep each message, then put it on its way."""
        if self.slots[party.index].replaying:
            return
        state = Snapshot(snapshot(self.parties[party.index], waits=0, time=0))
        kept, known, content = [], None, b""
        for receiver, payload in zip(to, payloads, strict=True):
            if payload is not known or not content:
                known, content = payload, wire.encode(payload)
            key = MessageKey(kind, round, party.index, receiver)
            kept.append(RecordedMessage(key, content, state))
        super().send(party, to, kind, payloads, round, after)
        for message in kept:
            self.recorded.add(message)
        if self._follow is not None:
            for message in kept:
                self._follow(message)


def record(
    protocol: Protocol,
    *,
    conditions: Conditions = NONE,
    tapes: Mapping[int, Tape] | None = None,
    parties: dict[int, Party] | None = None,
) -> RecordedRun:
    """Run a protocol once and keep everything.

    Parameters
    ----------
    protocol : Protocol
    conditions : Conditions
        Who is late, and when.
    tapes : mapping of int to Tape, optional
        What these parties draw instead of fresh elements.
    parties : dict of int to Party, optional
        The parties, where they are not those of the protocol.
    """
    made = protocol.parties() if parties is None else parties
    run = RecordedRun(protocol, made, Transcript(payloads=True))
    for n, party in made.items():
        if tapes is not None and n in tapes:
            replay_draws(party, tapes[n])
        keep_draws(run, party)
    with one_thread():
        Recorder(
            made,
            recorded=run,
            seed=protocol.seed,
            secrets=protocol.secrets,
            conditions=conditions,
            transcript=run.transcript,
        ).run()
    return run


def keep_draws(run: RecordedRun, party: Party) -> None:
    """Copy what a party draws to its tape; a party that comes back goes on with the same one."""
    if hasattr(party, "uniform"):
        run.tapes[party.index] = record_draws(party, run.tapes.get(party.index))
