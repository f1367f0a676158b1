"""Carrier over TCP: each party listens, and connects to the others.

A connection is used in one direction, by the party that opened it. Anybody who reaches the port may
connect, so a connection is unauthenticated until the session has decrypted a datagram from it. The
number of unauthenticated connections, and the bytes read from each, are bounded.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from securevfl.engine.carriers.base import LARGEST_FRAME, Changed, Take

_LENGTH = 4  # bytes before each datagram, which say how long it is
_MOST_WAITING = 1 << 24  # bytes that wait for a slow connection before datagrams are dropped
_STRANGERS = 64  # connections of strangers, and two for each peer; of more the oldest is dropped
_STRANGERS_BYTES = 1 << 21  # that a stranger may say: four datagrams of the largest
_CONNECT_SECONDS = 5.0
_DEAD_SECONDS = 60  # data that no acknowledgement of TCP came for end a connection
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0  # seconds between attempts to connect

Place = tuple[str, int]  # address of a network interface, and port


class DirectCarrier:
    """A party's listener and its connections to others; lost connections are always reopened.

    Parameters
    ----------
    host : str
        Address of the interface to listen on.

    Attributes
    ----------
    reached : callable
        Function of a peer's number, set by the owner before `reach`; called when a connection to
        the peer has opened.
    """

    connected = True  # datagrams to whom no connection stands are dropped one by one

    reached: Callable[[int], object]

    def __init__(self, host: str) -> None:
        self._host = host
        self._take: Take | None = None
        self._server: asyncio.Server | None = None
        self._places: dict[int, Place] = {}
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._outward: dict[int, asyncio.WriteTransport] = {}
        self._inward: dict[_Inward, None] = {}
        self._strangers: dict[_Inward, None] = {}  # the oldest first

    @property
    def place(self) -> Place:
        """Address and port at which others reach this party; after `open`."""
        assert self._server is not None
        name: Place = self._server.sockets[0].getsockname()[:2]
        return name

    async def open(self, take: Take, changed: Changed | None = None) -> None:
        """Listen on a port that the operating system chooses; see `Carrier.open`."""
        self._take = take
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Inward(self), self._host, 0, backlog=256)

    def reach(self, peer: int, place: Place) -> None:
        """Connect to a peer, and again after each loss of connection, until its place changes."""
        if self._places.get(peer) == place or self._take is None:
            return
        self._leave(peer)
        self._places[peer] = place
        self._dialling[peer] = asyncio.get_running_loop().create_task(self._dial(peer, place))

    def send(self, receiver: int, frame: bytes) -> None:
        """Hand over a datagram; it is dropped without a connection or if too much waits."""
        transport = self._outward.get(receiver)
        if transport is None or transport.get_write_buffer_size() > _MOST_WAITING:
            return
        transport.write(len(frame).to_bytes(_LENGTH, "little") + frame)

    async def close(self) -> None:
        """Stop listening, and disconnect."""
        self._take = None
        for peer in list(self._places):
            self._leave(peer)
        for connection in list(self._inward):
            connection.end()
        if self._server is not None:
            self._server.close()

    def _leave(self, peer: int) -> None:
        self._places.pop(peer, None)
        task = self._dialling.pop(peer, None)
        if task is not None:
            task.cancel()
        transport = self._outward.pop(peer, None)
        if transport is not None:
            transport.abort()

    async def _dial(self, peer: int, place: Place) -> None:
        """Keep a connection to a peer, reconnecting without limit."""
        loop, wait = asyncio.get_running_loop(), _FIRST_WAIT
        while True:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_SECONDS):
                    transport, connection = await loop.create_connection(_Outward, *place)
                wait = _FIRST_WAIT
                self._outward[peer] = transport
                self.reached(peer)
                await connection.lost
                self._outward.pop(peer, None)
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def greet(self, connection: _Inward) -> None:
        """Register a new, unauthenticated connection; of too many such ones end the oldest."""
        self._inward[connection] = self._strangers[connection] = None
        if len(self._strangers) > _STRANGERS + 2 * len(self._places):
            next(iter(self._strangers)).end()

    def forget(self, connection: _Inward) -> None:
        """Drop a connection that has ended."""
        self._inward.pop(connection, None)
        self._strangers.pop(connection, None)

    def arrive(self, connection: _Inward, data: bytes) -> None:
        """Receive a datagram; a valid one authenticates its connection."""
        if self._take is not None and self._take(data):
            self._strangers.pop(connection, None)

    def is_strange(self, connection: _Inward) -> bool:
        """Whether a connection has brought nothing authentic yet."""
        return connection in self._strangers


class _Outward(asyncio.Protocol):
    """A connection opened by this party, for sending only."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Limit the time that the kernel waits for a peer, so that a dead connection ends."""
        self.lost = asyncio.get_running_loop().create_future()
        self._transport = transport
        opened = transport.get_extra_info("socket")
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _DEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Close a connection on which the other end sends, since no party does that."""
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake the task that opened the connection; it reconnects."""
        if not self.lost.done():
            self.lost.set_result(None)


class _Inward(asyncio.Protocol):
    """A connection opened by another end, for receiving only."""

    def __init__(self, carrier: DirectCarrier) -> None:
        self._carrier = carrier
        self._room = bytearray()  # what has come, from the beginning of a datagram
        self._wanted = _LENGTH  # bytes there before anything can be done
        self._read = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection with the carrier."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._carrier.greet(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the carrier."""
        self.end()

    def end(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()
        self._transport, self._room = None, bytearray()
        self._carrier.forget(self)

    def data_received(self, data: bytes) -> None:
        """Cut received bytes into datagrams; end a connection that breaks a bound."""
        self._read += len(data)
        self._room += data
        while len(self._room) >= self._wanted:
            if self._wanted == _LENGTH:
                self._wanted += int.from_bytes(self._room[:_LENGTH], "little")
                if not _LENGTH < self._wanted <= _LENGTH + LARGEST_FRAME:
                    self.end()
                    return
                continue
            with memoryview(self._room) as room:
                datagram = bytes(room[_LENGTH : self._wanted])
            del self._room[: self._wanted]
            self._wanted = _LENGTH
            self._carrier.arrive(self, datagram)
            if self._transport is None:  # ended meanwhile
                return
        if self._read > _STRANGERS_BYTES and self._carrier.is_strange(self):
            self.end()
