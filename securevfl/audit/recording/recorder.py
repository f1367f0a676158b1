"""The recorder: a simulation that writes down what passes through it.

It changes no party, but for `uniform`, the method through which a party draws secret field
elements: its results are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from securevfl.audit.following import acts
from securevfl.audit.following.slots import FollowedSlot, References
from securevfl.audit.recording.recorded_run import RecordedMessage, RecordedRun, Snapshot
from securevfl.audit.tapes import Tape, record_draws, replay_draws
from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.faults import Faults
from securevfl.engine.network import PartyState, Sending
from securevfl.engine.party import SERVER, Party
from securevfl.engine.party_state import snapshot
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.simulation.slot import PartySlot
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

    def _add(self, party: Party) -> None:
        references = self.recorded.references
        if references is None:
            super()._add(party)
            return
        party.engine = self
        self.slots[party.index] = FollowedSlot(
            *(party, self._queue, self._count_late, self._at_rest),
            measured=self._measured,
            references=references,
            parties=self.parties,
        )

    def _at_rest(self, slot: PartySlot) -> None:
        if isinstance(slot, FollowedSlot):
            slot.rests()
        super()._at_rest(slot)

    def failed(self, error: Exception) -> None:
        """Note by whose step the run ended in an error."""
        for slot in self.slots.values():
            if isinstance(slot, FollowedSlot):
                slot.failed(error)

    def send(self, sending: Sending) -> None:
        """Keep each message, then put it on its way."""
        self.note_sending(sending)
        with self._unseen():
            self._send(sending)

    def _send(self, sending: Sending) -> None:
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
            if isinstance(slot, FollowedSlot):
                slot.sent(message)
        if self._follow is not None:
            for message in kept:
                self._follow(message)

    def _state_of(self, index: int) -> dict[str, Any]:
        """Snapshot of a party; where nothing has changed, it has the bytes of the one before."""
        state = snapshot(self.parties[index], waits=0, time=0)
        if state["kept"] == self._kept.get(index):
            state["kept"] = self._kept[index]
        self._kept[index] = state["kept"]
        return state

    # -- what a party does beside its messages -------------------------------------------------
    # None of these runs code of a party, which would see the audit among its callers.

    def record(self, party: PartyState, name: str, fields: dict[str, Any]) -> None:
        """Note an event."""
        if party.index != SERVER:
            key = MessageKey(name, party.round, party.index, SERVER)
            self.recorded.events.append((key, dict(fields)))
        self._note(party, acts.event(party, name, fields))
        super().record(party, name, fields)

    def safe_point(self, party: PartyState) -> None:
        """Note that the party is at one."""
        self._note(party, acts.call("safe_point"))
        super().safe_point(party)

    def write_ahead(self, party: PartyState) -> None:
        """Note that it does."""
        self.note_writing_ahead(party)
        super().write_ahead(party)

    def note_writing_ahead(self, party: PartyState) -> None:
        """Note that it does, without doing so."""
        self._note(party, acts.call("write_ahead"))

    def round_over(self, party: PartyState, round: int, left: bool) -> None:
        """Note that the party says so."""
        self._note(party, acts.call("round_over", round, left))
        super().round_over(party, round, left)

    def enter_round(self, party: PartyState, round: int) -> None:
        """Note that the party says so."""
        self._note(party, acts.call("enter_round", round))
        super().enter_round(party, round)

    def note_sending(self, sending: Sending) -> None:
        """Note what is sent when."""
        slot = self.slots[sending.party.index]
        if isinstance(slot, FollowedSlot):
            slot.acted(*acts.sendings(sending, slot.given))

    def _note(self, party: PartyState, *found: acts.Act) -> None:
        slot = self.slots[party.index]
        if isinstance(slot, FollowedSlot):
            slot.acted(*found)

    def _unseen(self) -> AbstractContextManager[None]:
        """Let what the audit writes go its way."""
        references = self.recorded.references
        return nullcontext() if references is None else references.lines.into(None)


def record(
    protocol: Protocol,
    *,
    conditions: Conditions = NONE,
    tapes: Mapping[int, Tape] | None = None,
    parties: dict[int, Party] | None = None,
    followed: bool = False,
    faults: Faults | None = None,
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
    followed : bool
        Whether the library's own parties follow the states of these.
    faults : Faults, optional
        Who crashes and comes back. A run that ends by an error for them is kept as far as it came.
    """
    library = References(protocol) if followed else None  # before `parties` can change the protocol
    made = protocol.parties() if parties is None else parties
    run = RecordedRun(protocol, made, Transcript(payloads=True))
    run.references = library
    for n, party in made.items():
        if tapes is not None and n in tapes:
            replay_draws(party, tapes[n])
        keep_draws(run, party)

    def again(index: int) -> Party:
        party = protocol.party(index)
        keep_draws(run, party)
        return party

    schedule = faults and faults.bind(protocol.roles(), protocol.seed, last=protocol.last_fault)
    with one_thread(), run.watch_chance(), suppress(*(() if faults is None else (RunError,))):
        Recorder(
            made,
            recorded=run,
            seed=protocol.seed,
            secrets=protocol.secrets,
            conditions=conditions,
            transcript=run.transcript,
            faults=schedule,
            make_party=again,
        ).run()
    return run


def keep_draws(run: RecordedRun, party: Party) -> None:
    """Copy what a party draws to its tape; a party that comes back goes on with the same one."""
    if hasattr(party, "uniform"):
        run.tapes[party.index] = record_draws(party, run.tapes.get(party.index))
