"""The recorder: a simulation that writes down what passes through it.

It changes no party, but for `uniform`, the method through which a party draws secret field
elements: its results are copied.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from securevfl.audit.recording.recorded_run import RecordedMessage, RecordedRun, Snapshot
from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.faults import Faults
from securevfl.engine.network import PartyState, Sending
from securevfl.engine.party import SERVER, Party
from securevfl.engine.party_state import snapshot
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.errors import RunError
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread


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
        self.recorded = recorded
        self._follow = follow
        self._kept: dict[int, bytes] = {}  # of the last state of each party, which may be the same
        super().__init__(parties, **options)

    def send(self, sending: Sending) -> None:
        """Keep each message, then put it on its way."""
        party, to, kind, payloads, round, _ = sending
        slot = self.slots[party.index]
        if slot.replaying:
            return
        life = (self.recorded.resumptions << 32) + slot.incarnation
        state = Snapshot(self._state_of(party.index), life)
        kept, known, content = [], None, b""
        for receiver, payload in zip(to, payloads, strict=True):
            if payload is not known or not content:
                known, content = payload, wire.encode(payload)
            key = MessageKey(kind, round, party.index, receiver)
            kept.append(RecordedMessage(key, content, state))
        super().send(sending)
        for message in kept:
            self.recorded.add(message)
        if self._follow is not None:
            for message in kept:
                self._follow(message)

    def record(self, party: PartyState, name: str, fields: dict[str, Any]) -> None:
        """Note an event."""
        if party.index != SERVER:
            key = MessageKey(name, party.round, party.index, SERVER)
            self.recorded.events.append((key, dict(fields)))
        super().record(party, name, fields)

    def _state_of(self, index: int) -> dict[str, Any]:
        """Snapshot of a party; where nothing has changed, it has the bytes of the one before."""
        state = snapshot(self.parties[index], waits=0, time=0)
        if state["kept"] == self._kept.get(index):
            state["kept"] = self._kept[index]
        self._kept[index] = state["kept"]
        return state


def record(
    protocol: Protocol,
    *,
    conditions: Conditions = NONE,
    parties: dict[int, Party] | None = None,
    faults: Faults | None = None,
) -> RecordedRun:
    """Run a protocol once and keep everything.

    Parameters
    ----------
    protocol : Protocol
    conditions : Conditions
        Who is late, and when.
    parties : dict of int to Party, optional
        The parties, where they are not those of the protocol.
    faults : Faults, optional
        Who crashes and comes back. A run that ends by an error for them is kept as far as it came.
    """
    made = protocol.parties() if parties is None else parties
    run = RecordedRun(protocol, made, Transcript(payloads=True))
    schedule = faults and faults.bind(protocol.roles(), protocol.seed, last=protocol.last_fault)
    with one_thread(), suppress(*(() if faults is None else (RunError,))):
        Recorder(
            made,
            recorded=run,
            seed=protocol.seed,
            secrets=protocol.secrets,
            conditions=conditions,
            transcript=run.transcript,
            faults=schedule,
            make_party=protocol.party,
        ).run()
    return run
