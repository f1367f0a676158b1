"""Files that, after a crash or power cut, are either complete or unchanged.

A file is written beside its place and synced, put into its place by one step, and its folder is
synced: else a file system may show the old file, or an empty one, after a power cut, though what
followed from the new one has left this machine.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def is_full(error: BaseException) -> bool:
    """Whether a file could not be written because the disk or the user's quota is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_durably(
    path: Path, content: str | bytes | Iterable[bytes], *, mode: int = 0o666, new: bool = False
) -> None:
    """Write a file completely or not at all; it is on disk on return.

    Parameters
    ----------
    path, content : Path, and str, bytes, or an iterable of bytes
        The file, and what it will hold.
    mode : int
        Mode of the file, minus the umask, independent of an older file's mode.
    new : bool
        Refuse to replace a file; it is compared and made in one step.

    Raises
    ------
    FileExistsError
        With `new`, where there is one.
    OSError
        If it cannot be written; no partial file remains.
    """
    part = write_beside(path, content, mode=mode)
    try:
        if new:
            os.link(part, path)
        else:
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_beside(path: Path, content: str | bytes | Iterable[bytes], *, mode: int = 0o666) -> Path:
    """Write a temporary file beside `path`, for `put_in_place`; a failure leaves no file."""
    pieces = [content.encode()] if isinstance(content, str) else content
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in [pieces] if isinstance(pieces, bytes) else pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return part


def put_in_place(moves: Iterable[tuple[Path, Path]]) -> None:
    """Move written files to their final paths in turn, and sync the folders."""
    folders = set()
    for source, place in moves:
        os.replace(source, place)
        folders.add(place.parent)
    for folder in folders:
        sync_folder(folder)


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Create a folder and its parents if absent; all are on disk on return."""
    made = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True, mode=mode)
    for one in made:
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries (renamed, new and removed names) to disk."""
    if os.name == "nt":  # which opens no folders, and writes names through
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot; it is its way of writing
            raise
    finally:
        with suppress(OSError):
            os.close(descriptor)
