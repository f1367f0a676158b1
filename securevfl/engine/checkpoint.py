"""Checkpoint files: written completely or not at all, checked on reading, never unpickled.

A folder holds ``checkpoint.svfl`` and the one before it, ``checkpoint.previous.svfl``, and for each
party that keeps large constants ``once-<party>.svfl``, written with the first checkpoint.
``messages-rows-<number>.svfl`` and ``messages-changes-<number>.svfl`` are older messages of a long
run, and ``history-<what>-<number>.svfl`` older entries of its history; they are written once, and
checkpoints name them (`securevfl.engine.transcript_rows`, `securevfl.runs.engines.autosave`).
``checkpoint.resumed.svfl`` counts how often the run was resumed. A file is a magic word, the
format's version, a SHA-256 of the rest, and a payload of `engine.wire`. A simulation's checkpoint
holds messages in flight, shares among them: its mode is 0600.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from securevfl.engine import wire
from securevfl.errors import CheckpointError, ConfigurationError, WireError
from securevfl.writing import make_folder, put_in_place, write_beside, write_durably

_MAGIC = b"SVFLCKPT"
_VERSION = 1
_NAME = "checkpoint.svfl"
_PREVIOUS = "checkpoint.previous.svfl"
_RESUMED = "checkpoint.resumed.svfl"


def write_checkpoint(folder: Path, state: Mapping[str, Any]) -> None:
    """Write a simulation's state atomically, and keep the previous one.

    Parameters
    ----------
    folder : Path
        Created if needed.
    state : mapping
        ``{"simulation": Simulation.state(), ...}``; the other values are any payloads.
    """
    make_folder(folder)
    current, previous = folder / _NAME, folder / _PREVIOUS
    first = not current.exists() and not previous.exists()
    simulation = dict(state["simulation"])
    simulation["parties"] = {
        index: _without_constants(folder, index, saved, first=first)
        for index, saved in simulation["parties"].items()
    }
    part = write_beside(current, _sealed({**state, "simulation": simulation}), mode=0o600)
    kept = [(current, previous)] if current.exists() else []  # the new one is whole now
    put_in_place([*kept, (part, current)])


def read_checkpoint(folder: Path) -> dict[str, object]:
    """State of the newest readable checkpoint.

    ConfigurationError if there is none, because the run stopped before its first one.
    CheckpointError if there are files, but each is damaged or of another version.
    """
    reasons = []
    for name in (_NAME, _PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        try:
            state: dict[str, Any] = read_file(path)
        except CheckpointError as error:
            reasons.append(str(error))
            continue
        try:
            for index, saved in state["simulation"]["parties"].items():
                if saved["snapshot"]["once"]:
                    saved["snapshot"]["once"] = read_file(_once(folder, index))
        except (KeyError, TypeError, AttributeError):
            reasons.append(f"checkpoint: {path} is no state of a simulation")
            continue
        return state
    if not reasons:
        raise ConfigurationError(
            f"checkpoint: there is none in {folder}; the run was stopped before its first one, so "
            "start it again"
        )
    raise CheckpointError("; ".join(reasons))


def begin_resumption(folder: Path) -> int:
    """Number of a new resumption, from 1, never used before and stored before use.

    CheckpointError if the number of the last one cannot be read.
    """
    path = folder / _RESUMED
    number = 1 + (int(read_file(path)) if path.exists() else 0)
    write_file(path, number)
    return number


def has_checkpoint(folder: Path) -> bool:
    """Whether a folder holds a simulation's checkpoint, whole or not."""
    return any((folder / name).exists() for name in (_NAME, _PREVIOUS))


def remove_checkpoints(folder: Path) -> None:
    """Delete all checkpoint files, so that a finished run has no shares on disk."""
    names = ("once-*.*", "messages-*.*", "history-*.*", "checkpoint.*")
    for path in [path for name in names for path in folder.glob(name)]:
        if path.suffix in (".svfl", ".part"):
            path.unlink(missing_ok=True)


def _once(folder: Path, index: int) -> Path:
    return folder / f"once-{index}.svfl"


def _without_constants(
    folder: Path, index: int, saved: Mapping[str, Any], *, first: bool
) -> dict[str, object]:
    """The state without its constants, which are written to a separate file.

    A folder's first checkpoint overwrites an existing file of constants, which is left from a run
    without a checkpoint.
    """
    once = saved["snapshot"]["once"]
    if once and (first or not _once(folder, index).exists()):
        write_file(_once(folder, index), once)
    return {**saved, "snapshot": {**saved["snapshot"], "once": dict.fromkeys(once)}}


def write_file(path: Path, value: object) -> None:
    """Write a payload with its checksum, completely or not at all, with mode 0600."""
    write_durably(path, _sealed(value), mode=0o600)


def _sealed(value: object) -> tuple[bytes, bytes]:
    """Head and body of a payload's file."""
    body = wire.encode(value)
    return _MAGIC + _VERSION.to_bytes(4, "little") + hashlib.sha256(body).digest(), body


def read_file(path: Path) -> Any:
    """Payload of a file written by `write_file`, after a check.

    CheckpointError if the file is damaged, has another version, or is no checkpoint.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"checkpoint: {path} cannot be read: {error.strerror}") from None
    start = len(_MAGIC) + 4
    if data[: len(_MAGIC)] != _MAGIC:
        raise CheckpointError(f"checkpoint: {path} is not a checkpoint of securevfl")
    version = int.from_bytes(data[len(_MAGIC) : start], "little")
    if version != _VERSION:
        raise CheckpointError(
            f"checkpoint: {path} has format {version}, this version reads {_VERSION}"
        )
    body = memoryview(data)[start + 32 :]
    if hashlib.sha256(body).digest() != data[start : start + 32]:
        raise CheckpointError(f"checkpoint: {path} is damaged: its checksum does not fit")
    try:
        return wire.decode(body)
    except WireError as error:
        raise CheckpointError(f"checkpoint: {path} is damaged: {error}") from None
