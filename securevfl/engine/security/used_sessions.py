"""The sessions that a party has taken part in: a list beside its key, written before it speaks.

A party signs an introduction for a session: its keys for the encrypted links. The signature stays
valid. If a session were used again, an old introduction could be replayed and believed, so a party
takes part in each session in one run only. Lines of the file are a hash of the
session's name and of the run's token (`CheckpointStore.run_token`); a run that is resumed has the
same token.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from securevfl.errors import ConfigurationError


def use_session(path: Path, session: str, run: str) -> None:
    """Note that a session is used in a run; refuse one that was used in another.

    Parameters
    ----------
    path : Path
        The party's list; created if needed, with mode 0600.
    session : str
    run : str
        Token of the run, which another run has not.

    Raises
    ------
    ConfigurationError
        When the session was used in another run, or the list cannot be read or written.
    """
    from filelock import FileLock

    name, token = _digest("session", session), _digest("run", run)
    try:
        # Two processes that begin at once would each miss what the other writes.
        with FileLock(path.with_suffix(".lock"), mode=0o600, thread_local=False):
            text = path.read_text() if path.exists() else ""
            before = _used(text).get(name)
            if before is None:
                _write(path, f"{text}{name} {token}\n")
    except (OSError, ValueError) as error:
        raise _unusable(path, session, error) from None
    if before is not None and before != token:
        raise _used_before(path, session)


def refuse_used(path: Path, session: str) -> None:
    """Refuse a session that was used, for a party that has nothing of its run.

    Raises
    ------
    ConfigurationError
    """
    try:
        used = _used(path.read_text()) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise _unusable(path, session, error) from None
    if _digest("session", session) in used:
        raise _used_before(path, session)


def _used(text: str) -> dict[str, str]:
    return dict(line.split() for line in text.splitlines())


def _unusable(path: Path, session: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"manifest {session!r}: {path}, the list of the sessions that were used, cannot be "
        f"read or written ({error}); a session is used once, so the list is needed. Make the "
        "folder writable for this party"
    )


def _used_before(path: Path, session: str) -> ConfigurationError:
    return ConfigurationError(
        f"manifest {session!r}: {path} says that this session was used in another run. A "
        "session is used once, since what was signed for it stays signed; resume that run, or "
        "write a new manifest with `securevfl keys manifest` and sign it"
    )


def _digest(what: str, text: str) -> str:
    return hashlib.sha256(f"securevfl {what} {text}".encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
