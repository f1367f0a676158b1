"""Sealed links: every payload between two parties is encrypted and authenticated end to end.

Each ordered pair of parties has its own key: X25519 of their key pairs, through HKDF-SHA256 with
the run and both numbers as context. A payload is sealed with ChaCha20-Poly1305; the nonce is a
counter that never repeats under a key. Associated data bind protocol, run, kind, round, epoch,
sender and receiver. A relay or eavesdropper still sees the envelope: sender, receiver, kind, round,
size and time.

A restored simulation begins with new keys: those of its checkpoint only decrypt messages that were
in flight.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from securevfl.engine import wire
from securevfl.engine.network import Message, name_of
from securevfl.errors import SealError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

_COUNTER = 8
_TAG = 16
OVERHEAD = _COUNTER + _TAG
_PADDING = bytes(12 - _COUNTER)  # of the counter to a nonce
_NUMBER, _NUMBERS = struct.Struct("<cq"), struct.Struct("<cqcq")  # integers as `wire` writes them


def _invalid_tag() -> type[Exception]:
    """Exception for a wrong authentication tag, imported on demand."""
    from cryptography.exceptions import InvalidTag

    return InvalidTag


@functools.lru_cache(maxsize=1024)
def _written(text: str) -> bytes:
    """A text in the encoding of `wire`."""
    return wire.encode(text)


class _Direction:
    """One direction of a link, for one incarnation of each end.

    Attributes
    ----------
    cipher : ChaCha20Poly1305
        Cipher; None until needed.
    next : int
        Counter of the next message to send, or of the first missing one to receive.
    ahead : set of int
        Counters received beyond a gap.
    """

    __slots__ = ("ahead", "cipher", "next")

    def __init__(self) -> None:
        self.cipher: Any = None
        self.next = 0
        self.ahead: set[int] = set()

    def remember(self, counter: int) -> None:
        """Record a used counter; gaps stay open, since messages may overtake each other."""
        if not self.ahead and counter == self.next:  # as it is where nothing overtakes
            self.next += 1
            return
        self.ahead.add(counter)
        while self.next in self.ahead:
            self.ahead.remove(self.next)
            self.next += 1


class Sealer:
    """The encryption of one party's links.

    Parameters
    ----------
    protocol, run : str
        Names bound into every message.
    index : int
        Number of the party.

    Notes
    -----
    `add_peers` must have been called with the other parties' public keys, obtained over an
    authentic channel: an attacker who can replace a public key can read and change that link.
    """

    def __init__(self, protocol: str, run: str, index: int) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.protocol = protocol
        self.run = run
        self.index = index
        self._secret = X25519PrivateKey.generate()  # the party's key pair
        self._public: dict[int, bytes] = {}
        self._outward: dict[int, _Direction] = {}  # by receiver
        self._inward: dict[int, _Direction] = {}  # by sender
        self._agreed: dict[bytes, bytes] = {}  # X25519 by key, where one direction has used it
        self._restored = False
        # Head of the associated data: those of a tuple of seven values, of which two never change.
        self._bound_head = wire.encode((protocol, run, *[None] * 5))[:-5]
        # What is around the two ends in those of the last message.
        self._bound_last: tuple[tuple[str, int, int] | None, bytes, bytes] = (None, b"", b"")

    @functools.cached_property
    def public(self) -> bytes:
        """The party's public key, 32 bytes."""
        return self._secret.public_key().public_bytes_raw()

    def add_peers(self, keys: Mapping[int, bytes]) -> None:
        """Register the other parties' public keys."""
        self._public.update((peer, bytes(key)) for peer, key in keys.items() if peer != self.index)
        for direction in (*self._outward.values(), *self._inward.values()):
            direction.cipher = None
        self._agreed = {}

    def seal(self, receiver: int, kind: str, round: int, epoch: int, payload: bytes) -> bytes:
        """Counter and ciphertext of a payload, `OVERHEAD` bytes longer than the payload.

        SealError after `restore`: the counters after the checkpoint may have been used.
        """
        return next(self.seal_each((receiver,), kind, round, epoch, (payload,)))

    def seal_each(
        self, receivers: Iterable[int], kind: str, round: int, epoch: int, payloads: Iterable[bytes]
    ) -> Iterator[bytes]:
        """Encrypt a payload for each of several receivers, in order; see `seal`."""
        if self._restored:
            raise SealError(
                f"sealed link: {name_of(self.index)} has the keys of a checkpoint, which may have "
                "sealed more messages since; they only open messages. Seal with a new key"
            )
        index = self.index
        for receiver, payload in zip(receivers, payloads, strict=True):
            direction = self._direction(index, receiver)
            # A nonce that occurs twice under one key gives away the XOR of two payloads and lets
            # tags be forged. The counter makes it unique: a key seals in one direction, of one
            # incarnation.
            head = direction.next.to_bytes(_COUNTER, "little")
            direction.next += 1
            data = self._bound(index, receiver, kind, round, epoch)
            body: bytes = direction.cipher.encrypt(_PADDING + head, payload, data)
            yield head + body

    def open(self, sender: int, kind: str, round: int, epoch: int, sealed: bytes) -> bytes:
        """Payload of a sealed message.

        SealError naming the message, when it is too short, was changed, belongs to another sender,
        kind, round, epoch or run, or was received before.
        """
        if len(sealed) < OVERHEAD:
            raise _rejected(
                *(sender, kind, round, epoch),
                f"{len(sealed)} bytes are fewer than the {OVERHEAD} of an empty message",
            )
        head = bytes(sealed[:_COUNTER])
        counter = int.from_bytes(head, "little")
        direction = self._direction(sender, self.index)
        if counter < direction.next or counter in direction.ahead:
            raise _rejected(sender, kind, round, epoch, "it was received before (a replay)")
        data = self._bound(sender, self.index, kind, round, epoch)
        try:
            payload: bytes = direction.cipher.decrypt(
                _PADDING + head, bytes(sealed[_COUNTER:]), data
            )
        except _invalid_tag():
            raise _rejected(
                *(sender, kind, round, epoch),
                "it was changed or cut short, or belongs to another sender, receiver, kind, "
                "round, epoch or run",
            ) from None
        direction.remember(counter)
        return payload

    def _direction(self, sender: int, receiver: int) -> _Direction:
        """One direction of a link of this party, with its cipher."""
        outward = sender == self.index
        peer, known = (receiver, self._outward) if outward else (sender, self._inward)
        direction = known.get(peer)
        if direction is None or direction.cipher is None:
            cipher = self._derive(sender, receiver)  # or an error, for a peer that is not known
            direction = known.setdefault(peer, _Direction())
            direction.cipher = cipher
        return direction

    def _derive(self, sender: int, receiver: int) -> ChaCha20Poly1305:
        """Cipher from `sender` to `receiver`, one of them this party; SealError without a key."""
        other = receiver if sender == self.index else sender
        if other not in self._public:
            raise SealError(
                f"sealed link: {name_of(self.index)} has no public key of {name_of(other)}"
            )
        theirs = self._public[other]
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        shared = self._agreed.pop(theirs, None)
        if shared is None:  # the other direction will take it
            shared = self._secret.exchange(X25519PublicKey.from_public_bytes(theirs))
            self._agreed[theirs] = shared
        own = self.public
        # Both keys, in the order of the direction: the two directions have different cipher keys,
        # and each is bound to whom it was agreed with, as plain X25519 is not.
        keys = own + theirs if sender == self.index else theirs + own
        info = wire.encode(("securevfl link 1", self.protocol, self.run, sender, receiver)) + keys
        return ChaCha20Poly1305(HKDF(SHA256(), length=32, salt=None, info=info).derive(shared))

    def _bound(self, sender: int, receiver: int, kind: str, round: int, epoch: int) -> bytes:
        """Associated data: `wire` bytes of (protocol, run, round, kind, sender, receiver, epoch).

        They are joined from cached pieces, because each message needs them twice, and most messages
        have the kind, round and epoch of the one before.
        """
        known, front, back = self._bound_last
        of = kind, round, epoch
        if of != known:
            front = self._bound_head + _NUMBER.pack(b"i", round) + _written(kind)
            back = _NUMBER.pack(b"i", epoch)
            self._bound_last = of, front, back
        return front + _NUMBERS.pack(b"i", sender, b"i", receiver) + back

    def state(self) -> dict[str, object]:
        """Key pair and counters, for a simulation's checkpoint (mode 0600) only."""
        return {
            "secret": self._secret.private_bytes_raw(),
            "sent": {n: one.next for n, one in self._outward.items()},
            "floor": {n: one.next for n, one in self._inward.items()},
            "seen": {n: sorted(one.ahead) for n, one in self._inward.items() if one.ahead},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore keys from a state, to decrypt earlier messages; call `add_peers` next."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._secret = X25519PrivateKey.from_private_bytes(state["secret"])
        self.__dict__.pop("public", None)  # that of the key before
        self._outward = {n: _Direction() for n in state["sent"]}
        self._inward = {n: _Direction() for n in {**state["floor"], **state["seen"]}}
        for n, direction in self._outward.items():
            direction.next = state["sent"][n]
        for n, direction in self._inward.items():
            direction.next = state["floor"].get(n, 0)
            direction.ahead = set(state["seen"].get(n, ()))
        self._agreed = {}
        self._restored = True


def _rejected(sender: int, kind: str, round: int, epoch: int, why: str) -> SealError:
    what = f"{kind!r} of round {round} (epoch {epoch}) from {name_of(sender)}"
    return SealError(f"sealed link: {what} was rejected: {why}")


class Sealing:
    """Encrypted links of all parties of a simulation.

    A restoration begins a new *incarnation*, with new keys of all parties. Earlier keys decrypt
    messages that were in flight in the checkpoint.

    Parameters
    ----------
    protocol, run : str
        Names bound into every message.
    parties : iterable of int
        Numbers of the parties; each gets its own key pair.
    """

    def __init__(self, protocol: str, run: str, parties: Mapping[int, object]) -> None:
        self._protocol, self._run, self._parties = protocol, run, tuple(parties)
        self._sealers = _introduced(self._new())
        self._earlier: list[dict[int, Sealer]] = []  # of earlier incarnations, the newest first

    def _new(self) -> dict[int, Sealer]:
        """Sealers with new keys, which do not know each other yet."""
        return {index: Sealer(self._protocol, self._run, index) for index in self._parties}

    def seal(
        self, sender: int, receiver: int, kind: str, round: int, epoch: int, payload: bytes
    ) -> bytes:
        """Encrypted bytes that `sender` puts on the wire."""
        return self._sealers[sender].seal(receiver, kind, round, epoch, payload)

    def seal_each(
        self,
        sender: int,
        receivers: Iterable[int],
        kind: str,
        round: int,
        epoch: int,
        payloads: Iterable[bytes],
    ) -> Iterator[bytes]:
        """Encrypt a payload for each of several receivers, in order; see `seal`."""
        return self._sealers[sender].seal_each(receivers, kind, round, epoch, payloads)

    def open(
        self, sender: int, receiver: int, kind: str, round: int, epoch: int, sealed: bytes
    ) -> bytes:
        """Payload decrypted by `receiver`, from its present or an earlier incarnation.

        SealError if the message was changed, misdirected, replayed, or sealed with other keys.
        """
        try:
            return self._sealers[receiver].open(sender, kind, round, epoch, sealed)
        except SealError:
            for sealers in self._earlier:
                with suppress(SealError):
                    return sealers[receiver].open(sender, kind, round, epoch, sealed)
            raise

    def open_each(self, messages: Iterable[Message]) -> list[bytes]:
        """Decrypt several messages in order; errors and arguments of each as of `open`."""
        return [
            self.open(sender, receiver, kind, round, epoch, sealed)
            for sender, receiver, kind, sealed, round, epoch, _ in messages
        ]

    def state(self) -> dict[str, object]:
        """Content for a simulation's checkpoint."""
        incarnations = [self._sealers, *self._earlier]
        return {
            "lives": [
                {index: one.state() for index, one in sealers.items()} for sealers in incarnations
            ],
        }

    def restore(self, state: Mapping[Any, Any]) -> None:
        """Begin a new incarnation; the stored state's incarnations become earlier ones."""
        self._sealers, self._earlier = _introduced(self._new()), []
        for saved in state["lives"]:
            sealers = self._new()
            for index, sealer in sealers.items():
                sealer.restore(saved[index])
            self._earlier.append(_introduced(sealers))


def _introduced(sealers: dict[int, Sealer]) -> dict[int, Sealer]:
    """The given sealers, after each has been told the others' public keys."""
    keys = {index: sealer.public for index, sealer in sealers.items()}
    for sealer in sealers.values():
        sealer.add_peers(keys)
    return sealers
