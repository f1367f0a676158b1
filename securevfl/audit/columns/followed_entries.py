"""Entries of messages that are, round after round, the same entry of the rows that were named.

A column of few different values is recognised by all named rows together (`known_values`), but not
by some of them: any eight of fifteen pixels are found somewhere by chance. Over rounds they are
not: an entry of a message that is the third row's fifth column in every round is no chance,
whichever entries of the rows a message chooses, in whatever order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_CHANCE = 80.0  # bits by which a finding is no chance
_LEAST = 3  # rounds
_SMALL = 1 << 20  # pairs of an entry of a message and one of the rows


@dataclass
class _Trace:
    """Pairs of an entry of the message and one of the named rows that were equal in every round.

    Attributes
    ----------
    shape : (int, int)
        Entries of the message, and named rows.
    entries, places : ndarray of int, (pairs,)
        Of the message, and of the rows: column by column.
    bits : ndarray, (pairs,)
        By which it is no chance that the column had these numbers.
    seen : list of set of int
        Rows that stood at each place: the same row tells nothing new.
    rounds : int
    """

    shape: tuple[int, int]
    entries: np.ndarray
    places: np.ndarray
    bits: np.ndarray
    seen: list[set[int]]
    rounds: int = 0


class FollowedEntries:
    """Compares the entries of small arrays with those of the rows that are named.

    Parameters
    ----------
    columns : mapping of int to ndarray, (M, d)
        By client.
    """

    def __init__(self, columns: Mapping[int, np.ndarray]) -> None:
        tables = {n: one.reshape(len(one), -1).astype(np.float64) for n, one in columns.items()}
        self._table = np.concatenate([*tables.values()], axis=1) + 0.0
        self._owners = np.repeat([*tables], [one.shape[1] for one in tables.values()])
        self._table[:, _numbering(self._table)] = np.nan  # rows are named anyway
        self._traces: dict[Hashable, _Trace] = {}
        self._ended: set[Hashable] = set()

    def take(self, name: Hashable, array: np.ndarray, named: Sequence[np.ndarray]) -> set[int]:
        """Clients whose entries those of an array have been in all rounds so far.

        Parameters
        ----------
        name : hashable
            Of what comes once a round.
        array : ndarray
        named : sequence of ndarray of int
            Rows that messages of the round name; negative ones are padding.
        """
        rows = np.concatenate([*named, np.zeros(0, int)])
        pairs = array.size * rows.size * self._table.shape[1]
        if not 0 < pairs <= _SMALL or name in self._ended:
            return set()
        known = np.where(rows < 0, np.nan, self._table[np.maximum(rows, 0)].T).ravel()
        values = array.ravel().astype(np.float64) + 0.0
        trace = self._traces.get(name)
        if trace is None:
            trace = self._traces[name] = _begun(values, known, rows.size)
        equal = trace.shape == (values.size, rows.size)
        alive = values[trace.entries] == known[trace.places] if equal else np.zeros(0, bool)
        if not alive.any():
            self._ended.add(name)
            del self._traces[name]
            return set()
        trace.entries, trace.places, trace.bits = (
            one[alive] for one in (trace.entries, trace.places, trace.bits)
        )
        new = np.array([row not in before for row, before in
                        zip(rows.tolist(), trace.seen, strict=True)])  # fmt: skip
        for row, before in zip(rows.tolist(), trace.seen, strict=True):
            before.add(row)
        columns, at = np.divmod(trace.places, rows.size)
        trace.bits = trace.bits + self._surprise(values)[trace.entries, columns] * new[at]
        trace.rounds += 1
        return self._found(trace) if trace.rounds >= _LEAST else set()

    @functools.cached_property
    def _sorted(self) -> np.ndarray:
        """Each column, ascending: most searches end before it is needed."""
        return np.sort(self._table, axis=0)

    def _surprise(self, values: np.ndarray) -> np.ndarray:
        """Bits that each number tells of each column: rare ones tell more, (m, D)."""
        counts = [np.searchsorted(one, values, "right") - np.searchsorted(one, values, "left")
                  for one in self._sorted.T]  # fmt: skip
        shares = np.maximum(np.array(counts).T, 1) / len(self._sorted)
        bits: np.ndarray = -np.log2(shares)
        return bits

    def _found(self, trace: _Trace) -> set[int]:
        rows = trace.shape[1]
        scores = trace.bits - math.log2(rows * self._table.shape[1])
        best: dict[int, tuple[float, int]] = {}  # of each entry of the message
        every = zip(trace.entries.tolist(), trace.places.tolist(), scores.tolist(), strict=True)
        for entry, place, score in every:
            best[entry] = max(best.get(entry, (0.0, -1)), (score, place))
        told: dict[int, float] = {}  # by the entry of the rows that it is
        for score, place in best.values():
            told[place] = max(score, told.get(place, 0.0))
        bits: dict[int, float] = {}
        for place, score in told.items():
            owner = int(self._owners[place // rows])
            bits[owner] = bits.get(owner, 0.0) + score
        return {n for n, all_of_it in bits.items() if all_of_it >= _CHANCE}


def _begun(values: np.ndarray, known: np.ndarray, rows: int) -> _Trace:
    entries, places = np.nonzero(values[:, None] == known)
    seen: list[set[int]] = [set() for _ in range(rows)]
    return _Trace((values.size, rows), entries, places, np.zeros(len(entries)), seen)


def _numbering(table: np.ndarray) -> np.ndarray:
    """Mask of the columns that number the rows."""
    moved = table - table.mean(axis=0)
    numbers = np.arange(len(table)) - (len(table) - 1) / 2
    norms = np.linalg.norm(moved, axis=0) * np.linalg.norm(numbers)
    mask: np.ndarray = np.abs(numbers @ moved) > (1 - 1e-5) * np.where(norms > 0, norms, np.inf)
    return mask
