"""The simulation of a run: all parties in one process, in virtual time.

There is one event queue, no event loop and no thread, so a run is a function of its seed. A message
departs after its sender's delay, queues on its sender's uplink behind earlier messages (one of the
server then on its receiver's downlink), and arrives. Computing takes no virtual time, except in the
"measured" and "modelled" compute modes, and if delays are the work of parties
(`Conditions.delay_mode`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count, repeat
from pathlib import Path
from typing import Any, Protocol
from weakref import ref

import numpy as np

from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions, round_ns
from securevfl.engine.faults import Schedule
from securevfl.engine.message_rules import MessageRules
from securevfl.engine.network import (
    SERVER,
    Event,
    Later,
    Message,
    PartyState,
    Sending,
    name_of,
)
from securevfl.engine.party import Party
from securevfl.engine.security.sealing import OVERHEAD, Sealing
from securevfl.engine.simulation.crashes import CrashInjector
from securevfl.engine.simulation.event_queue import (
    ARRIVE,
    DEPART,
    FAULTS,
    TIMER,
    TOGETHER,
    WAKE,
    EventQueue,
)
from securevfl.engine.simulation.lies import replaced
from securevfl.engine.simulation.slot import PartySlot
from securevfl.engine.simulation.snapshots import ConsistentSnapshot, check_parties
from securevfl.engine.streams import Secrets, SecretSeed, keyed_stream
from securevfl.engine.transcript import Transcript
from securevfl.errors import CheckpointError, StalledError

# A Message of its fields, in a third of the time of its constructor.
_message: Callable[[Iterable[Any]], Message] = partial(tuple.__new__, Message)
_ENDLESS = 5_000_000  # events of one instant, none of them recorded
_LOOK = 64  # events of one instant after which `pause` is asked: without delays all is one


class Observer(Protocol):
    """Receiver of a run's events, which writes the history and evaluates the models."""

    def record(self, event: Event) -> None:
        """Add an event."""

    def round_over(self, party: int, round: int, time: int, left: bool) -> None:
        """Note that a party finished a round at `time` (ns), or (`left`) left it for a newer."""


class _NoObserver:
    def record(self, event: Event) -> None:
        pass

    def round_over(self, party: int, round: int, time: int, left: bool) -> None:
        pass


class Simulation:
    """A run in virtual time; the `securevfl.engine.network.Network` of its parties.

    Parameters
    ----------
    parties : mutable mapping of int to Party
        Parties by number. A party that rejoins after a crash is a new object, which replaces the
        old one.
    seed : int
        Seed of delays and of the parties' public streams.
    conditions : Conditions
        Delays, bandwidth and compute mode.
    transcript : Transcript, optional
        List to which messages are added; by default a new one without payloads.
    observer : Observer, optional
        Observer that is given each recorded event.
    patience : float
        Stall timeout: virtual seconds without a recorded event after which the run has stalled.
    copying : bool
        Whether every payload is encoded and decoded, as between processes; for tests of protocols.
    sealing : Sealing, optional
        Encryption of every payload between two parties; payloads are then bytes until they arrive.
    faults : Schedule, optional
        Crashes and lost links; needs `make_party`.
    make_party : callable, optional
        Function that creates the party of a number in its initial state.
    secrets : Secrets, optional
        Secret streams of all parties; by default derived from `seed`.
    rules : MessageRules, optional
        Rules from the protocol's declared messages; other messages are refused.
    lazy : bool
        Whether results that nobody takes are not computed (`Later`). A run is the same but for its
        computing; without effect with seals, faults, kept payloads and measured computing.
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
        make_party: Callable[[int], Party] | None = None,
        secrets: Secrets | None = None,
        rules: MessageRules | None = None,
        lazy: bool = False,
    ) -> None:
        self.parties = parties
        self._rules = rules
        self.seed = seed
        self.secrets: Secrets = SecretSeed(seed) if secrets is None else secrets
        self.conditions = conditions
        self.transcript = Transcript() if transcript is None else transcript
        self.observer: Observer = _NoObserver() if observer is None else observer
        self.slots: dict[int, PartySlot] = {}
        self._queue = EventQueue()
        self._patience = round_ns(patience)
        self._copying = copying
        self._sealing = sealing
        self._measured = conditions.compute == "measured"
        self._modelled = conditions.compute == "modelled"
        self._works = conditions.delay_mode != "latency"
        self._aborts = conditions.delay_mode == "abort"
        self._last_event = 0
        self._handled = 0  # events so far, and how many when last the run made headway
        self._headway = 0
        self._started = False
        self._snapshot = ConsistentSnapshot(self.slots, self.state)
        self._crashes: CrashInjector | None = None
        self._faults = faults
        if faults is not None:
            if make_party is None:
                raise ValueError("Simulation: faults need make_party, which makes parties anew")
            self._crashes = CrashInjector(self._queue, self, faults, make_party)
        seen = copying or sealing is not None or self.transcript.payloads is not None
        self.defers = lazy and not (seen or self._measured or faults is not None)
        self._later: deque[ref[Later]] = deque()
        # Arrivals matter to their receivers alone.
        self._quiet = self._crashes is None and not self._aborts
        for index in sorted(parties):
            self._add(parties[index])

    def _add(self, party: Party) -> None:
        party.engine = self
        self.slots[party.index] = PartySlot(
            *(party, self._queue, self._count_late, self._at_rest),
            measured=self._measured,
            opener=None if self._sealing is None else self._opened,
            transcript=self.transcript,
            quiet=self._quiet,
        )

    # -- running -------------------------------------------------------------------------------

    def run(self, pause: Callable[[], bool] | None = None, *, until: float | None = None) -> None:
        """Run to the end, to the virtual second `until`, or until `pause` returns true.

        `pause` is called after each instant of virtual time, and repeatedly within a long one; call
        `run` again to continue a paused run. StalledError if parties wait and no message is in
        flight, if no event is recorded for more than `patience` virtual seconds, or if one instant
        has more than five million events.
        """
        if not self._started:
            self._started = True
            if self._crashes is not None:
                self._crashes.begin()
            for slot in self.slots.values():
                slot.start()
        try:
            self._go_on(pause, None if until is None else round_ns(until))
        finally:
            self._settle()

    def _go_on(self, pause: Callable[[], bool] | None, end: int | None) -> None:
        queue = self._queue
        last = math.inf if end is None else end
        while (instant := queue.next_instant()) is not None:
            self._handled += 1
            if instant > queue.now:
                queue.end_instant()
                self._headway = self._handled
                if instant > last:
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
            if queue.pass_quietly(instant):
                if self._pass_quietly(min(last, self._last_event + self._patience), pause):
                    return
            else:
                kind, subject = queue.pop()
                if kind == WAKE:
                    self.slots[subject].wake()
                elif kind == ARRIVE:
                    self._arrive(subject)
                else:
                    self._happen(kind, subject)
            if self._snapshot.pending:
                self._snapshot.try_finish()
        queue.end_instant()
        if not self.finished:
            raise StalledError(self._stalled("nothing is under way"))

    def _pass_quietly(self, limit: float, pause: Callable[[], bool] | None) -> bool:
        """Pass instants with only quiet arrivals up to a time; return whether to pause."""
        queue = self._queue
        quiet, events = queue.quiet, queue.events
        before = min(limit, events[0][0] - 1) if events else limit
        while quiet and quiet[0] <= before and not self._snapshot.pending:
            instant = quiet[0]
            if instant > queue.now:
                if pause is not None and pause():
                    return True
                queue.now = instant
            heappop(quiet)
        return False

    def _settle(self) -> None:
        """Move all messages that have arrived by now into the mailboxes."""
        for slot in self.slots.values():
            slot.take_arrived()

    def _happen(self, kind: int, subject: Any) -> None:
        """Carry out one event of the queue other than an arrival."""
        if kind == TOGETHER:
            self._transmit(subject)
        elif kind == DEPART:
            self._transmit([subject])
        elif kind == FAULTS:
            assert self._crashes is not None
            self._crashes.look(subject)
        else:
            index, number = subject
            if kind == TIMER:
                self.slots[index].time_out(number)
            else:
                self.slots[index].resume(number)

    @property
    def clock(self) -> int:
        """Virtual time in nanoseconds."""
        return self._queue.now

    @property
    def finished(self) -> bool:
        """Whether every party (if parties may crash: the server) has ended."""
        if self._crashes is not None and self._crashes.over:
            return True
        return all(slot.done for slot in self.slots.values())

    # -- messages ------------------------------------------------------------------------------

    def time(self, party: PartyState) -> int:
        """Virtual nanoseconds; for a party in replay, those of the replayed moment."""
        return self.slots[party.index].now

    def send(self, sending: Sending) -> None:
        """Send one message to each receiver. Every message of a party starts here."""
        party, to, kind, payloads, round, after = sending
        slot = self.slots[party.index]
        if slot.replaying:
            return
        if self._rules is not None:
            self._rules.check_sending(party.index, to, kind)
        now = self._queue.now
        chosen = round_ns(after) if after else 0
        departure = now
        if self._measured:
            departure += slot.elapsed()
        elif self._modelled:
            departure = slot.occupy(self.conditions.work(party.operations(kind), party.index))
        activity = party.activities.get(kind)
        delay = 0
        if activity is not None:
            delay = self.conditions.delay(self.seed, party.index, round, activity)
        if not self._works:
            departure += delay
        elif activity is not None:
            departure = max(departure, slot.work(activity, round, delay))
        else:
            departure = max(departure, slot.busy_until)
        departure += chosen
        if activity == "upload" and self._lies(party.index, round):
            stream = keyed_stream(self.seed, party.index, f"lie/{kind}", round)
            payloads = [replaced(payload, stream, self._modulus(kind)) for payload in payloads]
        if len(to) == 1 and to[0] != party.index:
            self._depart([self._single(sending, payloads[0])], departure)
            return
        alike = self._alike(sending, payloads)
        if alike is not None:
            self._send_alike(sending, payloads, alike, departure, now + chosen)
            return
        together: list[tuple[Message, int]] = []
        for payload, message, nbytes in self._messages(sending, payloads):
            if message is None:
                # It arrives in the middle of the others, where all take no time.
                self._depart(together, departure)
                together = []
                self._keep(party, kind, payload, round, now + chosen)
            else:
                together.append((message, nbytes))
        self._depart(together, departure)

    def _single(self, sending: Sending, payload: object) -> tuple[Message, int]:
        """The one message of a sending, written into the transcript, and its bytes."""
        party, (receiver,), kind, _, round, _ = sending
        modulus, encoded, like = self._modulus(kind), b"", payload
        if type(payload) is Later:
            like = payload.like
            self._later.append(ref(payload))
            # What it is made of, perhaps the shares of a whole round, is not kept for many rounds.
            if len(self._later) > 2 * len(self.slots):
                oldest = self._later.popleft()()
                if oldest is not None:
                    oldest.value()
        nbytes = self._envelope(kind) + wire.size(like, modulus=modulus)
        if self._sealing is not None or self._copying:
            encoded = wire.encode(payload, modulus)
        return self._written(party, receiver, kind, payload, round, nbytes, encoded), nbytes

    def _send_alike(
        self,
        sending: Sending,
        payloads: Sequence[object] | np.ndarray,
        nbytes: int,
        departure: int,
        kept: int,
    ) -> None:
        """Send messages of `nbytes` each at `departure` (ns); one to itself arrives at `kept`."""
        party, to, kind, _, round, _ = sending
        index, epoch = party.index, party.epoch
        own = to.index(index) if index in to else len(to)
        others = to[:own] + to[own + 1 :]
        row = self.transcript.add_each(index, others, kind, round, nbytes, self._queue.now)
        if self._sealing is None:
            contents: Iterable[object] = (*payloads[:own], *payloads[own + 1 :])
        else:
            encoded = self._encoded(kind, payloads)
            del encoded[own : own + 1]
            contents = self._sealing.seal_each(index, others, kind, round, epoch, encoded)
        fields = (
            *(repeat(index), others, repeat(kind), contents, repeat(round), repeat(epoch)),
            count(row),
        )
        together = list(zip(map(_message, zip(*fields, strict=False)), repeat(nbytes)))
        self._depart(together[:own], departure)
        if own < len(to):
            # It arrives in the middle of the others, where all take no time.
            self._keep(party, kind, payloads[own], round, kept)
            self._depart(together[own:], departure)

    def _messages(
        self, sending: Sending, payloads: Sequence[object] | np.ndarray
    ) -> Iterator[tuple[object, Message | None, int]]:
        """Each payload with its message and size; None for the sender's message to itself.

        The messages are written into the transcript.
        """
        party, to, kind, _, round, _ = sending
        each = self._contents(kind, payloads)
        for receiver, (payload, nbytes, encoded) in zip(to, each, strict=True):
            message = None
            if receiver != party.index:
                message = self._written(party, receiver, kind, payload, round, nbytes, encoded)
            yield payload, message, nbytes

    def _alike(self, sending: Sending, payloads: Sequence[object] | np.ndarray) -> int | None:
        """Common size of the messages if equal and no payload is copied; else None.

        Sizes are equal for rows of one array, or one object for all receivers. None otherwise, and
        for a single message.
        """
        held = self._copying or self.transcript.payloads is not None
        to, kind = sending.to, sending.kind
        if held or not len(to) == len(payloads) > 1 or not all(map(self.slots.__contains__, to)):
            return None
        if to.count(sending.party.index) > 1:
            return None
        first = payloads[0]
        if not isinstance(payloads, np.ndarray) and any(each is not first for each in payloads):
            return None
        return self._envelope(kind) + wire.size(first, modulus=self._modulus(kind))

    def _envelope(self, kind: str) -> int:
        """Bytes of a message of a kind without its payload."""
        return wire.envelope(kind) + (OVERHEAD if self._sealing is not None else 0)

    def _encoded(self, kind: str, payloads: Sequence[object] | np.ndarray) -> list[bytes]:
        """Encodings of rows of one array, or of one object for all, in one pass."""
        if isinstance(payloads, np.ndarray):
            return wire.encode_rows(payloads, self._modulus(kind))
        return [wire.encode(payloads[0], self._modulus(kind))] * len(payloads)

    def _contents(
        self, kind: str, payloads: Sequence[object] | np.ndarray
    ) -> Iterator[tuple[object, int, bytes]]:
        """Each payload with its message's size and, if needed, its encoding.

        Rows of one array are measured and encoded at once, and so is one object for all receivers.
        """
        envelope, modulus = self._envelope(kind), self._modulus(kind)
        needed = self._sealing is not None or self._copying
        if isinstance(payloads, np.ndarray):
            nbytes = envelope + wire.size(payloads[0], modulus=modulus) if len(payloads) else 0
            rows = wire.encode_rows(payloads, modulus) if needed else [b""] * len(payloads)
            for payload, encoded in zip(payloads, rows, strict=True):
                yield payload, nbytes, encoded
            return
        known, nbytes, encoded = None, 0, b""
        for payload in payloads:
            if not nbytes or payload is not known:
                known, nbytes = payload, envelope + wire.size(payload, modulus=modulus)
                encoded = wire.encode(payload, modulus) if needed else b""
            yield payload, nbytes, encoded

    def _lies(self, party: int, round: int) -> bool:
        """Whether the fault schedule has a party's uploads of a round replaced."""
        if self._faults is None or self._crashes is None:
            return False
        return self._faults.lies(party, max(round, self._crashes.counted), self.clock / 1e9)

    def _modulus(self, kind: str) -> int | None:
        """Modulus of the field elements in a kind of message; None if it declares none."""
        return None if self._rules is None else self._rules.modulus(kind)

    def _keep(self, party: PartyState, kind: str, payload: object, round: int, time: int) -> None:
        """Deliver to the sender itself at `time` (ns): no bytes, and only the requested delay."""
        index = party.index
        if self._copying:
            payload = wire.decode(wire.encode(payload))
        own = Message(index, index, kind, payload, round, party.epoch, -1)
        self._queue.schedule(time, ARRIVE, own)

    def _written(
        self,
        party: PartyState,
        receiver: int,
        kind: str,
        payload: object,
        round: int,
        nbytes: int,
        encoded: bytes,
    ) -> Message:
        """Message, recorded in the transcript and encrypted; ValueError for an unknown receiver."""
        if receiver not in self.slots:
            raise ValueError(f"send: {name_of(receiver)} does not exist")
        if self._copying:
            payload = wire.decode(encoded, self._modulus(kind))
        sender, epoch, now = party.index, party.epoch, self._queue.now
        row = self.transcript.add(sender, receiver, kind, round, nbytes, now, payload)
        if self._sealing is not None:
            payload = self._sealing.seal(sender, receiver, kind, round, epoch, encoded)
        return Message(sender, receiver, kind, payload, round, epoch, row)

    def _depart(self, together: list[tuple[Message, int]], departure: int) -> None:
        """Send messages, as pairs (message, its bytes), at their time of departure (ns)."""
        if departure > self._queue.now:
            self._queue.schedule_together(departure, together)
            return
        self._transmit(together)

    def _transmit(self, together: Sequence[tuple[Message, int]]) -> None:
        """Queue one sender's departing messages on its uplink, but lost or withdrawn ones."""
        if not self._quiet:
            together = [one for one in together if self._leaves(one[0])]
        if not together:
            return
        slots, queue = self.slots, self._queue
        sender, known, transfer = together[0][0].sender, -1, 0
        own = slots[sender]
        free = max(own.uplink_free, queue.now)
        downlinks = sender == SERVER and bool(self.conditions.downlinks)
        for number, (message, nbytes) in enumerate(together, queue.take(len(together))):
            if nbytes != known:
                known, transfer = nbytes, self.conditions.transfer(nbytes, sender)
            arrival = free = free + transfer
            receiver = slots[message.receiver]
            if downlinks:
                download = self.conditions.download(nbytes, message.receiver)
                arrival = receiver.use_downlink(arrival, download)
            if receiver.expect(arrival, number, message) and arrival > queue.now:
                heappush(queue.quiet, arrival)
        own.uplink_free = free

    def _leaves(self, message: Message) -> bool:
        """Whether a departing message is neither lost nor withdrawn."""
        if self._crashes is not None and not self._crashes.departs(message):
            return False
        if self._aborts and self._is_stale(message):
            self.transcript.withdraw(message.row)
            return False
        return True

    def _arrive(self, message: Message) -> None:
        """Deliver a message to its receiver; every message that is not lost ends here."""
        if self._crashes is not None and not self._crashes.arrives(message):
            return
        slot = self.slots[message.receiver]
        if message.row >= 0:
            self.transcript.arrive(message.row, self._queue.now)
        elif self._is_refused(message):  # what the engine sent was looked at when it was
            return
        if self._aborts and message.sender == SERVER:
            slot.hear(message.round + (message.kind in slot.party.round_ends))
        slot.deliver(message)

    def _is_stale(self, message: Message) -> bool:
        """Whether a message is work for a round that its sender knows to be over."""
        slot = self.slots[message.sender]
        return message.kind in slot.party.activities and message.round < slot.heard

    def _is_refused(self, message: Message) -> bool:
        """Whether a message was not declared; it is then dropped and its sender reported."""
        refusal = None if self._rules is None else self._rules.refusal(message)
        if refusal is None:
            return False
        round = self.parties[message.receiver].round
        event = Event(self._queue.now, message.receiver, round, "refused", refusal)
        self.observer.record(event)
        return True

    def inject(self, message: Message, at: float) -> None:
        """Have a forged message arrive at a virtual second, as if from a liar.

        It is not in the transcript, and is not encrypted.
        """
        self._queue.schedule(round_ns(at), ARRIVE, message._replace(row=-1))

    def handled(self, party: PartyState, kind: str) -> None:
        """Pass earlier messages of a kind to the handler just registered."""
        slot = self.slots[party.index]
        if not slot.replaying:
            slot.handle(kind)

    def _opened(self, messages: list[Message]) -> list[Message]:
        """One party's messages, decrypted; messages of one kind are decoded together."""
        assert self._sealing is not None
        plain = self._sealing.open_each(messages)
        kinds = {message.kind for message in messages}
        if len(kinds) == 1:
            payloads = wire.decode_each(plain, self._modulus(kinds.pop()))
        else:
            moduli = [self._modulus(message.kind) for message in messages]
            payloads = list(map(wire.decode, plain, moduli))
        return [
            Message(sender, receiver, kind, payload, round, epoch, row)
            for (sender, receiver, kind, _, round, epoch, row), payload in zip(
                messages, payloads, strict=True
            )
        ]

    def _count_late(self, message: Message) -> None:
        if message.row >= 0:
            self.transcript.mark_late(message.row)
            if self._sealing is not None:
                # Its counter counts as received: else there would be a gap before all later ones.
                self.slots[message.receiver].opened([message])
            if self._crashes is not None:
                self._crashes.late(message)

    # -- events --------------------------------------------------------------------------------

    def record(self, party: PartyState, name: str, fields: dict[str, Any]) -> None:
        """Pass an event of a party on to the observer."""
        if not self.slots[party.index].replaying:
            self._settle()  # the event is told how many messages were late
            self._last_event = self._queue.now
            self._headway = self._handled
            if self._crashes is not None:
                self._crashes.event_recorded()
                if name == "round" and self.parties[party.index].counts_rounds:
                    self._crashes.step_counted(fields["step"] + 1)
            self.observe(Event(self._queue.now, party.index, party.round, name, fields))

    def observe(self, event: Event) -> None:
        """Pass an event on to the observer."""
        self.observer.record(event)

    def round_over(self, party: PartyState, round: int, left: bool) -> None:
        """Tell the observer that a party finished or left a round."""
        if not self.slots[party.index].replaying:
            self.observer.round_over(party.index, round, self._queue.now, left)

    def enter_round(self, party: PartyState, round: int) -> None:
        """Count messages of earlier rounds late from now on."""
        slot = self.slots[party.index]
        if not slot.replaying:
            if self._crashes is not None:
                self._crashes.round_begun(round)
            slot.mailbox.enter(round)

    def _stalled(self, why: str) -> str:
        self._settle()
        waits = {index: slot.describe_wait() for index, slot in self.slots.items()}
        waiting = [f"{name_of(index)} {text}" for index, text in waits.items() if text is not None]
        faults = "" if self._crashes is None else self._crashes.explain()
        alone = self._crashes is not None and self._crashes.is_down(SERVER)
        return (
            f"the run stalled at {self.clock / 1e9:.3f} s ({why}): {'; '.join(waiting)}. "
            + (f"Faults: {faults}. " if faults else "")
            + (
                "Nobody can go on without the server: let its outage end"
                if alone
                else "A party that never sends must be covered by a timeout or a smaller count."
            )
        )

    # -- faults: the slots of the crash injector ----------------------------------------------

    @property
    def messages_sent(self) -> int:
        """Number of messages that have been sent so far."""
        return len(self.transcript)

    def on_crash(self, slot: PartySlot) -> None:
        """Replace the copy of a crashed party in a checkpoint that is being taken."""
        self._snapshot.on_crash(slot)

    def on_rejoin(self, slot: PartySlot) -> None:
        """Start the new party that a slot was given."""
        self.parties[slot.party.index] = slot.party
        slot.party.engine = self
        slot.start()

    # -- checkpoints ---------------------------------------------------------------------------

    def request_state(self, then: Callable[[dict[str, object]], None]) -> None:
        """Hand a consistent snapshot to `then` as soon as every party has passed a safe point.

        The run continues meanwhile; see `securevfl.engine.simulation.snapshots`.
        """
        self._snapshot.request(then)
        if self.finished:  # no event will come that could complete it
            self._snapshot.try_finish()

    def safe_point(self, party: PartyState) -> None:
        """Copy the party's kept attributes if a checkpoint is under way or it may crash."""
        slot = self.slots[party.index]
        if slot.replaying:
            return
        self._at_rest(slot)
        # A handler may keep what it did, and begins no round: its party waits.
        if self._crashes is not None and party.index != SERVER and not slot.waits_safely:
            self._crashes.round_begun(party.round)

    def write_ahead(self, party: PartyState) -> None:
        """Add the attributes declared with `ahead=True` to the party's own checkpoint, if any."""
        slot = self.slots[party.index]
        if self._crashes is not None and not slot.replaying:
            self._crashes.keep_ahead(slot)

    def _at_rest(self, slot: PartySlot) -> None:
        """Copy a party that is at a safe point or has ended."""
        self._snapshot.take(slot)
        if self._crashes is not None:
            self._crashes.keep(slot)

    def state(self) -> dict[str, object]:
        """State for a checkpoint; every party must have been copied before."""
        self._settle()
        coming = (one for slot in self.slots.values() for one in slot.coming)
        return {
            "seed": self.seed,
            **self._queue.state(coming),
            "last_event": self._last_event,
            "parties": {index: slot.state() for index, slot in self.slots.items()},
            "transcript": self.transcript.state(),
            "sealing": None if self._sealing is None else self._sealing.state(),
            "breakdowns": None if self._crashes is None else self._crashes.state(),
        }

    @classmethod
    def from_state(
        cls,
        parties: MutableMapping[int, Party],
        state: Mapping[str, Any],
        *,
        resumption: int = 0,
        folder: Path | None = None,
        **options: Any,
    ) -> Simulation:
        """Simulation continued from a state; `parties` are new objects of the same protocol.

        CheckpointError if the state belongs to other parties, or to a protocol with other kept
        attributes, or if computing is measured and a party may not repeat a round in another order
        (`Party.resumes_measured`).

        Parameters
        ----------
        parties : mutable mapping of int to Party
            New parties by number.
        state : mapping
            State from `Simulation.state`.
        resumption : int
            Number of this resumption, unique in the run (`Party.life`).
        folder : Path, optional
            Folder of the run, with older rows of its transcript.
        **options
            Further arguments of `Simulation`.
        """
        check_parties(parties, state["parties"])
        _refuse_another_order(parties, options.get("conditions"))
        transcript = Transcript.from_state(state["transcript"], folder)
        self = cls(parties, seed=state["seed"], transcript=transcript, **options)
        self._queue.restore(state)
        self._last_event = state["last_event"]
        self._started = True
        if self._sealing is not None:
            self._sealing.restore(state["sealing"])
        if self._crashes is not None:
            self._crashes.restore(state["breakdowns"])
        for index, slot in self.slots.items():
            slot.party.resumptions = resumption
            slot.restore(state["parties"][index])
        for slot in self.slots.values():
            if not (slot.done or slot.down):
                slot.start()
        return self


def _refuse_another_order(parties: Mapping[int, Party], conditions: Conditions | None) -> None:
    """Raise CheckpointError if repeating a round in flight could reveal single embeddings."""
    measured = conditions is not None and conditions.compute == "measured"
    named = [type(party) for party in parties.values() if not party.resumes_measured]
    if measured and named:
        raise CheckpointError(
            f"resume: in {named[0].__module__.rpartition('.')[0]} a round in flight goes on with "
            "the secrets that it has, and where computing is measured with other survivors than "
            "before: both attempts together would show embeddings of single clients. Start the "
            "run again, or compute = 'modelled' in its conditions, which can be resumed"
        )
