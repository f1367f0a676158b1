"""Evidence of a lie: kept in a run's folder, and judged without the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from securevfl.active.judge import (
    LieFoundError,
    Verdict,
    judge,
    read_evidence,
    run_of,
    signed_with,
    write_evidence,
)
from securevfl.engine.security.identity import Manifest
from securevfl.errors import ConfigurationError
from securevfl.runs.storage import EVIDENCE


def judged(file: str | Path, manifest: str | Path) -> Verdict | None:
    """The guilty party by its key in a manifest, which all have signed; None for nobody.

    Raises
    ------
    ConfigurationError
        When a file cannot be read, or a party has not signed the manifest. When the evidence is of
        another run than the manifest's, such as one whose keys were drawn for it.
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
    """Write the evidence of a lie into a folder; the error that says where it is."""
    path = folder / EVIDENCE
    try:
        write_evidence(path, error.evidence)
    except OSError:
        return error
    return LieFoundError(error.party, error.why, error.evidence, path)


def keep_wrong_uploads(server: Any, folder: Path) -> list[Path]:
    """Write evidence against all whose wrong uploads a server found, a file each; the files.

    They hold all uploads of a label, which tell its sums.

    Parameters
    ----------
    server : Party
        Of any method; most find none.
    folder : Path
        Of the run, or of the server's organisation.
    """
    if not getattr(server, "caught", ()):
        return []
    from securevfl.active.uploads import evidence_of

    newest = {one.party: one for one in evidence_of(server)}
    paths = [folder / EVIDENCE, *(folder / f"evidence-{n}.json" for n in range(2, len(newest) + 1))]
    for path, one in zip(paths, newest.values(), strict=True):
        write_evidence(path, one)
    return paths
