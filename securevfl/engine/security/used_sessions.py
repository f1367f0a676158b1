"""Sessions that a party has used: a list beside its key, written before it sends.

A party signs an introduction for a session: its keys for the encrypted links. The signature stays
valid. If a session were used again, an old introduction could be replayed and believed, so a party
takes part in each session in one run only. A line of the file is a hash of the session's name, one
of the run's token (`CheckpointStore.run_token`), and the run's folder, where it has one; a run that
is resumed has the same token.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from securevfl.errors import ConfigurationError
from securevfl.writing import write_durably


def list_beside(key: Path) -> Path:
    """Path of the list of sessions in which a key was used, one for each key."""
    return key.with_name(key.name + ".sessions")


def use_session(path: Path, session: str, run: str, folder: Path | None = None) -> None:
    """Add a session to the party's list of used ones, with the token of the run that uses it.

    ConfigurationError when the session was used in another run, or the list cannot be read or
    written.

    Parameters
    ----------
    path : Path
        The party's list; created if needed, with mode 0600.
    run : str
        Unique token of the run.
    folder : Path, optional
        Folder of the run, for the error text.
    """
    from filelock import FileLock

    name, token = _digest("session", session), _digest("run", run)
    try:
        # Two processes that begin at once would each miss what the other writes.
        with FileLock(path.with_name(path.name + ".lock"), mode=0o600, thread_local=False):
            text = path.read_text() if path.exists() else ""
            before = _used(text).get(name)
            if before is None:
                place = "" if folder is None else f" {json.dumps(str(folder.resolve()))}"
                write_durably(path, f"{text}{name} {token}{place}\n", mode=0o600)
    except (OSError, ValueError) as error:
        raise _unusable(path, session, error) from None
    if before is not None and before.token != token:
        raise _used_before(path, session, before.folder)


def refuse_used(path: Path, session: str, run: str | None = None) -> None:
    """Refuse a session that was used in another run.

    ConfigurationError if the session was used in a run with another token (with `run` None, in any
    run), or the list cannot be read.

    Parameters
    ----------
    path, session : Path, str
        The party's list of used sessions, and the name of the session.
    run : str or None
        Token of the run; None for a party without stored state of its run.
    """
    try:
        used = _used(path.read_text()) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise _unusable(path, session, error) from None
    before = used.get(_digest("session", session))
    if before is not None and (run is None or before.token != _digest("run", run)):
        raise _used_before(path, session, before.folder)


class _Use(NamedTuple):
    token: str
    folder: str


def _used(text: str) -> dict[str, _Use]:
    used = {}
    for line in text.splitlines():
        name, token, *place = line.split(" ", 2)
        used[name] = _Use(token, str(json.loads(place[0])) if place else "")
    return used


def _unusable(path: Path, session: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"manifest {session!r}: {path}, the list of the sessions that were used, cannot be "
        f"read or written ({error}); a session is used once, so the list is needed. Make room "
        "there, or let this party write there"
    )


def _used_before(path: Path, session: str, folder: str) -> ConfigurationError:
    where = f", in the folder {folder}" if folder else ""
    return ConfigurationError(
        f"manifest {session!r}: {path} says that this session was used in another run{where}. A "
        "session is used once, since what was signed for it stays signed; resume that run, or "
        "write a new manifest with `securevfl keys manifest` and sign it"
    )


def _digest(what: str, text: str) -> str:
    return hashlib.sha256(f"securevfl {what} {text}".encode()).hexdigest()
