"""Crashes, rejoins and lost messages of a simulation, as `securevfl.engine.faults` schedules them.

A party that goes down loses its coroutine, its mailbox and its messages under way. One that comes
back is a new object, restored from its last own checkpoint (the kept attributes at its last safe
point and what it wrote ahead since; never masks, never messages), one epoch later. What reaches a
party that is down, or has to cross a link that is cut, is lost. Each of these is an event of the
run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from securevfl.engine.conditions import round_ns
from securevfl.engine.faults import Schedule
from securevfl.engine.network import SERVER, Event, Message, name_of
from securevfl.engine.party_state import ahead, restore, snapshot

if TYPE_CHECKING:
    from securevfl.engine.party import Party
    from securevfl.engine.simulation.simulator import Home, Simulation

_FRUITLESS = 1000  # ticks without an event of any party: whoever returns makes no difference


class Breakdowns:
    """Who is down.

    Parameters
    ----------
    simulation : Simulation
    schedule : Schedule
    revive : callable
        New party object of a number, as it was before the run.

    Attributes
    ----------
    round : int
        Newest round that any party has begun; the chains are at this round.
    fruitless : int
        Ticks since a party last recorded an event.
    """

    def __init__(
        self, simulation: Simulation, schedule: Schedule, revive: Callable[[int], Party]
    ) -> None:
        self._simulation = simulation
        self._schedule = schedule
        self._revive = revive
        self._mortal = schedule.mortal
        self._lost: deque[str] = deque(maxlen=3)
        self._since: dict[int, int] = {}  # round in which each party that is down went down
        self._ticking = False
        self._seen = 0  # messages sent when last a tick looked
        self._tried: set[int] = set()  # came back, and did nothing, since the last message
        self._tried_at = 0  # messages sent by then
        self.round = 0
        self.fruitless = 0

    def begin(self) -> None:
        """Put the scripted moments into the queue."""
        for seconds in self._schedule.moments:
            self._simulation.schedule_strike(round_ns(seconds), tick=False)

    def begun(self, round: int) -> None:
        """A party has begun a round; if nobody had before, the chains move on at this instant."""
        if round > self.round:
            self.round = round
            self._simulation.schedule_strike(self._simulation.clock, tick=False)

    def keep(self, home: Home) -> None:
        """Write the own checkpoint of a party that is at a safe point and may go down."""
        if home.party.index in self._mortal and home.settled:
            home.own = snapshot(home.party, waits=0, time=self._simulation.clock)

    def keep_ahead(self, home: Home) -> None:
        """Put what a party writes between safe points beside its own checkpoint."""
        if home.own is not None:
            home.own = {**home.own, "ahead": ahead(home.party)}

    def strike(self, *, tick: bool) -> None:
        """Take down who is to go down and bring back who is to come back, by number."""
        simulation = self._simulation
        if tick:
            self._tick()
        for index in sorted(self._mortal):
            home = simulation.homes[index]
            alive = self._schedule.alive(index, self.round, simulation.clock / 1e9)
            if home.down and alive:
                self._rejoin(home)
            elif not alive and not (home.down or home.done) and home.own is not None:
                self._crash(home)
        if self._worth_ticking() and not self._ticking:
            self._ticking = True
            due = simulation.clock + round_ns(self._schedule.tick)
            simulation.schedule_strike(due, tick=True)

    def _tick(self) -> None:
        """A round's time has passed; where no newer one was begun it counts as over."""
        self._ticking = False
        sent = len(self._simulation.transcript)
        if sent == self._seen:
            self.round += 1
        self._seen = sent
        self.fruitless += 1

    def _worth_ticking(self) -> bool:
        """Whether somebody is down who may come back to a run that is not over.

        It is where chains end with a phase of the run that is not over. It is not where nothing is
        under way and everybody who can has come back since the last message and sent nothing: what
        they were restored from is what it was, and so is the rest.
        """
        if self.over:
            return False
        if self._schedule.ends_after(self.round):
            return any(home.down for home in self._simulation.homes.values())
        if self.fruitless > _FRUITLESS:
            return False
        simulation = self._simulation
        seconds = simulation.clock / 1e9
        able = {n for n in self._mortal if self._schedule.returns(n, self.round, seconds)}
        if not any(simulation.homes[n].down for n in able):
            return False
        return not (able <= self._tried and simulation.quiet)

    @property
    def over(self) -> bool:
        """Whether the server has ended: whoever did not hear of it is dismissed."""
        server = self._simulation.homes.get(SERVER)
        return server is not None and server.done

    def _crash(self, home: Home) -> None:
        self._record(home, "down")
        self._since[home.party.index] = self.round
        home.close()
        home.down = True
        self._simulation.cut_down(home)

    def _rejoin(self, home: Home) -> None:
        index = home.party.index
        assert home.own is not None
        party = self._revive(index)
        party.engine = self._simulation
        restore(party, home.own)
        home.epochs += 1
        party.epoch = home.epochs
        if index == SERVER:
            party.round = max(party.round, self.round)  # rounds that were announced are spent
        home.down = False
        self._since.pop(index, None)
        home.party = party
        self._record(home, "up", down_since_round=home.own["round"])
        self._simulation.move_in(home)
        sent = len(self._simulation.transcript)
        if sent != self._tried_at:
            self._tried_at, self._tried = sent, set()
        else:
            self._tried.add(index)

    def _record(self, home: Home, name: str, **fields: Any) -> None:
        self._note(home.party.index, name, {"epoch": home.epochs, **fields})

    def _note(self, party: int, name: str, fields: dict[str, Any]) -> None:
        simulation = self._simulation
        simulation.observer.record(Event(simulation.clock, party, self.round, name, fields))

    # -- messages ------------------------------------------------------------------------------

    def departs(self, message: Message) -> bool:
        """Whether a message leaves: its sender must be up, in the same life, and the link too."""
        sender = self._simulation.homes[message.sender]
        if sender.down or sender.party.epoch != message.epoch:
            return self._lose(message, f"{name_of(message.sender)} went down")
        seconds = self._simulation.clock / 1e9
        if self._schedule.linked(message.sender, message.receiver, self.round, seconds):
            return True
        return self._lose(message, "the link is down")

    def arrives(self, message: Message) -> bool:
        """Whether a message reaches its receiver, and its sender has not gone down meanwhile."""
        homes = self._simulation.homes
        sender = homes[message.sender]
        if homes[message.receiver].down:
            return self._lose(message, f"{name_of(message.receiver)} is down")
        if sender.down or sender.party.epoch != message.epoch:
            return self._lose(message, f"{name_of(message.sender)} went down")
        return True

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
        """Record a message that came when nobody waited for it any more."""
        what = {"kind": message.kind, "to": message.receiver, "of_round": message.round}
        self._note(message.sender, "late", what)

    def explain(self) -> str:
        """What a stalled run has to do with faults."""
        said = [
            f"{name_of(n)} has been down since round {round}"
            for n, round in sorted(self._since.items())
        ]
        if self._lost:
            said.append("lost last: " + ", ".join(self._lost))
        return "; ".join(said)

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Content for a checkpoint."""
        return {
            "round": self.round,
            "since": self._since,
            "lost": tuple(self._lost),
            "ticking": self._ticking,
            "fruitless": self.fruitless,
            "seen": self._seen,
            "tried": tuple(sorted(self._tried)),
            "tried_at": self._tried_at,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self.round = state["round"]
        self._since = dict(state["since"])
        self._lost.extend(state["lost"])
        self._ticking = state["ticking"]
        self.fruitless = state["fruitless"]
        self._seen = state["seen"]
        self._tried = set(state["tried"])
        self._tried_at = state["tried_at"]
