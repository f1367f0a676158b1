"""The transcript of a run: one row a message, with its size, times, and whether it was late."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.errors import CheckpointError

_COLUMNS = {
    "sender": "i",
    "receiver": "i",
    "kind": "H",
    "round": "q",
    "bytes": "q",
    "sent": "q",
    "arrived": "q",
    "late": "b",
}
NOT_ARRIVED = -1


class Transcript:
    """The list of all messages between different parties, in the order of sending.

    Attributes
    ----------
    bytes : int
        Bytes sent, envelopes included.
    late : int
        Number of messages that came too late to be used.

    Parameters
    ----------
    payloads : bool
        Keep the payloads as well, in `payloads`, row by row. They are the very arrays that the
        parties hold, so a long run keeps every array alive.
    """

    def __init__(self, *, payloads: bool = False) -> None:
        self._columns = {name: array(code) for name, code in _COLUMNS.items()}
        self._kinds: dict[str, int] = {}
        self.payloads: list[Any] | None = [] if payloads else None
        self.bytes = 0
        self.late = 0
        columns = self._columns
        self._appends = tuple(columns[name].append for name in _COLUMNS)

    def __len__(self) -> int:
        return len(self._columns["sender"])

    def add(
        self,
        sender: int,
        receiver: int,
        kind: str,
        round: int,
        nbytes: int,
        sent: int,
        payload: Any,
    ) -> int:
        """Append a message and return its row number."""
        senders, receivers, kinds, rounds, sizes, times, arrivals, late = self._appends
        senders(sender)
        receivers(receiver)
        kinds(self._kinds.setdefault(kind, len(self._kinds)))
        rounds(round)
        sizes(nbytes)
        times(sent)
        arrivals(NOT_ARRIVED)
        late(0)
        self.bytes += nbytes
        if self.payloads is not None:
            self.payloads.append(payload)
        return len(self._columns["sender"]) - 1

    def arrive(self, row: int, time: int) -> None:
        """Note the arrival, in virtual nanoseconds."""
        self._columns["arrived"][row] = time

    def mark_late(self, row: int) -> None:
        """Note that the message came too late to be used."""
        late = self._columns["late"]
        self.late += not late[row]
        late[row] = 1

    def withdraw(self, row: int) -> None:
        """Note that the message was given up before it left: it has no bytes."""
        sizes = self._columns["bytes"]
        self.bytes -= sizes[row]
        sizes[row] = 0

    @property
    def messages(self) -> int:
        """Number of messages sent."""
        return len(self)

    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes sent of each kind of message."""
        kinds = np.array(self._columns["kind"], np.int64)
        sizes = np.array(self._columns["bytes"], np.int64)
        return {kind: int(sizes[kinds == number].sum()) for kind, number in self._kinds.items()}

    def columns(self) -> dict[str, np.ndarray]:
        """Copies of the columns; ``kind`` as text, times in nanoseconds, -1 where not arrived."""
        result = {name: np.array(column) for name, column in self._columns.items()}
        result["kind"] = np.array(list(self._kinds) or [""])[result["kind"]]
        return result

    def totals(self) -> dict[str, np.ndarray]:
        """Messages, bytes and late ones, for each (round, kind, sender, receiver)."""
        columns = {name: np.array(column) for name, column in self._columns.items()}
        keys = np.stack([columns[name] for name in ("round", "kind", "sender", "receiver")])
        groups, where = np.unique(keys, axis=1, return_inverse=True)
        where = where.reshape(-1)  # NumPy 2.0 gives it a second axis
        count = groups.shape[1]
        sums = {
            name: np.bincount(where, weights=columns[name], minlength=count).astype(np.int64)
            for name in ("bytes", "late")
        }
        names = np.array(list(self._kinds) or [""])
        return {
            "round": groups[0],
            "kind": names[groups[1]],
            "sender": groups[2],
            "receiver": groups[3],
            "messages": np.bincount(where, minlength=count),
            **sums,
        }

    def write_csv(self, path: Path) -> None:
        """Write `totals` as comma-separated text; the server is party -1."""
        import pandas as pd

        pd.DataFrame(self.totals()).to_csv(path, index=False)

    def state(self) -> dict[str, Any]:
        """Content as a payload of `securevfl.engine.wire`; payloads are not part of it."""
        return {
            "kinds": tuple(self._kinds),
            "columns": {name: np.array(column) for name, column in self._columns.items()},
        }

    @classmethod
    def joined(cls, states: Iterable[Mapping[str, Any]]) -> Transcript:
        """The transcript of several senders' own ones, ordered by the time of sending."""
        parts = [cls.from_state(state).columns() for state in states]
        made = cls()
        if not parts:
            return made
        columns = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
        order = np.argsort(columns["sent"], kind="stable")
        kinds = columns["kind"][order].tolist()
        made._kinds = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        columns["kind"] = np.array([made._kinds[kind] for kind in columns["kind"].tolist()])
        for name, column in made._columns.items():
            column.frombytes(columns[name][order].astype(np.dtype(column.typecode)).tobytes())
        made.bytes, made.late = sum(made._columns["bytes"]), sum(made._columns["late"])
        return made

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Transcript:
        """Inverse of `state`."""
        made = cls()
        kinds, columns = state["kinds"], state["columns"]
        if set(columns) != set(_COLUMNS):
            raise CheckpointError("checkpoint: its transcript has other columns than this version")
        rows = {np.shape(column) for column in columns.values()}
        if len(rows) != 1 or len(rows.pop()) != 1:
            raise CheckpointError("checkpoint: its transcript has columns of different lengths")
        if len(columns["kind"]) and np.max(columns["kind"]) >= len(kinds):
            raise CheckpointError(f"checkpoint: its transcript names {len(kinds)} kinds, not all")
        for name, column in columns.items():
            if column.dtype != np.dtype(_COLUMNS[name]):
                raise CheckpointError(f"checkpoint: its transcript has a {name} of {column.dtype}")
            made._columns[name].frombytes(np.ascontiguousarray(column).view(np.uint8).data)
        made.bytes = sum(made._columns["bytes"])
        made.late = sum(made._columns["late"])
        made._kinds.update({kind: number for number, kind in enumerate(kinds)})
        return made
