"""Evidence of a lie: stored in a run's folder, and judged without the run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from securevfl.active.judge import (
    Evidence,
    LieFoundError,
    Verdict,
    judge,
    read_evidence,
    run_of,
    signed_with,
    text_of,
    write_evidence,
)
from securevfl.engine.security.identity import Manifest
from securevfl.errors import ConfigurationError
from securevfl.runs.storage import EVIDENCE


def judged(file: str | Path, manifest: str | Path) -> Verdict | None:
    """Verdict on the guilty party, by its key in the signed manifest; None if nobody is guilty.

    ConfigurationError if a file cannot be read, if a party has not signed the manifest, or if the
    evidence belongs to another run, such as one that drew its own keys.
    """
    session = Manifest.read(Path(manifest))
    session.check()
    evidence = read_evidence(Path(file))
    if run_of(evidence) != session.digest:
        raise ConfigurationError(
            f"evidence: the signature of {file} is by a {signed_with(evidence)}, and not by one "
            f"of the session {session.session!r} in {manifest}"
        )
    keys = {n: entry.public for n, entry in session.entries.items()}
    return judge(evidence, keys)


def keep_evidence(error: LieFoundError, folder: Path) -> LieFoundError:
    """Write the evidence of a lie to a folder; return the error, which then names the file."""
    try:
        path = _written(error.evidence, folder)
    except OSError:
        return error
    return LieFoundError(error.party, error.why, error.evidence, path)


def keep_wrong_uploads(server: Any, folder: Path) -> list[Path]:
    """Write evidence against each party whose wrong uploads the server found; return the files.

    A file contains all uploads of one label (one use of the masks), which reveal its sums.

    Parameters
    ----------
    server : Party
        Server of any method; most methods find no wrong uploads.
    folder : Path
        Folder of the run, or of the server's organisation.
    """
    if not getattr(server, "caught", ()):
        return []
    from securevfl.active.uploads import evidence_of

    first = {one.party: one for one in reversed(evidence_of(server))}
    return [_written(first[n], folder) for n in sorted(first)]


def _written(evidence: Evidence, folder: Path) -> Path:
    """New file for evidence under the first free name, or the file that already has it."""
    for n in itertools.count(1):
        path = folder / (EVIDENCE if n == 1 else EVIDENCE.replace(".", f"-{n}."))
        if not path.exists():
            write_evidence(path, evidence)
        elif path.read_text() != text_of(evidence):
            continue
        return path
    raise AssertionError
