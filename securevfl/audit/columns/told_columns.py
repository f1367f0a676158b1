"""Columns of clients in the messages of a run, looked for message after message."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from securevfl.audit.columns.followed_entries import FollowedEntries
from securevfl.audit.columns.known_values import Hits, KnownValues, rows_in
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.protocol import Protocol

_SMALL = 8  # numbers; of such arrays those of many rounds are looked at together
_BEFORE = 2  # rounds whose rows are looked for as well
_WORDS = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")


class ToldColumns:
    """Looks for the clients' columns in messages, at the rows that messages name.

    Parameters
    ----------
    protocol : Protocol
        Knows which samples the rows are that its messages name (`Protocol.named_rows`).
    columns : mapping of int to ndarray, (M, d) or (M, ...)
        By client.
    """

    def __init__(self, protocol: Protocol, columns: Mapping[int, np.ndarray]) -> None:
        self._protocol = protocol
        self._columns = columns
        self._named: dict[int, dict[bytes, np.ndarray]] = {}  # by round
        self._small: dict[tuple[str, int, int], Hits] = {}  # by kind, sender and client

    # Of the library's protocols formulas explain nearly all, and nothing is looked for.
    @functools.cached_property
    def _known(self) -> KnownValues:
        return KnownValues(self._columns)

    @functools.cached_property
    def _followed(self) -> FollowedEntries:
        return FollowedEntries(self._columns)

    def note(self, round: int, payload: Any) -> None:
        """Note the rows that a message of a round names, as numbers and as samples."""
        arrays = [one for one in numbers(payload) if one.dtype.kind in "iu"]
        with suppress(Exception):  # of a protocol that does not name rows so
            samples = self._protocol.named_rows(payload)
            arrays += [] if samples is None else [samples]
        for rows in rows_in(arrays, self._protocol.data.rows):
            self._named.setdefault(round, {})[rows.tobytes()] = rows

    def within(self, key: MessageKey, payload: Any, modulus: int | None = None) -> set[int]:
        """Clients whose columns a message holds, alone or with those of the same kind before it.

        Parameters
        ----------
        key : MessageKey
        payload : object
        modulus : int, optional
            p, where arrays of its dtype hold elements of F_p.
        """
        named: dict[bytes, np.ndarray] = {}
        for round in range(key.round - _BEFORE, key.round + 1):
            named |= self._named.get(round, {})
        arrays = list(numbers(payload, modulus))
        found = self._known.within(arrays, named.values())
        now = list(self._named.get(key.round, {}).values())
        for place, array in enumerate(arrays):
            found |= self._followed.take((key.kind, key.sender, key.receiver, place), array, now)
            if array.size <= _SMALL:
                found |= self._of_many(key, array, list(named.values()))
        return found

    def _of_many(self, key: MessageKey, array: np.ndarray, named: list[np.ndarray]) -> set[int]:
        """Clients of whom small arrays of one kind and sender hold a number now and then."""
        hits = self._known.hits(array, named)
        for n, one in hits.items():
            kept = self._small.setdefault((key.kind, key.sender, n), Hits(0, 0, 0.0, set()))
            kept.add(one)
        others = (kept for (kind, sender, n), kept in self._small.items()
                  if (kind, sender) == (key.kind, key.sender) and n not in hits)  # fmt: skip
        for kept in others:
            kept.size += array.size
        return {n for n in hits if self._small[key.kind, key.sender, n].is_no_chance}


def told_columns_of(protocol: Protocol) -> ToldColumns | None:
    """The columns of a protocol's clients; None where no claim says that they are hidden."""
    try:
        hidden = any(one.asset == "features" and is_secret(one) for one in protocol.claims)
    except Exception:  # of one that predicts, or of others: better looked for in vain
        hidden = True
    return ToldColumns(protocol, dict(enumerate(protocol.data.train))) if hidden else None


def is_secret(claim: Claim) -> bool:
    """Whether a claim is one of secrecy, perfect or by a primitive, against parties."""
    return claim.strength in ("perfect", "computational") and claim.against != OUTSIDER


def numbers(payload: Any, modulus: int | None = None) -> Iterator[np.ndarray]:
    """Arrays of numbers in a payload: in containers, as single numbers, as bytes and in words.

    Elements of F_p are signed numbers, too. Integers of 32 and 64 bits and bytes may be the bits of
    floats.
    """
    if isinstance(payload, np.generic):
        payload = payload.item()
    if isinstance(payload, (tuple, list, set, frozenset)):
        single = [one for one in payload if isinstance(one, (int, float)) and abs(one) < 1e300]
        yield np.array(single, np.float64)
        for one in payload:
            if not isinstance(one, (int, float)):
                yield from numbers(one, modulus)
    elif isinstance(payload, dict):
        yield from numbers(list(payload.values()), modulus)
    elif dataclasses.is_dataclass(payload):
        every = [getattr(payload, one.name) for one in dataclasses.fields(payload)]
        yield from numbers(every, modulus)
    elif isinstance(payload, (int, float)):
        yield from numbers([payload])
    elif isinstance(payload, str):
        yield np.array([float(word) for word in _WORDS.findall(payload)])
    elif isinstance(payload, bytes):
        yield from _of_bits(payload)
    elif hasattr(payload, "detach"):
        yield from numbers(payload.detach().cpu().numpy(), modulus)
    elif isinstance(payload, np.ndarray) and payload.dtype.kind in "fiu":
        yield payload
        if payload.dtype.kind == "u" and payload.dtype.itemsize >= 4:
            yield from _of_bits(payload.tobytes())
            if modulus is not None:
                signed = payload.astype(np.int64)
                yield np.where(signed > modulus // 2, signed - modulus, signed)


def _of_bits(content: bytes) -> Iterator[np.ndarray]:
    """Floats whose bits these are."""
    for dtype in ("<f4", "<f8"):
        if content and len(content) % np.dtype(dtype).itemsize == 0:
            floats = np.frombuffer(content, dtype)
            with np.errstate(all="ignore"):
                yield np.where(np.isfinite(floats), floats, 0)
