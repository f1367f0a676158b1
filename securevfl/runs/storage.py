"""A finished run on disk: state of its parties, every message, and the way back to a `Run`."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.engine.checkpoint import read_file, write_file
from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.engine.party_state import how, states
from securevfl.engine.transcript import Transcript
from securevfl.engine.transcript_rows import CHUNK, COLUMNS, ROW_BYTES
from securevfl.errors import CheckpointError, ConfigurationError, SecureVFLError
from securevfl.reading import NOT_PARSED, count_rows, read_pieces, read_small
from securevfl.runs.folders.models import NO_MODELS
from securevfl.runs.history import History, Rows
from securevfl.verified import bare_of
from securevfl.writing import write_durably

SUMMARY, HISTORY = "summary.json", "history.jsonl"
PARTIES, MESSAGES = "parties.state", "messages.npz"
CONFIG, FACTS = "config.toml", "facts.json"
EVIDENCE = "evidence.json"  # of a lie that ended the run
TOTALS, MODELS = "messages.csv", "model.npz"
DESCRIPTION = re.compile(r"server\.json|party-\d+\.json")  # of each party's model
RESULT = (HISTORY, MESSAGES, TOTALS, PARTIES, MODELS, SUMMARY)

_LOADED = 4 * CHUNK  # messages of a finished run that are held in memory, where it has no more
_MOST_KINDS = 2**20  # bytes of the names of kinds
_NO_ROWS = {name: np.empty(0, code) for name, code in COLUMNS.items()}


def write_parties(path: Path, parties: Mapping[int, Party]) -> None:
    """Write the parties' state: models, optimisers and counters; no data and no masks.

    For models that exist only in shares, the shares are written.
    """
    write_file(path, {index: _kept(party) for index, party in parties.items()})


def _kept(party: Party) -> dict[str, object]:
    lasting = (name for name in party.kept if how(name).way != "passing")
    of_result = (name for name in lasting if how(name).way == "copied" or how(name).shares)
    models = (n for n in of_result if not isinstance(bare_of(getattr(party, n)), NO_MODELS))
    return states(party, models)


def read_parties(path: Path, parties: Mapping[int, Party]) -> None:
    """Restore the stored state of a run into new parties of the same protocol.

    CheckpointError if the file is damaged, or written by another version of the protocol.
    """
    saved: dict[int, dict[str, Any]] = read_file(path)
    try:
        _give_back(path, saved, parties)
    except SecureVFLError:
        raise
    # States of optimisers and of torch's modules are checked by these, each in its own way.
    except Exception as error:
        raise CheckpointError(
            f"load: {path} does not fit this run: {type(error).__name__}: {error}"
        ) from None


def _give_back(path: Path, saved: dict[int, dict[str, Any]], parties: Mapping[int, Party]) -> None:
    if sorted(saved) != sorted(parties):
        raise CheckpointError(f"load: {path} is of {len(saved)} parties, not of {len(parties)}")
    for index, party in parties.items():
        if sorted(saved[index]) != sorted(_kept(party)):
            raise CheckpointError(
                f"load: party {index} keeps {sorted(_kept(party))}, and {path} holds "
                f"{sorted(saved[index])}; it was written by another version of this protocol"
            )
        for name, value in saved[index].items():
            own: Any = getattr(party, name)
            if hasattr(own, "load_state_dict"):
                own.load_state_dict(value)
            else:
                own_copy = value.copy() if isinstance(value, np.ndarray) else value
                setattr(party, name, party.from_checkpoint(own_copy))


def write_config(path: Path, text: str) -> None:
    """Write a run's specification, readable by its owner only, since it holds the secret seed."""
    write_durably(path, text, mode=0o600)


def write_history(path: Path, rows: Rows, events: Rows) -> None:
    """Write history rows and other events, both in the order of recording.

    Events of a round follow its row. Times do not give the order, because a clock may be set.
    """
    entries = merge(rows, events, key=itemgetter("round"))
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def read_history(folder: Path) -> tuple[History, History]:
    """History rows, and all other events, in the order of recording.

    ConfigurationError if the folder has no history; CheckpointError if it is damaged, or its steps
    do not ascend.
    """
    path = folder / HISTORY
    try:
        return parse_history(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"load: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # also of bytes that are no text
        raise CheckpointError(f"load: {path} is damaged: {error}") from None


def parse_history(text: str) -> tuple[History, History]:
    """Rows (server steps) and other events of a history, a JSON text with one event a line.

    ValueError names a line that is no event of a run, or whose step is out of order.
    """
    rows, events, newest = History(), History(), -1
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except NOT_PARSED as error:
            raise ValueError(f"line {number} is not valid JSON: {error}") from None
        if not _is_step(entry, number):
            events.append(entry)
            continue
        if entry["step"] <= newest:
            raise ValueError(
                f"line {number} is of step {entry['step']}, and stands after step {newest}; the "
                "file was changed. Take it from a copy, or run it again"
            )
        newest = entry["step"]
        rows.append(entry)
    return rows, events


_EVENT: dict[str, Any] = {"event": str, "party": int, "round": int, "time": (int, float)}


def _is_step(entry: object, number: int) -> bool:
    """Whether an entry is a history row; refuse an entry that is no event."""
    row = isinstance(entry, dict) and (entry.get("event"), entry.get("party")) == ("round", SERVER)
    for name, kind in (_EVENT | {"step": int} if row else _EVENT).items():
        if not isinstance(entry, dict) or not isinstance(entry.get(name), kind):
            raise ValueError(
                f"line {number} is no event of a run: it needs a {name!r}; the file was changed or "
                "is of another version"
            )
    return row


def write_transcript(folder: Path, transcript: Transcript) -> None:
    """Write every message, compressed; ``messages.csv`` holds the totals."""
    kinds = np.array(transcript.kinds, dtype=np.str_)
    with zipfile.ZipFile(folder / MESSAGES, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("kinds.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, kinds, allow_pickle=False)
        for name, code in COLUMNS.items():  # column by column, each of them chunk by chunk
            form = np.lib.format.dtype_to_descr(np.dtype(code))
            shape = (transcript.messages,)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": form, "fortran_order": False, "shape": shape}
                )
                for part in transcript.parts():
                    file.write(part[name].tobytes())


def messages_bytes(folder: Path) -> int:
    """Memory, in bytes, of the columns of all messages; 0 if the file is damaged."""
    try:
        return count_rows(folder / MESSAGES, COLUMNS) * ROW_BYTES
    except (OSError, ValueError):
        return 0


def read_transcript(folder: Path) -> Transcript:
    """Every message of a finished run; large transcripts stay on disk until they are used.

    ConfigurationError if the run stored none; CheckpointError if the file is damaged.
    """
    path = folder / MESSAGES
    if not folder.is_dir():
        raise ConfigurationError(f"load: {folder} is no folder; name the folder of a run")
    if not path.exists():
        raise ConfigurationError(
            f"load: {folder} has no {MESSAGES}: the run did not end, or the file was removed"
        )

    def parts() -> Iterator[dict[str, np.ndarray]]:
        try:
            yield from read_pieces(path, COLUMNS, CHUNK)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"load: {path} is damaged: {error}") from None

    try:
        kinds = tuple(read_small(path, "kinds", _MOST_KINDS).tolist())
        count = count_rows(path, COLUMNS)
        if count > _LOADED:
            return Transcript.archived(kinds, parts, count)
        whole = list(read_pieces(path, COLUMNS, _LOADED)) or [_NO_ROWS]
        return Transcript.from_state({"kinds": kinds, "columns": whole[0]})
    except (OSError, ValueError, TypeError, CheckpointError) as error:
        raise CheckpointError(f"load: {path} is damaged: {error}") from None
