"""Powers of an outsider on the links between parties: reading payloads, and changing them."""

from __future__ import annotations

from contextlib import suppress

from securevfl.engine import wire
from securevfl.engine.security.sealing import OVERHEAD, Sealer
from securevfl.errors import SealError


def repeated_frames(sealer: type[Sealer]) -> list[str]:
    """Faults of links: a frame that is accepted twice, or under another kind, round or epoch.

    Equal payloads must not give equal frames either.
    """
    one, two = (sealer("links", "run", index) for index in (0, 1))
    for end in (one, two):
        end.add_peers({0: one.public, 1: two.public})
    payload = wire.encode("a payload that is sent again and again")
    frames = [one.seal(1, "model", 3, 0, payload) for _ in range(8)]
    bodies = {frame[OVERHEAD // 3 :] for frame in frames}
    faults = [] if len(bodies) == len(frames) else ["equal payloads give equal frames"]
    for frame in frames:
        for kind, round, epoch in (("mask", 3, 0), ("model", 4, 0), ("model", 3, 1)):
            with suppress(SealError):
                two.open(0, kind, round, epoch, frame)
                faults.append(f"a frame is accepted as {kind!r} of round {round}, epoch {epoch}")
        two.open(0, "model", 3, 0, frame)
        with suppress(SealError):
            two.open(0, "model", 3, 0, frame)
            faults.append("a frame is accepted twice")
    return sorted(set(faults))


def lives_that_meet(sealer: type[Sealer]) -> list[str]:
    """Faults of links over incarnations: what one life sealed is accepted in the next, or a key is.

    A party that comes back has a new key. Under an old one its counters, which begin anew, would
    seal two payloads with one nonce.
    """
    one, two, again, third = (sealer("links", "run", index) for index in (0, 1, 0, 0))
    one.add_peers({1: two.public})
    two.add_peers({0: one.public})
    payload = wire.encode("a payload of the first life")
    early, late = (one.seal(1, "model", 3, 0, payload) for _ in range(2))
    two.open(0, "model", 3, 0, early)
    two.renew(0, again.public)
    again.add_peers({1: two.public})
    faults = []
    for frame, epoch in ((early, 0), (late, 0), (late, 1)):
        with suppress(SealError):
            two.open(0, "model", 3, epoch, frame)
            faults.append("a frame of an earlier life is accepted")
    try:
        if two.open(0, "model", 3, 1, again.seal(1, "model", 3, 1, payload)) != payload:
            faults.append("a later life's frame opens to another payload")
    except SealError:
        faults.append("a later life's frame is refused")
    for life in (one, again):
        with suppress(SealError):
            two.renew(0, life.public)
            faults.append("a key that a party had before is accepted again")
    two.renew(0, third.public)
    with suppress(SealError):
        two.open(0, "model", 3, 1, again.seal(1, "model", 4, 1, payload))
        faults.append("a frame of an earlier life is accepted")
    return sorted(set(faults))


def open_links(sealer: type[Sealer]) -> list[str]:
    """Faults of links: a payload that is found in the wire bytes, a flipped bit that is accepted.

    The entropy of the bytes shows neither, since shares are as random as ciphertexts.
    """
    from securevfl.field import PrimeField

    one, two = (sealer("links", "run", index) for index in (0, 1))
    keys = {0: one.public, 1: two.public}
    one.add_peers(keys)
    two.add_peers(keys)
    payload = wire.encode(PrimeField(2**31 - 1).random(64))
    sent = one.seal(1, "model", 3, 0, payload)
    faults = ["the payload is in the wire bytes"] if payload[-32:] in sent else []
    for place in (0, OVERHEAD, len(sent) - 1):
        changed = bytearray(sent)
        changed[place] ^= 1
        with suppress(SealError):
            two.open(0, "model", 3, 0, bytes(changed))
            faults.append(f"a flipped bit in byte {place} is accepted")
    return faults
