"""Session of one party: each frame delivered once and in order, over an unreliable carrier.

A frame of `securevfl.engine.security.frames.Links` is cut into datagrams of at most
`LARGEST_DATAGRAM` bytes. Each datagram is numbered, sealed with a key that changes after every
2^key_shift datagrams, and stored until the peer has acknowledged it. Acknowledgements are sealed,
too; they are cumulative and list later datagrams that arrived, so a gap is filled at once.
Unacknowledged datagrams are resent on a timer that doubles, and after a reconnection.

A link begins with a handshake (`securevfl.engine.carriers.handshake`). A peer counts as present
after the first datagram sealed with the keys of its new incarnation and of this one. A replayed old
introduction, or one whose secrets leaked, is therefore never accepted.

A relay can only delay and drop; data after a gap are never delivered. A peer for which too many
bytes wait is given up: it is informed, and must begin a new incarnation (start of the party).

The session has no clock, socket or randomness: time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

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
from securevfl.engine.carriers.handshake import Answer, Chains, Credentials, Handshake, Offer
from securevfl.engine.carriers.link import Incoming, Outgoing, Piece
from securevfl.engine.network import name_of
from securevfl.errors import CarrierError, SealError, WireError

KEEPALIVE = 5.0  # seconds after which a present party says something
_NEVER, _AT_ONCE = float("inf"), float("-inf")
_ANSWER_WAIT = 0.1  # seconds for which an acknowledgement waits for data: half of SHORTEST_WAIT
_UNANSWERED = 8  # datagrams that are acknowledged without waiting
_LARGE = 1 << 16  # bytes of one that count as a further datagram, so that a window never waits
_FIRST_HELLO, _LONGEST_HELLO = 0.2, 5.0  # seconds until an introduction is repeated


class _Link:
    """Link to one incarnation of a peer, or to a peer not yet known."""

    def __init__(self, handshake: Handshake, largest: int, peers: int) -> None:
        self.handshake = handshake
        self.chains: Chains | None = None
        self.present = False
        self.expected: int | None = None
        self.outgoing = Outgoing(peers)
        self.incoming = Incoming(largest)
        self.sent_acks = self.next_ack = 0
        self.unanswered = 0
        self.heard = _AT_ONCE
        self.answer_at = _NEVER
        self.say_hello_at_once()

    @property
    def epoch(self) -> int | None:
        """Number of the peer's newest known incarnation; None before its first offer."""
        return None if self.handshake.theirs is None else self.handshake.theirs.epoch

    @property
    def newest(self) -> tuple[int, int]:
        """Epoch and attempt numbers of the peer's newest offer."""
        theirs = self.handshake.theirs
        return (-1, -1) if theirs is None else (theirs.epoch, theirs.attempt)

    def say_hello_at_once(self) -> None:
        """Make this party's offer due at once, and reset the interval at which it is resent."""
        self.hello_at, self.hello_wait = _AT_ONCE, _FIRST_HELLO

    def answer_by(self, time: float) -> None:
        """Schedule an acknowledgement for `time` (s) at the latest, if no data carry it sooner."""
        self.answer_at = min(self.answer_at, time)

    def answered(self, now: float) -> None:
        """Note that an acknowledgement was sent to the peer at `now`, in seconds."""
        self.unanswered = 0
        self.answer_at = now + KEEPALIVE

    def next_due(self, now: float) -> float:
        """Time, in seconds, at which the link's next datagram is due."""
        if not self.present:
            return min(self.hello_at, self.answer_at)
        return min(self.answer_at, self.outgoing.next_due(now))


class Session:
    """Reliable links of one incarnation of a party, below its `Links`.

    Parameters
    ----------
    index, peers : int, iterable of int
        The party, and the other parties.
    epoch : int
        Number of this incarnation. Each session needs a new number, because a peer accepts one only
        once.
    credentials : Credentials
        Signatures that authenticate this party to the others, and them to it.
    deliver : callable
        Called with each frame of a peer, once and in order, and with the peer: `PartyHost.take`.
    introduce : callable
        Called with a peer and its epoch when a new incarnation of it is present.
    largest : int
        Bound on the bytes of a received frame; a larger stated size ends the link.
    most_stored : int
        Bound on the bytes that wait for one peer, which `send` enforces.
    padded : bool
        Whether datagrams are padded to powers of two.
    key_shift : int
        2^key_shift consecutive data datagrams have one key; equal at both ends.
    told : bool
        Whether only incarnations registered by `expect` are accepted.
    refuse : callable, optional
        Called with the reason for which a datagram was rejected.

    Attributes
    ----------
    rejected : int
        Number of forged, changed or misdirected datagrams.
    repeated : int
        Number of repeated datagrams.
    gone : dict of int to str
        Reason by peer of each abandoned link, which is unusable until the peer begins a new
        incarnation.
    """

    def __init__(
        self,
        index: int,
        peers: Iterable[int],
        epoch: int,
        credentials: Credentials,
        *,
        deliver: Callable[[bytes, int], object],
        introduce: Callable[[int, int], object],
        largest: int = 1 << 28,
        most_stored: int = 1 << 26,
        padded: bool = False,
        key_shift: int = 0,
        told: bool = False,
        refuse: Callable[[SealError | WireError], object] = lambda why: None,
    ) -> None:
        self.index = index
        self.epoch = epoch
        self.rejected = self.repeated = 0
        self.gone: dict[int, str] = {}
        self._credentials = credentials
        self._deliver, self._introduce = deliver, introduce
        self._largest, self._most_stored, self._padded = largest, most_stored, padded
        self._told, self._refuse, self._key_shift = told, refuse, key_shift
        self._attempts = {peer: 0 for peer in peers if peer != index}
        self._links = {peer: self._new_link(peer) for peer in self._attempts}
        self._resent = 0  # on links that are over

    def send(self, receiver: int, frame: bytes) -> None:
        """Store a frame until the peer acknowledges it; `due` returns its datagrams.

        A frame to a peer that is neither present nor expected, or was given up, is lost.
        CarrierError if more than `most_stored` bytes would wait for the peer.
        """
        link = self._links[receiver]
        if not (link.present or link.expected is not None) or receiver in self.gone:
            return
        waiting = link.outgoing.stored
        if waiting + len(frame) > self._most_stored:
            raise CarrierError(
                f"{name_of(receiver)} takes no messages: {waiting} bytes wait for it, and "
                f"{len(frame)} more would pass the bound of {self._most_stored}. Restart it, or "
                "find out why it is slow or cut off"
            )
        link.outgoing.push(frame)

    def expect(self, peer: int, epoch: int) -> None:
        """Register incarnation `epoch` of a peer, reported by others.

        Frames to it are stored until it is present; those to an earlier one are lost.
        """
        link = self._links[peer]
        if link.expected is not None:
            if epoch <= link.expected:
                return
            link = self._begin_anew(peer)
        link.expected = epoch

    def take(self, data: bytes, now: float) -> tuple[int | None, bool]:
        """Receive a datagram at `now`, in seconds; a damaged one is counted in `rejected`.

        Returns the peer for which data may be due now (None if the datagram is ignored), and
        whether it is new, authentic and no introduction.
        """
        try:
            head = read_head(data)
            link = self._links.get(head.sender)
            if head.receiver != self.index or link is None:
                raise WireError("datagram: it is for another party, or of none of this session")
            if head.type == HELLO:
                self._meet(head.sender, link, *decode_hello(data), now)
                return head.sender, False
            if (head.incarnation, head.to_incarnation) == (link.epoch, self.epoch):
                return head.sender, self._open(head, link, data, now)
        except (SealError, WireError) as error:
            self.rejected += 1
            self._refuse(error)
        return None, False

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """Datagrams due at `now`, in seconds, as (receiver, bytes); they count as sent."""
        return [(peer, data) for peer in self._links for data in self.due_to(peer, now)]

    def due_to(self, peer: int, now: float) -> list[bytes]:
        """Datagrams due to one peer at `now`, in seconds; they count as sent."""
        link = self._links[peer]
        leaving = []
        if not link.present and now >= link.hello_at:
            said = link.handshake.offer, link.handshake.answer
            leaving.append(encode_hello(self.index, peer, *said))
            link.hello_at = now + link.hello_wait
            link.hello_wait = min(2 * link.hello_wait, _LONGEST_HELLO)
        if link.present:
            leaving += link.outgoing.due(now, partial(self._seal_piece, peer, link, now))
        if now >= link.answer_at:
            leaving.append(self._acknowledgement(peer, link))
            link.answered(now)
        return leaving

    def next_due(self, now: float) -> float:
        """Latest time, in seconds, for the next call of `due`; `now` if something is due."""
        times = [link.next_due(now) for link in self._links.values()]
        return max(now, min(times, default=_NEVER))

    def next_due_to(self, peer: int, now: float) -> float:
        """Latest time, in seconds, for the next call of `due_to`; at least `now`."""
        return max(now, self._links[peer].next_due(now))

    def reconnected(self, peer: int | None = None) -> None:
        """Resend unacknowledged data at once, after a new connection of the carrier.

        Parameters
        ----------
        peer : int, optional
            The only peer to resend to; all by default.
        """
        for link in self._links.values() if peer is None else (self._links[peer],):
            link.outgoing.again()
            link.say_hello_at_once()
            if link.present:
                link.answer_at = _AT_ONCE

    def give_up(self, peer: int, why: str) -> None:
        """Drop all data for a peer until its next incarnation; `why` is stored in `gone`."""
        link = self._links[peer]
        self.gone[peer] = why
        link.outgoing.clear()
        if link.chains is not None:
            link.answer_at = _AT_ONCE

    @property
    def present(self) -> frozenset[int]:
        """Peers whose present incarnation has acknowledged this one."""
        return frozenset(n for n, link in self._links.items() if link.present)

    def silent(self, now: float, seconds: float) -> list[int]:
        """Known peers, not given up, without new authentic data for `seconds` or longer.

        A present peer sends every `KEEPALIVE` seconds. Repeated datagrams do not count.
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

    def _new_link(self, peer: int) -> _Link:
        """A link to the next incarnation of a peer, with a new offer."""
        self._attempts[peer] += 1
        which = self.index, peer, self.epoch, self._attempts[peer]
        handshake = Handshake(self._credentials, *which)
        return _Link(handshake, self._largest, len(self._attempts))

    def _begin_anew(self, peer: int) -> _Link:
        """Replace the link to a peer; data stored for it are dropped."""
        self._resent += self._links[peer].outgoing.resent
        self._links[peer] = made = self._new_link(peer)
        self.gone.pop(peer, None)
        return made

    def _meet(self, peer: int, link: _Link, offer: Offer, answer: Answer, now: float) -> None:
        """Process a peer's introduction (`offer`, `answer`), new or known, at `now` (seconds)."""
        said = offer.epoch, offer.attempt
        if said < link.newest or (self._told and offer.epoch != link.expected):
            return
        if said > link.newest:
            link.handshake.check(offer)
            if link.present or link.epoch not in (None, offer.epoch):
                expected, link = link.expected, self._begin_anew(peer)
                link.expected = expected
            link.handshake.hear(offer)
            link.chains, link.answer_at, link.heard = None, _NEVER, now
            link.say_hello_at_once()
        if link.chains is None and offer == link.handshake.theirs:
            link.chains = link.handshake.agree(answer, self._key_shift)
        if link.chains is not None:
            link.answer_by(now + _ANSWER_WAIT if link.present else now)  # it may be a replay

    def _open(self, head: Head, link: _Link, data: bytes, now: float) -> bool:
        """Receive an encrypted datagram of a peer's present life; whether new, or SealError."""
        if link.chains is None:  # the peer's answer is still to come
            return False
        chain = link.chains.received_acks if head.type == ACK else link.chains.received
        if head.type == ACK:
            if head.number < link.next_ack:  # older than what is known
                self.repeated += 1
                return False
        elif not link.incoming.wants(head.number):
            self.repeated += 1
            link.answer_by(now + _ANSWER_WAIT)  # the acknowledgement may have been lost
            return False
        content = open_sealed(chain.cipher(head.number), head, data)
        chain.used(head.number, link.next_ack if head.type == ACK else link.incoming.expected)
        link.heard = now
        self._welcome(head.sender, link)
        if content.flags & GONE:
            self._give_up_too(head.sender, link)
        if head.sender in self.gone:
            if not content.flags & GONE:
                link.answer_by(now + _ANSWER_WAIT)
            return True
        link.outgoing.acknowledge(content.expected, content.later, now)
        if head.type == ACK:
            link.next_ack = head.number + 1
        else:
            self._put(head, link, content, now)
        return True

    def _put(self, head: Head, link: _Link, content: Content, now: float) -> None:
        """Deliver complete frames in order; WireError for pieces that form none (peer given up)."""
        piece = Piece(content.flags, content.total, content.piece)
        try:
            frames = link.incoming.put(head.number, piece)
        except WireError as error:
            self.give_up(head.sender, f"{name_of(head.sender)} broke its link: {error}")
            raise
        link.unanswered += 1 + len(content.piece) // _LARGE
        gap = link.incoming.later != 0
        link.answer_by(now if gap or link.unanswered >= _UNANSWERED else now + _ANSWER_WAIT)
        for frame in frames:  # whose receiver may send and ask for what is due
            self._deliver(frame, head.sender)

    def _welcome(self, peer: int, link: _Link) -> None:
        """Mark a peer as present: it proved its key and knows this incarnation."""
        if link.present:
            return
        link.present = True
        link.handshake.forget()
        link.answer_at = _AT_ONCE  # it may not know yet that this party has its answer
        self._introduce(peer, link.newest[0])

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
        assert link.chains is not None
        assert link.epoch is not None
        head = Head(kind, self.index, peer, self.epoch, link.epoch, number)
        content = Content(link.incoming.expected, link.incoming.later, *rest)
        chain = link.chains.sent_acks if kind == ACK else link.chains.sent
        data = seal(chain.cipher(number), head, content, padded=self._padded)
        chain.used(number, number)
        return data
