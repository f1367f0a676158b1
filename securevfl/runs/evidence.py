"""Evidence of a lie, judged without the run of which it is."""

from __future__ import annotations

from pathlib import Path

from securevfl.active.judge import Verdict, judge, read_evidence
from securevfl.engine.security.identity import Manifest


def judged(file: str | Path, manifest: str | Path) -> Verdict | None:
    """The guilty party by its key in a manifest, which all have signed; None for nobody.

    Raises
    ------
    ConfigurationError
        When a file cannot be read, or a party has not signed the manifest.
    """
    session = Manifest.read(Path(manifest))
    session.check()
    keys = {n: entry.public for n, entry in session.entries.items()}
    return judge(read_evidence(Path(file)), keys)
