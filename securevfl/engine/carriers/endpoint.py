"""A party's end of a carrier: its session, its carrier and the timer that drives both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from securevfl.engine.carriers.base import Carrier
from securevfl.engine.carriers.session import Session
from securevfl.engine.network import name_of
from securevfl.errors import CarrierError

Record = Callable[[str, dict[str, object]], None]


class Endpoint:
    """One party's end of a carrier; all calls must come from one asyncio loop.

    Use `transmit` as the `transmit` of a `securevfl.engine.realtime.host.PartyHost`.

    Parameters
    ----------
    session, carrier : Session, Carrier
        Links of the party, and the carrier of their datagrams.
    record : callable
        Called with the name and the dict of fields of an event: "relay lost" and "relay back"
        (`why`), "silent" (`peer`, `seconds`), "heard" (`peer`), and "gave up" (`peer`, `why`).
    patience : float
        Seconds without data from a peer after which the event "silent" names it.
    """

    def __init__(
        self, session: Session, carrier: Carrier, record: Record, *, patience: float = 15.0
    ) -> None:
        self.session = session
        self.carrier = carrier
        self.patience = patience
        self._record = record
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._silent: set[int] = set()
        self._gone: dict[int, str] = {}
        self._closed = False

    async def open(self) -> None:
        """Connect the carrier, and begin the handshakes with the others; do not wait for them.

        CarrierError as `Carrier.open`.
        """
        self._loop = asyncio.get_running_loop()
        await self.carrier.open(self._take, self._changed)
        self._flush()

    def transmit(self, receiver: int, frame: bytes) -> None:
        """Send a frame; give up a peer for which too many bytes wait (event "gave up")."""
        try:
            self.session.send(receiver, frame)
        except CarrierError as error:
            self.session.give_up(receiver, str(error))
        self._flush_to(receiver)

    def reached(self, peer: int) -> None:
        """Resend a peer's unacknowledged data, after a new connection to this peer."""
        self.session.reconnected(peer)
        self._flush_to(peer)

    async def close(self) -> None:
        """Stop the timer and close the carrier; unacknowledged data are lost."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self.carrier.close()

    def _take(self, data: bytes) -> bool:
        sender, sealed = self.session.take(data, self._now())
        if sender is None or self._closed:
            return False
        now = self._now()
        due = self.session.next_due_to(sender, now)
        if due <= now:
            self._flush_to(sender)
        else:
            self._wake_by(due, now)
        return sealed

    def _changed(self, connected: bool, why: str) -> None:
        self._record("relay back" if connected else "relay lost", {"why": why})
        if connected:
            self.session.reconnected()
            self._flush()

    def _now(self) -> float:
        return self._loop.time()

    def _flush_to(self, peer: int) -> None:
        """Send one peer's due datagrams, and set the timer no later than its next ones."""
        if self._closed:
            return
        now = self._now()
        if self.carrier.connected:
            for data in self.session.due_to(peer, now):
                self.carrier.send(peer, data)
        self._tell_gone()
        self._wake_by(self.session.next_due_to(peer, now), now)

    def _flush(self) -> None:
        """Send all due datagrams, record silent peers, and set the timer, to 1 s at most."""
        if self._closed:
            return
        now = self._now()
        if self.carrier.connected:
            for receiver, data in self.session.due(now):
                self.carrier.send(receiver, data)
        self._tell_gone()
        self._tell_silence(now)
        self._timer_at = float("inf")
        self._wake_by(min(self.session.next_due(now), now + 1.0), now)

    def _wake_by(self, time: float, now: float) -> None:
        """Set the timer to `time` (the loop's, in seconds), unless it ends sooner."""
        time = max(time, now + 0.001)
        if time >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = time
        self._timer = self._loop.call_at(time, self._flush)

    def _tell_gone(self) -> None:
        if self.session.gone == self._gone:
            return
        for peer, why in self.session.gone.items():
            if self._gone.get(peer) != why:
                self._record("gave up", {"peer": name_of(peer), "why": why})
        self._gone = dict(self.session.gone)

    def _tell_silence(self, now: float) -> None:
        silent = set(self.session.silent(now, self.patience))
        for peer in sorted(silent - self._silent):
            self._record("silent", {"peer": name_of(peer), "seconds": self.patience})
        for peer in sorted(self._silent - silent):
            self._record("heard", {"peer": name_of(peer)})
        self._silent = silent
