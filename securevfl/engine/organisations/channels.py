"""Several channels over one connection: for beacons and for each incarnation's session."""

from __future__ import annotations

import hashlib

from securevfl.engine.carriers.base import Carrier, Changed, Take

_TAG = 8  # bytes before each datagram, which name its channel


class Channels:
    """One party's connection, shared by channels that do not see each other's datagrams.

    A datagram of a channel that is not open is dropped; its sender repeats it.

    Parameters
    ----------
    carrier : Carrier
        The connection.
    changed : callable
        Called with whether there is a connection now, and with a sentence about it.
    """

    def __init__(self, carrier: Carrier, changed: Changed) -> None:
        self._carrier = carrier
        self._told = changed
        self._takes: dict[bytes, Take] = {}
        self._changes: dict[bytes, Changed] = {}

    async def open(self) -> None:
        """Connect out, as `Carrier.open` does."""
        await self._carrier.open(self._take, self._changed)

    async def close(self) -> None:
        """Disconnect all channels."""
        await self._carrier.close()

    def channel(self, name: str) -> Channel:
        """The channel with a name, the same at all parties."""
        return Channel(self, hashlib.sha256(f"channel {name}".encode()).digest()[:_TAG])

    @property
    def connected(self) -> bool:
        """Whether datagrams can leave at present."""
        return self._carrier.connected

    def attach(self, tag: bytes, take: Take, changed: Changed | None) -> None:
        """Call `take` on each datagram of a channel, and `changed` on connection changes."""
        self._takes[tag] = take
        if changed is not None:
            self._changes[tag] = changed

    def detach(self, tag: bytes) -> None:
        """Drop all further datagrams of a channel."""
        self._takes.pop(tag, None)
        self._changes.pop(tag, None)

    def send(self, receiver: int, data: bytes) -> None:
        """Send a datagram, which begins with its channel's tag."""
        self._carrier.send(receiver, data)

    def _take(self, data: bytes) -> None:
        take = self._takes.get(bytes(data[:_TAG]))
        if take is not None:
            take(bytes(data[_TAG:]))

    def _changed(self, connected: bool, why: str) -> None:
        self._told(connected, why)
        for changed in list(self._changes.values()):
            changed(connected, why)


class Channel:
    """One channel of `Channels`, which is a `securevfl.engine.carriers.base.Carrier`."""

    def __init__(self, channels: Channels, tag: bytes) -> None:
        self._channels = channels
        self._tag = tag

    @property
    def connected(self) -> bool:
        """Whether datagrams can leave at present."""
        return self._channels.connected

    async def open(self, take: Take, changed: Changed | None = None) -> None:
        """Receive datagrams of this channel from now on; the connection is already open."""
        self._channels.attach(self._tag, take, changed)

    def send(self, receiver: int, frame: bytes) -> None:
        """Hand over a datagram (`frame`) of this channel for a party; it may be lost."""
        self._channels.send(receiver, self._tag + frame)

    async def close(self) -> None:
        """Drop this channel's datagrams from now on."""
        self._channels.detach(self._tag)
