"""Numbers of clients' columns, recognised in messages in any order, shape and choice of columns.

Two questions are asked of each array. Does it hold many numbers in a row, along any of its axes,
that all stand in the columns of one client? And is a line of it a column, at the rows that a
message of the same round names? The first needs no rows, but numbers that do not occur elsewhere;
the second finds columns of few different values, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

_GRID = 1 << 12  # multiples of 1/2^12 are numbers that occur anywhere, such as 0, 1 and 0.5
_NUMBERS = 1 << 22  # numbers of 32 bits in a binade, and half of them again: a cautious count
_CHANCE = 80.0  # bits by which a finding is no chance
_STRETCH = 12  # numbers in a row, at least
_VARIED = 8  # of them that differ
_ROWS = 8  # rows that are named together, at least
_DISTINCT = 4  # different values of a column at these rows


class KnownValues:
    """Columns of clients by which the numbers of a message are recognised.

    Parameters
    ----------
    columns : mapping of int to ndarray, (M, d) or (M, ...)
        By client.
    """

    def __init__(self, columns: Mapping[int, np.ndarray]) -> None:
        self._tables = {
            n: one.reshape(len(one), -1).astype(np.float64) for n, one in columns.items()
        }
        self._known = {n: _uncommon(table) for n, table in self._tables.items()}

    def within(self, arrays: Iterable[np.ndarray], named: Iterable[np.ndarray]) -> set[int]:
        """Clients of which the arrays hold numbers.

        Parameters
        ----------
        arrays : iterable of ndarray
            Of a message.
        named : iterable of ndarray of int
            Rows that messages of the same round name; negative ones are padding.
        """
        found, rows = set[int](), list(named)
        for array in arrays:
            for lines in _lines(array):
                for n, table in self._tables.items():
                    if n not in found and (
                        _has_stretch(lines, self._known[n]) or _has_column(lines, table, rows)
                    ):
                        found.add(n)
        return found


def numbers(payload: Any) -> Iterator[np.ndarray]:
    """Arrays of numbers in a payload, in tuples, lists, mappings and message classes."""
    if isinstance(payload, (tuple, list)):
        for one in payload:
            yield from numbers(one)
    elif isinstance(payload, dict):
        yield from numbers(list(payload.values()))
    elif dataclasses.is_dataclass(payload):
        yield from numbers([getattr(payload, one.name) for one in dataclasses.fields(payload)])
    elif hasattr(payload, "detach"):
        yield from numbers(payload.detach().cpu().numpy())
    elif isinstance(payload, np.ndarray) and payload.dtype.kind in "fiu":
        yield payload


def rows_in(payload: Any, rows: int) -> Iterator[np.ndarray]:
    """Arrays of a payload that may name rows of a table of so many."""
    for array in numbers(payload):
        if array.dtype.kind in "iu" and array.ndim == 1 and len(array) >= _ROWS:
            known = array.astype(np.int64)
            if known.max() < rows and np.count_nonzero(known >= 0) >= _ROWS:
                yield known


def _uncommon(table: np.ndarray) -> np.ndarray:
    """Sorted values of a table, without those that occur anywhere."""
    values: np.ndarray = np.unique(table)
    uncommon: np.ndarray = values[values * _GRID % 1 != 0]
    return uncommon


def _lines(array: np.ndarray) -> Iterator[np.ndarray]:
    """The array as a table of lines, along each of its axes."""
    for axis in range(array.ndim if array.size else 0):
        along = np.moveaxis(array, axis, -1)
        yield along.reshape(-1, along.shape[-1]).astype(np.float64) + 0.0  # no -0.0


def _has_stretch(lines: np.ndarray, known: np.ndarray) -> bool:
    """Whether so many numbers in a row are known that it is no chance."""
    share = len(known) / _NUMBERS
    if lines.size < _STRETCH or not 0 < share < 0.5:
        return False
    needed = max(_STRETCH, math.ceil(_CHANCE / -math.log2(share)))
    flat = lines.ravel()
    places = np.searchsorted(known, flat).clip(max=len(known) - 1)
    inside = np.concatenate(([False], known[places] == flat, [False]))
    begins, ends = np.flatnonzero(np.diff(inside.view(np.int8))).reshape(-1, 2).T
    return any(
        len(np.unique(flat[begin:end])) >= _VARIED
        for begin, end in zip(begins, ends, strict=True)
        if end - begin >= needed
    )


def _has_column(lines: np.ndarray, table: np.ndarray, named: Iterable[np.ndarray]) -> bool:
    """Whether a line is a column at rows that were named."""
    for rows in named:
        if len(rows) != lines.shape[1]:
            continue
        real = rows >= 0
        columns = np.ascontiguousarray(table[rows[real]].T) + 0.0
        telling = {one.tobytes() for one in columns if len(np.unique(one)) >= _DISTINCT}
        telling.discard(rows[real].astype(np.float64).tobytes())  # a column of numbers of rows
        if telling and any(
            one.tobytes() in telling for one in np.ascontiguousarray(lines[:, real])
        ):
            return True
    return False
