"""Older rows of a transcript, in chunks: in memory, in a run's folder, or in its archive.

A row still changes after it was written: its message arrives, comes too late, or never leaves. In a
folder chunks are never written again, so that every checkpoint can refer to them. What changes
later is kept beside them and goes to files of changes, likewise written once. A checkpoint then
holds the newest rows, the newest changes, and the numbers of the files.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from securevfl.engine.checkpoint import read_file, write_file
from securevfl.errors import CheckpointError

Columns = dict[str, np.ndarray]

COLUMNS = {
    "sender": "i",
    "receiver": "i",
    "kind": "H",
    "round": "q",
    "bytes": "q",
    "sent": "q",
    "arrived": "q",
    "late": "b",
}
CHANGING = ("bytes", "arrived", "late")
CHUNK = 1 << 16  # rows: 2.8 MB
ROW_BYTES = sum(np.dtype(code).itemsize for code in COLUMNS.values())
HELD = 8 * CHUNK  # rows, or what takes as much, that are in memory where there is a folder
_CACHED = 4  # chunks of a folder that are kept while single rows of them are asked for


class Rows(Protocol):
    """Chunks of rows, in order; `count` rows in all, which take `held` bytes of memory."""

    @property
    def count(self) -> int:
        """Number of rows."""

    @property
    def held(self) -> int:
        """Bytes of memory that the chunks take."""

    def parts(self, only: Collection[int] | None = None) -> Iterator[Columns]:
        """Chunks in order, with all changes; with `only`, just the chunks of these numbers."""

    def append(self, columns: Columns) -> None:
        """Add a chunk of `CHUNK` rows."""

    def get(self, row: int, name: str) -> int:
        """Value of the column `name` in a row."""

    def change(self, row: int, name: str, value: int) -> None:
        """Set the value of the column `name` in a row."""


class HeldRows:
    """Chunks of rows that stay in memory."""

    def __init__(self) -> None:
        self.count = 0
        self._chunks: list[Columns] = []

    def parts(self, only: Collection[int] | None = None) -> Iterator[Columns]:
        """Chunks in order, with all changes; with `only`, just the chunks of these numbers."""
        for number, columns in enumerate(self._chunks):
            if only is None or number in only:
                yield columns

    def append(self, columns: Columns) -> None:
        """Add a chunk."""
        self._chunks.append(columns)
        self.count += len(columns["sender"])

    def get(self, row: int, name: str) -> int:
        """Value of the column `name` in a row."""
        return int(self._chunks[row // CHUNK][name][row % CHUNK])

    def change(self, row: int, name: str, value: int) -> None:
        """Set the value of the column `name` in a row."""
        self._chunks[row // CHUNK][name][row % CHUNK] = value

    @property
    def held(self) -> int:
        """Bytes of memory that the chunks take."""
        return self.count * ROW_BYTES


class SpilledRows:
    """Chunks as files in a folder, each written once.

    Parameters
    ----------
    state : mapping, optional
        Result of `state`, to continue from a checkpoint; later files are overwritten.
    """

    def __init__(self, folder: Path, state: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self._chunks = 0 if state is None else int(state["chunks"])
        # First and last row of each file of changes, in the order of writing.
        self._spans = [] if state is None else [(int(a), int(b)) for a, b in state["spans"]]
        self._changes: dict[int, list[int]] = {}
        if state is not None:
            self._changes = _by_row(state["changes"])
        self._recent = functools.lru_cache(maxsize=_CACHED)(self._read)

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._chunks * CHUNK

    @property
    def held(self) -> int:
        """Estimate of the bytes in memory: 400 for each changed row, and a full chunk cache."""
        return 400 * len(self._changes) + _CACHED * CHUNK * ROW_BYTES

    def append(self, columns: Columns) -> None:
        """Write a chunk, and the changes once they are as many as a chunk's rows.

        OSError when the folder cannot be written; nothing has changed then.
        """
        write_file(self._file(self._chunks), columns)
        self._chunks += 1
        if len(self._changes) >= CHUNK:
            write_file(self._file(len(self._spans), "changes"), self._packed())
            self._spans.append((min(self._changes), max(self._changes)))
            self._changes = {}
            self._recent.cache_clear()

    def parts(self, only: Collection[int] | None = None) -> Iterator[Columns]:
        """Chunks read one by one, with all changes."""
        changed: dict[int, list[int]] = {}
        for row in self._changes:
            changed.setdefault(row // CHUNK, []).append(row)
        for number in range(self._chunks):
            if only is not None and number not in only:
                continue
            columns = self._read(number)
            for row in changed.get(number, ()):
                for name, value in zip(CHANGING, self._changes[row], strict=True):
                    columns[name][row % CHUNK] = value
            yield columns

    def _read(self, number: int) -> Columns:
        """Chunk `number` with changes stored in files; CheckpointError for another length."""
        stored = _checked(self._file(number), COLUMNS)
        if stored["sender"].shape != (CHUNK,):
            raise CheckpointError(f"checkpoint: {self._file(number)} must have {CHUNK} rows")
        columns = {name: column.copy() for name, column in stored.items()}
        first, end = number * CHUNK, (number + 1) * CHUNK
        for place, (least, most) in enumerate(self._spans):
            if least < end and most >= first:
                later = _checked(self._file(place, "changes"), _CHANGES)
                here = (later["row"] >= first) & (later["row"] < end)
                for name in CHANGING:
                    columns[name][later["row"][here] - first] = later[name][here]
        return columns

    def get(self, row: int, name: str) -> int:
        """Value of the column `name` in a row, read from its file."""
        if row in self._changes and name in CHANGING:
            return self._changes[row][CHANGING.index(name)]
        return int(self._recent(row // CHUNK)[name][row % CHUNK])

    def change(self, row: int, name: str, value: int) -> None:
        """Store a new value of a column in a row; the row's file stays unchanged."""
        if row not in self._changes:
            self._changes[row] = [self.get(row, each) for each in CHANGING]
        self._changes[row][CHANGING.index(name)] = value

    def _packed(self) -> Columns:
        rows = sorted(self._changes)
        table = np.array([self._changes[row] for row in rows], np.int64).reshape(-1, len(CHANGING))
        values = {
            name: table[:, place].astype(_CHANGES[name]) for place, name in enumerate(CHANGING)
        }
        return {"row": np.array(rows, np.int64), **values}

    def state(self) -> dict[str, object]:
        """Content for a checkpoint in the same folder."""
        return {"chunks": self._chunks, "spans": tuple(self._spans), "changes": self._packed()}

    def _file(self, number: int, what: str = "rows") -> Path:
        return self.folder / f"messages-{what}-{number:06d}.svfl"


_CHANGES = {"row": "q"} | {name: COLUMNS[name] for name in CHANGING}


def _by_row(changes: Columns) -> dict[int, list[int]]:
    values = zip(*(changes[name].tolist() for name in CHANGING), strict=True)
    return dict(zip(changes["row"].tolist(), map(list, values), strict=True))


def _checked(path: Path, codes: Mapping[str, str]) -> Columns:
    """Columns of a file by name, checked for dtype (`codes`) and length; CheckpointError."""
    columns: Columns = read_file(path)
    if not isinstance(columns, dict) or set(columns) != set(codes):
        raise CheckpointError(f"checkpoint: {path} has other columns than this version")
    for name, code in codes.items():
        if not isinstance(columns[name], np.ndarray) or columns[name].dtype != np.dtype(code):
            raise CheckpointError(f"checkpoint: {path} has a {name} of another type")
    if len({column.shape for column in columns.values()}) != 1:
        raise CheckpointError(f"checkpoint: {path} has columns of different lengths")
    return columns


class ArchivedRows:
    """Rows of a finished run, read from its archive in pieces on demand.

    Parameters
    ----------
    read : callable
        Function that returns an iterator over the archive's chunks, in order.
    count : int
        Number of rows that the archive states.
    """

    held = 0

    def __init__(self, read: Callable[[], Iterator[Columns]], count: int) -> None:
        self._read, self.count = read, count

    def parts(self, only: Collection[int] | None = None) -> Iterator[Columns]:
        """Chunks in order; with `only` all are read even so, as an archive is packed."""
        for number, columns in enumerate(self._read()):
            if only is None or number in only:
                yield columns

    def append(self, columns: Columns) -> None:
        """Raise TypeError: a finished run sends nothing."""
        raise TypeError("a transcript that was loaded from an archive takes no more messages")

    def get(self, row: int, name: str) -> int:
        """Raise TypeError: single rows of an archive are not read."""
        raise TypeError("a row of an archive is not asked for alone")

    def change(self, row: int, name: str, value: int) -> None:
        """Raise TypeError: rows of an archive do not change."""
        raise TypeError("rows of an archive do not change")
