"""Beacons: signed reports of a party's state, sent repeatedly to all others.

Beacons need no order and no acknowledgement: each has the complete state, and a newer one replaces
an older one. So parties that restarted, or were disconnected, find each other without a driver.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from securevfl.engine import wire
from securevfl.engine.network import name_of
from securevfl.engine.security.identity import Identity, Manifest
from securevfl.errors import SealError, WireError

_BEACON = "securevfl beacon 2"
_MOST_ROUNDS = 256  # a store keeps eight for each power of eight
_MOST_LIVES = 1 << 62  # a party takes a life above that which others have heard of
_TYPES = (int, int, int, int, tuple, tuple, tuple, bool, bool, bool, bytes)


class Beacon(NamedTuple):
    """State of a party in a signed message that it repeatedly sends to the others.

    Attributes
    ----------
    sender, life : int
        Number of the party, and of its incarnation: each start of its process has a higher one.
    number : int
        Number of the beacon in this incarnation.
    phase : int
        Number of the session's phase in which the party is.
    era : tuple of int
        Incarnation numbers of all parties, in order, together with which it runs this phase or is
        ready to; -1 for unknown.
    rounds : tuple of int
        Rounds of this phase of which it had a complete checkpoint when the era began.
    origin : tuple of int
        Era in which this party last began the phase without a checkpoint; empty if unknown.
    begun : bool
        Whether the party's code runs in this era.
    done : bool
        Whether it has finished its part of the phase, and its result is on disk.
    failed : bool
        Whether its code raised an error.
    consent : bytes
        Its signature of the manifest.
    """

    sender: int
    life: int
    number: int
    phase: int
    era: tuple[int, ...]
    rounds: tuple[int, ...]
    origin: tuple[int, ...]
    begun: bool
    done: bool
    failed: bool
    consent: bytes

    def encode(self, session: bytes, identity: Identity) -> bytes:
        """Bytes of the beacon, signed for a session (`Manifest.digest`)."""
        body = wire.encode(tuple(self))
        return wire.encode((self.sender, body, identity.sign(_statement(session, body))))

    @classmethod
    def decode(cls, data: bytes, manifest: Manifest) -> Beacon:
        """A beacon whose sender's signature is valid for this session.

        WireError for bytes that are no beacon. SealError for one that the sender's identity has not
        signed for this session.
        """
        sender, body, signature = wire.decode_flat(data, (int, bytes, bytes))
        if not manifest.has_signed(sender, signature, _statement(manifest.digest, body)):
            raise SealError(
                f"beacon: what came in the name of {name_of(sender)} is not signed by it for this "
                "session"
            )
        fields: Any = wire.decode(body)
        if not isinstance(fields, tuple) or list(map(type, fields)) != list(_TYPES):
            raise WireError(f"beacon: {name_of(sender)} sent none that this version reads")
        found = cls(*fields)
        whole = all(type(one) is int for one in (*found.era, *found.rounds, *found.origin))
        # Rounds of checkpoints rise, and a store keeps few: there is no room for anything else.
        rises = (
            list(found.rounds) == sorted(set(found.rounds)) and min(found.rounds, default=0) >= 0
        )
        whole = whole and rises and len(found.rounds) <= _MOST_ROUNDS
        whole = whole and len(found.origin) in (0, len(found.era))
        whole = whole and all(-1 <= one < _MOST_LIVES for one in (found.life, *found.era))
        if not whole or found.sender != sender or len(found.era) != len(manifest.entries):
            raise WireError(f"beacon: {name_of(sender)} sent none of this session")
        return found


def _statement(session: bytes, body: bytes) -> bytes:
    return wire.encode((_BEACON, session, body))
