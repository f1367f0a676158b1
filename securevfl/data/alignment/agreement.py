"""Agreement of members on what one of them told all: each sends the others a hash of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from securevfl.engine.party import Party, name_of
from securevfl.errors import DataError


async def differing(party: Party, others: Sequence[int], digest: bytes, name: str) -> list[str]:
    """Names of the other members whose digest is another one; a coroutine of each member's setup.

    Parameters
    ----------
    party : Party
        The member itself.
    others : sequence of int
        Numbers of the other members.
    digest : bytes
        Its own hash, of what all members may know.
    name : str
        Of the messages.
    """
    for member in others:
        party.send(member, name, digest)
    digests = await party.collect(name, senders=others) if others else {}
    return [name_of(member) for member, found in digests.items() if found != digest]


def places_digest(parts: Iterable[np.ndarray]) -> bytes:
    """Hash of rows of int64 numbers, and of how they are divided."""
    own = hashlib.sha256(b"securevfl places 1\0")
    for part in parts:
        numbers = np.ascontiguousarray(part, "<i8")
        own.update(len(numbers).to_bytes(8, "little"))
        own.update(numbers.tobytes())
    return own.digest()


def checked_places(places: Any, held: int, whose: str, what: str) -> np.ndarray:
    """Places that somebody else named, if each is one of `held` rows and none comes twice.

    Parameters
    ----------
    places : payload
        As it came.
    held : int
        Rows that there are.
    whose : str
        Who told whom, to begin a message with.
    what : str
        What has the places, such as "training rows".

    Raises
    ------
    DataError
        Naming what is wrong.
    """
    if not isinstance(places, np.ndarray) or places.dtype != np.int64 or places.ndim != 1:
        shape = getattr(places, "shape", "")
        kind = f"{getattr(places, 'dtype', type(places).__name__)} {shape}".strip()
        raise DataError(f"{whose} its {what} as {kind}; they must be a row of int64 numbers")
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < held:
        raise DataError(
            f"{whose} of {what} at places from {int(places.min())} to {int(places.max())}; it has "
            f"{held}, so they must lie in [0, {held})"
        )
    if len(np.unique(places)) < len(places):
        raise DataError(
            f"{whose} of {what} at {len(places)} places, of which {len(np.unique(places))} differ; "
            "none may come twice"
        )
    return places
