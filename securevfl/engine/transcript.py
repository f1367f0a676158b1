"""Transcript of a run: one row a message, with size, times, and whether it was late.

The newest rows are in memory. If the run has a folder, older ones are stored there in chunks, which
`Transcript.parts` reads; counts are always in memory.
"""

from __future__ import annotations

import csv
import logging
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.engine.transcript_rows import (
    CHUNK,
    COLUMNS,
    ROW_BYTES,
    ArchivedRows,
    Columns,
    HeldRows,
    Rows,
    SpilledRows,
)
from securevfl.errors import CheckpointError

_LOG = logging.getLogger(__name__)
NOT_ARRIVED = -1
_TOGETHER = 1 << 18  # messages that `totals` sums up at once, if one round has no more


class Transcript:
    """The list of all messages between different parties, in the order of sending.

    Attributes
    ----------
    bytes : int
        Bytes sent, with envelopes.
    late : int
        Number of messages that arrived too late to be used.

    Parameters
    ----------
    payloads : bool
        Whether to keep the payloads, by row. They are the parties' own array objects, so a long run
        keeps every array in memory.
    folder : Path, optional
        Folder for older rows; by default they stay in memory, 43 bytes each.
    """

    def __init__(self, *, payloads: bool = False, folder: Path | None = None) -> None:
        self._columns = {name: array(code) for name, code in COLUMNS.items()}
        self._older: Rows = HeldRows() if folder is None else SpilledRows(folder)
        self._base = 0  # rows in `_older`
        self._full = 2 * CHUNK  # newest rows at which the older half of them leaves
        self._kinds: dict[str, int] = {}
        self._bytes_by_kind: list[int] = []
        self.payloads: list[Any] | None = [] if payloads else None
        self.bytes = 0
        self.late = 0
        columns = self._columns
        self._appends = tuple(columns[name].append for name in COLUMNS)

    def __len__(self) -> int:
        return self._base + len(self._columns["sender"])

    def add(
        self,
        sender: int,
        receiver: int,
        kind: str,
        round: int,
        nbytes: int,
        sent: int,
        payload: object,
    ) -> int:
        """Append a message of `nbytes`, sent at `sent` (ns); return its row number."""
        senders, receivers, kinds, rounds, sizes, times, arrivals, late = self._appends
        number = self._number(kind)
        senders(sender)
        receivers(receiver)
        kinds(number)
        rounds(round)
        sizes(nbytes)
        times(sent)
        arrivals(NOT_ARRIVED)
        late(0)
        self.bytes += nbytes
        self._bytes_by_kind[number] += nbytes
        if self.payloads is not None:
            self.payloads.append(payload)
        newest = len(self._columns["sender"])
        if newest >= self._full:
            self._spill()
            newest = len(self._columns["sender"])
        return self._base + newest - 1

    def add_each(
        self, sender: int, receivers: Sequence[int], kind: str, round: int, nbytes: int, sent: int
    ) -> int:
        """Append messages of equal size that a party sends together, without payloads.

        `nbytes` is the size of each with its envelope, `sent` the time in nanoseconds. Returns the
        row number of the first of them.
        """
        number, first, count = self._number(kind), len(self), len(receivers)
        self._columns["receiver"].extend(receivers)
        for name, value in (
            ("sender", sender), ("kind", number), ("round", round), ("bytes", nbytes),
            ("sent", sent), ("arrived", NOT_ARRIVED), ("late", 0),
        ):  # fmt: skip
            column = self._columns[name]
            one = column[:0]
            one.append(value)
            column.extend(one * count)
        self.bytes += count * nbytes
        self._bytes_by_kind[number] += count * nbytes
        if len(self._columns["sender"]) >= self._full:
            self._spill()
        return first

    def _number(self, kind: str) -> int:
        """Number of a kind of message; a new kind gets the next one."""
        number = self._kinds.get(kind)
        if number is None:
            number = self._kinds[kind] = len(self._kinds)
            self._bytes_by_kind.append(0)
        return number

    def _spill(self) -> None:
        """Move the oldest rows in memory, a chunk at a time; on an OSError they stay, and warn."""
        while len(self._columns["sender"]) >= 2 * CHUNK:
            oldest = {
                name: np.array(column[:CHUNK], np.dtype(column.typecode))
                for name, column in self._columns.items()
            }
            try:
                self._older.append(oldest)
            except OSError as error:
                # The run is worth more than its memory; it is tried again after another chunk.
                self._full = len(self._columns["sender"]) + CHUNK
                _LOG.warning("messages cannot leave memory, and stay in it: %s", error)
                return
            for column in self._columns.values():
                del column[:CHUNK]
            self._base += CHUNK
        self._full = 2 * CHUNK

    def arrive(self, row: int, time: int) -> None:
        """Note that a message arrived at a virtual time, in nanoseconds."""
        if row >= self._base:
            self._columns["arrived"][row - self._base] = time
        else:
            self._older.change(row, "arrived", time)

    def mark_late(self, row: int) -> None:
        """Mark a message as too late to be used."""
        self.late += not self._get(row, "late")
        self._set(row, "late", 1)

    def withdraw(self, row: int) -> None:
        """Mark a message as never sent, since its sender gave it up: its bytes become 0."""
        nbytes = self._get(row, "bytes")
        self.bytes -= nbytes
        self._bytes_by_kind[self._get(row, "kind")] -= nbytes
        self._set(row, "bytes", 0)

    def _get(self, row: int, name: str) -> int:
        if row >= self._base:
            return int(self._columns[name][row - self._base])
        return self._older.get(row, name)

    def _set(self, row: int, name: str, value: int) -> None:
        if row >= self._base:
            self._columns[name][row - self._base] = value
        else:
            self._older.change(row, name, value)

    @property
    def spilled(self) -> bool:
        """Whether older rows are in files of the run's folder, and not in memory."""
        return self._base > 0 and isinstance(self._older, SpilledRows)

    @property
    def held(self) -> int:
        """Bytes of memory that the rows take."""
        return self._older.held + len(self._columns["sender"]) * ROW_BYTES

    @property
    def messages(self) -> int:
        """Number of messages sent."""
        return len(self)

    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes sent of each kind of message."""
        return dict(zip(self._kinds, self._bytes_by_kind, strict=True))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of message in the order of first use; ``kind`` in `parts` is an index of them."""
        return tuple(self._kinds)

    def parts(self, only: Collection[int] | None = None) -> Iterator[Columns]:
        """The columns, a chunk of rows at a time; ``kind`` is a number.

        Parameters
        ----------
        only : collection of int, optional
            Numbers of the chunks that are wanted; all if not given.
        """
        yield from self._older.parts(only)
        last = -(-self._base // CHUNK)
        if (len(self._columns["sender"]) or not self._base) and (only is None or last in only):
            yield self._newest()

    def _newest(self) -> Columns:
        return {
            name: np.array(column, np.dtype(column.typecode))
            for name, column in self._columns.items()
        }

    def columns(self) -> dict[str, np.ndarray]:
        """Copies of all rows as columns; ``kind`` is text, times are nanoseconds, -1 for none.

        They hold every row in memory, while `parts` reads a chunk at a time.
        """
        result = self._whole()
        result["kind"] = np.array(list(self._kinds) or [""])[result["kind"]]
        return result

    def _whole(self) -> Columns:
        parts = list(self.parts())
        return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}

    def totals(self) -> dict[str, np.ndarray]:
        """Numbers of messages, bytes and late messages for each (round, kind, sender, receiver)."""
        parts = list(self._totals())
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _totals(self) -> Iterator[dict[str, np.ndarray]]:
        """Totals for some rounds at a time, in order, to bound memory."""
        names = np.array(list(self._kinds) or [""])
        for rounds, chunks in self._ranges():
            columns = self._of_rounds(rounds, chunks)
            keys = [columns[name] for name in ("round", "kind", "sender", "receiver")]
            groups, where = _grouped(keys)
            count = len(groups[0])
            sums = {
                name: np.bincount(where, weights=columns[name], minlength=count).astype(np.int64)
                for name in ("bytes", "late")
            }
            yield {
                "round": groups[0],
                "kind": names[groups[1]],
                "sender": groups[2],
                "receiver": groups[3],
                "messages": np.bincount(where, minlength=count),
                **sums,
            }

    def _ranges(self) -> list[tuple[tuple[int, int], set[int]]]:
        """Ranges of rounds (first, last) that are totalled together, with their chunks."""
        sizes: dict[int, int] = {}
        chunks: dict[int, set[int]] = {}
        for number, part in enumerate(self.parts()):
            found = np.unique(part["round"], return_counts=True)
            for round, count in zip(*(each.tolist() for each in found), strict=True):
                sizes[round] = sizes.get(round, 0) + count
                chunks.setdefault(round, set()).add(number)
        ranges: list[tuple[tuple[int, int], set[int]]] = []
        together = _TOGETHER + 1
        for round in sorted(sizes):
            together += sizes[round]
            if together > _TOGETHER:
                ranges.append(((round, round), chunks[round]))
                together = sizes[round]
            else:
                (first, _), before = ranges[-1]
                ranges[-1] = (first, round), before | chunks[round]
        return ranges or [((0, 0), {0})]

    def _of_rounds(self, rounds: tuple[int, int], chunks: set[int]) -> Columns:
        """Transcript rows of a range of rounds."""
        first, last = rounds
        chosen = []
        for part in self.parts(chunks):
            here = (part["round"] >= first) & (part["round"] <= last)
            chosen.append({name: column[here] for name, column in part.items()})
        return {name: np.concatenate([part[name] for part in chosen]) for name in COLUMNS}

    def write_csv(self, path: Path) -> None:
        """Write `totals` as comma-separated text; the server is party -1."""
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            for number, part in enumerate(self._totals()):
                if not number:
                    writer.writerow(part)
                writer.writerows(zip(*(column.tolist() for column in part.values()), strict=True))

    def state(self) -> dict[str, object]:
        """Content as a payload of `securevfl.engine.wire`, without the messages' payloads.

        Rows that left memory stay in their folder, and the state names their files.
        """
        kinds = tuple(self._kinds)
        if isinstance(self._older, SpilledRows) and self._base:
            return {
                "kinds": kinds,
                "columns": self._newest(),
                "older": self._older.state(),
                "bytes_by_kind": tuple(self._bytes_by_kind),
                "late": self.late,
            }
        return {"kinds": kinds, "columns": self._whole()}

    @classmethod
    def joined(cls, states: Iterable[Mapping[str, Any]]) -> Transcript:
        """Joint transcript from several senders' own, ordered by time of sending."""
        parts = [cls.from_state(state).columns() for state in states]
        made = cls()
        if not parts:
            return made
        columns = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
        order = np.argsort(columns["sent"], kind="stable")
        kinds = columns["kind"][order].tolist()
        made._kinds = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        columns["kind"] = np.array([made._kinds[kind] for kind in columns["kind"].tolist()])
        made._fill(
            {name: columns[name][order].astype(np.dtype(code)) for name, code in COLUMNS.items()}
        )
        return made

    def _fill(self, columns: Mapping[str, np.ndarray]) -> None:
        """Store rows and add them to the totals; `_kinds` must be set."""
        for name, column in self._columns.items():
            column.frombytes(np.ascontiguousarray(columns[name]).view(np.uint8).data)
        self._count(columns)
        self._spill()

    def _count(self, columns: Mapping[str, np.ndarray]) -> None:
        sums = np.zeros(len(self._kinds), np.int64)
        np.add.at(sums, columns["kind"], columns["bytes"])
        self._bytes_by_kind += [0] * (len(sums) - len(self._bytes_by_kind))
        for number in np.flatnonzero(sums).tolist():
            self._bytes_by_kind[number] += int(sums[number])
        self.bytes += int(columns["bytes"].sum())
        self.late += int(columns["late"].sum())

    @classmethod
    def from_state(cls, state: Mapping[str, Any], folder: Path | None = None) -> Transcript:
        """Transcript from the content that `state` returned.

        Parameters
        ----------
        state : mapping
            Result of `state`; CheckpointError for other columns.
        folder : Path, optional
            Folder of the run; needed if rows had left memory.
        """
        made = cls(folder=folder)
        kinds, columns = state["kinds"], state["columns"]
        if set(columns) != set(COLUMNS):
            raise CheckpointError("checkpoint: its transcript has other columns than this version")
        rows = {np.shape(column) for column in columns.values()}
        if len(rows) != 1 or len(rows.pop()) != 1:
            raise CheckpointError("checkpoint: its transcript has columns of different lengths")
        made._take_kinds(kinds, columns)
        for name, column in columns.items():
            if column.dtype != np.dtype(COLUMNS[name]):
                raise CheckpointError(f"checkpoint: its transcript has a {name} of {column.dtype}")
        if "older" in state:
            if folder is None:
                raise CheckpointError("checkpoint: its transcript has rows in a folder")
            made._older = SpilledRows(folder, state["older"])
            made._base = made._older.count
        made._fill(columns)
        if "older" in state:
            made._bytes_by_kind = list(state["bytes_by_kind"])
            made.bytes, made.late = sum(made._bytes_by_kind), state["late"]
        return made

    def _take_kinds(self, kinds: Iterable[str], columns: Mapping[str, np.ndarray]) -> None:
        self._kinds |= {kind: number for number, kind in enumerate(kinds)}
        if len(columns["kind"]) and np.max(columns["kind"]) >= len(self._kinds):
            raise CheckpointError(
                f"checkpoint: its transcript names {len(self._kinds)} kinds, not all"
            )

    @classmethod
    def archived(
        cls, kinds: Iterable[str], read: Callable[[], Iterator[Columns]], count: int
    ) -> Transcript:
        """Transcript of a finished run, read from its archive in chunks as needed.

        Parameters
        ----------
        kinds, read : iterable of str, callable
            Names of the kinds in the order of their numbers; function that returns the archive's
            chunks.
        count : int
            Number of all rows.
        """
        made = cls()
        made._older, made._base = ArchivedRows(read, count), count
        kinds = tuple(kinds)
        for part in read():
            made._take_kinds(kinds, part)
            made._count(part)
        return made


def _grouped(keys: list[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Distinct rows of a table in order, by column, and each row's position among them."""
    wide = [key.astype(np.int64) for key in keys]
    least = [int(key.min(initial=0)) for key in wide]
    spans = [int(key.max(initial=0)) - low + 1 for key, low in zip(wide, least, strict=True)]
    together = 1
    for span in spans:
        together *= span
    if together >= 2**62:  # numbers as no run has them
        groups, where = np.unique(np.stack(wide), axis=1, return_inverse=True)
        return list(groups), where.reshape(-1)  # NumPy 2.0 gives it a second axis
    one = np.zeros(len(wide[0]), np.int64)
    for key, low, span in zip(wide, least, spans, strict=True):
        one = one * span + (key - low)
    found, where = np.unique(one, return_inverse=True)
    columns = []
    for low, span in zip(reversed(least), reversed(spans), strict=True):
        columns.append(found % span + low)
        found = found // span
    return columns[::-1], where.reshape(-1)
