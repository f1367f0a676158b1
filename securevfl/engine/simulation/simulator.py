"""Parties in one process, in virtual time: one event queue, no event loop, no threads.

Events are ordered by (time, order of scheduling), so a run is a function of its seed. A message
leaves after its sender's delay, queues on its sender's uplink behind what left before, and arrives;
what a party does in between costs no time, except in the "measured" and "modelled" compute modes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from time import perf_counter_ns
from typing import Any, Protocol

from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions, round_ns
from securevfl.engine.faults import Schedule
from securevfl.engine.mailbox import ANNOUNCE, Mailbox
from securevfl.engine.message_rules import MessageRules
from securevfl.engine.network import SERVER, Event, Message, RoundOverError, Wait, name_of
from securevfl.engine.party import Party
from securevfl.engine.party_state import Replay
from securevfl.engine.security.sealing import OVERHEAD, Sealing
from securevfl.engine.simulation.crashes import Breakdowns
from securevfl.engine.simulation.snapshots import (
    Cuts,
    check_parties,
    home_state,
    pack_queue,
    restore_home,
    unpack_queue,
)
from securevfl.engine.streams import Secrets, SecretSeed
from securevfl.engine.transcript import Transcript
from securevfl.errors import StalledError

_DEPART, _ARRIVE, _TIMER, _RESUME, _STRIKE = range(5)
_ENDLESS = 5_000_000  # events of one instant, none of them recorded
_LOOK = 64  # events of one instant after which `pause` is asked: without delays all is one


class Observer(Protocol):
    """Whoever looks on: writes the history, evaluates the models. It is part of no protocol."""

    def record(self, event: Event) -> None:
        """Take in an event."""

    def round_over(self, party: int, round: int, time: int, left: bool) -> None:
        """Learn that a party is through with a round."""


class _Silent:
    def record(self, event: Event) -> None:
        pass

    def round_over(self, party: int, round: int, time: int, left: bool) -> None:
        pass


class Home:
    """A party and what the engine knows of it."""

    def __init__(self, party: Party, mailbox: Mailbox) -> None:
        self.party = party
        self.mailbox = mailbox
        self.coroutine: Coroutine[Wait, Any, None] | None = None
        self.settled = False  # setup is over; only then can it be resumed
        self.done = False
        self.waits = 0
        self.since = 0  # when its present wait began
        self.busy_until = 0
        self.uplink_free = 0
        self.snapshot: dict[str, Any] | None = None
        self.log: list[Any] = []
        self.replay: Replay | None = None
        self.down = False
        self.own: dict[str, Any] | None = None  # the party's own checkpoint, if it may go down
        self.epochs = party.epoch  # lives that have ended

    def close(self) -> None:
        """End the party's life where it stands."""
        if self.coroutine is not None:
            self.coroutine.close()
        self.coroutine = None
        self.party.handlers.clear()


class Simulation:
    """Runs parties in virtual time; it is their `securevfl.engine.network.Network`.

    Parameters
    ----------
    parties : mutable mapping of int to Party
        A party that comes back after a crash is a new object, and is put into it.
    seed : int
        Seed of delays and of the parties' public streams.
    conditions : Conditions
        Delays, bandwidth and compute mode.
    transcript : Transcript, optional
    observer : Observer, optional
    patience : float
        Virtual seconds without a recorded event after which the run counts as stalled.
    copying : bool
        Pass every payload through its bytes, as separate processes would; a test of protocols.
    sealing : Sealing, optional
        Encrypt and authenticate every payload between two parties; it is then bytes until it is
        opened on arrival.
    faults : Schedule, optional
        Who goes down when; needs `revive`.
    revive : callable, optional
        New party object of a number, as it was before the run.
    secrets : Secrets, optional
        Secret streams of all parties; they follow from `seed` if not given.
    rules : MessageRules, optional
        What the protocol declares; every other message is refused.
    """

    def __init__(
        self,
        parties: MutableMapping[int, Party],
        *,
        seed: int = 0,
        conditions: Conditions = NONE,
        transcript: Transcript | None = None,
        observer: Observer | None = None,
        patience: float = 7 * 86400.0,
        copying: bool = False,
        sealing: Sealing | None = None,
        faults: Schedule | None = None,
        revive: Callable[[int], Party] | None = None,
        secrets: Secrets | None = None,
        rules: MessageRules | None = None,
    ) -> None:
        self.parties = parties
        self._rules = rules
        self.seed = seed
        self.secrets: Secrets = SecretSeed(seed) if secrets is None else secrets
        self.conditions = conditions
        self.transcript = Transcript() if transcript is None else transcript
        self.observer: Observer = _Silent() if observer is None else observer
        self.clock = 0
        self._patience = round_ns(patience)
        self._copying = copying
        self._sealing = sealing
        self._queue: list[tuple[int, int, int, Any]] = []
        self._scheduled = 0
        self._last_event = 0
        self._handled = 0  # events so far, and how many when last the run made headway
        self._headway = 0
        self._step_started = 0
        self.homes: dict[int, Home] = {}
        self.cuts = Cuts(self)
        self.breakdowns: Breakdowns | None = None
        if faults is not None:
            if revive is None:
                raise ValueError("Simulation: faults need revive, which makes parties anew")
            self.breakdowns = Breakdowns(self, faults, revive)
        for index in sorted(parties):
            self.homes[index] = Home(parties[index], Mailbox(self._count_late))
            parties[index].engine = self
        self._measured = conditions.compute == "measured"
        self._modelled = conditions.compute == "modelled"
        self._started = False

    # -- running -------------------------------------------------------------------------------

    def run(self, pause: Callable[[], bool] | None = None, *, until: float | None = None) -> None:
        """Run to the end, to the virtual second `until`, or until `pause` says so.

        `pause` is asked after each instant of virtual time, and now and then within a long one; a
        run that paused can be run on.

        Raises
        ------
        StalledError
            When parties wait and nothing is under way, or nothing is recorded for `patience`, or
            for five million events of one instant.
        """
        if not self._started:
            self._started = True
            if self.breakdowns is not None:
                self.breakdowns.begin()
            for home in self.homes.values():
                self._start(home)
        queue = self._queue
        end = None if until is None else round_ns(until)
        while queue:
            instant = queue[0][0]
            self._handled += 1
            if instant > self.clock:
                self._headway = self._handled
                if end is not None and instant > end:
                    return
                if pause is not None and pause():
                    return
                if instant - self._last_event > self._patience and not self.finished:
                    raise StalledError(self._stalled(f"for {self._patience / 1e9:g} s"))
            elif self._handled % _LOOK == 0:
                if self._handled - self._headway > _ENDLESS:
                    raise StalledError(self._stalled(f"for {_ENDLESS} events of one instant"))
                if pause is not None and pause():
                    return
            self.clock, _, what, subject = heapq.heappop(queue)
            if what == _ARRIVE:
                self._arrive(subject)
            elif what == _DEPART:
                self._transmit(*subject)
            elif what == _STRIKE:
                assert self.breakdowns is not None
                self.breakdowns.strike(tick=subject)
            else:
                self._wake(what, *subject)
            if self.cuts.pending:
                self.cuts.try_finish()
        if not self.finished:
            raise StalledError(self._stalled("nothing is under way"))

    @property
    def finished(self) -> bool:
        """Whether every party has ended; where parties may go down, whether the server has."""
        if self.breakdowns is not None and self.breakdowns.over:
            return True
        return all(home.done for home in self.homes.values())

    def _start(self, home: Home) -> None:
        async def life() -> None:
            if not home.settled:
                await home.party.setup()
            home.settled = True
            await home.party.run()

        home.coroutine = life()
        self._step(home, None)

    def _step(self, home: Home, value: Any, error: BaseException | None = None) -> None:
        """Run a party until it has to wait for something that is not here."""
        coroutine = home.coroutine
        assert coroutine is not None
        if self._measured:
            self._step_started = perf_counter_ns()
        while True:
            try:
                wait = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration:
                home.done = True
                home.mailbox.close()
                home.since = self.clock
                home.snapshot = None
                home.log = []
                self.cuts.take(home)
                return
            if home.replay is not None:
                outcome = home.replay.next(home)
                if outcome is not None:
                    value, error = outcome
                    continue
                home.since = home.replay.now
                home.replay = None
                posted = self._post(home, wait, live=False)
            else:
                home.since = self.clock
                posted = self._post(home, wait, live=True)
            if self._measured:
                elapsed = perf_counter_ns() - self._step_started
                home.busy_until = max(home.busy_until, self.clock) + elapsed
            if not posted or self._postpone(home):
                return
            value, error = self._outcome(home)

    def _post(self, home: Home, wait: Wait, *, live: bool) -> bool:
        """Begin a wait; True when it is over at once."""
        if wait.safe:
            self._at_safe_point(home)
        home.waits += 1
        satisfied = home.mailbox.post(wait)
        if not satisfied and wait.timeout is not None and live:
            due = max(self.clock, home.busy_until) + max(0, round_ns(wait.timeout))
            self._schedule(due, _TIMER, (home.party.index, home.waits))
        return satisfied or home.mailbox.overtaken

    def _outcome(self, home: Home, *, timed_out: bool = False) -> tuple[Any, BaseException | None]:
        """Result of the wait that just ended; logged while a checkpoint is being taken."""
        wait = home.mailbox.wait
        assert wait is not None
        over = not wait.satisfied and not timed_out and home.mailbox.overtaken
        taken = home.mailbox.finish()
        error = RoundOverError() if over else None
        if home.snapshot is not None:
            home.log.append((self.clock, over, [tuple(message) for message in taken]))
        return (None, error) if over else (taken, None)

    def _postpone(self, home: Home) -> bool:
        """Let a busy party go on only when it is free; without a compute mode none is busy."""
        if home.busy_until <= self.clock:
            return False
        self._schedule(home.busy_until, _RESUME, (home.party.index, home.waits))
        return True

    def _wake(self, what: int, index: int, number: int) -> None:
        home = self.homes[index]
        if home.done or home.waits != number or home.mailbox.wait is None:
            return
        timed_out = what == _TIMER
        if timed_out and home.mailbox.wait.satisfied:
            return  # it goes on when the party is free
        self._step(home, *self._outcome(home, timed_out=timed_out))

    # -- messages ------------------------------------------------------------------------------

    def time(self, party: Party) -> int:
        """Virtual nanoseconds; while a party is replayed, those of the moment it is replaying."""
        home = self.homes[party.index]
        return self.clock if home.replay is None else home.replay.now

    def send(
        self,
        party: Party,
        to: tuple[int, ...],
        kind: str,
        payloads: Any,
        round: int,
        after: float,
    ) -> None:
        """Put one message for each receiver on its way."""
        home = self.homes[party.index]
        if home.replay is not None:
            return
        if self._rules is not None:
            self._rules.check_sending(party.index, to, kind)
        chosen = round_ns(after) if after else 0
        wait = chosen
        activity = party.activities.get(kind)
        if activity is not None:
            wait += self.conditions.delay(self.seed, party.index, round, activity)
        departure = self.clock + wait
        if self._measured:
            departure += perf_counter_ns() - self._step_started
        elif self._modelled:
            home.busy_until = max(home.busy_until, self.clock)
            home.busy_until += self.conditions.work(party.operations(kind))
            departure = home.busy_until + wait
        envelope = wire.envelope(kind) + (OVERHEAD if self._sealing is not None else 0)
        known: Any = None
        nbytes = 0
        for receiver, payload in zip(to, payloads, strict=True):
            if payload is not known or not nbytes:
                nbytes = envelope + wire.size(payload)
                known = payload
            if receiver == party.index:
                self._keep(home, kind, payload, round, self.clock + chosen)
            else:
                self._dispatch(home, receiver, kind, payload, round, departure, nbytes)

    def _keep(self, home: Home, kind: str, payload: Any, round: int, time: int) -> None:
        """Deliver to oneself: no bytes, and no delay but the one that was asked for."""
        index = home.party.index
        if self._copying:
            payload = wire.decode(wire.encode(payload))
        own = Message(index, index, kind, payload, round, home.party.epoch, -1)
        self._schedule(time, _ARRIVE, own)

    def _dispatch(
        self,
        home: Home,
        receiver: int,
        kind: str,
        payload: Any,
        round: int,
        departure: int,
        nbytes: int,
    ) -> None:
        party = home.party
        if self._copying:
            payload = wire.decode(wire.encode(payload))
        if receiver not in self.homes:
            raise ValueError(f"send: {name_of(receiver)} does not exist")
        row = self.transcript.add(party.index, receiver, kind, round, nbytes, self.clock, payload)
        if self._sealing is not None:
            plain = wire.encode(payload)
            payload = self._sealing.seal(party.index, receiver, kind, round, party.epoch, plain)
        message = Message(party.index, receiver, kind, payload, round, party.epoch, row)
        if departure > self.clock:
            self._schedule(departure, _DEPART, (message, nbytes))
        else:
            self._transmit(message, nbytes)

    def _transmit(self, message: Message, nbytes: int) -> None:
        if self.breakdowns is not None and not self.breakdowns.departs(message):
            return
        home = self.homes[message.sender]
        start = max(self.clock, home.uplink_free)
        home.uplink_free = start + self.conditions.transfer(nbytes, message.sender)
        self._schedule(home.uplink_free, _ARRIVE, message)

    def _arrive(self, message: Message) -> None:
        if self.breakdowns is not None and not self.breakdowns.arrives(message):
            return
        home = self.homes[message.receiver]
        if message.row >= 0:
            self.transcript.arrive(message.row, self.clock)
        if self._refused(home, message):
            return
        if home.done:
            self._count_late(message)
            return
        if self._sealing is not None and message.row >= 0:
            message = self._opened(message)
        if message.kind in home.party.handlers:
            self._handle(home, message)
            return
        satisfied = home.mailbox.put(message)
        wait = home.mailbox.wait
        if wait is None:
            return
        if message.kind == ANNOUNCE and not wait.satisfied:
            satisfied = home.mailbox.overtaken
        if satisfied and not self._postpone(home):
            self._step(home, *self._outcome(home))

    def _refused(self, home: Home, message: Message) -> bool:
        """Drop what was not declared, and tell who sent it."""
        refusal = None if self._rules is None else self._rules.refusal(message)
        if refusal is not None:
            round = home.party.round
            self.observer.record(Event(self.clock, message.receiver, round, "refused", refusal))
        return refusal is not None

    def inject(self, message: Message, at: float) -> None:
        """Let a message arrive at a virtual second that no engine sent, as of a deviating party.

        It is no part of the transcript, and no link seals it.
        """
        self._schedule(round_ns(at), _ARRIVE, message._replace(row=-1))

    def _handle(self, home: Home, message: Message) -> None:
        if home.snapshot is not None:
            home.log.append((self.clock, None, [tuple(message)]))
        if not self._measured:
            home.party.handlers[message.kind](message)
            return
        outer, started = self._step_started, perf_counter_ns()
        self._step_started = started
        home.party.handlers[message.kind](message)
        elapsed = perf_counter_ns() - started
        self._step_started = outer + elapsed  # a step in which a handler ran is not charged for it
        home.busy_until = max(home.busy_until, self.clock) + elapsed

    def handled(self, party: Party, kind: str) -> None:
        """Pass what arrived before a handler was registered to that handler."""
        home = self.homes[party.index]
        if home.replay is None:
            for message in home.mailbox.withdraw(kind):
                self._handle(home, message)

    def _opened(self, message: Message) -> Message:
        assert self._sealing is not None
        sender, receiver, kind, sealed, round, epoch, _ = message
        payload = self._sealing.open(sender, receiver, kind, round, epoch, sealed)
        return message._replace(payload=wire.decode(payload))

    def _count_late(self, message: Message) -> None:
        if message.row >= 0:
            self.transcript.mark_late(message.row)
            if self.breakdowns is not None:
                self.breakdowns.late(message)

    def _schedule(self, time: int, what: int, subject: Any) -> None:
        heapq.heappush(self._queue, (time, self._scheduled, what, subject))
        self._scheduled += 1

    # -- events --------------------------------------------------------------------------------

    def record(self, party: Party, name: str, fields: dict[str, Any]) -> None:
        """Pass an event on to the observer."""
        if self.homes[party.index].replay is None:
            self._last_event = self.clock
            self._headway = self._handled
            if self.breakdowns is not None:
                self.breakdowns.fruitless = 0
            self.observer.record(Event(self.clock, party.index, party.round, name, fields))

    def round_over(self, party: Party, round: int, left: bool) -> None:
        """Tell the observer that a party is through with a round."""
        if self.homes[party.index].replay is None:
            self.observer.round_over(party.index, round, self.clock, left)

    def enter_round(self, party: Party, round: int) -> None:
        """Count messages of earlier rounds late from now on."""
        if self.homes[party.index].replay is None:
            if self.breakdowns is not None:
                self.breakdowns.begun(round)
            self.homes[party.index].mailbox.enter(round)

    def _stalled(self, why: str) -> str:
        waiting = [
            f"{name_of(index)} {home.mailbox.wait.describe()}"
            for index, home in self.homes.items()
            if not (home.done or home.down) and home.mailbox.wait is not None
        ]
        faults = "" if self.breakdowns is None else self.breakdowns.explain()
        return (
            f"the run stalled at {self.clock / 1e9:.3f} s ({why}): {'; '.join(waiting)}. "
            + (f"Faults: {faults}. " if faults else "")
            + "A party that never sends must be covered by a timeout or a smaller count."
        )

    # -- faults --------------------------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way but looks at who is down."""
        return all(what == _STRIKE for _, _, what, _ in self._queue)

    def schedule_strike(self, time: int, *, tick: bool) -> None:
        """Look at who is to go down or come back, at a time."""
        self._schedule(time, _STRIKE, tick)

    def cut_down(self, home: Home) -> None:
        """Leave a party that has just gone down an empty mailbox; timers of its waits are stale."""
        home.mailbox = Mailbox(self._count_late)
        home.waits += 1
        home.busy_until = 0
        if self.cuts.pending:
            self.cuts.forget(home)
            home.snapshot = home.own

    def move_in(self, home: Home) -> None:
        """Start the new object of a party that has come back."""
        self.parties[home.party.index] = home.party
        self.cuts.forget(home)
        self._start(home)

    # -- checkpoints ---------------------------------------------------------------------------

    def request_state(self, then: Callable[[dict[str, Any]], None]) -> None:
        """Hand the state to `then` as soon as every party has passed a safe point.

        The run goes on meanwhile; each party's kept attributes are copied at its next safe point,
        and what its waits return until the last party is there is logged.
        """
        self.cuts.request(then)

    def safe_point(self, party: Party) -> None:
        """Copy the party's kept attributes if a checkpoint wants them, or it may go down."""
        home = self.homes[party.index]
        if home.replay is not None:
            return
        self._at_safe_point(home)
        if self.breakdowns is not None and party.index != SERVER:
            self.breakdowns.begun(party.round)

    def _at_safe_point(self, home: Home) -> None:
        self.cuts.take(home)
        if self.breakdowns is not None:
            self.breakdowns.keep(home)

    def state(self) -> dict[str, Any]:
        """Everything that a checkpoint needs; every party must have been copied."""
        return {
            "seed": self.seed,
            "clock": self.clock,
            "scheduled": self._scheduled,
            "last_event": self._last_event,
            "queue": pack_queue(self._queue, _ARRIVE, _DEPART),
            "parties": {index: home_state(home) for index, home in self.homes.items()},
            "transcript": self.transcript.state(),
            "sealing": None if self._sealing is None else self._sealing.state(),
            "breakdowns": None if self.breakdowns is None else self.breakdowns.state(),
        }

    @classmethod
    def from_state(
        cls, parties: MutableMapping[int, Party], state: Mapping[str, Any], **options: Any
    ) -> Simulation:
        """Simulation that goes on from a state; `parties` are new objects of the same protocol.

        Raises
        ------
        CheckpointError
            When the state is of other parties, or of a protocol that keeps other attributes.
        """
        check_parties(parties, state["parties"])
        transcript = Transcript.from_state(state["transcript"])
        self = cls(parties, seed=state["seed"], transcript=transcript, **options)
        self.clock = state["clock"]
        self._scheduled = state["scheduled"]
        self._last_event = state["last_event"]
        self._queue = unpack_queue(state["queue"], _ARRIVE, _DEPART)
        self._started = True
        if self._sealing is not None:
            self._sealing.restore(state["sealing"])
        if self.breakdowns is not None:
            self.breakdowns.restore(state["breakdowns"])
        for index, home in self.homes.items():
            restore_home(home, state["parties"][index])
        for home in self.homes.values():
            if not (home.done or home.down):
                self._start(home)
            home.replay = None
        return self
