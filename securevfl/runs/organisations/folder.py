"""The folder of one organisation: its manifest, events, checkpoints and results.

``session.toml`` is the manifest with all signatures; ``events.jsonl`` has this party's events, one
per line; ``own`` has the lock and the number of the process's incarnation; ``phases`` has the
checkpoints and the result of each phase; ``parties`` has the numbers of the aligned rows of the
party's table. A finished session leaves the files of a run, for this party alone and without
checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from securevfl.engine.checkpoint import read_file, write_file
from securevfl.engine.network import Event
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.security.identity import Manifest
from securevfl.errors import CheckpointError, ConfigurationError
from securevfl.reading import NOT_PARSED
from securevfl.runs.history import Row
from securevfl.runs.storage import SUMMARY
from securevfl.writing import write_durably

SESSION, EVENTS, STATE = "session.toml", "events.jsonl", "state.json"
RESULT = "result.svfl"
_CLAIM = 2.0  # seconds to wait for an earlier process of this folder to end


class OwnFolder:
    """The folder of one organisation in one session, made if needed.

    ConfigurationError if the folder belongs to another session or party, or has foreign files;
    CheckpointError if another process runs in it.
    """

    def __init__(self, path: Path, manifest: Manifest, index: int) -> None:
        self.path = path
        self.index = index
        own = path / "own"
        if path.exists() and not own.is_dir() and any(path.iterdir()):
            raise ConfigurationError(
                f"session: the folder {path} is not empty, and no session was begun in it. Choose "
                "another with --out"
            )
        self.store = CheckpointStore(own)
        self.store.claim(_CLAIM)
        self._state = self._read_state()
        self._data: str | None = None  # hash of the table in use
        name = [manifest.digest.hex(), index]
        if self._state.setdefault("session", name) != name:
            raise ConfigurationError(
                f"session: the folder {path} is of another session, or of another party. Choose "
                "another with --out, for a prediction with --name"
            )
        self._write_state()

    def _read_state(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.path / STATE).read_text())
        except FileNotFoundError:
            return {}
        except NOT_PARSED as error:
            raise CheckpointError(
                f"session: {self.path / STATE} is damaged ({error}). Put it back from a copy"
            ) from None
        return found

    def _write_state(self) -> None:
        write_durably(self.path / STATE, json.dumps(self._state))

    @property
    def phase(self) -> int:
        """Number of the session's present phase, as far as this party knows."""
        return int(self._state.get("phase", 0))

    @phase.setter
    def phase(self, number: int) -> None:
        self._state["phase"] = number
        self._write_state()

    @property
    def ended(self) -> bool:
        """Whether the session has ended and its result is written."""
        return (self.path / SUMMARY).exists()

    def origin(self, phase: str) -> int:
        """Time of the first call for a phase, by ``time.time_ns()``; stored over restarts."""
        origins = self._state.setdefault("origins", {})
        if phase not in origins:
            origins[phase] = time.time_ns()
            self._write_state()
        return int(origins[phase])

    def use_data(self, file: Path | None) -> None:
        """Set the table in use; ConfigurationError unless it is that of `pin_data`, if any."""
        self._data = None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
        if self._state.get("data", self._data) != self._data:
            raise ConfigurationError(
                f"session: {file} is not the table with which this session was begun. Give that "
                "one, or make another manifest"
            )

    def pin_data(self) -> None:
        """Fix the table in use for the whole session, once the rows are joined."""
        self._state["data"] = self._data
        self._write_state()

    def manifest(self, known: Manifest) -> Manifest:
        """The manifest with all signatures, if stored; else `known`."""
        path = self.path / SESSION
        if not path.exists():
            return known
        found = Manifest.read(path)
        return known if found.digest != known.digest or found.unsigned else found

    def keep_manifest(self, manifest: Manifest) -> None:
        """Write the manifest with all signatures."""
        write_durably(self.path / SESSION, manifest.to_toml())

    def phase_store(self, phase: str) -> CheckpointStore:
        """Store of checkpoints of a phase."""
        return CheckpointStore(self.path / "phases" / phase)

    def write_result(self, phase: str, result: object) -> None:
        """Write the result of a phase, completely or not at all."""
        write_file(self.path / "phases" / phase / RESULT, result)

    def result(self, phase: str) -> Any:
        """The result of a phase; CheckpointError if it is missing or damaged."""
        return read_file(self.path / "phases" / phase / RESULT)

    def has_result(self, phase: str) -> bool:
        """Whether a complete result of a phase is stored."""
        try:
            self.result(phase)
        except CheckpointError:
            return False
        return True

    def forget_result(self, phase: str) -> None:
        """Remove the result of a phase that is repeated."""
        (self.path / "phases" / phase / RESULT).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all shares of rows and all files that serve restarts only.

        The numbers of the common rows and their public facts are kept for predictions.
        """
        for path in (self.path / "phases").glob("*"):
            for left in [path] if path.name != "tables" else set(path.iterdir()) - {path / RESULT}:
                _remove(left)
        (self.path / EVENTS).unlink(missing_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


class EventLog:
    """Events of a party on disk, line by line; a line cut off by a crash is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: list[Row] = []
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                self._entries.append(json.loads(line))
            except NOT_PARSED:
                continue
        self._write()
        self._file = path.open("a")

    def add(self, phase: str, event: Event) -> None:
        """Append an event to the file at once, before the checkpoint that follows."""
        entry = {"phase": phase, "event": event._asdict()}
        self._entries.append(entry)
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def events(self, *phases: str) -> list[Event]:
        """Events of the phases, in the order of their recording."""
        return [Event(**entry["event"]) for entry in self._entries if entry["phase"] in phases]

    def go_back(self, phase: str, at: int | None) -> None:
        """Delete events of a phase after round `at`, or all for None."""
        last = -1 if at is None else at
        self._entries = [
            entry
            for entry in self._entries
            if entry["phase"] != phase or entry["event"]["round"] <= last
        ]
        self._file.close()
        self._write()
        self._file = self._path.open("a")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self) -> None:
        write_durably(self._path, "".join(json.dumps(entry) + "\n" for entry in self._entries))
