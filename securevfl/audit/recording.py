"""A recorded run of any protocol: every message, the sender's state when it sent it, all draws.

The recorder is a simulation that writes down what passes through it. It changes no party, but for
`uniform`, the method through which a party draws secret field elements: its results are copied.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.audit import views
from securevfl.audit.views import Tape, View
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


@dataclass(frozen=True)
class RecordedMessage:
    """One message as it left its sender; to itself, too.

    Attributes
    ----------
    key : MessageKey
    content : bytes
        The encoded payload.
    state : Snapshot
        The sender's state at that moment.
    """

    key: MessageKey
    content: bytes
    state: Snapshot

    @property
    def payload(self) -> Any:
        """The payload, decoded anew."""
        return wire.decode(self.content)


@dataclass(frozen=True)
class Snapshot:
    """State of a party; of its networks and optimisers the ``state_dict``."""

    content: Mapping[str, Any]

    def attributes(self) -> dict[str, Any]:
        """Kept attributes by name."""
        kept: dict[str, Any] = wire.decode(self.content["kept"])
        return kept | dict(self.content["once"]) | dict(self.content["frozen"])


class Recorder(Simulation):
    """A simulation that keeps every message with its sender's state."""

    def __init__(self, parties: dict[int, Party], **options: Any) -> None:
        super().__init__(parties, transcript=Transcript(payloads=True), **options)
        self.recorded: list[RecordedMessage] = []

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
        state = Snapshot(snapshot(self.parties[party.index], waits=0, time=0))
        kept, known, content = [], None, b""
        for receiver, payload in zip(to, payloads, strict=True):
            if payload is not known or not content:
                known, content = payload, wire.encode(payload)
            key = MessageKey(kind, round, party.index, receiver)
            kept.append(RecordedMessage(key, content, state))
        super().send(party, to, kind, payloads, round, after)
        self.recorded += kept


@dataclass(frozen=True)
class RecordedRun:
    """Everything that an observer of a whole run knows: a `RunSecrets` of the declarations.

    Attributes
    ----------
    protocol : Protocol
    messages : tuple of RecordedMessage
        In the order of sending; those to oneself among them.
    tapes : mapping of int to Tape
        What parties drew through `uniform`.
    transcript : Transcript
        Sizes and times of what passed between two parties.
    parties : mapping of int to Party
        As they ended.
    """

    protocol: Protocol
    messages: tuple[RecordedMessage, ...]
    tapes: Mapping[int, Tape]
    transcript: Transcript
    parties: Mapping[int, Party]

    @functools.cached_property
    def by_key(self) -> dict[MessageKey, list[RecordedMessage]]:
        """Messages by kind, round, sender and receiver."""
        found: dict[MessageKey, list[RecordedMessage]] = {}
        for message in self.messages:
            found.setdefault(message.key, []).append(message)
        return found

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
        """
        return self.by_key[key][0].state.attributes()

    def before_round(self, round: int) -> Mapping[str, Any]:
        """Kept attributes of the server when it announced a round."""
        for key, messages in self.by_key.items():
            if (key.kind, key.round, key.sender) == (ANNOUNCE, round, SERVER):
                return messages[0].state.attributes()
        raise KeyError(f"round {round} was not announced")

    def draw(self, party: int, name: str, round: int) -> np.ndarray:
        """A declared secret draw: draws of a round are in the order of their declarations."""
        declared = self.protocol.draws  # a shape that depends on chance is not known: None
        names = [d.name for d in declared if d.name == name or d.shape(party, round) is not None]
        return self.tapes[party].at(round)[names.index(name)]

    def sent(self, kind: str, round: int) -> Mapping[tuple[int, int], Any]:
        """Payloads of a kind in a round by (sender, receiver); of several the first."""
        return {
            (key.sender, key.receiver): messages[0].payload
            for key, messages in self.by_key.items()
            if (key.kind, key.round) == (kind, round)
        }

    def view(self, coalition: Coalition) -> View:
        """What a coalition has at the end: messages, and its members' draws."""
        return views.cut(self.transcript, coalition, tapes=self.tapes)

    def departures(self) -> list[tuple[int, int]]:
        """When each message left and arrived, in virtual nanoseconds."""
        columns = self.transcript.columns()
        return list(zip(columns["sent"].tolist(), columns["arrived"].tolist(), strict=True))


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
    used: dict[int, Tape] = {}
    for n, party in made.items():
        if hasattr(party, "uniform"):
            if tapes is not None and n in tapes:
                views.replay(party, tapes[n])
            used[n] = views.record(party)
    with one_thread():
        simulation = Recorder(
            made, seed=protocol.seed, secrets=protocol.secrets, conditions=conditions
        )
        simulation.run()
    return RecordedRun(protocol, tuple(simulation.recorded), used, simulation.transcript, made)
