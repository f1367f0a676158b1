"""Reports: one self-contained HTML page about runs, and its figures and tables as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securevfl.errors import ConfigurationError, needs

PAGE = "report.html"
_MARK = '<meta name="generator" content="securevfl report">'


@dataclass(frozen=True)
class Written:
    """A report that was written.

    Attributes
    ----------
    path, bytes : Path, int
        The page, and its size.
    runs : tuple of str
        Names of the runs in it.
    missing : tuple of str
        Descriptions of parts that the folders lack.
    files : tuple of Path
        Figures and tables that were written beside the page.
    """

    path: Path
    bytes: int
    runs: tuple[str, ...]
    missing: tuple[str, ...]
    files: tuple[Path, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report's paths and figures as JSON types."""
        return {
            "report": str(self.path),
            "bytes": self.bytes,
            "runs": list(self.runs),
            "missing": list(self.missing),
            "files": [str(path) for path in self.files],
        }


def write_report(
    folders: Sequence[Path | str],
    *,
    out: Path | str | None = None,
    figures: Path | str | None = None,
    verifications: Sequence[Path | str] = (),
) -> Written:
    """Write a page about runs.

    Parameters
    ----------
    folders : sequence of Path
        Folders of runs and of studies, at least one.
    out : Path, optional
        File, or existing folder, for the page. By default the run's folder if there is just one
        run, else the current folder. An existing report is overwritten; any other file is not.
    figures : Path, optional
        Folder for the figures as SVG and PDF and the tables as CSV and LaTeX. It is created if
        missing; files of the same names are overwritten.
    verifications : sequence of Path
        Output files of ``securevfl verify PROTOCOL --json``, for the verdicts. A ``verify.json`` in
        a run's folder is used automatically.

    Returns
    -------
    Written

    Raises
    ------
    ConfigurationError
        If a folder has no finished run, the page cannot be written there, or a package of the extra
        ``report`` is missing.
    DataError
        If a file of a run is damaged.
    """
    from securevfl.report.loading import read_records
    from securevfl.report.page import render, write_files
    from securevfl.writing import write_durably

    needs("report", "report", "matplotlib", "scipy")
    if not folders:
        raise ConfigurationError("report: name the folder of a run, or several to compare them")
    paths = list(dict.fromkeys(Path(folder) for folder in folders))
    target = _target(paths, None if out is None else Path(out))
    records = read_records(paths, [Path(path) for path in verifications])
    text = render(records)
    named = any(record.config.get("secret_seed") is not None for record in records)
    # In the place of a link, not through it.
    write_durably(target, text, mode=0o600 if named else 0o666)
    files = () if figures is None else write_files(records, Path(figures))
    missing = []
    for record in records:
        if record.whole and record.verification is None:
            missing.append(
                f"no verdicts for {record.label}; `securevfl verify RUN` makes those of a run"
            )
        if record.whole and record.messages is None:
            missing.append(f"no messages of {record.label}")
    labels = tuple(record.label for record in records)
    return Written(target, len(text.encode()), labels, tuple(missing), files)


def _target(folders: Sequence[Path], out: Path | None) -> Path:
    """Path of the page, in `out` or the folder of runs; ConfigurationError for another file."""
    path = out if out is not None else folders[0] if len(folders) == 1 else Path()
    if path.is_dir() or (out is None and not path.exists()):
        path = path / PAGE
    elif path.suffix.lower() not in (".html", ".htm") and out is not None:
        raise ConfigurationError(
            f"report: --out {path} is neither a folder that exists nor a file with the ending .html"
        )
    if path.exists() and _MARK not in path.read_text(encoding="utf-8", errors="replace")[:2000]:
        raise ConfigurationError(
            f"report: {path} is there and is no report; name another file with --out"
        )
    return path
