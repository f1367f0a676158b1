"""Crashes, rejoins and lost messages of a simulated run, after a fault schedule.

A party that crashes loses its coroutine, its mailbox and its messages in flight. One that rejoins
is a new object, one epoch later, restored from its own checkpoint: the kept attributes at its last
safe point and what it wrote ahead since, never masks and never messages. A message is lost if its
receiver is down or its link is cut. Each crash, rejoin and lost message is an event of the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from securevfl.engine.conditions import round_ns
from securevfl.engine.faults import Schedule
from securevfl.engine.mailbox import ANNOUNCE
from securevfl.engine.network import SERVER, Event, Message, name_of
from securevfl.engine.party import Party
from securevfl.engine.simulation.event_queue import FAULTS, EventQueue
from securevfl.engine.simulation.slot import PartySlot

_MOST_IDLE_TICKS = 1000  # ticks without an event of any party: a rejoin would change nothing
# What a look at the fault schedule is for; the numbers stand in checkpoints.
_NOW, _PARTIES, _LINKS = range(3)  # no time has passed; a tick of parties that are down; of links


class Slots(Protocol):
    """Parties of the run, and the actions of others when one crashes or rejoins."""

    @property
    def slots(self) -> Mapping[int, PartySlot]:
        """Slots by party number."""

    @property
    def messages_sent(self) -> int:
        """Number of messages that have been sent so far."""

    def observe(self, event: Event) -> None:
        """Put an event into the history of the run."""

    def on_crash(self, slot: PartySlot) -> None:
        """React to the crash of the party in a slot."""

    def on_rejoin(self, slot: PartySlot) -> None:
        """Start the new party that a slot was given."""


class CrashInjector:
    """The part of a simulation that takes parties down and brings them back.

    Fault chains advance once a round. A round in which crashed parties are missing may never end by
    itself, so virtual time must advance without messages. While a party is down that may come back,
    a tick is scheduled every `Schedule.tick` seconds. A tick ends the round for the chains if no
    message was sent since the last one. Ticks stop when they can have no effect any more
    (`_worth_ticking`), so a stalled run ends.

    A round that misses messages of cut links may never end either. So there are ticks, too, once
    a message that was sent again is lost again. They count as ends of rounds until a party begins
    a round or records an event.

    Parameters
    ----------
    queue, slots, schedule : EventQueue, Slots, Schedule
        Event queue of the run, slots of the parties, and the fault schedule.
    make_party : callable
        Function that creates the party of a number in its initial state.

    Attributes
    ----------
    round : int
        Newest round that any party has begun, or that ticks have reached; the fault chains are at
        this round.
    counted : int
        The same for the server's own count, if it has one (`Party.counts_rounds`); scripted outages
        use the later of both.
    """

    def __init__(
        self,
        queue: EventQueue,
        slots: Slots,
        schedule: Schedule,
        make_party: Callable[[int], Party],
    ) -> None:
        self._queue = queue
        self._simulation = slots
        self._schedule = schedule
        self._make_party = make_party
        self._may_crash = schedule.may_crash
        self._lost: deque[str] = deque(maxlen=3)
        self._down_since: dict[int, int] = {}  # round in which each party that is down crashed
        self._tick_scheduled = False
        self._seen = 0  # messages sent by the last tick
        self._tried: set[int] = set()  # rejoined since the last message, without sending one
        self._tried_at = 0  # messages sent by then
        self._idle_ticks = 0  # ticks since a party last recorded an event
        self._link_tick = False  # whether a tick of links is scheduled
        # Sender, receiver and kind of what links lost since a round began or an event was recorded.
        self._cut: set[tuple[int, int, str]] = set()
        self.round = 0
        self.counted = 0

    def begin(self) -> None:
        """Schedule a check at each scripted start or end of an outage."""
        for seconds in self._schedule.moments:
            self._queue.schedule(round_ns(seconds), FAULTS, _NOW)

    def round_begun(self, round: int) -> None:
        """Move the fault chains to a round, at once, when the first party begins it."""
        if round > self.round:
            self.round = round
            self._cut.clear()
            self._queue.schedule(self._queue.now, FAULTS, _NOW)

    def step_counted(self, round: int) -> None:
        """Move scripted outages to a round, at once, when the server first counts it."""
        if round > self.counted:
            self.counted = round
            self._queue.schedule(self._queue.now, FAULTS, _NOW)

    def event_recorded(self) -> None:
        """Note that a party recorded an event, which means progress."""
        self._idle_ticks = 0
        self._cut.clear()

    def keep(self, slot: PartySlot) -> None:
        """Save a party's own checkpoint at a safe point, if the faults can take it down."""
        if slot.party.index in self._may_crash and slot.setup_done and not slot.done:
            slot.keep_own()

    def keep_ahead(self, slot: PartySlot) -> None:
        """Add the attributes declared with `ahead=True` to the party's own checkpoint."""
        slot.keep_ahead()

    def look(self, purpose: int) -> None:
        """Crash and restart the parties named by the schedule now, in ascending order.

        Parameters
        ----------
        purpose : int
            Kind of the tick since the last check: none, one for parties, or one for links.
        """
        if purpose == _PARTIES:
            self._tick()
        elif purpose == _LINKS:
            self._tick_links()
        for index in sorted(self._may_crash):
            slot = self._simulation.slots[index]
            alive = self._schedule.alive(
                index, self.round, self._queue.now / 1e9, counted=self.counted
            )
            if slot.down and alive:
                self._rejoin(slot)
            elif not alive and not (slot.down or slot.done) and slot.own is not None:
                self._crash(slot)
        if self._worth_ticking() and not self._tick_scheduled:
            self._tick_scheduled = True
            due = self._queue.now + round_ns(self._schedule.tick)
            self._queue.schedule(due, FAULTS, _PARTIES)

    def _tick(self) -> None:
        """Count the round as over if no message was sent since the last tick."""
        self._tick_scheduled = False
        sent = self._simulation.messages_sent
        # Silence for a whole tick: whoever is up waits for somebody who is down, so the round that
        # chains count by is over.
        if sent == self._seen:
            self.round += 1
            self.counted += bool(self.counted)
        self._seen = sent
        self._idle_ticks += 1

    def _tick_links(self) -> None:
        """Count the round as over if nothing happened since a link repeatedly lost a message."""
        self._link_tick = False
        if not self._cut or self.over or self._queue.no_messages_in_flight:
            return
        self._idle_ticks += 1
        if self._idle_ticks > _MOST_IDLE_TICKS:
            return
        if not self._tick_scheduled:  # else the ticks of parties that are down count
            self.round += 1
            self.counted += bool(self.counted)
        self._schedule_link_tick()

    def _schedule_link_tick(self) -> None:
        self._link_tick = True
        self._queue.schedule(self._queue.now + round_ns(self._schedule.tick), FAULTS, _LINKS)

    def _worth_ticking(self) -> bool:
        """Whether virtual time must advance although no message is in flight.

        True while a crashed party may still rejoin a run that can still change by it.
        """
        if self.over:
            return False
        if self._schedule.ends_after(self.round):
            # The chains end with a phase of the run: all parties come back after it.
            return any(slot.down for slot in self._simulation.slots.values())
        if self._idle_ticks > _MOST_IDLE_TICKS:
            return False
        slots = self._simulation.slots
        seconds = self._queue.now / 1e9
        newest = max(self.round, self.counted)
        able = {n for n in self._may_crash if self._schedule.returns(n, newest, seconds)}
        if not any(slots[n].down for n in able):
            return False
        # All that can rejoin have done so since the last message, and sent nothing. They would be
        # restored from the same state again, and the others wait as before.
        return not (able <= self._tried and self._queue.no_messages_in_flight)

    @property
    def over(self) -> bool:
        """Whether the server, and so the run, has ended, even if other parties do not know."""
        server = self._simulation.slots.get(SERVER)
        return server is not None and server.done

    def _crash(self, slot: PartySlot) -> None:
        self._record(slot, "down")
        self._down_since[slot.party.index] = max(self.round, self.counted)
        slot.crash()
        self._simulation.on_crash(slot)

    def _rejoin(self, slot: PartySlot) -> None:
        index = slot.party.index
        assert slot.own is not None
        # Rounds that the server announced before it crashed are spent: clients may be in them.
        least_round = self.round if index == SERVER else 0
        slot.rejoin(self._make_party(index), least_round=least_round)
        self._down_since.pop(index, None)
        self._record(slot, "up", down_since_round=slot.own["round"])
        self._simulation.on_rejoin(slot)
        sent = self._simulation.messages_sent
        if sent != self._tried_at:
            self._tried_at, self._tried = sent, set()
        else:
            self._tried.add(index)

    def _record(self, slot: PartySlot, name: str, **fields: object) -> None:
        self._note(slot.party.index, name, {"epoch": slot.incarnation, **fields})

    def _note(self, party: int, name: str, fields: dict[str, object]) -> None:
        self._simulation.observe(Event(self._queue.now, party, self.round, name, fields))

    # -- messages ------------------------------------------------------------------------------

    def departs(self, message: Message) -> bool:
        """Whether a message leaves: its sender is up, and its link works."""
        sender = self._simulation.slots[message.sender]
        if sender.down or sender.party.epoch != message.epoch:
            return self._lose(message, f"{name_of(message.sender)} went down")
        now, ends = self._queue.now / 1e9, (message.sender, message.receiver)
        back = message.sender == SERVER and message.kind != ANNOUNCE
        asked: dict[str, Any] = {"counted": self.counted, "back": back}
        if not self._schedule.linked(*ends, self.round, now, **asked):
            self._note_cut(message)
            return self._lose(message, "the link is down")
        # By its second draw a party may miss an answer without a crash: only the chain says so.
        answers = back and self._schedule.backward
        if answers and not self._schedule.alive(message.receiver, self.round, now, **asked):
            return self._lose(message, f"{name_of(message.receiver)} does not hear it")
        return True

    def arrives(self, message: Message) -> bool:
        """Whether a message arrives: its receiver is up, and its sender has not crashed since."""
        slots = self._simulation.slots
        sender = slots[message.sender]
        # A restored party does not know what it sent after its checkpoint and may send something
        # else: of two different messages for one step, receivers must see the new one only.
        if slots[message.receiver].down:
            return self._lose(message, f"{name_of(message.receiver)} is down")
        if sender.down or sender.party.epoch != message.epoch:
            return self._lose(message, f"{name_of(message.sender)} went down")
        return True

    def _note_cut(self, message: Message) -> None:
        """Schedule a tick if a message of equal sender, receiver and kind was lost before."""
        cut = (message.sender, message.receiver, message.kind)
        again = cut in self._cut and not self._link_tick
        self._cut.add(cut)
        if again and self._schedule.mends(*cut[:2], max(self.round, self.counted)):
            self._schedule_link_tick()

    def _lose(self, message: Message, why: str) -> bool:
        if message.row >= 0:
            what = {"kind": message.kind, "to": message.receiver, "of_round": message.round}
            self._note(message.sender, "lost", {**what, "why": why})
            self._lost.append(
                f"{message.kind!r} of round {message.round} from {name_of(message.sender)} to "
                f"{name_of(message.receiver)} ({why})"
            )
        return False

    def late(self, message: Message) -> None:
        """Record a message that arrived too late."""
        what = {"kind": message.kind, "to": message.receiver, "of_round": message.round}
        self._note(message.sender, "late", what)

    def is_down(self, party: int) -> bool:
        """Whether a party is down now."""
        return party in self._down_since

    def explain(self) -> str:
        """Text for the error of a stalled run: parties that are down, and messages lost last."""
        causes = [
            f"{name_of(n)} has been down since round {round}"
            for n, round in sorted(self._down_since.items())
        ]
        if self._lost:
            causes.append("lost last: " + ", ".join(self._lost))
        return "; ".join(causes)

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self) -> dict[str, object]:
        """The content as a payload of `securevfl.engine.wire`."""
        return {
            "round": self.round,
            "since": self._down_since,
            "lost": tuple(self._lost),
            "ticking": self._tick_scheduled,
            "fruitless": self._idle_ticks,
            "seen": self._seen,
            "tried": tuple(sorted(self._tried)),
            "tried_at": self._tried_at,
            "counted": self.counted,
            "link_tick": self._link_tick,
            "cut": tuple(sorted(self._cut)),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the content that method `state` returned."""
        self.round = state["round"]
        self._down_since = dict(state["since"])
        self._lost.extend(state["lost"])
        self._tick_scheduled = state["ticking"]
        self._idle_ticks = state["fruitless"]
        self._seen = state["seen"]
        self._tried = set(state["tried"])
        self._tried_at = state["tried_at"]
        self.counted = state.get("counted", 0)
        self._link_tick = state.get("link_tick", False)
        self._cut = {(low, high, kind) for low, high, kind in state.get("cut", ())}
