"""Formulas of private set intersection under a label owner, from the members' secret scalars.

Each set is blinded by its own member's scalar, in the member's secret order, and goes round the
ring. So the first set that a member sends shows which of all scalars and orders that were drawn in
the run are its own: those that give it. None may be another member's as well.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any
from typing import Protocol as Interface

import numpy as np

from securevfl.data.alignment.psi import blind, blind_again, common_places, count_digest
from securevfl.protocols.base.messages import Formula, MessageKey, RunSecrets

Blinding = tuple[bytes, np.ndarray]  # scalar, and the order of the own set


class Method(Interface):
    """The attributes of the protocol that formulas read."""

    @property
    def owners(self) -> range:
        """Numbers of the label owners."""

    def peers(self) -> range:
        """Numbers of the data owners."""

    def identifiers_of(self, member: int) -> Sequence[str]:
        """Identifiers of a party's samples."""


def formulas_of(protocol: Method) -> dict[str, Formula]:
    """Formula of each kind of message, under each label owner."""
    made: dict[str, Any] = {"": blinded, " finished": finished, " common": common, " count": count}
    return {
        f"psi {owner}{word}": functools.partial(formula, protocol, owner)
        for owner in protocol.owners
        for word, formula in made.items()
    }


def ring_of(protocol: Method, owner: int) -> tuple[int, ...]:
    """Members of the intersection under a label owner, in the order of the ring."""
    return (*protocol.peers(), owner)


def blinded(
    protocol: Method, owner: int, secrets: RunSecrets, key: MessageKey
) -> np.ndarray | None:
    """The own set times the own scalar; then the sets of others, times it as well."""
    found = own_blinding(protocol, owner, secrets, key.sender)
    if found is None:
        return None
    if key.round == 1:
        texts = protocol.identifiers_of(key.sender)
        return blind([texts[i] for i in found[1]], found[0], workers=1)
    return _again(protocol, owner, secrets, key.sender, key.round - 1)


def finished(
    protocol: Method, owner: int, secrets: RunSecrets, key: MessageKey
) -> np.ndarray | None:
    """The set of the next one in the ring, with all scalars."""
    return _again(protocol, owner, secrets, key.sender, len(protocol.peers()))


def common(protocol: Method, owner: int, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """Places of the receiver's set that all finished sets have."""
    ring, sent = ring_of(protocol, owner), secrets.sent(f"psi {owner} finished", 0)
    sets = [sent[ring[n - 1], owner] for n in range(len(ring))]
    places = secrets.once(key, "places", lambda: common_places(sets))
    return places[ring.index(key.receiver)]


def count(protocol: Method, owner: int, secrets: RunSecrets, key: MessageKey) -> bytes:
    """Digest of the number of common places that the sender was told."""
    return count_digest(len(secrets.sent(f"psi {owner} common", 0)[owner, key.sender]))


def own_blinding(protocol: Method, owner: int, secrets: RunSecrets, member: int) -> Blinding | None:
    """Scalar and order that give the first set of a member; None for none, or not its own."""
    ring = ring_of(protocol, owner)
    first = MessageKey(f"psi {owner}", 1, ring[0], ring[1])
    return secrets.once(first, "blindings", lambda: _owned(protocol, owner, secrets)).get(member)


def _owned(protocol: Method, owner: int, secrets: RunSecrets) -> dict[int, Blinding]:
    """Scalar and order of each member of a ring that has some of its own."""
    sent = {member: points for (member, _), points in secrets.sent(f"psi {owner}", 1).items()}
    left, found = list(secrets.blindings()), {}
    for member, points in sorted(sent.items()):
        texts = protocol.identifiers_of(member)
        for place, (scalar, order) in enumerate(left):
            begins = len(order) == len(texts) == len(points)
            if (
                begins
                and blind([texts[order[0]]], scalar, workers=1).tobytes() == points[:1].tobytes()
            ):
                found[member] = left.pop(place)
                break
    return found


def _again(
    protocol: Method, owner: int, secrets: RunSecrets, member: int, hop: int
) -> np.ndarray | None:
    """The set that a member was sent at a hop, times its scalar."""
    found = own_blinding(protocol, owner, secrets, member)
    ring = ring_of(protocol, owner)
    before = ring[ring.index(member) - 1]
    points = secrets.sent(f"psi {owner}", hop)[before, member]
    return None if found is None else blind_again(points, found[0], workers=1)
