"""Runner of a party: steps the party's coroutine from one wait to the next.

It holds the party's mailbox, but no clock and no transport: those belong to its owner, a
`securevfl.engine.simulation.slot.PartySlot` in virtual time or a
`securevfl.engine.realtime.host.PartyHost` on a wall clock. So both run a party by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from securevfl.engine.mailbox import ANNOUNCE, Mailbox
from securevfl.engine.network import Message, RoundOverError, Wait
from securevfl.engine.party import Party

# What a wait gives back to its party: the messages that it took, or the error that it raises.
Outcome = tuple[list[Message] | None, BaseException | None]


class Owner:
    """Environment of a runner: a clock, and hooks that record the party."""

    def set_timer(self, seconds: float, wait: int) -> None:
        """Call `PartyRunner.time_out` with the number `wait` in so many seconds."""
        raise NotImplementedError

    def at_safe_point(self) -> None:
        """Hook at a safe point: copy the party's kept attributes if wanted."""
        raise NotImplementedError

    def step_begins(self) -> int:
        """Hook: the party's code starts now; the result, any number, is passed to `step_ends`.

        A handler that is called from the party's code is a step within a step.
        """
        return 0

    def step_ends(self, outer: int) -> None:
        """Hook: the party's code has begun a wait, or a handler has returned."""

    def is_free(self) -> bool:
        """Whether the party may go on now; if not, the owner calls `PartyRunner.resume` later."""
        return True

    def opened(self, messages: list[Message]) -> list[Message]:
        """Messages to the party, decrypted if they were sealed."""
        return messages

    def received(self, messages: list[Message], *, over: bool | None) -> None:
        """Hook: the party is about to receive messages.

        Parameters
        ----------
        over : bool or None
            Whether the wait ended because its round is over; None for a handler's message.
        """

    def ended(self) -> None:
        """Hook: the party's coroutine has returned."""


class PartyRunner:
    """Coroutine of one party with its mailbox.

    It begins the party's waits, hands over their outcomes, ends waits in rounds that are over, and
    calls handlers. An exception of the party's code passes through `start`, `deliver`, `time_out`
    and `resume` to the owner.

    Parameters
    ----------
    party : Party
        New party, or one restored from a snapshot.
    late : callable
        Called with each message that is counted as late.
    waits : int
        Number of waits begun before, by earlier incarnations of the party or up to its snapshot.

    Attributes
    ----------
    waits : int
        Number of the current wait. A timer names its wait, so that it has no effect once that wait
        has ended.
    setup_done : bool
        Whether `Party.setup` has returned; only then can the party be resumed.
    done : bool
        Whether the party has ended or was closed.
    """

    def __init__(
        self, party: Party, owner: Owner, late: Callable[[Message], None], *, waits: int = 0
    ) -> None:
        self.party = party
        self.mailbox = Mailbox(late)
        self.waits = waits
        self.setup_done = False
        self.done = False
        self._owner = owner
        self._late = late
        self._coroutine: Coroutine[Wait, Any, None] | None = None
        self._recorded: Iterator[Outcome] | None = None

    def start(self, *, setup_done: bool, recorded: Iterator[Outcome] | None = None) -> None:
        """Start the party and run it to its first wait.

        Parameters
        ----------
        setup_done : bool
            Whether to skip `Party.setup`.
        recorded : iterator, optional
            Outcomes of the first waits, to replay a party to its state in a checkpoint. The wait
            after them was pending there, so it gets no new timer.
        """
        self.setup_done = setup_done
        self._recorded = recorded
        self._coroutine = self._life()
        self._step(None, None)

    async def _life(self) -> None:
        if not self.setup_done:
            await self.party.setup()
        self.setup_done = True
        await self.party.run()

    def deliver(self, message: Message) -> None:
        """Give an arrived message to its handler or the mailbox; continue if it ends a wait."""
        if self.done:
            self._late(message)
            return
        if message.kind in self.party.handlers:
            self._handle(message)
            return
        over = self.mailbox.put(message)
        wait = self.mailbox.wait
        if wait is None:
            return
        if message.kind == ANNOUNCE and not wait.satisfied:
            over = self.mailbox.overtaken
        if over and self._owner.is_free():
            self._step(*self._outcome())

    def put_each(self, messages: list[Message]) -> None:
        """Give arrived messages, of kinds without handlers, to the mailbox; call `go_on` next."""
        if not self.done:
            self.mailbox.put_each(messages)
            return
        for message in messages:
            self._late(message)

    def go_on(self) -> None:
        """Continue the party if its present wait has all messages."""
        wait = self.mailbox.wait
        if not self.done and wait is not None and wait.satisfied and self._owner.is_free():
            self._step(*self._outcome())

    def deliver_held(self, kind: str) -> None:
        """Give the messages of a kind that the mailbox holds to the handler of that kind."""
        for message in self.mailbox.withdraw(kind):
            self._handle(message)

    def time_out(self, number: int) -> None:
        """End a wait by timeout, unless it has ended or has all messages."""
        wait = self.mailbox.wait
        if not self.done and self.waits == number and wait is not None and not wait.satisfied:
            self._step(*self._outcome(timed_out=True))

    def resume(self, number: int) -> None:
        """Continue after the wait of this number, which ended while the party was busy."""
        if not self.done and self.waits == number and self.mailbox.wait is not None:
            self._step(*self._outcome())

    def close(self) -> None:
        """Stop the party; no more of its code runs."""
        self.done = True
        if self._coroutine is not None:
            self._coroutine.close()
        self._coroutine = None
        self.party.handlers.clear()

    def _step(self, messages: list[Message] | None, error: BaseException | None) -> None:
        """Run the party up to its next wait for a missing message."""
        coroutine = self._coroutine
        assert coroutine is not None
        while True:
            outer = self._owner.step_begins()
            try:
                wait = coroutine.send(messages) if error is None else coroutine.throw(error)
            except StopIteration:
                self.done = True
                self.mailbox.close()
                self._owner.ended()
                return
            recorded = None if self._recorded is None else next(self._recorded, None)
            if recorded is not None:
                self.waits += 1
                messages, error = recorded
                continue
            over = self._begin(wait)
            self._owner.step_ends(outer)
            if not over or not self._owner.is_free():
                return
            messages, error = self._outcome()

    def _begin(self, wait: Wait) -> bool:
        """Begin a wait; return True if it is over at once."""
        if wait.safe:
            self._owner.at_safe_point()
        self.waits += 1
        satisfied = self.mailbox.begin_wait(wait)
        restored, self._recorded = self._recorded is not None, None
        if not satisfied and wait.timeout is not None and not restored:
            self._owner.set_timer(max(0.0, wait.timeout), self.waits)
        return satisfied or self.mailbox.overtaken

    def _outcome(self, *, timed_out: bool = False) -> Outcome:
        """End the present wait; return the outcome for the party."""
        wait = self.mailbox.wait
        assert wait is not None
        # A wait that has its messages, or whose time is up, ends as such: only one that could end
        # in no other way is cut off by the newer round.
        over = not wait.satisfied and not timed_out and self.mailbox.overtaken
        taken = self._owner.opened(self.mailbox.finish())
        self._owner.received(taken, over=over)
        return (None, RoundOverError()) if over else (taken, None)

    def _handle(self, message: Message) -> None:
        [message] = self._owner.opened([message])
        self._owner.received([message], over=None)
        outer = self._owner.step_begins()
        self.party.handlers[message.kind](message)
        self._owner.step_ends(outer)
