"""The two halves of a reliable link: data stored until acknowledged, and received data.

Both are independent of carrier and cipher. `Outgoing` numbers pieces of frames, stores them, and
returns those that are due; `Incoming` orders arriving pieces and joins them to frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from securevfl.engine.carriers.datagrams import FIRST, LARGEST_PIECE, LAST
from securevfl.errors import WireError

WINDOW = 64  # datagrams that may be under way to a peer; `Content.later` has a bit for each
BYTES_UNDER_WAY = 1 << 22  # to one peer, at most
BYTES_TO_ALL = 1 << 25  # half of what a relay keeps for one slow receiver before it cuts it off
FIRST_WAIT, SHORTEST_WAIT, LONGEST_WAIT = 1.0, 0.2, 8.0  # seconds until a datagram is sent again
_AT_ONCE = 8  # datagrams that are sent again when the timer ends; the next answer tells the rest


@dataclass
class Piece:
    """Part of a frame for one datagram; its fields are those of `Content`."""

    flags: int
    total: int
    data: bytes


@dataclass
class _Stored:
    """A sent datagram that is not yet acknowledged."""

    data: bytes
    left: float  # when it was sent last
    times: int = 1
    arrived: bool = False


class Outgoing:
    """The sending half of a link.

    Parameters
    ----------
    peers : int
        Number of links that share the limit of data in flight. All parties have equally many, so it
        also bounds the data in flight from all to one receiver.

    Attributes
    ----------
    stored : int
        Bytes that wait: unsent, or sent and not acknowledged.
    resent : int
        Number of resent datagrams.
    """

    def __init__(self, peers: int = 1) -> None:
        self.stored = self.resent = 0
        self._most_under_way = min(BYTES_UNDER_WAY, BYTES_TO_ALL // peers)
        self._waiting: deque[Piece] = deque()
        self._kept: dict[int, _Stored] = {}
        self._next = 0
        self._farthest = -1  # highest number that the peer reported
        self._under_way = 0
        self._wait = FIRST_WAIT
        self._trip = self._spread = 0.0  # smoothed round trip and its deviation (RFC 6298)
        self._timer = 0.0
        self._all_again = False

    def push(self, frame: bytes) -> None:
        """Cut a frame into pieces and store them for sending."""
        pieces = range(0, max(len(frame), 1), LARGEST_PIECE)
        for at in pieces:
            data = frame[at : at + LARGEST_PIECE]
            first, last = at == 0, at == pieces[-1]
            flags = FIRST * first | LAST * last
            self._waiting.append(Piece(flags, len(frame) if first else 0, data))
        self.stored += len(frame)

    def again(self) -> None:
        """Make all sent and unacknowledged datagrams due for resending now."""
        self._all_again = bool(self._kept)

    def due(self, now: float, seal: Callable[[int, Piece], bytes]) -> Iterator[bytes]:
        """Datagrams to send now: resent ones first, then new ones.

        A yielded datagram counts as sent, so the caller must send it. Times are in seconds of one
        clock of the caller.

        Parameters
        ----------
        seal : callable
            Function that makes the datagram from a number and a piece; called once per number.
        """
        for kept in self._again(now) if self._kept else ():
            kept.left, kept.times = now, kept.times + 1
            self.resent += 1
            yield kept.data
        while self._may_send():
            piece = self._waiting.popleft()
            data = seal(self._next, piece)
            if not self._kept:
                self._timer = now + self._wait
            self._kept[self._next] = _Stored(data, now)
            self._next += 1
            self._under_way += len(data)
            self.stored += len(data) - len(piece.data)
            yield data

    def next_due(self, now: float) -> float:
        """Time, in seconds as `now`, of the next call of `due`; infinite if nothing waits."""
        if self._all_again or self._may_send():
            return now
        if not self._kept:
            return float("inf")
        return min([self._timer, *(kept.left + self._gap_wait for _, kept in self._gaps())])

    def acknowledge(self, expected: int, later: int, now: float) -> None:
        """Delete datagrams that the peer has at `now` s, by `Content.expected` and `Content.later`.

        An acknowledgement of datagrams that were never sent is ignored.
        """
        if expected > self._next:
            return
        fresh = [self._drop(n, now) for n in list(self._kept) if n < expected]
        if later:
            for number, kept in self._kept.items():
                ahead = number - expected - 1
                if ahead >= 0 and later >> ahead & 1:
                    fresh.append(self._arrive(number, kept, now))
        if any(fresh):
            self._wait = self._usual_wait
            self._timer = now + self._wait

    def clear(self) -> None:
        """Drop all that waits to be sent or acknowledged."""
        self._waiting.clear()
        self._kept.clear()
        self.stored = self._under_way = 0

    @property
    def idle(self) -> bool:
        """Whether everything is acknowledged."""
        return not self._waiting and not self._kept

    def _may_send(self) -> bool:
        if not self._waiting:
            return False
        lowest = next(iter(self._kept), self._next)
        return self._next < lowest + WINDOW and self._under_way < self._most_under_way

    def _again(self, now: float) -> list[_Stored]:
        """Datagrams to resend now (s): all after `again`, the first eight after a timeout; gaps."""
        if self._all_again:
            self._all_again = False
            return [kept for kept in self._kept.values() if not kept.arrived]
        if self._kept and now >= self._timer:
            self._wait = min(2 * self._wait, LONGEST_WAIT)
            self._timer = now + self._wait
            lost = [kept for kept in self._kept.values() if not kept.arrived]
            return lost[:_AT_ONCE]
        return [kept for _, kept in self._gaps() if now >= kept.left + self._gap_wait]

    def _gaps(self) -> Iterator[tuple[int, _Stored]]:
        """Datagrams that the peer lacks although it has later ones."""
        if next(iter(self._kept)) >= self._farthest:  # as it is on a carrier that loses nothing
            return
        for number, kept in self._kept.items():
            if number >= self._farthest:
                return
            if not kept.arrived:
                yield number, kept

    @property
    def _gap_wait(self) -> float:
        """Seconds after sending at which a reported gap is resent: one round trip."""
        return max(self._trip, 0.02)

    @property
    def _usual_wait(self) -> float:
        if not self._trip:
            return FIRST_WAIT
        return min(max(self._trip + 4 * self._spread, SHORTEST_WAIT), LONGEST_WAIT)

    def _drop(self, number: int, now: float) -> bool:
        kept = self._kept[number]
        fresh = self._arrive(number, kept, now)
        del self._kept[number]
        return fresh

    def _arrive(self, number: int, kept: _Stored, now: float) -> bool:
        """Mark datagram `number` as received and free its bytes; False if that was known."""
        if kept.arrived:
            return False
        if kept.times == 1:  # of one that was resent nobody knows which copy arrived
            self._measure(now - kept.left)
        self.stored -= len(kept.data)
        self._under_way -= len(kept.data)
        kept.data, kept.arrived = b"", True
        self._farthest = max(self._farthest, number)
        return True

    def _measure(self, trip: float) -> None:
        if not self._trip:
            self._trip, self._spread = trip, trip / 2
        else:
            self._spread += (abs(trip - self._trip) - self._spread) / 4
            self._trip += (trip - self._trip) / 8


class Incoming:
    """The receiving half of a link.

    Parameters
    ----------
    largest : int
        Bound on the bytes of a frame.

    Attributes
    ----------
    expected : int
        Number of the first missing datagram.
    """

    def __init__(self, largest: int) -> None:
        self.expected = 0
        self._largest = largest
        self._early: dict[int, Piece] = {}
        self._parts: list[bytes] = []
        self._missing = 0  # bytes of the frame that is being put together

    def wants(self, number: int) -> bool:
        """Whether a datagram is new; the content of a repeated one is not decrypted.

        WireError for one beyond the window, which an honest peer would not send.
        """
        if number >= self.expected + WINDOW:
            raise WireError(f"datagram: {number} was sent before {self.expected} was acknowledged")
        return number >= self.expected and number not in self._early

    def put(self, number: int, piece: Piece) -> list[bytes]:
        """Store a piece; return the frames that are now complete and next in order.

        WireError for pieces that form no frame, or one above the bound. The link is then unusable.
        """
        self._early[number] = piece
        whole = []
        while self.expected in self._early:
            following = self._early.pop(self.expected)
            self.expected += 1
            frame = self._join(following)
            if frame is not None:
                whole.append(frame)
        return whole

    @property
    def later(self) -> int:
        """Bit mask of the datagrams received after the first missing one."""
        found = 0
        for number in self._early:
            found |= 1 << (number - self.expected - 1)
        return found

    def _join(self, piece: Piece) -> bytes | None:
        """The frame that a piece completes, or None; WireError for pieces that form none."""
        if bool(piece.flags & FIRST) == bool(self._parts):
            raise WireError("datagram: a frame begins within another one, or without a beginning")
        if piece.flags & FIRST:
            if piece.total > self._largest:
                raise WireError(
                    f"datagram: a frame of {piece.total} bytes was begun, and the largest message "
                    f"that is planned has {self._largest}"
                )
            self._missing = piece.total
        self._missing -= len(piece.data)
        ends = bool(piece.flags & LAST)
        if self._missing < 0 or ends != (self._missing == 0) or not (piece.data or ends):
            raise WireError("datagram: the parts of a frame are not as long as it was said to be")
        self._parts.append(piece.data)
        if not ends:
            return None
        frame = b"".join(self._parts)
        self._parts = []
        return frame
