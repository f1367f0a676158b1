"""A carrier within one process, which can be hostile: for tests of what runs over carriers."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from securevfl.engine.carriers.base import Changed, Take


@dataclass(frozen=True)
class Hostility:
    """Shares of frames, in [0, 1], that a hostile carrier mistreats; the rest passes unharmed.

    Attributes
    ----------
    drop, double, delay, forge, replay : float
        Lose it; bring it twice; bring it after a later one; bring it with a changed byte, too;
        bring an earlier one of the link again, too.
    """

    drop: float = 0.0
    double: float = 0.0
    delay: float = 0.0
    forge: float = 0.0
    replay: float = 0.0

    @classmethod
    def of(cls, share: float) -> Hostility:
        """The same share of everything."""
        return cls(share, share, share, share, share)


class MemoryRelay:
    """A relay between several parties in one process.

    Parameters
    ----------
    hostility : Hostility
    seed : int
        Of the choice of frames.

    Attributes
    ----------
    forged : int
        Number of changed frames that it brought.
    """

    def __init__(self, hostility: Hostility | None = None, seed: int = 0) -> None:
        self.forged = 0
        self._hostility = hostility or Hostility()
        self._chosen = random.Random(seed)
        self._carriers: dict[int, MemoryCarrier] = {}
        self._held: dict[int, list[bytes]] = {}
        self._seen: dict[int, list[bytes]] = {}

    def carrier(self, index: int) -> MemoryCarrier:
        """The carrier of a party; a second call is that of its next process."""
        made = self._carriers[index] = MemoryCarrier(self, index)
        return made

    def stop(self) -> None:
        """Cut all connections."""
        for carrier in self._carriers.values():
            carrier.cut()

    def start(self) -> None:
        """Bring all connections back."""
        for carrier in self._carriers.values():
            carrier.mend()

    def outcome(self, receiver: int, frame: bytes) -> list[bytes]:
        """Frames that reach a party when this one is sent to it."""
        how, chosen = self._hostility, self._chosen
        seen = self._seen.setdefault(receiver, [])
        arriving = [] if chosen.random() < how.drop else [frame]
        if chosen.random() < how.double:
            arriving.append(frame)
        if chosen.random() < how.replay and seen:
            arriving.append(chosen.choice(seen))
        if chosen.random() < how.forge:
            arriving.append(self._forge(frame))
        seen.append(frame)
        del seen[:-64]
        if chosen.random() < how.delay:
            self._held.setdefault(receiver, []).extend(arriving)
            return []
        return arriving + self._held.pop(receiver, [])

    def _forge(self, frame: bytes) -> bytes:
        self.forged += 1
        changed = bytearray(frame)
        changed[self._chosen.randrange(len(changed))] ^= 1 << self._chosen.randrange(8)
        return bytes(changed)

    def bring(self, receiver: int, frame: bytes) -> None:
        """Bring a frame to a party at the loop's next turn, or what hostility makes of it."""
        loop = asyncio.get_running_loop()
        for arriving in self.outcome(receiver, frame):
            loop.call_soon(self._arrive, receiver, arriving)

    def _arrive(self, receiver: int, frame: bytes) -> None:
        carrier = self._carriers.get(receiver)
        if carrier is not None:
            carrier.arrive(frame)


class MemoryCarrier:
    """A party's end of a `MemoryRelay`."""

    def __init__(self, relay: MemoryRelay, index: int) -> None:
        self.index = index
        self._relay = relay
        self._take: Take | None = None
        self._changed: Changed | None = None
        self._connected = False

    @property
    def connected(self) -> bool:
        """Whether frames can leave at present."""
        return self._connected

    async def open(self, take: Take, changed: Changed | None = None) -> None:
        """Connect to the relay."""
        self._take, self._changed = take, changed
        self._connected = True

    def send(self, receiver: int, frame: bytes) -> None:
        """Hand over a frame for a party."""
        if self._connected:
            self._relay.bring(receiver, frame)

    async def close(self) -> None:
        """Disconnect."""
        self._connected, self._take = False, None

    def arrive(self, frame: bytes) -> None:
        """Take a frame that the relay brings."""
        if self._connected and self._take is not None:
            self._take(frame)

    def cut(self) -> None:
        """Lose the connection."""
        if self._connected:
            self._connected = False
            if self._changed is not None:
                self._changed(False, "the relay was stopped")

    def mend(self) -> None:
        """Have the connection back."""
        if not self._connected and self._take is not None:
            self._connected = True
            if self._changed is not None:
                self._changed(True, "the relay is back")
