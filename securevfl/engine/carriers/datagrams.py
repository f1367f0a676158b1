"""Datagrams of a carrier: their bytes, encryption and padding.

A frame is the bytes of one message between parties (`securevfl.engine.security.frames`). A datagram
has an unencrypted head and an encrypted content. The head has sender, receiver, their incarnations
(starts of each party) and the datagram's number. The content has a piece of a frame, and
acknowledges received datagrams. So a message's kind, round and payload are encrypted.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from securevfl.engine import wire
from securevfl.engine.carriers.base import LARGEST_DATAGRAM
from securevfl.engine.carriers.handshake import Answer, Offer
from securevfl.errors import SealError, WireError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

HELLO, DATA, ACK = 0, 1, 2
FIRST, LAST, GONE = 1, 2, 4  # flags: first and last piece of a frame; the link was given up
_VERSION = 2
_HEAD = struct.Struct("<BBiiqqQ")
_CONTENT = struct.Struct("<QQQIB")
_HELLO = struct.Struct("<H")
_TAG = 16
_SMALLEST = 256  # bytes of a padded datagram; an acknowledgement fits into it
_HELLO_BYTES = 4096  # of an introduction, with an answer or without
LARGEST_PIECE = LARGEST_DATAGRAM - _HEAD.size - _CONTENT.size - _TAG
_HELLO_FIELDS = (int, int, bytes, bytes, bytes, bytes, bytes, bytes)


class Head(NamedTuple):
    """Unencrypted header of a datagram.

    Attributes
    ----------
    type : int
        `HELLO`, `DATA` or `ACK`.
    incarnation, to_incarnation : int
        Epochs of the sender and of the intended receiver.
    number : int
        Its index among the datagrams of its type on this link.
    """

    type: int
    sender: int
    receiver: int
    incarnation: int
    to_incarnation: int
    number: int

    def encode(self) -> bytes:
        """Bytes of the head."""
        return _HEAD.pack(_VERSION, *self)


class Content(NamedTuple):
    """Encrypted content of a datagram.

    Attributes
    ----------
    expected : int
        Acknowledgement: number of the first datagram that the sender has not received.
    later : int
        Acknowledgement: bit i is set if the sender has received datagram ``expected + 1 + i``.
    total : int
        Length of the whole frame in bytes, in its first piece; 0 in others.
    flags : int
        Sum of `FIRST` and `LAST` (piece of a frame), and `GONE` (the sender gave up the link).
    piece : bytes
        Piece of a frame; empty in a datagram that only acknowledges.
    """

    expected: int
    later: int
    total: int = 0
    flags: int = 0
    piece: bytes = b""


def seal(cipher: ChaCha20Poly1305, head: Head, content: Content, *, padded: bool) -> bytes:
    """Encrypted bytes of a datagram; a head must not be reused under one key.

    Type and number make the nonce; the cipher is that of the number in its
    `securevfl.engine.carriers.handshake.Chain`. With `padded` the length is a power of two.
    """
    expected, later, total, flags, piece = content
    plain = _CONTENT.pack(expected, later, total, len(piece), flags) + piece
    if padded:
        plain += bytes(_padded(len(plain) + _HEAD.size + _TAG) - len(plain) - _HEAD.size - _TAG)
    data = head.encode()
    return data + cipher.encrypt(_nonce(head), plain, data)


def open_sealed(cipher: ChaCha20Poly1305, head: Head, data: bytes) -> Content:
    """Decrypt a datagram made by `seal`.

    SealError if the bytes were changed or forged.
    """
    from cryptography.exceptions import InvalidTag

    try:
        plain = cipher.decrypt(_nonce(head), data[_HEAD.size :], data[: _HEAD.size])
    except InvalidTag:
        raise SealError("datagram: it was changed or forged") from None
    if len(plain) < _CONTENT.size:
        raise SealError("datagram: its content is cut short")
    expected, later, total, length, flags = _CONTENT.unpack_from(plain)
    if length > len(plain) - _CONTENT.size:
        raise SealError("datagram: its piece is cut short")
    return Content(expected, later, total, flags, plain[_CONTENT.size : _CONTENT.size + length])


def read_head(data: bytes) -> Head:
    """Head of a datagram.

    WireError for more or fewer bytes than a datagram has, another version, or an unknown type.
    """
    if not _HEAD.size + _HELLO.size <= len(data) <= LARGEST_DATAGRAM:
        raise WireError(f"datagram: {len(data)} bytes are none")
    version, *fields = _HEAD.unpack_from(data)
    if version != _VERSION or fields[0] not in (HELLO, DATA, ACK):
        raise WireError(f"datagram: version {version}, type {fields[0]} is not known")
    return Head(*fields)


def encode_hello(sender: int, receiver: int, offer: Offer, answer: Answer) -> bytes:
    """Introduction: the datagram of a handshake offer and answer, signed but not encrypted."""
    body = wire.encode((*offer, *answer))
    head = Head(HELLO, sender, receiver, offer.epoch, -1, 0)
    return (head.encode() + _HELLO.pack(len(body)) + body).ljust(_HELLO_BYTES, b"\0")


def decode_hello(data: bytes) -> tuple[Offer, Answer]:
    """Offer and answer from the bytes of `encode_hello`; their signatures are not checked.

    WireError for malformed bytes.
    """
    (length,) = _HELLO.unpack_from(data, _HEAD.size)
    at = _HEAD.size + _HELLO.size
    if len(data) != _HELLO_BYTES or at + length > len(data) or any(data[at + length :]):
        raise WireError(f"datagram: an introduction of {length} bytes in {len(data)}")
    values = wire.decode_flat(data[at : at + length], _HELLO_FIELDS)
    return Offer(*values[:5]), Answer(*values[5:])


def _padded(length: int) -> int:
    """Smallest permitted power of two of at least `length`."""
    return max(_SMALLEST, 1 << (length - 1).bit_length())


def _nonce(head: Head) -> bytes:
    return struct.pack("<IQ", head.type, head.number)
