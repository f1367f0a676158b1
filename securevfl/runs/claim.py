"""Lock on a run's folder: only one process at a time writes to it.

A run that begins takes an empty folder and leaves a marker there, ``run.begun``, until its end.
Files of an earlier process are removed only if that marker exists.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from securevfl.engine.checkpoint import has_checkpoint
from securevfl.errors import ConfigurationError
from securevfl.runs.folders.checksums import BESIDE
from securevfl.runs.storage import CONFIG, DESCRIPTION, FACTS, RESULT, SUMMARY
from securevfl.writing import write_durably

LOCK, MARKER = "run.lock", "run.begun"
MARK = "A run of securevfl was begun in this folder, which was empty.\n"
_BEGUN = (CONFIG, LOCK, MARKER, FACTS, *RESULT)  # what a run without a checkpoint may have left
_BEGUN_FOLDERS = ("parties", BESIDE)
_PARTIAL = (".part", ".svfl")  # files that were being written, and constants of no checkpoint


@contextmanager
def claimed(folder: Path | None, *, new: bool) -> Iterator[None]:
    """Context that holds the lock of a run's folder; the folder is created if needed.

    Folder None means a run that stores nothing. A run that begins (`new`) needs an unused folder;
    if it fails before its start, its files are removed again. ConfigurationError if another process
    runs in the folder, or a new run's folder has files, or it is read-only.
    """
    if folder is None:
        yield
        return
    from filelock import FileLock, Timeout

    made = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        _refuse_other_lock(folder / LOCK)
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise ConfigurationError(
            f"run: another process runs in {folder}. Wait until it has ended, or choose another "
            "folder; nothing was changed"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"run: the folder {folder} cannot be used: {error.strerror or error}. Choose another"
        ) from None
    there = {path.name for path in folder.iterdir()}
    try:
        if new:
            refuse_used(folder)
            write_durably(folder / MARKER, MARK)  # the folder is empty now
        yield
    except ConfigurationError:
        if new and is_begun(folder) and not _has_progress(folder):
            _remove(path for path in folder.iterdir() if path.name not in there)
        raise
    finally:
        if (folder / SUMMARY).exists() and is_begun(folder):
            unmark(folder)
        with suppress(OSError):
            (folder / LOCK).unlink()
        lock.release()
        for path in made:
            with suppress(OSError):  # it is not empty
                path.rmdir()


def _refuse_other_lock(path: Path) -> None:
    """Raise ConfigurationError if a file with the lock's name has content: a lock empties it."""
    if path.is_file() and path.stat().st_size:
        raise ConfigurationError(
            f"run: {path} is no lock of a run: it has content. Choose another folder; nothing was "
            "changed"
        )


def is_begun(folder: Path) -> bool:
    """Whether a run has begun in this folder, which was empty, and has not ended."""
    try:
        return (folder / MARKER).read_text() == MARK
    except (OSError, ValueError):
        return False


def unmark(folder: Path) -> None:
    """Remove the marker of an unfinished run, so that the folder's content stays."""
    (folder / MARKER).unlink(missing_ok=True)


def refuse_used(folder: Path) -> None:
    """Raise ConfigurationError for a folder that is not empty, which says what it holds.

    An earlier run there that reached no checkpoint is no hindrance: its files are removed, except
    tables that parties prepared.
    """
    if (folder / SUMMARY).exists():
        what = "it holds a finished run. Choose another folder"
    elif _has_progress(folder):
        what = (
            f"it holds a run that was stopped. Go on with `securevfl resume {folder}`, or choose "
        )
        what += "another folder"
    elif any(path.name != LOCK for path in folder.iterdir()) and not (
        is_begun(folder) and all(map(_may_be_left, folder.iterdir()))
    ):
        what = "it is no folder of a run. Choose another"
    else:
        kept = (LOCK, MARKER, FACTS, "parties")
        _remove(path for path in folder.iterdir() if path.name not in kept)
        return
    raise ConfigurationError(f"run: the folder {folder} is not empty: {what}")


def _may_be_left(path: Path) -> bool:
    if path.is_dir():
        return path.name in _BEGUN_FOLDERS
    named = path.name in _BEGUN or DESCRIPTION.fullmatch(path.name) is not None
    return named or path.suffix in _PARTIAL


def _has_progress(folder: Path) -> bool:
    """Whether the folder has a result, or a checkpoint from which a run can resume."""
    parties = any(folder.glob("parties/*/rounds.svfl"))
    return (folder / SUMMARY).exists() or has_checkpoint(folder) or parties


def _remove(paths: Iterator[Path]) -> None:
    for path in list(paths):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
