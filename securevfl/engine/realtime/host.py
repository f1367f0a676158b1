"""A party in real time: one object on one asyncio loop, whatever carries its messages.

The same party files as in simulation: `LiveHome` is the `securevfl.engine.network.Network` of its
party. Waits, order, lateness and rounds are decided by the same `Mailbox`; time is the machine's.
Delays of conditions may be injected: a message then departs later, as in simulation.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.mailbox import ANNOUNCE, Mailbox
from securevfl.engine.message_rules import MessageRules
from securevfl.engine.network import Event, Message, RoundOverError, Wait, name_of
from securevfl.engine.party import Party
from securevfl.engine.party_state import snapshot
from securevfl.engine.realtime.frames import Hello, Links
from securevfl.engine.streams import Secrets
from securevfl.engine.transcript import Transcript
from securevfl.errors import SealError, WireError

Post = Callable[[int, bytes], None]
_SHOWN = 20  # rejected frames whose reasons are recorded one by one


@dataclass(frozen=True)
class Standing:
    """How a party is doing.

    Attributes
    ----------
    done : bool
        It has ended.
    failed : str
        What its code raised, with the lines; empty if nothing.
    waits : str
        What it waits for, in words; empty where it does not.
    round : int
    settled : bool
        Setup is over.
    progress : int
        Grows with everything that it takes in or records.
    rejected : int
        Frames that were no valid message, and messages that were not declared.
    """

    done: bool
    failed: str
    waits: str
    round: int
    settled: bool
    progress: int
    rejected: int


class LiveHome:
    """Runs one party; all calls must come from one asyncio loop.

    Parameters
    ----------
    party : Party
        Newly made, or restored from its own checkpoint; then `settled` is true.
    links : Links
    post : callable
        Carries a frame to a party; must not block, and may lose, repeat or shuffle frames.
    seed : int
        Seed of the run's public choices.
    secrets : Secrets
        Secret streams of the party.
    conditions : Conditions
        Delays to inject. Bandwidth and modelled computing are those of the machine.
    keep : callable, optional
        Given the party's snapshot at safe points; decides by itself which to write.
    settled : bool
        Whether setup was done in an earlier life.
    rules : MessageRules, optional
        What the protocol declares; every other message is refused.
    """

    def __init__(
        self,
        party: Party,
        links: Links,
        post: Post,
        *,
        seed: int,
        secrets: Secrets,
        conditions: Conditions = NONE,
        keep: Callable[[Party, Callable[[], dict[str, Any]]], None] | None = None,
        settled: bool = False,
        rules: MessageRules | None = None,
    ) -> None:
        self.party = party
        self._rules = rules
        self.links = links
        self.seed = seed
        self.secrets = secrets
        self.conditions = conditions
        self.transcript = Transcript()
        self.events: list[Event] = []
        self.rounds_over: list[tuple[int, bool, int]] = []
        self._post = post
        self._keep = keep
        self._settled = settled
        self._mailbox = Mailbox(self._late)
        self._coroutine: Coroutine[Wait, Any, None] | None = None
        self._waits = 0
        self._done = False
        self._over = False
        self._failed = ""
        self._progress = 0
        self._rejected = 0
        self._zero = time.monotonic_ns()
        party.engine = self

    # -- from outside --------------------------------------------------------------------------

    def start(self, origin: int | None = None) -> None:
        """Begin or go on with the party's life.

        Parameters
        ----------
        origin : int, optional
            ``time.time_ns()`` at the beginning of the run, from which the clock counts; now if not
            given. Steps of the wall clock do not show: it is read once.
        """
        passed = 0 if origin is None else time.time_ns() - origin
        self._zero = time.monotonic_ns() - passed

        async def life() -> None:
            if not self._settled:
                await self.party.setup()
            self._settled = True
            await self.party.run()

        self._coroutine = life()
        self._step(None)

    def meet(self, hellos: dict[int, Hello]) -> None:
        """Learn of new lives of other parties."""
        for peer, hello in hellos.items():
            try:
                messages = self.links.meet({peer: hello})
            except SealError as error:
                self._reject(error)
                continue
            for message in messages:
                self._arrive(message)

    def take(self, data: Any) -> None:
        """Take in a frame; one that is none is counted and recorded, and harms nothing."""
        try:
            messages = self.links.unpack(data)
        except (WireError, SealError) as error:
            self._reject(error)
            return
        for message in messages:
            self._arrive(message)

    def _reject(self, error: Exception) -> None:
        self._tell_rejected("rejected", {"why": str(error)})

    def _refused(self, message: Message) -> bool:
        """Drop what was not declared, and tell who sent it."""
        refusal = None if self._rules is None else self._rules.refusal(message)
        if refusal is not None:
            self._tell_rejected("refused", refusal)
        return refusal is not None

    def _tell_rejected(self, event: str, fields: dict[str, Any]) -> None:
        self._rejected += 1
        if self._rejected <= _SHOWN:
            self.record(self.party, event, fields)

    def stop(self) -> None:
        """End the life where it stands."""
        if self._coroutine is not None:
            self._coroutine.close()
        self._coroutine = None
        self._done = self._over = True

    @property
    def standing(self) -> Standing:
        """How the party is doing."""
        wait = self._mailbox.wait
        return Standing(
            done=self._done,
            failed=self._failed,
            waits="" if wait is None or self._done else wait.describe(),
            round=self.party.round,
            settled=self._settled,
            progress=self._progress,
            rejected=self._rejected,
        )

    def snapshot(self) -> dict[str, Any]:
        """Copy of what the party keeps, as it stands."""
        return snapshot(self.party, waits=self._waits, time=self.time(self.party))

    # -- the party's network -------------------------------------------------------------------

    def time(self, party: Party) -> int:
        """Nanoseconds since the run began."""
        return time.monotonic_ns() - self._zero

    def send(
        self, party: Party, to: tuple[int, ...], kind: str, payloads: Any, round: int, after: float
    ) -> None:
        """Send one payload to each receiver."""
        if self._rules is not None:
            self._rules.check_sending(party.index, to, kind)
        delay = after
        activity = party.activities.get(kind)
        if activity is not None:
            delay += self.conditions.delay(self.seed, party.index, round, activity) / 1e9
        loop = asyncio.get_running_loop()
        known, body = None, b""
        for receiver, payload in zip(to, payloads, strict=True):
            if receiver == party.index:
                own = Message(receiver, receiver, kind, payload, round, party.epoch, -1)
                loop.call_later(after, self._arrive, own)
                continue
            if payload is not known or not body:
                known, body = payload, wire.encode(payload)
            if delay > 0:
                loop.call_later(delay, self._transmit, receiver, kind, round, body)
            else:
                self._transmit(receiver, kind, round, body)

    def _transmit(self, receiver: int, kind: str, round: int, body: bytes) -> None:
        if self._over:
            return
        frame = self.links.pack(receiver, kind, round, body)
        now = self.time(self.party)
        self.transcript.add(self.party.index, receiver, kind, round, len(frame), now, None)
        self._post(receiver, frame)

    def record(self, party: Party, name: str, fields: dict[str, Any]) -> None:
        """Keep an event."""
        self._progress += 1
        self.events.append(Event(self.time(party), party.index, party.round, name, fields))

    def safe_point(self, party: Party) -> None:
        """Let the keeper write the party's checkpoint."""
        if self._keep is not None:
            self._keep(party, self.snapshot)

    def round_over(self, party: Party, round: int, left: bool) -> None:
        """Note that the party is through with a round."""
        self.rounds_over.append((round, left, self.time(party)))

    def enter_round(self, party: Party, round: int) -> None:
        """Count messages of earlier rounds late from now on."""
        self._mailbox.enter(round)

    def handled(self, party: Party, kind: str) -> None:
        """Pass what arrived before a handler was registered to that handler."""
        for message in self._mailbox.withdraw(kind):
            self._handle(message)

    # -- running -------------------------------------------------------------------------------

    def _step(self, value: Any, error: BaseException | None = None) -> None:
        """Run the party until it has to wait for something that is not here."""
        coroutine = self._coroutine
        if coroutine is None:
            return
        while True:
            try:
                wait = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration:
                self._done = True
                self._mailbox.close()
                return
            except Exception as failure:
                self._fail(failure)
                return
            if not self._begin(wait):
                return
            value, error = self._outcome()

    def _begin(self, wait: Wait) -> bool:
        """Begin a wait; True when it is over at once."""
        if wait.safe:
            self.safe_point(self.party)
        self._waits += 1
        satisfied = self._mailbox.post(wait)
        if not satisfied and wait.timeout is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(max(0.0, wait.timeout), self._timed_out, self._waits)
        return satisfied or self._mailbox.overtaken

    def _outcome(self, *, timed_out: bool = False) -> tuple[Any, BaseException | None]:
        wait = self._mailbox.wait
        assert wait is not None
        over = not wait.satisfied and not timed_out and self._mailbox.overtaken
        taken = self._mailbox.finish()
        return (None, RoundOverError()) if over else (taken, None)

    def _timed_out(self, number: int) -> None:
        wait = self._mailbox.wait
        if not self._done and self._waits == number and wait is not None and not wait.satisfied:
            self._step(*self._outcome(timed_out=True))

    def _arrive(self, message: Message) -> None:
        self._progress += 1
        if self._refused(message):
            return
        if self._done:
            self._late(message)
            return
        if message.kind in self.party.handlers:
            self._handle(message)
            return
        satisfied = self._mailbox.put(message)
        wait = self._mailbox.wait
        if wait is None:
            return
        if message.kind == ANNOUNCE and not wait.satisfied:
            satisfied = self._mailbox.overtaken
        if satisfied:
            self._step(*self._outcome())

    def _handle(self, message: Message) -> None:
        try:
            self.party.handlers[message.kind](message)
        except Exception as failure:
            self._fail(failure)

    def _fail(self, failure: Exception) -> None:
        said = "".join(traceback.format_exception_only(failure)).strip()
        lines = "".join(traceback.format_tb(failure.__traceback__)[-3:])
        self._failed = f"{name_of(self.party.index)}: {said}\n{lines}"
        self._done = True

    def _late(self, message: Message) -> None:
        if message.row >= 0:
            what = {"kind": message.kind, "sender": message.sender, "of_round": message.round}
            self.record(self.party, "late", what)
