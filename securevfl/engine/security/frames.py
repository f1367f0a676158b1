"""Links of one party to the others, for messages between processes.

A frame is a message with the incarnations of both ends. A restarted party is a new incarnation with
new links; messages to or from an earlier incarnation are lost. The frames of a link are numbered:
they may arrive reordered or repeated, but the party gets each one once, in the order of sending.
`securevfl.engine.carriers.session` encrypts them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from securevfl.engine import wire
from securevfl.engine.network import Message, name_of
from securevfl.errors import SealError, WireError

_BEGIN, _ENDS, _REST = map(struct.Struct, ("<cqcq", "<cqcqcq", "<cqcqcqcqcq"))
_TAGS = (b"t", 9, *(bytes([tag]) for tag in b"siisiiiib"))  # as `wire` writes these fields
_FIELDS = (str, int, int, str, int, int, int, int, bytes)
_EARLY = 4096  # most frames ahead of a missing one, per link


class Frame(NamedTuple):
    """A message in its form on a link.

    Attributes
    ----------
    run, kind, round : str, str, int
        Name of the run; kind and round of the message.
    incarnation, to_incarnation : int
        Epochs of the sender and of the intended receiver.
    number : int
        Index of the frame among those of this link.
    body : bytes
        The payload, encoded.
    """

    run: str
    sender: int
    receiver: int
    kind: str
    round: int
    incarnation: int
    to_incarnation: int
    number: int
    body: bytes

    def encode(self) -> bytes:
        """Bytes of the frame."""
        return wire.encode(tuple(self))

    @classmethod
    def decode(cls, data: Any) -> Frame:
        """Frame from its bytes (inverse of `encode`).

        WireError for bytes that are no frame.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise WireError(f"link: a frame is bytes, not {type(data).__name__}")
        raw = bytes(data)
        with suppress(struct.error, UnicodeDecodeError):
            found = cls._usual(raw)
            if found is not None:
                return found
        try:
            return cls(*wire.decode_flat(raw, _FIELDS))
        except WireError as error:
            raise WireError(f"link: these bytes are no frame: {error}") from None

    @classmethod
    def _usual(cls, raw: bytes) -> Frame | None:
        """Frame in the usual layout, parsed fast; None if `wire.decode_flat` must parse it."""
        *tags, length = _BEGIN.unpack_from(raw)
        at = _BEGIN.size + length
        run = raw[_BEGIN.size : at].decode()
        a, sender, b, receiver, c, named = _ENDS.unpack_from(raw, at)
        begin, at = at + _ENDS.size, at + _ENDS.size + named
        kind = raw[begin:at].decode()
        d, round, e, incarnation, f, to_incarnation, g, number, h, rest = _REST.unpack_from(raw, at)
        at += _REST.size
        if (*tags, a, b, c, d, e, f, g, h) != _TAGS or length < 0 or named < 0:
            return None
        if rest != len(raw) - at:
            return None
        ends = run, sender, receiver, kind, round, incarnation, to_incarnation
        return cls(*ends, number, raw[at:])


@dataclass
class _Link:
    """Link to one peer: its newest known incarnation, and frame numbers in both directions."""

    epoch: int = -1
    sent: int = 0
    expected: int = 0
    early: dict[int, Message] = field(default_factory=dict)  # ahead of a missing one


class Links:
    """All links of one incarnation of a party.

    Parameters
    ----------
    run, index, epoch : str, int, int
        Name of the run, the party, and the number of its incarnation.
    peers : iterable of int
        The other parties.

    Attributes
    ----------
    modulus_of : callable
        Function from a kind to the modulus of field elements in such messages, or None.
    """

    modulus_of: Callable[[str], int | None]

    def __init__(
        self,
        run: str,
        index: int,
        epoch: int,
        peers: Iterable[int],
    ) -> None:
        self.run = run
        self.index = index
        self.epoch = epoch
        self.modulus_of = lambda kind: None
        self._links = {peer: _Link() for peer in peers if peer != index}

    def add_peers(self, epochs: Mapping[int, int]) -> None:
        """Register new incarnations; frames of unknown ones are refused."""
        for peer, epoch in epochs.items():
            if epoch > self.epoch_of(peer) and peer in self._links:
                self._links[peer] = _Link(epoch)

    def epoch_of(self, peer: int) -> int:
        """Newest incarnation of the party that is known; -1 if none is."""
        return self._links[peer].epoch if peer in self._links else -1

    def pack(self, receiver: int, kind: str, round: int, payload: bytes) -> bytes:
        """Bytes of the next frame to `receiver`, with a payload of a kind and round.

        ValueError when there is no such party.
        """
        link = self._links.get(receiver)
        if link is None:
            raise ValueError(f"send: {name_of(receiver)} does not exist")
        number, link.sent = link.sent, link.sent + 1
        return Frame(
            self.run, self.index, receiver, kind, round, self.epoch, link.epoch, number, payload
        ).encode()

    def unpack(self, data: Any, sender: int | None = None) -> list[Message]:
        """Messages that are next in order after a frame arrived; often one, or none.

        WireError for bytes that are no frame of this run for this party from one of the others.
        SealError for a frame that was received before.

        Parameters
        ----------
        data : bytes-like
            The frame.
        sender : int, optional
            Sender of the frame, if the carrier knows it.
        """
        frame = Frame.decode(data)
        if sender not in (None, frame.sender):
            raise WireError(f"link: {name_of(sender)} sent a frame of {name_of(frame.sender)}")
        if frame.run != self.run or frame.receiver != self.index:
            raise WireError(
                f"link: a frame of run {frame.run!r} for {name_of(frame.receiver)} came to "
                f"{name_of(self.index)} of run {self.run!r}"
            )
        link = self._links.get(frame.sender)
        if link is None:
            raise WireError(f"link: {name_of(frame.sender)} is no party of this run")
        if frame.incarnation > link.epoch:
            raise WireError(
                f"link: a frame of incarnation {frame.incarnation} of {name_of(frame.sender)} "
                f"came, and {link.epoch} is the newest that was introduced"
            )
        return self._take(link, frame)

    def _take(self, link: _Link, frame: Frame) -> list[Message]:
        if frame.incarnation < link.epoch or frame.to_incarnation < self.epoch:
            return []
        what = f"{frame.kind!r} of round {frame.round} from {name_of(frame.sender)}"
        if frame.to_incarnation > self.epoch:
            raise WireError(
                f"link: {what} is for incarnation {frame.to_incarnation}, and this is {self.epoch}"
            )
        if frame.number < link.expected or frame.number in link.early:
            raise SealError(f"link: {what} was rejected: it was received before")
        if len(link.early) >= _EARLY:
            raise WireError(
                f"link: {what}: {_EARLY} frames wait for number {link.expected} already"
            )
        payload = wire.decode(frame.body, self.modulus_of(frame.kind))
        link.early[frame.number] = Message(
            frame.sender, self.index, frame.kind, payload, frame.round, frame.incarnation,
            frame.number,
        )  # fmt: skip
        ready = []
        while link.expected in link.early:
            ready.append(link.early.pop(link.expected))
            link.expected += 1
        return ready
