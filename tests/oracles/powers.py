"""Powers of an outsider on the links between parties: reading payloads, and changing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, permutations
from types import SimpleNamespace
from typing import Any

from securevfl.engine import wire
from securevfl.engine.security.sealing import OVERHEAD, Sealer
from securevfl.errors import SealError

FRAMES = 4096  # each way, of a long talk
_HEAD = OVERHEAD // 3  # bytes of the counter; the tag has the others
_TAG = OVERHEAD - _HEAD
_LINKS = tuple(permutations(range(3), 2))
_PAYLOADS = (bytes(128), bytes(range(128)))  # two, so that both texts and their XOR are known
_Message = tuple[str, int, int]  # kind, round and epoch
_MESSAGE = ("model", 3, 10)
# Others that a careless binding takes for it: neighbours, numbers that are equal in their lowest
# bytes, and names and numbers that are equal once they are written one after the other.
_OTHER_MESSAGES = (
    ("mask", 3, 10), ("mode", 3, 10), ("model", 4, 10), ("model", 3, 11),
    *(("model", 3 + 2**bits, 10) for bits in (8, 16, 32)),
    *(("model", 3, 10 + 2**bits) for bits in (8, 16, 32)),
    ("model", 31, 0), ("model3", 1, 0), ("model", 10, 3),
)  # fmt: skip


def link_faults(sealer: type[Sealer]) -> list[str]:
    """All faults of links that the functions of this module find."""
    checks = (
        open_links,
        changed_frames,
        repeated_frames,
        readdressed_frames,
        streams_that_meet,
        restored_states,
    )
    return [fault for check in checks for fault in check(sealer)]


def _parties(
    sealer: type[Sealer], pairs: Sequence[Any], protocol: str = "links", run: str = "run"
) -> list[Sealer]:
    """Parties that know each other, with these key pairs."""
    ends = [sealer(protocol, run, index) for index in range(len(pairs))]
    for end, pair in zip(ends, pairs, strict=True):
        end._secret = pair or end._secret
    for end in ends:
        end.add_peers(_keys(ends))
    return ends


def _keys(ends: Sequence[Sealer]) -> dict[int, bytes]:
    return {end.index: end.public for end in ends}


def _new_pairs(count: int) -> list[Any]:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return [X25519PrivateKey.generate() for _ in range(count)]


def _said(end: Sealer, receiver: int, count: int, message: _Message = _MESSAGE) -> list[bytes]:
    """Frames of the payloads in turn."""
    return [end.seal(receiver, *message, _PAYLOADS[n % 2]) for n in range(count)]


def _opened(end: Sealer, sender: int, frame: bytes, message: _Message = _MESSAGE) -> bytes | None:
    """Payload, or None where the frame is refused."""
    try:
        return end.open(sender, *message, frame)
    except SealError:
        return None


def open_links(sealer: type[Sealer]) -> list[str]:
    """Faults of links: a payload that is found in the wire bytes, a flipped bit that is accepted.

    The entropy of the bytes shows neither, since shares are as random as ciphertexts.
    """
    from securevfl.field import PrimeField

    one, two = _parties(sealer, [None, None])
    payload = wire.encode(PrimeField(2**31 - 1).random(64))
    sent = one.seal(1, *_MESSAGE, payload)
    pieces = (payload[n : n + 16] for n in range(len(payload) - 15))
    faults = {"the payload is in the wire bytes"} if any(p in sent for p in pieces) else set()
    for place in range(len(sent)):
        changed = bytearray(sent)
        changed[place] ^= 1 << place % 8
        if _opened(two, 0, bytes(changed)) is not None:
            tag = place >= len(sent) - _TAG
            part = "counter" if place < _HEAD else "tag" if tag else "payload"
            faults.add(f"a flipped bit in the {part} is accepted")
    return sorted(faults)


def changed_frames(sealer: type[Sealer]) -> list[str]:
    """Faults of links: a frame that is accepted cut or lengthened, or made without a secret key."""
    pairs = _new_pairs(2)
    one, two = _parties(sealer, pairs)
    (sent,) = _said(one, 1, 1)
    faults = set()
    for changed in (*(sent[:end] for end in range(len(sent))), sent + b"\0", sent + sent[-_TAG:]):
        if _opened(two, 0, changed) is not None:
            faults.add("a frame that was cut or lengthened is accepted")
    # An outsider has the public keys, and no number that two secret keys agree on.
    guess: Any = SimpleNamespace(public_key=pairs[0].public_key, exchange=lambda _: bytes(32))
    outsider, _ = _parties(sealer, [guess, pairs[1]])
    if _opened(two, 0, _said(outsider, 1, 1)[0]) is not None:
        faults.add("a frame is accepted that was made from public keys")
    return sorted(faults)


def repeated_frames(sealer: type[Sealer]) -> list[str]:
    """Faults of links: a frame that is accepted twice, at once or after thousands of others."""
    one, two = ends = _parties(sealer, [None, None])
    faults = set()
    for sender, receiver in ((one, two), (two, one)):
        frames = _said(sender, receiver.index, FRAMES)
        for n, frame in enumerate(frames):
            if _opened(receiver, sender.index, frame) != _PAYLOADS[n % 2]:
                faults.add("a frame is refused, or opens to another payload")
            if n < 8 and _opened(receiver, sender.index, frame) is not None:
                faults.add("a frame is accepted twice")
        receiver.add_peers(_keys(ends))  # parties may be introduced again
        if any(_opened(receiver, sender.index, frame) is not None for frame in frames):
            faults.add("a frame is accepted twice")
    return sorted(faults)


def readdressed_frames(sealer: type[Sealer]) -> list[str]:
    """Faults of links: a frame that opens as another message, elsewhere, or as another party's.

    The keys of links and the associated data are tried alone too: each must tell parties apart.
    """
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    one_key = {"_derive": lambda *_: ChaCha20Poly1305(bytes(32))}
    none_bound = {"_bound": lambda *_: b""}
    (pair,), pairs = _new_pairs(1), _new_pairs(3)
    cases = (
        (sealer, pairs, _OTHER_MESSAGES, ""),
        # A party may announce the key of another.
        (sealer, [pair] * 3, _OTHER_MESSAGES, " where parties announce one key"),
        (type("_", (sealer,), one_key), pairs, _OTHER_MESSAGES, " by the associated data alone"),
        (type("_", (sealer,), none_bound), pairs, (), " by the key alone"),
    )
    found = {
        f"a frame is accepted {move}{where}"
        for made, keys, messages, where in cases
        for move in _moves(made, keys, messages)
    }
    return sorted(found)


def _moves(
    sealer: type[Sealer], pairs: Sequence[Any], messages: Sequence[_Message]
) -> Iterator[str]:
    """Ways in which a frame is accepted as what it is not."""
    ends = _parties(sealer, pairs)
    abroad = {
        "in another run": _parties(sealer, pairs, run="run 2"),
        "in another protocol": _parties(sealer, pairs, protocol="links 2"),
        "where names are as one text": _parties(sealer, pairs, "linksr", "un"),
    }
    for sender, receiver in _LINKS:
        (frame,) = _said(ends[sender], receiver, 1)
        for claimed, at in _LINKS:
            other = (claimed, at) != (sender, receiver)
            if other and _opened(ends[at], claimed, frame) is not None:
                yield "by its own sender" if at == sender else "on another link"
        for where, others in abroad.items():
            if _opened(others[receiver], sender, frame) is not None:
                yield where
        for message in messages:
            if _opened(ends[receiver], sender, frame, message) is not None:
                kind, round, epoch = message
                yield f"as {kind!r} of round {round}, epoch {epoch}"


def streams_that_meet(sealer: type[Sealer]) -> list[str]:
    """Faults of links: a keystream that is used twice, or a counter that does not ascend.

    Two texts under one keystream give away the XOR of their payloads. Frames of all links have
    equal kinds, rounds, epochs and counters, and equal payloads at these.
    """
    talks = _talks(sealer)
    faults, heard = [], set[bytes]()
    for where, frames in talks.items():
        pieces = [piece for n, frame in enumerate(frames) for piece in _keystream(n, frame)]
        if len(heard.union(pieces)) < len(heard) + len(pieces):
            faults.append(f"a keystream is used twice {where}")
        heard.update(pieces)
    heads = [int.from_bytes(frame[:_HEAD], "little") for frame in talks["in one direction"]]
    if any(late <= early for early, late in pairwise(heads)):
        faults.append("a counter does not ascend")
    return faults


def _talks(sealer: type[Sealer]) -> dict[str, list[bytes]]:
    """Frames of the payloads in turn; no two frames of any talk may share a keystream."""
    pairs = _new_pairs(3)
    one, two, _ = ends = _parties(sealer, pairs)
    third = _short(ends, [link for link in _LINKS if 2 in link])
    long = _said(one, 1, FRAMES)
    one.add_peers(_keys(ends))  # neither this, nor a third party's new key, nor another kind
    one.add_peers({2: sealer("links", "run", 2).public})  # or round begins a counter anew
    for message in (_MESSAGE, *_OTHER_MESSAGES):
        long += _said(one, 1, 2, message)
    long += [one.seal(1, *_MESSAGE, b"") for _ in range(2)]  # these use a nonce for their tags
    for bits in range(16, 64, 8):  # where a counter of so many bits would begin anew
        direction = one._direction(0, 1)
        direction.next = max(direction.next, 2**bits - 4)
        long += _said(one, 1, 8)
    renewed = _short(_parties(sealer, [pairs[0], *_new_pairs(2)]))
    return {
        "in one direction": long,
        "in both directions": _said(two, 0, FRAMES),
        "with a third party": third,
        "under a new key": _said(one, 2, 8) + renewed,
        "in another run": _short(_parties(sealer, pairs, run="run 2")),
        "in another protocol": _short(_parties(sealer, pairs, protocol="links 2")),
    }


def _short(ends: Sequence[Sealer], links: Sequence[tuple[int, int]] = _LINKS) -> list[bytes]:
    """Some frames of each link."""
    return [frame for sender, receiver in links for frame in _said(ends[sender], receiver, 8)]


def _keystream(n: int, frame: bytes) -> list[bytes]:
    """Keystream that was added to the n-th payload, in pieces of 16 bytes."""
    text = frame[_HEAD:-_TAG]
    added = int.from_bytes(text) ^ int.from_bytes(_PAYLOADS[n % 2][: len(text)])
    stream = added.to_bytes(len(text))
    return [stream[place : place + 16] for place in range(0, len(stream), 16)]


def restored_states(sealer: type[Sealer]) -> list[str]:
    """Faults of links over states: a second use of a nonce, a second opening of a frame.

    The counters after those of a state may have been used, by its sealer or by another copy of it.
    """
    one, two = ends = _parties(sealer, [None, None])
    first = one.state()
    early = _said(one, 1, 2)
    _opened(two, 0, early[0])
    later = one.state()
    senders = [_copy(sealer, 0, state, ends) for state in (first, later, later)]
    receiver = _copy(sealer, 1, two.state(), ends)
    faults = set()
    heard = {*_keystream(0, early[0]), *_keystream(1, early[1])}
    for sealing in (one, *senders):
        pieces: set[bytes] = set()
        with suppress(SealError):
            for _ in range(8):
                (frame,) = _said(sealing, 1, 1)
                pieces.update(_keystream(0, frame))
                if sealing is not one and _opened(two, 0, frame) is not None:
                    faults.add("a restored state seals under a key that was used")
        if heard & pieces:
            faults.add("a restored state seals under a key that was used")
        heard |= pieces
    if _opened(receiver, 0, early[0]) is not None:
        faults.add("what was opened before a state is accepted after it")
    if _opened(receiver, 0, early[1]) != _PAYLOADS[1]:
        faults.add("what was under way at a state is refused after it")
    return sorted(faults)


def _copy(
    sealer: type[Sealer], index: int, state: Mapping[str, Any], ends: Sequence[Sealer]
) -> Sealer:
    """Party that is restored from a state, as a checkpoint holds it."""
    copy = sealer("links", "run", index)
    copy.restore(wire.decode(wire.encode(state)))
    copy.add_peers(_keys(ends))
    return copy
