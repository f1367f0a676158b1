"""Numbers of clients' columns, recognised in messages in any order, shape and choice of columns.

Three questions are asked of each array. Are so many of its numbers, in a row along one of its axes
or anywhere in it, in the columns of one client that it is no chance? Are so many in the rows that a
message names, which are few, so that few numbers are enough? And is a line of it a column at these
rows, or a column times a number plus a number, such as one in fixed point? The first needs no rows,
but numbers that do not occur elsewhere; the last finds columns of few different values, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_GRID = 1 << 12  # multiples of 1/2^12 are numbers that occur anywhere, such as 0, 1 and 0.5
_NUMBERS = 1 << 22  # numbers of 32 bits in a binade, and half of them again: a cautious count
_CHANCE = 80.0  # bits by which a finding is no chance
_STRETCH = 12  # numbers in a row, at least
_VARIED = 8  # of them that differ
_FEW = 6  # numbers of named rows that differ, at least
_ROWS = 8  # rows that are named together, at least
_DISTINCT = 4  # different values of a column at these rows
_LINEAR = 10  # rows at which a line may be a column times a number
_KEPT = 16  # of them whose numbers are kept
_ALIKE = 1e-5  # by which its correlation is less than 1, at most: rounding to eight bits


class Rows(NamedTuple):
    """Rows that messages name, and the numbers of all clients at them.

    Attributes
    ----------
    rows : ndarray of int, (b,)
        Negative ones are padding.
    real : ndarray of bool, (b,)
    owners : ndarray of int, (d,)
        Client of each column that has several different values there.
    columns, linear : ndarray, (d, real rows)
        These columns, and the same without their mean, of norm 1.
    ordered : dict of bytes to int
        Client by the sorted numbers of a column, of those of many different values.
    known : dict of int to ndarray
        By client, its numbers there that do not occur elsewhere, ascending.
    every : ndarray
        Those of all clients.
    """

    rows: np.ndarray
    real: np.ndarray
    owners: np.ndarray
    columns: np.ndarray
    linear: np.ndarray
    ordered: dict[bytes, int]
    known: dict[int, np.ndarray]
    every: np.ndarray


@dataclass
class Hits:
    """Numbers of small arrays that a client has at named rows, of one message or of many.

    Attributes
    ----------
    size, hits : int
        Numbers, and those of them that it has.
    share : float
        Of all numbers, those that it has there, at most.
    values : set of float
        Those that were found.
    """

    size: int
    hits: int
    share: float
    values: set[float]

    def add(self, other: Hits) -> None:
        """Count those of another message, too."""
        self.size, self.hits = self.size + other.size, self.hits + other.hits
        self.share, self.values = max(self.share, other.share), self.values | other.values

    @property
    def is_no_chance(self) -> bool:
        """Whether there are too many."""
        return len(self.values) >= _FEW and _bits(self.size, self.hits, self.share) >= _CHANCE


class KnownValues:
    """Columns of clients by which the numbers of a message are recognised.

    Parameters
    ----------
    columns : mapping of int to ndarray, (M, d) or (M, ...)
        By client.
    """

    def __init__(self, columns: Mapping[int, np.ndarray]) -> None:
        self._tables = {
            n: one.reshape(len(one), -1).astype(np.float64) + 0.0 for n, one in columns.items()
        }
        self._known = {n: _uncommon(table) for n, table in self._tables.items()}
        self._every = _union(self._known)
        self._seen: dict[bytes, Rows] = {}

    def within(self, arrays: Iterable[np.ndarray], named: Iterable[np.ndarray]) -> set[int]:
        """Clients of which the arrays hold numbers.

        Parameters
        ----------
        arrays : iterable of ndarray
            Of a message.
        named : iterable of ndarray of int
            Rows that messages of the same round name; negative ones are padding.
        """
        found, at = set[int](), [self._at(rows) for rows in named]
        for array in arrays:
            flat = _as_floats(array)
            for one in at:
                if _count(flat, one.every) >= _FEW:
                    found |= {n for n, known in one.known.items() if _has_few(flat, known)}
            known = self._known if _count(flat, self._every) >= _STRETCH else {}
            found |= {n for n, own in known.items() if _has_many(flat, own)}
            for lines in _lines(array):
                found |= {n for n, own in known.items() if _has_stretch(lines, own)}
                found |= {n for one in at for n in _with_a_column(lines, one)}
        return found

    def hits(self, array: np.ndarray, named: Iterable[np.ndarray]) -> dict[int, Hits]:
        """Numbers of an array that a client has at named rows; of clients that have any."""
        seen, flat, found = [self._at(rows) for rows in named], _as_floats(array), dict[int, Hits]()
        if not any(_count(flat, one.every) for one in seen):
            return found
        for n in self._tables:
            known = np.unique(np.concatenate([one.known[n] for one in seen]))
            values = flat[_inside(flat, known)]
            if values.size:
                found[n] = Hits(flat.size, values.size, len(known) / _NUMBERS, {*values.tolist()})
        return found

    def _at(self, rows: np.ndarray) -> Rows:
        """Numbers of clients at rows; many messages of a round are looked at with the same."""
        name = rows.tobytes()
        if name not in self._seen:
            if len(self._seen) > _KEPT:
                self._seen.clear()
            self._seen[name] = _at(self._tables, rows)
        return self._seen[name]


def rows_in(arrays: Iterable[np.ndarray], rows: int) -> Iterator[np.ndarray]:
    """Those of the arrays that may name rows of a table of so many."""
    for array in arrays:
        if array.dtype.kind in "iu" and array.ndim == 1 and len(array) >= _ROWS:
            known = array.astype(np.int64)
            if known.max() < rows and np.count_nonzero(known >= 0) >= _ROWS:
                yield known


def _at(tables: Mapping[int, np.ndarray], rows: np.ndarray) -> Rows:
    real = rows >= 0
    numbering = _directions(rows[real][None].astype(np.float64))
    owners, columns, known = list[int](), list[np.ndarray](), dict[int, np.ndarray]()
    for n, table in tables.items():
        here = np.ascontiguousarray(table[rows[real]].T)
        numbers_rows = np.abs(_directions(here) @ numbering.T).max(axis=1) > 1 - _ALIKE
        own = [one for one in here[~numbers_rows] if len(np.unique(one)) >= _DISTINCT]
        known[n] = _uncommon(np.array(own))
        owners += [n] * len(own)
        columns += own
    every = np.array(columns).reshape(len(columns), np.count_nonzero(real))
    ordered = {np.sort(one).tobytes(): n for one, n in zip(columns, owners, strict=True)
               if len(one) >= _LINEAR and len(np.unique(one)) >= _FEW}  # fmt: skip
    linear = _directions(every)
    return Rows(rows, real, np.array(owners, int), every, linear, ordered, known, _union(known))


def _union(known: Mapping[int, np.ndarray]) -> np.ndarray:
    every: np.ndarray = np.unique(np.concatenate([np.zeros(0), *known.values()]))
    return every


def _directions(lines: np.ndarray) -> np.ndarray:
    """Lines without their mean, of norm 1; zeros where all numbers of a line are alike."""
    moved = lines - lines.mean(axis=1, keepdims=True) if lines.size else lines
    norms = np.linalg.norm(moved, axis=1, keepdims=True)
    flat = norms <= 1e-9 * np.abs(lines).max(axis=1, keepdims=True, initial=0.0)
    return np.where(flat, 0.0, moved / np.where(flat, 1.0, norms))


def _uncommon(table: np.ndarray) -> np.ndarray:
    """Sorted values of a table, without those that occur anywhere."""
    values: np.ndarray = np.unique(table)
    uncommon: np.ndarray = values[values * _GRID % 1 != 0]
    return uncommon


def _as_floats(array: np.ndarray) -> np.ndarray:
    return array.ravel().astype(np.float64) + 0.0  # no -0.0


def _lines(array: np.ndarray) -> Iterator[np.ndarray]:
    """The array as a table of lines, along each of its axes."""
    for axis in range(array.ndim if array.size else 0):
        along = np.moveaxis(array, axis, -1)
        yield along.reshape(-1, along.shape[-1]).astype(np.float64) + 0.0


def _inside(flat: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Mask of the numbers that are known ones."""
    if not len(known):
        return np.zeros(flat.shape, bool)
    places = np.searchsorted(known, flat).clip(max=len(known) - 1)
    inside: np.ndarray = known[places] == flat
    return inside


def _count(flat: np.ndarray, known: np.ndarray) -> int:
    return int(np.count_nonzero(_inside(flat, known)))


def _chance(flat: np.ndarray, known: np.ndarray) -> tuple[float, int]:
    """Bits by which it is no chance that so many numbers are known, and how many differ."""
    share = len(known) / _NUMBERS
    if not (flat.size and 0 < share < 0.5):
        return 0.0, 0
    inside = _inside(flat, known)
    return _bits(flat.size, int(inside.sum()), share), len(np.unique(flat[inside]))


def _bits(size: int, hits: int, share: float) -> float:
    """Bits by which it is no chance that so many of all are hits, by Chernoff's bound."""
    part = hits / size
    if part <= share:
        return 0.0
    rest = 0.0 if part == 1 else (1 - part) * math.log2((1 - part) / (1 - share))
    return size * (part * math.log2(part / share) + rest)


def _has_many(flat: np.ndarray, known: np.ndarray) -> bool:
    """Whether so many numbers, wherever they stand, are known that it is no chance."""
    bits, varied = _chance(flat, known)
    return bits >= _CHANCE and varied >= _STRETCH


def _has_few(flat: np.ndarray, known: np.ndarray) -> bool:
    """Whether so many numbers are those of named rows that it is no chance."""
    bits, varied = _chance(flat, known)
    return bits >= _CHANCE and varied >= _FEW


def _has_stretch(lines: np.ndarray, known: np.ndarray) -> bool:
    """Whether so many numbers in a row are known that it is no chance."""
    share = len(known) / _NUMBERS
    if lines.size < _STRETCH or not 0 < share < 0.5:
        return False
    needed = max(_STRETCH, math.ceil(_CHANCE / -math.log2(share)))
    flat = lines.ravel()
    inside = np.concatenate(([False], _inside(flat, known), [False]))
    begins, ends = np.flatnonzero(np.diff(inside.view(np.int8))).reshape(-1, 2).T
    return any(
        len(np.unique(flat[begin:end])) >= _VARIED
        for begin, end in zip(begins, ends, strict=True)
        if end - begin >= needed
    )


def _with_a_column(lines: np.ndarray, named: Rows) -> Iterator[int]:
    """Clients of which a line is a column at rows that were named."""
    if not len(named.columns) or lines.shape[1] != len(named.rows):
        return
    for line in np.sort(lines[:, named.real]):  # in whatever order the rows are
        if line.tobytes() in named.ordered:
            yield named.ordered[line.tobytes()]
    for told in (lines[:, named.real], lines[:, ::-1][:, named.real]):
        if told.shape[1] < _LINEAR:
            yield from _equal(told, named)
        else:
            yield from _linear(told, named)


def _equal(lines: np.ndarray, named: Rows) -> Iterator[int]:
    columns = {one.tobytes(): n for one, n in zip(named.columns, named.owners, strict=True)}
    for line in np.ascontiguousarray(lines):
        if line.tobytes() in columns:
            yield int(columns[line.tobytes()])


def _linear(lines: np.ndarray, named: Rows) -> Iterator[int]:
    """Clients of which a line is a column times a number plus a number, but for rounding."""
    finite = lines[np.isfinite(lines).all(axis=1)]
    along = np.abs(_directions(finite) @ named.linear.T)
    alike = (along > 1 - _ALIKE).any(axis=0)
    yield from named.owners[alike].tolist()
