"""Host of a party in real time: one party on one asyncio loop, with any carrier.

It runs the same party files as a simulation, by the same `securevfl.engine.runner.PartyRunner`, on
the machine's clock. Delays of conditions may be injected: a message then departs later, as in
simulation.
"""

from __future__ import annotations

import asyncio
import functools
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.message_rules import MessageRules
from securevfl.engine.network import Event, Message, PartyState, RoundOverError, Sending, name_of
from securevfl.engine.party import Party
from securevfl.engine.party_state import ahead, snapshot
from securevfl.engine.runner import Owner, PartyRunner
from securevfl.engine.security.frames import Links
from securevfl.engine.streams import Secrets
from securevfl.engine.transcript import Transcript
from securevfl.errors import DataError, RunError, SealError, SecureVFLError, WireError
from securevfl.writing import is_full

Transmit = Callable[[int, bytes], None]
_SYNC = 0.05  # seconds at most from a checkpoint of which nothing follows to its sync
_SHOWN = 20  # rejected frames whose reasons are recorded one by one


@dataclass(frozen=True)
class PartyStatus:
    """Status of a party as reported by its host.

    Attributes
    ----------
    done : bool
        Whether the party has ended.
    failed : str
        Error that its code raised, with a traceback if it is not an error of this library; empty if
        none.
    mistake : bool
        Whether that error is about the party's own table, which its owner can correct.
    waits : str
        Description of its current wait; empty if it does not wait.
    lie : RunError or None
        That error, if it has evidence that another party lied.
    round, setup_done : int, bool
        Current round, and whether the party's setup has ended.
    progress : int
        Number of messages received and events recorded.
    rejected : int
        Number of invalid frames and undeclared messages.
    """

    done: bool
    failed: str
    mistake: bool
    lie: RunError | None
    waits: str
    round: int
    setup_done: bool
    progress: int
    rejected: int

    def error(self, what: str) -> DataError | RunError:
        """Error for `what`, such as a session, that ends because this party failed."""
        if self.lie is not None:
            return self.lie
        return DataError(self.failed) if self.mistake else RunError(f"{what}: {self.failed}")


class PartyHost(Owner):
    """The host of one party; all calls must come from one asyncio loop.

    It is the `securevfl.engine.network.Network` of its party.

    Parameters
    ----------
    party : Party
        New party, or one restored from its own checkpoint; `setup_done` is then true.
    links, transmit : Links, callable
        Links of the party. The function sends a frame to a party without blocking; it may lose,
        repeat or reorder frames.
    seed : int
        Seed of the run's public choices.
    secrets : Secrets
        Secret streams of the party.
    conditions : Conditions
        Delays to inject. Their bandwidths and computing times are ignored: the real ones apply.
    keep : callable, optional
        Called at safe points with the party and a function that makes its snapshot; it writes the
        snapshots that are due.
    keep_ahead : callable, optional
        Called with the round, the bytes that the party writes ahead, and `Party.begins_once`.
    sync : callable, optional
        Returns when all that `keep` and `keep_ahead` wrote is on disk. Called before each message
        departs, within 0.05 s of a write, and at the party's end.
    setup_done : bool
        Whether an earlier incarnation has done the setup.
    rules : MessageRules, optional
        Rules from the protocol's declared messages; other messages are refused.
    observe : callable, optional
        Called with each event as it is recorded.
    """

    defers = False

    def __init__(
        self,
        party: Party,
        links: Links,
        transmit: Transmit,
        *,
        seed: int,
        secrets: Secrets,
        conditions: Conditions = NONE,
        keep: Callable[[Party, Callable[[], dict[str, Any]]], None] | None = None,
        keep_ahead: Callable[[int, bytes, bool], None] | None = None,
        sync: Callable[[], None] = lambda: None,
        setup_done: bool = False,
        rules: MessageRules | None = None,
        observe: Callable[[Event], None] | None = None,
    ) -> None:
        self.party = party
        self._observe = observe
        self._rules = rules
        self.links = links
        if rules is not None:
            links.modulus_of = rules.modulus
        self.seed = seed
        self.secrets = secrets
        self.conditions = conditions
        self.transcript = Transcript()
        self.events: list[Event] = []
        self._runner = PartyRunner(party, self, self._late)
        self._runner.setup_done = setup_done
        self._transmit = transmit
        self._keep = keep
        self._keep_ahead = keep_ahead
        self._sync = sync
        self._sync_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._failed, self._mistake = "", False
        self._lie: RunError | None = None
        self._progress = 0
        self._rejected = 0
        self._zero = time.monotonic_ns()
        party.engine = self

    # -- from outside --------------------------------------------------------------------------

    def start(self, passed: int = 0) -> None:
        """Start the party, or continue it.

        Parameters
        ----------
        passed : int
            Nanoseconds of the run that have passed, at which the party's clock starts.
        """
        self._zero = time.monotonic_ns() - passed
        self._guard(lambda: self._runner.start(setup_done=self._runner.setup_done))

    def add_peers(self, epochs: dict[int, int]) -> None:
        """Register new incarnations of other parties."""
        self.links.add_peers(epochs)

    def take(self, data: Any, sender: int | None = None) -> None:
        """Receive a frame; bytes that are no valid frame are counted and ignored.

        Parameters
        ----------
        data : bytes-like
            The frame.
        sender : int, optional
            Sender of the frame, if the carrier knows it.
        """
        try:
            messages = self.links.unpack(data, sender)
        except (WireError, SealError) as error:
            self.reject(error)
            return
        for message in messages:
            self._arrive(message)

    def reject(self, error: Exception) -> None:
        """Count refused bytes, and record the reason of the first twenty."""
        self._tell_rejected("rejected", {"why": str(error)})

    def _refused(self, message: Message) -> bool:
        """Drop an undeclared message and report its sender; return whether it was dropped."""
        refusal = None if self._rules is None else self._rules.refusal(message)
        if refusal is not None:
            self._tell_rejected("refused", refusal)
        return refusal is not None

    def _tell_rejected(self, event: str, fields: dict[str, object]) -> None:
        self._rejected += 1
        if self._rejected <= _SHOWN:
            self.record(self.party, event, fields)

    def stop(self) -> None:
        """Stop the party; frames still delayed are not sent."""
        self._runner.close()
        self._stopped = True
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        self._guard(self._sync)

    @property
    def status(self) -> PartyStatus:
        """The present status of the party."""
        wait = self._runner.mailbox.wait
        return PartyStatus(
            done=self._runner.done,
            failed=self._failed,
            mistake=self._mistake,
            lie=self._lie,
            waits="" if wait is None or self._runner.done else wait.describe(),
            round=self.party.round,
            setup_done=self._runner.setup_done,
            progress=self._progress,
            rejected=self._rejected,
        )

    def snapshot(self) -> dict[str, Any]:
        """Copy of the party's kept attributes at present."""
        return snapshot(self.party, waits=self._runner.waits, time=self.time(self.party))

    # -- the party's network -------------------------------------------------------------------

    def time(self, party: PartyState) -> int:
        """Nanoseconds since the run began."""
        return time.monotonic_ns() - self._zero

    def send(self, sending: Sending) -> None:
        """Send one message to each receiver. Every message of the party starts here."""
        party, to, kind, payloads, round, after = sending
        if self._rules is not None:
            self._rules.check_sending(party.index, to, kind)
        delay = after
        activity = party.activities.get(kind)
        if activity is not None:
            delay += self.conditions.delay(self.seed, party.index, round, activity) / 1e9
        loop = asyncio.get_running_loop()
        modulus = None if self._rules is None else self._rules.modulus(kind)
        known, body = None, b""
        for receiver, payload in zip(to, payloads, strict=True):
            if receiver == party.index:
                own = Message(receiver, receiver, kind, payload, round, party.epoch, -1)
                loop.call_later(after, self._arrive, own)
                continue
            if payload is not known or not body:
                known, body = payload, wire.encode(payload, modulus)
            if delay > 0:
                depart = functools.partial(self._depart, receiver, kind, round, body)
                loop.call_later(delay, self._guard, depart)
            else:
                self._depart(receiver, kind, round, body)

    def _depart(self, receiver: int, kind: str, round: int, body: bytes) -> None:
        """Number and encrypt a message, and pass its frame to the carrier.

        What the party has written is on disk before: a crash then loses nothing of which others
        know. A checkpoint that nothing follows from yet needs no sync of its own.
        """
        if self._stopped:
            return
        self._sync()
        frame = self.links.pack(receiver, kind, round, body)
        now = self.time(self.party)
        self.transcript.add(self.party.index, receiver, kind, round, len(frame), now, None)
        self._transmit(receiver, frame)

    def record(self, party: PartyState, name: str, fields: dict[str, object]) -> None:
        """Record an event of the party."""
        self._progress += 1
        event = Event(self.time(party), party.index, party.round, name, fields)
        self.events.append(event)
        if self._observe is not None:
            self._observe(event)

    def safe_point(self, party: PartyState) -> None:
        """Write the party's checkpoint if one is due."""
        if self._keep is not None:
            self._keep(self.party, self.snapshot)
            self._sync_soon()

    def write_ahead(self, party: PartyState) -> None:
        """Store the attributes declared with `ahead=True` on disk before anything more is sent."""
        if self._keep_ahead is not None:
            self._keep_ahead(party.round, ahead(self.party), self.party.begins_once)
            self._sync_soon()

    def _sync_soon(self) -> None:
        if self._sync_timer is None:
            loop = asyncio.get_running_loop()
            self._sync_timer = loop.call_later(_SYNC, self._sync_at_last)

    def _sync_at_last(self) -> None:
        self._sync_timer = None
        self._guard(self._sync)

    def round_over(self, party: PartyState, round: int, left: bool) -> None:
        """Do nothing: no reader of a real-time run needs the ends of its rounds."""

    def enter_round(self, party: PartyState, round: int) -> None:
        """Count messages of earlier rounds late from now on."""
        self._runner.mailbox.enter(round)

    def handled(self, party: PartyState, kind: str) -> None:
        """Pass earlier messages of a kind to the handler just registered."""
        self._runner.deliver_held(kind)

    # -- the runner's owner --------------------------------------------------------------------

    def at_safe_point(self) -> None:
        """Write the party's checkpoint if one is due."""
        self.safe_point(self.party)

    def ended(self) -> None:
        """Have the last checkpoint on disk before the party's end is known."""
        self._sync()

    def set_timer(self, seconds: float, wait: int) -> None:
        """Let the wait of this number end after so many seconds."""
        asyncio.get_running_loop().call_later(seconds, self._time_out, wait)

    def _time_out(self, wait: int) -> None:
        self._guard(lambda: self._runner.time_out(wait))

    def _arrive(self, message: Message) -> None:
        """Give a message to the party. Every message that is taken in ends here."""
        self._progress += 1
        if not self._refused(message):
            self._guard(lambda: self._runner.deliver(message))

    def _guard(self, step: Callable[[], None]) -> None:
        """Run the party's code; an error ends the party and is shown in its status."""
        try:
            step()
        except SecureVFLError as failure:  # a sentence that says what to do
            self._failed = f"{name_of(self.party.index)}: {failure}"
            self._mistake = isinstance(failure, DataError)
            if isinstance(failure, RunError) and hasattr(failure, "evidence"):
                self._lie = failure
            self._runner.close()
        except (Exception, RoundOverError) as failure:
            if is_full(failure):
                self._failed = (
                    f"{name_of(self.party.index)}: its disk is full. What was whole is kept: make "
                    "room, and go on"
                )
                self._runner.close()
                return
            last = "".join(traceback.format_exception_only(failure)).strip()
            lines = "".join(traceback.format_tb(failure.__traceback__)[-3:])
            self._failed = f"{name_of(self.party.index)}: {last}\n{lines}"
            self._runner.close()

    def _late(self, message: Message) -> None:
        if message.row >= 0:
            what = {"kind": message.kind, "sender": message.sender, "of_round": message.round}
            self.record(self.party, "late", what)
