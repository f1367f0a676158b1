"""Checksums of a run's files, stored in ``summary.json``, which is written last.

A summary without checksums, which no run writes, is read without a check.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from securevfl.errors import CheckpointError, ConfigurationError
from securevfl.reading import NOT_PARSED, Stored
from securevfl.runs.folders.stored import MOST_PARTIES
from securevfl.writing import put_in_place

#: Summary of a run: values in JSON types by name.
Summary = dict[str, Any]
_FILES, _OWN = "files", "checksum"
BESIDE = "saving.part"


class _Summary(Stored):
    """Fields of a summary that are read after a run; each may be absent."""

    parties: Annotated[int, Field(ge=1, le=MOST_PARTIES)] = 1
    party_names: list[str] = Field(default_factory=list)
    wall_seconds: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _of_its_parties(self) -> Self:
        if self.party_names and len(self.party_names) != self.parties:
            raise ValueError(f"{len(self.party_names)} names of {self.parties} parties")
        return self


@contextmanager
def replaced_together(folder: Path, last: str, *, own: bool) -> Iterator[Path]:
    """Context manager: a subfolder whose files move up to `folder` once all are written.

    If a file cannot be written, as on a full disk, none is moved. The file `last` is moved last:
    its presence means that the others are complete. With `own` the folder belongs to the run, and
    its files may be replaced; otherwise only files of a result whose summary has checksums.
    ConfigurationError, before any change, if another file would be replaced.
    """
    beside = folder / BESIDE
    if own:
        shutil.rmtree(beside, ignore_errors=True)
    elif beside.exists():
        raise _not_replaced(beside)
    beside.mkdir(parents=True)
    try:
        yield beside
        written = sorted(beside.iterdir(), key=lambda path: (path.name == last, path.name))
        there = [folder / path.name for path in written if (folder / path.name).exists()]
        if there and not own and not _is_result(folder / last):
            raise _not_replaced(there[0])
        for path in written:
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        (folder / last).unlink(missing_ok=True)  # of a result that is written again
        put_in_place((path, folder / path.name) for path in written)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _not_replaced(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"save: {path} is there, and the folder holds no result of a run; it is not replaced. "
        "Choose another folder"
    )


def _is_result(summary: Path) -> bool:
    """Whether a file is a summary of this library, with a correct checksum of itself."""
    try:
        content = json.loads(summary.read_text(encoding="utf-8"))
        return bool(content.pop(_OWN) == _own(content))
    except (OSError, KeyError, AttributeError, TypeError, *NOT_PARSED):
        return False


def write_summary(path: Path, summary: Mapping[str, object]) -> None:
    """Write a summary with checksums of all files in its folder, and of itself."""
    files = {other.name: _digest(other) for other in sorted(path.parent.iterdir())}
    content = {**summary, _FILES: files}
    path.write_text(json.dumps({**content, _OWN: _own(content)}, indent=1) + "\n")


def read_summary(path: Path) -> Summary:
    """The summary of a run without its checksums, after these were compared with the files.

    A listed file that is missing is no error. ConfigurationError if the summary cannot be read;
    CheckpointError names damaged files.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"load: {path} cannot be read: {error.strerror}") from None
    except NOT_PARSED as error:
        raise CheckpointError(f"load: {path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"load: {path} is damaged: it holds no object")
    try:
        _Summary.check({name: content[name] for name in _Summary.model_fields if name in content})
    except ValueError as error:
        raise CheckpointError(f"load: {path} is damaged: {error}") from None
    own, files = content.pop(_OWN, None), content.get(_FILES)
    if own is None and files is None:
        return content
    if own != _own(content) or not isinstance(files, dict):
        raise CheckpointError(f"load: {path} is damaged: its checksum does not fit")
    damaged = [
        name
        for name, digest in files.items()
        if (path.parent / name).is_file() and _digest(path.parent / name) != digest
    ]
    if damaged:
        raise CheckpointError(
            f"load: {', '.join(damaged)} in {path.parent} {'is' if len(damaged) == 1 else 'are'} "
            "damaged: another checksum than when the run ended. Take it from a copy, or run again"
        )
    del content[_FILES]
    return content


def _own(content: Mapping[str, object]) -> str:
    """Checksum of a summary's content, independent of spaces in the file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigurationError(f"load: {path} cannot be read: {error.strerror}") from None
