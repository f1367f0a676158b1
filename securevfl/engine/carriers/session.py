"""The session of one party: frames on an unreliable carrier, each delivered once and in order.

A frame of `securevfl.engine.security.frames.Links` is cut into datagrams of at most
`LARGEST_DATAGRAM` bytes. Each datagram is numbered and sealed with a key of its link's direction,
and kept until the peer has acknowledged it. Acknowledgements are sealed, too; they are cumulative
and tell which later datagrams have come, so a gap is filled at once. What stays unacknowledged is
sent again on a timer that doubles, and when the carrier is connected anew.

A peer counts as present once its introduction, signed by its identity, has come, and then a
datagram that is sealed with the key of that incarnation. An old introduction that a carrier replays
is therefore never believed to be a peer.

What the relay can do is delay and drop; a link with gaps is never delivered. A peer that lets more
than a bounded number of bytes wait is given up: it is told so, and has to begin a new incarnation.

The session has no clock, no socket and no randomness: time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from securevfl.engine import wire
from securevfl.engine.carriers.datagrams import (
    ACK,
    DATA,
    GONE,
    HELLO,
    Content,
    Head,
    decode_hello,
    encode_hello,
    open_sealed,
    read_head,
    seal,
)
from securevfl.engine.carriers.link import Incoming, Outgoing, Piece
from securevfl.engine.network import name_of
from securevfl.engine.security.frames import Hello
from securevfl.engine.security.sealing import Sealer
from securevfl.errors import CarrierError, SealError, WireError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

KEEPALIVE = 5.0  # seconds after which a present party says something
_NEVER, _AT_ONCE = float("inf"), float("-inf")
_ANSWER_WAIT = 0.02  # seconds for which an acknowledgement waits for data to travel with
_UNANSWERED = 8  # datagrams that are acknowledged without waiting
_FIRST_HELLO, _LONGEST_HELLO = 0.2, 5.0  # seconds until an introduction is repeated


class _Link:
    """The link to one incarnation of a peer, or to a peer of which none is known."""

    def __init__(self, largest: int, peers: int) -> None:
        self.hello: Hello | None = None
        self.sealing: ChaCha20Poly1305 | None = None
        self.opening: ChaCha20Poly1305 | None = None
        self.present = False
        self.outgoing = Outgoing(peers)
        self.incoming = Incoming(largest)
        self.sent_acks = self.next_ack = 0
        self.unanswered = 0
        self.heard = _AT_ONCE
        self.answer_at = _NEVER
        self.say_hello_at_once()

    @property
    def epoch(self) -> int | None:
        """Epoch of the incarnation."""
        return None if self.hello is None else self.hello.epoch

    def say_hello_at_once(self) -> None:
        """Let the introduction be due, and its waits begin anew."""
        self.hello_at, self.hello_wait = _AT_ONCE, _FIRST_HELLO

    def answer_by(self, time: float) -> None:
        """Send an acknowledgement by a time, on its own if no data leave before."""
        self.answer_at = min(self.answer_at, time)

    def answered(self, now: float) -> None:
        """Note that the peer was just told what has come."""
        self.unanswered = 0
        self.answer_at = now + KEEPALIVE

    def next_due(self, now: float) -> float:
        """Time at which something is due."""
        hello_at = _NEVER if self.present else self.hello_at
        return min(hello_at, self.answer_at, self.outgoing.next_due(now))


class Session:
    """The reliable links of one incarnation of a party, below its `Links`.

    Parameters
    ----------
    peers : iterable of int
        The other parties.
    hello : Hello
        Introduction of this incarnation, signed (`securevfl.engine.security.identity.Identity`). It
        and the sealer serve one session: another one would number, and so seal, from 0 again.
    sealer : Sealer
        The one of the party's `Links`: its key pair makes the keys of the datagrams, too.
    verify : callable
        Raises a SealError for a hello that its party's identity has not signed (`Manifest.verify`).
    deliver : callable
        Called with each frame of a peer, once and in order: `PartyHost.take`.
    introduce : callable
        Called with a peer and its hello when a new incarnation of it is present:
        `PartyHost.add_peers`.
    largest : int
        Bound on a frame's bytes when it comes in parts; what claims to be larger ends the link.
    most_stored : int
        Bound on the bytes that wait for one peer; `send` refuses more.
    padded : bool
        Whether datagrams are padded to powers of two.

    Attributes
    ----------
    rejected : int
        Number of datagrams that were forged, changed, or for nobody here.
    repeated : int
        Number of datagrams that had come before.
    gone : dict of int to str
        Peers whose link was given up, and why: it carries nothing until the peer begins a new
        incarnation.
    """

    def __init__(
        self,
        index: int,
        peers: Iterable[int],
        hello: Hello,
        sealer: Sealer,
        *,
        verify: Callable[[int, Hello], None],
        deliver: Callable[[bytes], None],
        introduce: Callable[[int, Hello], None],
        largest: int = 1 << 28,
        most_stored: int = 1 << 26,
        padded: bool = False,
    ) -> None:
        self.index = index
        self.hello = hello
        self.rejected = self.repeated = 0
        self.gone: dict[int, str] = {}
        self._sealer = sealer
        self._verify, self._deliver, self._introduce = verify, deliver, introduce
        self._largest, self._most_stored, self._padded = largest, most_stored, padded
        others = [peer for peer in peers if peer != index]
        self._links = {peer: _Link(largest, len(others)) for peer in others}
        self._resent = 0  # on links that are over

    def send(self, receiver: int, frame: bytes) -> None:
        """Store a frame until the peer has it; `due` hands out its datagrams.

        A frame to a peer that is not present, or was given up, is lost. CarrierError naming the
        peer, when more than `most_stored` bytes would wait for it.
        """
        link = self._links[receiver]
        if not link.present or receiver in self.gone:
            return
        waiting = link.outgoing.stored
        if waiting + len(frame) > self._most_stored:
            raise CarrierError(
                f"{name_of(receiver)} takes no messages: {waiting} bytes wait for it, and "
                f"{len(frame)} more would pass the bound of {self._most_stored}. Restart it, or "
                "find out why it is slow or cut off"
            )
        link.outgoing.push(frame)

    def take(self, data: bytes, now: float) -> None:
        """Receive a datagram. One that is not valid is counted in `rejected`, and else ignored."""
        try:
            head = read_head(data)
            link = self._links.get(head.sender)
            if head.receiver != self.index or link is None:
                raise WireError("datagram: it is for another party, or of none of this session")
            if head.type == HELLO:
                self._meet(head.sender, link, decode_hello(data), now)
            elif (head.incarnation, head.to_incarnation) == (link.epoch, self.hello.epoch):
                self._open(head, link, data, now)
        except (SealError, WireError):
            self.rejected += 1

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """Datagrams that are to leave now, as (receiver, bytes)."""
        leaving = []
        for peer, link in self._links.items():
            if not link.present and now >= link.hello_at:
                leaving.append((peer, encode_hello(self.index, peer, self.hello)))
                link.hello_at = now + link.hello_wait
                link.hello_wait = min(2 * link.hello_wait, _LONGEST_HELLO)
            for data in link.outgoing.due(now, partial(self._seal_piece, peer, link, now)):
                leaving.append((peer, data))
            if now >= link.answer_at:
                leaving.append((peer, self._acknowledgement(peer, link)))
                link.answered(now)
        return leaving

    def next_due(self, now: float) -> float:
        """Time at which `due` must be asked again at the latest; `now` where something is due."""
        times = [link.next_due(now) for link in self._links.values()]
        return max(now, min(times, default=float("inf")))

    def reconnected(self) -> None:
        """Send what is unacknowledged again at once: the carrier has a new connection."""
        for link in self._links.values():
            link.outgoing.again()
            link.say_hello_at_once()
            if link.present:
                link.answer_at = _AT_ONCE

    def give_up(self, peer: int, why: str) -> None:
        """Drop what waits for a peer, and all that is sent to it before its next incarnation."""
        link = self._links[peer]
        self.gone[peer] = why
        link.outgoing.clear()
        if link.epoch is not None:
            link.answer_at = _AT_ONCE

    @property
    def present(self) -> frozenset[int]:
        """Peers whose present incarnation has shown that it knows this one."""
        return frozenset(n for n, link in self._links.items() if link.present)

    def silent(self, now: float, seconds: float) -> list[int]:
        """Known peers from which nothing new and authentic came for more than `seconds`.

        A present peer says something every `KEEPALIVE` seconds. A datagram that a relay repeats is
        nothing new.
        """
        return [
            peer
            for peer, link in self._links.items()
            if link.epoch is not None and peer not in self.gone and now - link.heard >= seconds
        ]

    def stored(self, peer: int) -> int:
        """Bytes that wait for a peer's acknowledgement."""
        return self._links[peer].outgoing.stored

    @property
    def resent(self) -> int:
        """Number of datagrams that were sent again."""
        return self._resent + sum(link.outgoing.resent for link in self._links.values())

    @property
    def idle(self) -> bool:
        """Whether every frame that was sent is acknowledged."""
        return all(link.outgoing.idle for link in self._links.values())

    def _meet(self, peer: int, link: _Link, hello: Hello, now: float) -> None:
        """Learn of a peer's incarnation, or answer one that repeats its introduction."""
        if link.epoch is not None and hello.epoch <= link.epoch:
            if hello == link.hello:
                link.answer_at = min(link.answer_at, now)
            return
        self._verify(peer, hello)
        new = _Link(self._largest, len(self._links))
        new.hello, new.heard, new.answer_at = hello, now, now
        try:
            new.sealing = self._agree(hello, self.index, peer)
            new.opening = self._agree(hello, peer, self.index)
        except ValueError:  # too short, or of small order; only its owner can have signed it
            raise SealError(f"datagram: {name_of(peer)} has a key that is none") from None
        self._resent += link.outgoing.resent
        self._links[peer] = new
        self.gone.pop(peer, None)

    def _agree(self, theirs: Hello, sender: int, receiver: int) -> ChaCha20Poly1305:
        """Cipher of one direction, between these two incarnations only."""
        first, second = self.hello.epoch, theirs.epoch
        epochs = (first, second) if sender == self.index else (second, first)
        return self._sealer.agree(
            "securevfl datagram 1", theirs.public, sender, receiver, wire.encode(epochs)
        )

    def _open(self, head: Head, link: _Link, data: bytes, now: float) -> None:
        """Take in a sealed datagram of the present incarnation of a peer."""
        assert link.opening is not None
        if head.type == ACK:
            if head.number < link.next_ack:  # older than what is known
                self.repeated += 1
                return
        elif not link.incoming.wants(head.number):
            self.repeated += 1
            link.answer_by(now + _ANSWER_WAIT)  # the acknowledgement may have been lost
            return
        content = open_sealed(link.opening, head, data)
        link.heard = now
        self._welcome(head.sender, link)
        if content.flags & GONE:
            self._give_up_too(head.sender, link)
        if head.sender in self.gone:
            if not content.flags & GONE:
                link.answer_by(now + _ANSWER_WAIT)
            return
        link.outgoing.acknowledge(content.expected, content.later, now)
        if head.type == ACK:
            link.next_ack = head.number + 1
        else:
            self._put(head, link, content, now)

    def _put(self, head: Head, link: _Link, content: Content, now: float) -> None:
        """Deliver what is whole and next in order."""
        piece = Piece(content.flags, content.total, content.piece)
        try:
            frames = link.incoming.put(head.number, piece)
        except WireError as error:
            self.give_up(head.sender, f"{name_of(head.sender)} broke its link: {error}")
            raise
        link.unanswered += 1
        gap = link.incoming.later != 0
        link.answer_by(now if gap or link.unanswered >= _UNANSWERED else now + _ANSWER_WAIT)
        for frame in frames:  # whose receiver may send and ask for what is due
            self._deliver(frame)

    def _welcome(self, peer: int, link: _Link) -> None:
        """Count a peer as present: it holds the key that its introduction names, and knows ours."""
        if link.present:
            return
        assert link.hello is not None
        link.present = True
        link.answer_at = _AT_ONCE  # it may not know yet that this party has its introduction
        self._introduce(peer, link.hello)

    def _give_up_too(self, peer: int, link: _Link) -> None:
        if peer not in self.gone:
            link.outgoing.clear()
            self.gone[peer] = (
                f"{name_of(peer)} gave up this link, as it could not get messages through, or what "
                "it got made none. Restart this party: a new incarnation begins a new link"
            )

    def _seal_piece(self, peer: int, link: _Link, now: float, number: int, piece: Piece) -> bytes:
        link.answered(now)  # a new datagram tells what has come; one that is sent again does not
        return self._seal(peer, link, DATA, number, (piece.total, piece.flags, piece.data))

    def _acknowledgement(self, peer: int, link: _Link) -> bytes:
        number, link.sent_acks = link.sent_acks, link.sent_acks + 1
        return self._seal(peer, link, ACK, number, (0, GONE * (peer in self.gone), b""))

    def _seal(
        self, peer: int, link: _Link, kind: int, number: int, rest: tuple[int, int, bytes]
    ) -> bytes:
        assert link.sealing is not None
        assert link.epoch is not None
        head = Head(kind, self.index, peer, self.hello.epoch, link.epoch, number)
        content = Content(link.incoming.expected, link.incoming.later, *rest)
        return seal(link.sealing, head, content, padded=self._padded)
