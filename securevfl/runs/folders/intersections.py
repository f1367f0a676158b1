"""Cache of intersections, by the identifiers of all sets.

An entry has the rows of the common identifiers in each set, and the cost of the intersection. Its
name is a hash of the sets. On reading, an entry is compared with the sets, so a damaged or foreign
entry cannot join wrong rows.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from securevfl.data.alignment.join import match_plainly
from securevfl.reading import read_arrays
from securevfl.writing import write_durably

VARIABLE = "SECUREVFL_CACHE"  # a folder, or "none"
_FORM = "securevfl intersection 1"
_WORTH = 5_000  # identifiers of all sets from which an entry is kept: it takes a second to find
_MOST = 20  # entries that are kept; the oldest are removed

Rows = list[np.ndarray]


def cache_folder() -> Path | None:
    """Folder of the cache; None if it is switched off or there is no home folder."""
    named = os.environ.get(VARIABLE)
    if named == "none":
        return None
    if named:
        return Path(named) / "intersections"
    with suppress(RuntimeError):
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(home) / "securevfl" / "intersections"
    return None


def kept_intersection(sets: Sequence[Sequence[str]]) -> tuple[Rows, str] | None:
    """Rows and costs (a sentence) of the cached intersection of these sets; None if not valid."""
    folder = _folder_for(sets)
    if folder is None:
        return None
    try:
        arrays = read_arrays(folder / _name(sets))
        note = str(arrays.pop("note"))
        rows = [arrays[f"rows_{n}"] for n in range(len(sets))]
    except (OSError, ValueError, KeyError):
        return None
    return (rows, note) if _is_right(rows, sets) else None


def keep_intersection(sets: Sequence[Sequence[str]], rows: Rows, note: str) -> None:
    """Store an intersection (`rows`) of sets of 5,000 or more, mode 0600; ignore a write error."""
    folder = _folder_for(sets)
    if folder is None:
        return
    arrays = {f"rows_{n}": own.astype(np.int64) for n, own in enumerate(rows)}
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, note=np.array(note), **arrays)
        write_durably(folder / _name(sets), buffer.getvalue(), mode=0o600)
        entries = sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime)
        for old in entries[:-_MOST]:
            old.unlink()


def _folder_for(sets: Sequence[Sequence[str]]) -> Path | None:
    return cache_folder() if sum(map(len, sets)) >= _WORTH else None


def _name(sets: Sequence[Sequence[str]]) -> str:
    """File name of a cache entry: a hash of format version and all identifiers in order."""
    digest = hashlib.sha256(_FORM.encode())
    for own in sets:
        digest.update(json.dumps(list(own)).encode())
    return f"{digest.hexdigest()}.npz"


def _is_right(rows: Rows, sets: Sequence[Sequence[str]]) -> bool:
    """Whether the rows are those of all common identifiers, in one order for all sets."""
    wanted, _ = match_plainly(sets)
    first = rows[0]
    if not all(own.dtype == np.int64 and own.shape == wanted[0].shape for own in rows):
        return False
    if not np.array_equal(np.sort(first), np.sort(wanted[0])):
        return False
    place = {row: n for n, row in enumerate(wanted[0].tolist())}
    order = [place[row] for row in first.tolist()]
    return all(np.array_equal(own, known[order]) for own, known in zip(rows, wanted, strict=True))
