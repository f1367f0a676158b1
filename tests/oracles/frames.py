"""Frames as the documents of sealed links say they are, by lines of the audit's own.

What the library seals is held against these bytes, at payloads of all sizes and of each kind: one
sealed under another key or nonce, or not at all, is another frame. Nothing here calls the library's
functions for keys, nonces, associated data or encoding; X25519 and ChaCha20-Poly1305 are those of
the package `cryptography`.
"""

from __future__ import annotations

import hmac
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from securevfl.engine.carriers.handshake import Credentials
from securevfl.engine.carriers.session import Session
from securevfl.engine.security.frames import Links
from securevfl.engine.security.identity import Identity, verifies
from securevfl.engine.security.sealing import Sealer, Sealing
from securevfl.errors import SealError

_HEAD, _TAG = 8, 16  # bytes of the counter and of the tag
_FORM = "securevfl link 1"
_RUN = "run"
#: Lengths of payloads: those at which a rule for small or large ones is likely to begin.
LENGTHS = tuple(sorted({2**k + d for k in range(21) for d in (-1, 0, 1)}))
_COUNTERS = (2**8 - 1, 2**16 - 1, 2**32 - 1, 2**48 - 1, 2**63 - 2)  # each, and the next
_SEEN = 16  # bytes of a payload that are found in a frame by chance with probability below 2^-100


def written(values: Sequence[str | int | bytes]) -> bytes:
    """A tuple as `securevfl.engine.wire` documents it: tags, lengths of 8 bytes, values."""
    parts = [b"t" + struct.pack("<q", len(values))]
    for value in values:
        if isinstance(value, int):
            parts.append(b"i" + struct.pack("<q", value))
            continue
        raw = value.encode() if isinstance(value, str) else value
        tag = b"s" if isinstance(value, str) else b"b"
        parts.append(tag + struct.pack("<q", len(raw)) + raw)
    return b"".join(parts)


@dataclass(frozen=True)
class DocumentedLink:
    """One direction of a sealed link.

    Attributes
    ----------
    protocol, run : str
    sender, receiver : int
    key : bytes
        Of ChaCha20-Poly1305, 32 bytes.
    """

    protocol: str
    run: str
    sender: int
    receiver: int
    key: bytes

    @classmethod
    def between(cls, sender: Sealer, receiver: Sealer) -> DocumentedLink:
        """The direction from one party to another, by the private key of the sender.

        HKDF-SHA256 without salt, of the agreed number, with purpose, protocol, run, sender and
        receiver as `wire` has them, then both public keys in that order.
        """
        own, theirs = public_of(sender), public_of(receiver)
        agreed = secret_of(sender).exchange(_public_key(theirs))
        names = (_FORM, sender.protocol, sender.run, sender.index, receiver.index)
        extracted = hmac.digest(bytes(32), agreed, "sha256")
        key = hmac.digest(extracted, written(names) + own + theirs + b"\1", "sha256")
        return cls(sender.protocol, sender.run, sender.index, receiver.index, key)

    def seal(self, counter: int, kind: str, round: int, epoch: int, payload: bytes) -> bytes:
        """Counter and ciphertext of a payload; the nonce is four zero bytes and the counter."""
        head = struct.pack("<Q", counter)
        bound = self._bound(kind, round, epoch)
        body: bytes = self._cipher().encrypt(bytes(4) + head, payload, bound)
        return head + body

    def open(self, kind: str, round: int, epoch: int, sealed: bytes) -> bytes | None:
        """Payload of a frame, or None where it is none of this link."""
        from cryptography.exceptions import InvalidTag

        if len(sealed) < _HEAD + _TAG:
            return None
        try:
            nonce, bound = bytes(4) + sealed[:_HEAD], self._bound(kind, round, epoch)
            payload: bytes = self._cipher().decrypt(nonce, sealed[_HEAD:], bound)
        except InvalidTag:
            return None
        return payload

    def _cipher(self) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        return ChaCha20Poly1305(self.key)

    def _bound(self, kind: str, round: int, epoch: int) -> bytes:
        ends = (self.sender, self.receiver)
        return written((self.protocol, self.run, round, kind, *ends, epoch))


def secret_of(sealer: Sealer) -> Any:
    """The private key that a sealer uses."""
    return sealer._secret


def public_of(sealer: Sealer) -> bytes:
    """The public key of that private key."""
    public: bytes = secret_of(sealer).public_key().public_bytes_raw()
    return public


def _public_key(raw: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return X25519PublicKey.from_public_bytes(raw)


# -- Frames of a sealer --------------------------------------------------------------------------


def sealed_otherwise(sealer: type[Sealer], protocol: str, kinds: Sequence[str]) -> list[str]:
    """Faults of a sealer: frames that are not as documented, or do not open to their payload.

    Parameters
    ----------
    sealer : type of Sealer
    protocol : str
        Name of the protocol whose links they are.
    kinds : sequence of str
        Those that it declares; each is tried at all lengths.
    """
    ends = _introduced(sealer, protocol)
    text, faults = os.urandom(max(LENGTHS)), dict[str, None]()
    counters = dict.fromkeys(_LINKS, 0)
    for kind in kinds:
        for place, length in enumerate(LENGTHS):
            # Neighbours of a power of two go to the server, from it, and between clients.
            link, message = _LINKS[place % len(_LINKS)], (kind, place % 11, place % 3)
            faults |= _compared(ends, link, counters[link], message, text[:length])
            counters[link] += 1
    ends, (one, two) = _introduced(sealer, protocol), _LINKS[0]  # no counter came there yet
    for counter in _COUNTERS:
        direction = ends[one]._direction(one, two)
        direction.next = max(direction.next, counter)
        for number in (counter, counter + 1):
            faults |= _compared(ends, (one, two), number, (kinds[0], 3, 1), text[:100])
    return list(faults)


_LINKS = ((0, -1), (-1, 0), (0, 1))


def _introduced(sealer: type[Sealer], protocol: str) -> dict[int, Sealer]:
    ends = {index: sealer(protocol, _RUN, index) for index in (-1, 0, 1)}
    for end in ends.values():
        end.add_peers({index: public_of(other) for index, other in ends.items()})
    return ends


def _compared(
    ends: dict[int, Sealer],
    link: tuple[int, int],
    counter: int,
    message: tuple[str, int, int],
    payload: bytes,
) -> dict[str, None]:
    """Faults of one frame, in words."""
    sender, receiver = (ends[index] for index in link)
    frame = sender.seal(receiver.index, *message, payload)
    what = f"{len(payload)} bytes of {message[0]!r}"
    if frame != DocumentedLink.between(sender, receiver).seal(counter, *message, payload):
        seen = len(payload) >= _SEEN and payload[:_SEEN] in frame
        other = "they are in the frame" if seen else "it is of another key, nonce or form"
        return {f"the frame of {what} is not as documented: {other}": None}
    if receiver.open(sender.index, *message, frame) != payload:
        return {f"the frame of {what} opens to another payload": None}
    return {}


# -- Private keys --------------------------------------------------------------------------------


@contextmanager
def fresh_secrets() -> Iterator[set[bytes]]:
    """Private keys, and 32 bytes that could be one, which the operating system gave meanwhile."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    given, urandom = set[bytes](), os.urandom
    before = {kind: vars(kind)["generate"] for kind in (X25519PrivateKey, Ed25519PrivateKey)}

    def generating(cls: Any) -> Any:
        made = before[cls].__get__(None, cls)()
        given.add(made.private_bytes_raw())
        return made

    def drawing(count: int, /) -> bytes:
        drawn = urandom(count)
        if count == 32:
            given.add(drawn)
        return drawn

    for kind in before:
        kind.generate = classmethod(generating)  # type: ignore[attr-defined]
    os.urandom = drawing
    try:
        yield given
    finally:
        os.urandom = urandom
        for kind, generate in before.items():
            kind.generate = generate  # type: ignore[attr-defined]


def keys_not_fresh(sealer: type[Sealer]) -> list[str]:
    """Faults of a sealer: a private key that is not 32 bytes of the operating system, or not new.

    An outsider who knows how few others there are tries them all.
    """
    with fresh_secrets() as given:
        made = [sealer("links", _RUN, index % 2) for index in range(4)]
        secrets = [secret_of(one).private_bytes_raw() for one in made]
    faults = []
    if not given.issuperset(secrets):
        faults.append("a private key is not of 32 fresh bytes of the operating system")
    if len(set(secrets)) < len(secrets):
        faults.append("two parties or incarnations have one private key")
    return faults


def restored_simulations(sealing: type[Sealing]) -> list[str]:
    """Faults of the links of a simulation: a restored one that seals under keys that were used.

    The counters after those of a checkpoint may have been used by the run that was broken off.
    """
    parties = dict.fromkeys((-1, 0, 1))
    message, used = ("model", 3, 1), set[bytes]()
    one, faults = sealing("links", _RUN, parties), dict[str, None]()
    for _ in range(2):  # the second restoration is of a restored simulation
        early, state = one.seal(0, -1, *message, b"early"), one.state()
        used |= _secrets(one)
        with fresh_secrets() as given:
            one = sealing("links", _RUN, parties)
            one.restore(state)
        secrets = _secrets(one)
        if secrets & used or len(secrets) < len(parties):
            faults["a restored simulation seals under a key that was used"] = None
        if not given >= secrets - used:
            faults["a restored simulation has a private key that is not of 32 fresh bytes"] = None
        link = DocumentedLink.between(one._sealers[0], one._sealers[-1])
        if one.seal(0, -1, *message, b"later") != link.seal(0, *message, b"later"):
            faults["a restored simulation goes on with counters or keys of its checkpoint"] = None
        with suppress(SealError):
            if one.open(0, -1, *message, early) == b"early":
                continue
        faults["what was under way at a checkpoint is refused, or opens to another payload"] = None
    return list(faults)


def _secrets(sealing: Sealing) -> set[bytes]:
    return {secret_of(end).private_bytes_raw() for end in sealing._sealers.values()}


# -- Frames between processes --------------------------------------------------------------------


def packed_otherwise(protocol: str, kinds: Sequence[str], session: type[Session]) -> list[str]:
    """Faults of links between processes: frames that are not as documented, or leave unsealed.

    Parameters
    ----------
    protocol : str
    kinds : sequence of str
        One of them, in turn, at each length.
    session : type of Session
        Seals the frames.
    """
    faults = list(_packed_otherwise(protocol, kinds, session, 5, 2, LENGTHS))
    for place, epoch in enumerate(_EPOCHS):  # parties come back any number of times
        round = _ROUNDS[place % len(_ROUNDS)]
        faults += _packed_otherwise(protocol, kinds, session, round, epoch, LENGTHS[:2])
    return faults


def _packed_otherwise(
    protocol: str,
    kinds: Sequence[str],
    session: type[Session],
    round: int,
    epoch: int,
    lengths: Sequence[int],
) -> list[str]:
    """The same in one round, between parties in one incarnation."""
    made = {index: Links(_RUN, index, epoch, (-1, 0)) for index in (-1, 0)}
    arrived: dict[int, list[bytes]] = {-1: [], 0: []}
    ends = introduced_sessions(session, protocol, epoch, arrived)
    for one in made.values():
        one.add_peers({-1: epoch, 0: epoch})
    text, faults = os.urandom(max(lengths)), dict[str, None]()
    numbers, where = dict.fromkeys(_PAIR, 0), f", in round {round} of incarnation {epoch}"
    for place, length in enumerate(lengths):
        kind, link = kinds[place % len(kinds)], _PAIR[place % 2]
        # `unpack` decodes what it opens, so the payload is the encoding of so many bytes.
        payload, (sender, receiver) = b"b" + struct.pack("<q", length) + text[:length], link
        head = (_RUN, sender, receiver, kind, round, epoch, epoch, numbers[link])
        numbers[link] += 1
        frame = made[sender].pack(receiver, kind, round, payload)
        what = f"{len(payload)} bytes of {kind!r} between processes"
        if frame != written((*head, payload)):
            faults[f"the frame of {what} is not as documented{where}"] = None
            continue
        ends[sender].send(receiver, frame)
        datagrams = moved(ends)
        if length >= _SEEN and any(text[:_SEEN] in one for one in datagrams):
            faults[f"the payload of {what} is in a datagram{where}"] = None
        if arrived[receiver] != [frame]:
            faults[f"the frame of {what} does not arrive, or arrives changed{where}"] = None
        elif [one.payload for one in made[receiver].unpack(frame)] != [text[:length]]:
            faults[f"the frame of {what} opens to another payload"] = None
        arrived[receiver].clear()
    return list(faults)


def introduced_sessions(
    session: type[Session], protocol: str, epoch: int, arrived: Mapping[int, list[bytes]]
) -> dict[int, Session]:
    """Sessions of two parties that know each other, without manifest and carrier."""
    identities = {n: Identity.temporary() for n in arrived}

    def has_signed(party: int, signature: bytes, statement: bytes) -> bool:
        return verifies(identities[party].public, signature, statement)

    ends = {
        n: session(
            n, arrived, epoch,
            Credentials(written((protocol, _RUN)), identities[n].sign, has_signed),
            deliver=lambda frame, sender, n=n: arrived[n].append(frame),  # type: ignore[misc]
            introduce=lambda peer, epoch: None, told=True,
        )
        for n in arrived
    }  # fmt: skip
    for n, end in ends.items():
        end.expect(-1 - n, epoch)
    moved(ends)
    return ends


def moved(ends: Mapping[int, Session]) -> list[bytes]:
    """Bring all datagrams that are due, until none is; what was brought."""
    brought, now = [], 1.0
    for _ in range(8):
        for one in ends.values():
            for receiver, data in one.due(now):
                brought.append(data)
                ends[receiver].take(data, now)
        now += 0.03
    return brought


def unverified_hellos(session: type[Session]) -> list[str]:
    """Introductions that are believed though no identity has signed them, in words.

    Whoever carries frames could introduce an incarnation of a party, with a key of its own.
    """
    believed = dict[str, None]()
    for epoch in _EPOCHS:
        arrived: dict[int, list[bytes]] = {-1: [], 0: []}
        known = introduced_sessions(session, "links", 0, arrived)[0]
        stranger = introduced_sessions(session, "links", epoch, arrived)[-1]
        if epoch:  # as one that comes back after an incarnation that was known
            known.expect(-1, epoch)
        before = known._links[-1].handshake.theirs
        stranger.expect(0, 99)  # it begins anew, and says so
        for _, data in stranger.due(9.0):
            known.take(data, 9.0)
        if known._links[-1].handshake.theirs != before:
            believed[f"incarnation {epoch} of a party is believed unsigned"] = None
    return list(believed)


_PAIR = ((0, -1), (-1, 0))
_EPOCHS = (0, 1, 3, 4, 8, 17, 64, 257)
_ROUNDS = (1, 12, 300, 70_000)
