"""Slot of a party in a simulation: the party, its runner, and the engine's data on both.

A slot outlives its party: after a crash a new party object is in the same slot. Waits, crashes and
copies for checkpoints of a party are methods of its slot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter_ns
from typing import Any

from securevfl.engine.conditions import round_ns
from securevfl.engine.mailbox import ANNOUNCE, Mailbox
from securevfl.engine.network import Message, RoundOverError, Wait, computed
from securevfl.engine.party import Party
from securevfl.engine.party_state import ahead, restore, snapshot
from securevfl.engine.runner import Outcome, Owner, PartyRunner
from securevfl.engine.simulation.event_queue import (
    ARRIVE,
    RESUME,
    TIMER,
    WAKE,
    Coming,
    EventQueue,
)
from securevfl.engine.transcript import Transcript


class Replay:
    """Replay of a restored party from its safe point to its point in the checkpoint.

    Parameters
    ----------
    log : list
        (time, over, messages) of each wait since the safe point; `over` is None for a message to a
        handler.
    now : int
        Virtual nanoseconds at the safe point.

    Attributes
    ----------
    now : int
        Virtual nanoseconds of the replayed instant.
    """

    def __init__(self, log: list[Any], now: int) -> None:
        self.now = now
        self._log = log

    def outcomes(self, party: Party) -> Iterator[Outcome]:
        """Outcomes of the party's waits in order; handlers are called in between."""
        for time, over, fields in self._log:
            messages = [Message(*each) for each in fields]
            if over is None:
                # The party stands in a wait that began before: its clock goes back afterwards.
                before, self.now = self.now, time
                party.handlers[messages[0].kind](messages[0])
                self.now = before
            else:
                self.now = time
                yield (None, RoundOverError()) if over else (messages, None)


class PartySlot(Owner):
    """Slot of one party in a simulation.

    Parameters
    ----------
    queue : EventQueue
        Event queue of the run, to which the slot adds the party's timers.
    late : callable
        Called with each late message.
    at_rest : callable
        Called with the slot when the party begins a wait that is a safe point, and when it ends.
    measured : bool
        Whether the party is busy for the real time that its code takes.
    opener : callable, optional
        Opens sealed messages to the party.
    transcript : Transcript, optional
        Transcript, which is informed of arrivals.
    quiet : bool
        Whether an arrival that ends no wait needs no event: without faults and dropped work.

    Attributes
    ----------
    sealed : set of int
        Transcript rows of encrypted messages that arrived. Messages taken at once are decrypted
        together.
    uplink_free, downlink_free, busy_until : int
        Virtual nanoseconds at which the party's links, and the party, become free.
    heard : int
        First round that is not over, by the server's messages to the party.
    saved : dict or None
        Copy of the party for the checkpoint in progress.
    down : bool
        Whether the party is crashed.
    own : dict or None
        Checkpoint of the party, if it may crash.
    incarnation : int
        Number of crashes from which the party has come back; `Party.epoch` in messages.
    """

    def __init__(
        self,
        party: Party,
        queue: EventQueue,
        late: Callable[[Message], None],
        at_rest: Callable[[PartySlot], None],
        *,
        measured: bool,
        opener: Callable[[list[Message]], list[Message]] | None = None,
        transcript: Transcript | None = None,
        quiet: bool = True,
    ) -> None:
        self.party = party
        self._transcript = transcript
        self._quiet = quiet
        self._coming: dict[str, list[Coming]] = {}  # by kind
        self._first: float = math.inf  # a time before which none of them arrives
        # The present wait, places of what is coming for it, the number of these that it lacks, and
        # the place of the one with which it may be over.
        self._hoping: Wait | None = None
        self._hits: list[tuple[int, int]] = []
        self._lacking = 0
        self._wake: tuple[int, int] | None = None
        self.sealed: set[int] = set()
        self._opener = opener
        self.runner = PartyRunner(party, self, late)
        self.busy_until = 0
        self.uplink_free = 0
        self.downlink_free = 0
        self.heard = 0
        # The work that a delay stands for: its activity and round, when it began and will end.
        self._working: tuple[str, int, int, int] | None = None
        self.saved: dict[str, Any] | None = None
        self.down = False
        self.own: dict[str, Any] | None = None
        self.incarnation = party.epoch
        self._queue = queue
        self._late = late
        self._at_rest = at_rest
        self._measured = measured
        self._stopwatch = 0  # real nanoseconds at which the present step began
        self._since = 0  # when the present wait began
        self._log: list[Any] = []  # what the waits gave back since `saved`
        self._replay: Replay | None = None

    # -- reading -------------------------------------------------------------------------------

    @property
    def mailbox(self) -> Mailbox:
        """The party's mailbox."""
        return self.runner.mailbox

    @property
    def done(self) -> bool:
        """Whether the party has ended."""
        return self.runner.done

    @property
    def setup_done(self) -> bool:
        """Whether the party's set-up is over; only then can it be resumed."""
        return self.runner.setup_done

    @property
    def replaying(self) -> bool:
        """Whether the party is replaying up to a checkpoint, when it sends and records nothing."""
        return self._replay is not None

    @property
    def now(self) -> int:
        """Virtual nanoseconds on the party's clock."""
        return self._queue.now if self._replay is None else self._replay.now

    def describe_wait(self) -> str | None:
        """Text on the messages that the party waits for; None if it does not wait."""
        wait = self.mailbox.wait
        return None if self.done or self.down or wait is None else wait.describe()

    # -- running -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the party, or the slot's new party, and run it to its first wait."""
        self._since = self._queue.now
        recorded = None if self._replay is None else self._outcomes(self._replay)
        self.runner.start(setup_done=self.setup_done, recorded=recorded)
        self._replay = None
        self._look_ahead()

    def _outcomes(self, replay: Replay) -> Iterator[Outcome]:
        yield from replay.outcomes(self.party)
        self._since = replay.now
        self._replay = None

    # -- messages on their way -----------------------------------------------------------------

    def expect(self, time: int, number: int, message: Message) -> bool:
        """Schedule a message's arrival at `time` (ns), with an event only if one may be needed.

        Returns whether it arrives without an event.

        Most messages are for later waits, or some of many for the present one. They are put into
        the mailbox in the order of their arrival when next something happens to the party, and a
        wait has one event: the earliest arrival with which it may be over.
        """
        kind, queue = message.kind, self._queue
        wait = self._hoping
        hoped = wait is not None and kind in wait.kinds and wait.accepts(message)
        alone = hoped and self._lacking == 1
        if not self._quiet or alone or kind == ANNOUNCE or kind in self.party.handlers:
            queue.schedule_as(time, number, ARRIVE, message)
            return False
        coming = self._coming.get(kind)
        if coming is None:
            coming = self._coming[kind] = []
        coming.append((time, number, message))
        if time < self._first:
            self._first = time
        if hoped:
            self._hits.append((time, number))
            if len(self._hits) >= self._lacking:
                self._set_wake()
        return True

    def take_arrived(self) -> None:
        """Move messages that have arrived by now into the mailbox."""
        now = self._queue.now
        if self._first > now:
            return
        end = now, self._queue.number
        due: list[Coming] = []
        self._first = math.inf
        for kind, coming in self._coming.items():
            here = [one for one in coming if one[0] < now or one[:2] <= end]
            due += here
            if len(here) < len(coming):
                self._coming[kind] = left = [one for one in coming if one[:2] > end]
                self._first = min(self._first, *[one[0] for one in left])
            else:
                coming.clear()
        if len(due) > 1:
            due.sort()
        if self._transcript is not None:
            for time, _, message in due:
                self._transcript.arrive(message.row, time)
        if self._opener is not None and not self.done:
            self.sealed.update([message.row for _, _, message in due])
        self.runner.put_each([message for _, _, message in due])

    def _look_ahead(self) -> None:
        """Find the earliest time at which messages on their way may end the present wait."""
        wait = self.runner.mailbox.wait
        self._hits, self._wake = [], None
        if wait is None or not wait.kinds or wait.satisfied or self.done:
            self._hoping = None
            return
        self._hoping = wait
        self._lacking = max(1, int(wait.needed) - len(wait.taken))
        for kind in wait.kinds:
            coming = self._coming.get(kind)
            if coming:
                self._hits += [one[:2] for one in coming if wait.accepts(one[2])]
        if len(self._hits) >= self._lacking:
            self._set_wake()

    def _set_wake(self) -> None:
        newest, wake = self._hits[-1], self._wake
        if wake is not None and newest > wake:
            return
        self._hits.sort()
        wake = self._hits[self._lacking - 1]
        if wake != self._wake:
            self._wake = wake
            self._queue.schedule_as(*wake, WAKE, self.party.index)

    def wake(self) -> None:
        """Continue if messages have ended the present wait by now and no event did before."""
        if self._wake == (self._queue.now, self._queue.number):
            self.take_arrived()
            self.runner.go_on()
            self._look_ahead()

    def deliver(self, message: Message) -> None:
        """Give an arrived message to the party."""
        if self._opener is not None and message.row >= 0 and not self.done:
            self.sealed.add(message.row)
        self.take_arrived()
        self.runner.deliver(message)
        self._look_ahead()

    def time_out(self, wait: int) -> None:
        """End the wait of this number by timeout."""
        self.take_arrived()
        self.runner.time_out(wait)
        self._look_ahead()

    def resume(self, wait: int) -> None:
        """Go on after the wait of this number, as the party is free."""
        self.take_arrived()
        self.runner.resume(wait)
        self._look_ahead()

    def handle(self, kind: str) -> None:
        """Pass a kind's messages that are here to its handler, and later ones on arrival."""
        self.runner.deliver_held(kind)
        for time, number, message in self._coming.pop(kind, ()):
            self._queue.schedule_as(time, number, ARRIVE, message)

    @property
    def coming(self) -> list[Coming]:
        """Messages on their way without events."""
        return [one for coming in self._coming.values() for one in coming]

    # -- the party's clock ---------------------------------------------------------------------

    def set_timer(self, seconds: float, wait: int) -> None:
        """Set a wait's timeout, counted from when the party is free."""
        # A busy party would wait only once it is free; where computing is charged, the timer starts
        # then.
        due = max(self._queue.now, self.busy_until) + round_ns(seconds)
        self._queue.schedule(due, TIMER, (self.party.index, wait))

    def at_safe_point(self) -> None:
        """Tell the simulation that the party can be copied."""
        self._at_rest(self)

    def step_begins(self) -> int:
        """Start the stopwatch if computing is measured; return the outer step's start (ns)."""
        outer = self._stopwatch
        if self._measured:
            self._stopwatch = perf_counter_ns()
        return outer

    def step_ends(self, outer: int) -> None:
        """Charge the party for the real time of the step, if computing is measured."""
        if self._measured:
            elapsed = self.elapsed()
            self.occupy(elapsed)
            self._stopwatch = outer + elapsed  # so the step around is not charged for this one

    def is_free(self) -> bool:
        """Whether the party may continue now; a busy one is resumed when it is free."""
        if self.busy_until <= self._queue.now:
            return True
        self._go_on_at(self.busy_until)
        return False

    def _go_on_at(self, time: int) -> None:
        """Schedule the time (ns) at which the party gets the outcome of a finished wait."""
        # The wait's number goes along: if the party is woken otherwise meanwhile, this event finds
        # another wait and does nothing.
        self._queue.schedule(time, RESUME, (self.party.index, self.runner.waits))

    def opened(self, messages: list[Message]) -> list[Message]:
        """The messages in order, sealed ones decrypted, later ones computed."""
        sealed = self.sealed
        if not sealed or self._opener is None:
            return list(map(computed, messages))
        those = [message for message in messages if message.row in sealed]
        if not those:
            return messages
        sealed.difference_update([message.row for message in those])
        found = self._opener(those)
        if len(those) == len(messages):
            return found
        by_row = {message.row: message for message in found}
        return [by_row.get(message.row, message) for message in messages]

    def received(self, messages: list[Message], *, over: bool | None) -> None:
        """Log a wait's messages if a checkpoint under way has already copied the party."""
        if over is not None:
            self._since = self._queue.now
        if self.saved is not None:
            # A coroutine's state is a function of its copy and of what its waits gave back since,
            # for all else that it may read (time, streams) follows from these: the log is what
            # replay needs.
            self._log.append((self._queue.now, over, [tuple(message) for message in messages]))

    def ended(self) -> None:
        """Replace the copy of an ended party, of which nothing is replayed."""
        self.forget_snapshot()
        self._at_rest(self)

    def elapsed(self) -> int:
        """Real nanoseconds since the present step began."""
        return perf_counter_ns() - self._stopwatch

    def occupy(self, nanoseconds: int) -> int:
        """Make the party busy for some nanoseconds; return the time at which it is free."""
        self.busy_until = max(self.busy_until, self._queue.now) + nanoseconds
        return self.busy_until

    def work(self, activity: str, round: int, nanoseconds: int) -> int:
        """Make the party busy with an activity for so many nanoseconds; return the end, in ns.

        All messages of an activity and round in one instant need one piece of work.
        """
        now = self._queue.now
        known = self._working
        if known is None or known[:3] != (activity, round, now):
            known = self._working = (activity, round, now, self.occupy(nanoseconds))
        return known[3]

    def hear(self, round: int) -> None:
        """Drop work for rounds before this one, which the server announced as over."""
        if round <= self.heard:
            return
        self.heard = round
        now, wait = self._queue.now, self.mailbox.wait
        if self._working is None or self._working[1] >= round or self.busy_until <= now:
            return
        self.busy_until = now
        if wait is not None and (wait.satisfied or self.mailbox.overtaken):
            self._go_on_at(now)

    def use_downlink(self, sent: int, nanoseconds: int) -> int:
        """Queue a message, sent at `sent`, on the party's downlink; return its arrival time."""
        if nanoseconds:
            self.downlink_free = max(self.downlink_free, sent) + nanoseconds
            return self.downlink_free
        return sent

    # -- crashes -------------------------------------------------------------------------------

    def keep_own(self) -> None:
        """Save the party's own checkpoint, which contains no masks and no messages."""
        self.own = snapshot(self.party, waits=0, time=self._queue.now)

    def keep_ahead(self) -> None:
        """Add the attributes declared with `ahead=True` to the own checkpoint, if there is one."""
        if self.own is not None:
            self.own = {**self.own, "ahead": ahead(self.party)}

    def crash(self) -> None:
        """Stop the party and lose its messages."""
        self.runner.close()
        self.sealed.clear()
        self.down = True
        # One wait further: timers of this incarnation are for waits that are over.
        self._renew_runner(waits=self.runner.waits + 1)
        self.busy_until = 0
        self._working = None

    def rejoin(self, party: Party, *, least_round: int) -> None:
        """Put a new party, restored from the own checkpoint, into the slot.

        Parameters
        ----------
        party : Party
            New party in its initial state.
        least_round : int
            Lower bound of its round.
        """
        assert self.own is not None
        restore(party, self.own)
        self.incarnation += 1
        party.epoch = self.incarnation
        party.resumptions = self.party.resumptions
        party.round = max(party.round, least_round)
        self.down = False
        self.party = party
        self._renew_runner(waits=self.runner.waits)
        self.forget_snapshot()

    def _renew_runner(self, *, waits: int) -> None:
        setup_done = self.setup_done
        self.runner = PartyRunner(self.party, self, self._late, waits=waits)
        self.runner.setup_done = setup_done

    # -- checkpoints ---------------------------------------------------------------------------

    @property
    def waits_safely(self) -> bool:
        """Whether the party waits at a safe point, with messages still missing."""
        wait = self.mailbox.wait
        return wait is not None and wait.safe and not wait.satisfied

    def take_snapshot(self, *, waiting: bool = False) -> None:
        """Copy the party, which must be at a safe point, and log all that it receives from now on.

        Parameters
        ----------
        waiting : bool
            Whether it has begun the wait at the safe point. The copy is then of the state before,
            because the replayed party begins that wait again.
        """
        time = self._since if waiting else self._queue.now
        self.saved = snapshot(self.party, waits=self.runner.waits - waiting, time=time)

    def take_own_snapshot(self) -> None:
        """Use a crashed party's own checkpoint as its copy in the checkpoint."""
        self.saved = self.own
        self._log = []

    def forget_snapshot(self) -> None:
        """Delete the copy of the party and its log."""
        self.saved = None
        self._log = []

    def state(self) -> dict[str, object]:
        """The slot as a payload of `securevfl.engine.wire`."""
        # The snapshot holds the constants already.
        own = None if self.own is None else {**self.own, "once": {}}
        self.mailbox.open_all(self.opened)
        return {
            "snapshot": self.saved,
            "log": self._log,
            "done": self.done,
            "mailbox": self.mailbox.state(),
            "uplink_free": self.uplink_free,
            "downlink_free": self.downlink_free,
            "busy_until": self.busy_until,
            "heard": self.heard,
            "working": self._working,
            "down": self.down,
            "own": own,
            "epochs": self.incarnation,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the party at its safe point from `state`; `start` replays the log."""
        copied = saved["snapshot"]
        restore(self.party, copied)
        self.runner.waits = copied["waits"]
        self.runner.setup_done = True
        self.runner.done = saved["done"]
        self.mailbox.restore(saved["mailbox"])
        self.uplink_free = saved["uplink_free"]
        self.downlink_free = saved.get("downlink_free", 0)
        self.busy_until = saved["busy_until"]
        self.heard = saved.get("heard", 0)
        self._working = saved.get("working")
        self.down = saved["down"]
        self.incarnation = saved["epochs"]
        if saved["own"] is not None:
            self.own = {**saved["own"], "once": copied["once"]}
        if not (self.done or self.down):
            self._replay = Replay(saved["log"], copied["time"])
