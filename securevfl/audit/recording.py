"""A recorded run of any protocol: a simulation that stores every message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from securevfl.engine import wire
from securevfl.engine.network import Sending
from securevfl.engine.simulation.simulator import Simulation
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread


@dataclass(frozen=True)
class RecordedMessage:
    """One message as it left its sender, also one to itself.

    Attributes
    ----------
    key : MessageKey
        Kind, sender, receiver and round.
    content : bytes
        The encoded payload.
    """

    key: MessageKey
    content: bytes

    @property
    def payload(self) -> Any:
        """The payload, decoded again at each call; its arrays are read-only."""
        return wire.decode(self.content)


@dataclass(frozen=True)
class RecordedRun:
    """Messages of a run of `protocol`, in the order of sending; some from a party to itself."""

    protocol: Protocol
    messages: list[RecordedMessage]

    @property
    def sent_to_others(self) -> Iterator[RecordedMessage]:
        """Messages whose sender and receiver differ."""
        return (m for m in self.messages if m.key.sender != m.key.receiver)


class Recorder(Simulation):
    """Simulation that stores every message in `messages`."""

    def __init__(self, protocol: Protocol) -> None:
        self.messages: list[RecordedMessage] = []
        super().__init__(
            protocol.parties(),
            seed=protocol.seed,
            secrets=protocol.secrets,
            make_party=protocol.party,
        )

    def send(self, sending: Sending) -> None:
        """Store a message for each receiver, then send it."""
        for receiver, payload in zip(sending.to, sending.payloads, strict=True):
            key = MessageKey(sending.kind, sending.round, sending.party.index, receiver)
            self.messages.append(RecordedMessage(key, wire.encode(payload)))
        super().send(sending)


def record(protocol: Protocol) -> RecordedRun:
    """Run a protocol once, no party late or absent, and store its messages."""
    made = Recorder(protocol)
    with one_thread():
        made.run()
    return RecordedRun(protocol, made.messages)
