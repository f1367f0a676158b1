"""Metadata of a published data set, and the place of its files."""

from __future__ import annotations

import functools
import hashlib
import os
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from securevfl.data.base.origin import About
from securevfl.errors import DataError
from securevfl.writing import make_folder, write_durably

#: Environment variable that names the folder of data sets.
FOLDER_VARIABLE = "SECUREVFL_DATA"
_LARGEST = 2**26  # bytes of a file that is fetched
_SECONDS = 30.0  # without a byte


@dataclass(frozen=True)
class Facts:
    """Facts of a published data set: sizes, terms of use, files and where to get them.

    Parameters
    ----------
    name : str
        Name for `load_dataset`.
    rows, features, classes, parties : int
        Sizes of the whole published set, with test rows; default number of parties.
    licence, origin, split : str
        Terms of use, source, and default split.
    folder : str
        Folder below the data folder that holds the files.
    forms : tuple of tuple of str
        Alternative sets of files, the preferred one first; () for a bundled set.
    obtain : str
        Source of the files; completes "get it from ...".
    openml : tuple of int
        Numbers of the set at OpenML; empty if OpenML lacks it.
    urls : mapping of str to str
        Download addresses of the files of one form, by name; their checksums are known.
    bundled : bool
        Whether scikit-learn, or the package that declares the set, contains it.
    """

    name: str
    rows: int
    features: int
    classes: int
    parties: int
    licence: str
    origin: str
    split: str
    folder: str = ""
    forms: tuple[tuple[str, ...], ...] = ()
    obtain: str = "scikit-learn, which brings it along"
    openml: tuple[int, ...] = ()
    urls: Mapping[str, str] = field(default_factory=dict)
    bundled: bool = False

    def about(self, notes: Iterable[str] = ()) -> About:
        """Origin of the data, before they are split and scaled."""
        return About(self.origin, self.licence, "", "", "", tuple(notes))

    def available(self, data_dir: str | Path | None = None) -> bool:
        """Whether the set is bundled, or its files are on this machine."""
        return self.bundled or self.locate(data_dir) is not None

    def locate(self, data_dir: str | Path | None = None) -> dict[str, Path] | None:
        """Files of the first complete form of the data set, by name; None if none is complete.

        Parameters
        ----------
        data_dir : path, optional
            By default ``SECUREVFL_DATA``. The files are in it, in the set's own folder below it, or
            in the cache of downloads.

        Returns
        -------
        dict of str to Path, or None
            The files by name.

        Raises
        ------
        DataError
            If the named folder does not exist.
        """
        root = data_folder(data_dir)
        folders = [] if root is None else [root / self.folder, root]
        for folder in [*folders, *([cache_folder() / self.folder] if self.urls else [])]:
            for form in self.forms:
                files = {file: folder / file for file in form}
                if all(path.is_file() for path in files.values()):
                    return files
        return None

    def find(
        self, data_dir: str | Path | None, *, verify: bool, download: bool = False
    ) -> tuple[dict[str, Path] | None, list[str]]:
        """The files by name, and notes on them; None for files if the set must come from OpenML.

        `verify` compares known checksums; `download` permits downloads of absent files. DataError
        if files are absent and cannot or may not be downloaded, or have another checksum.
        """
        files = self.locate(data_dir)
        if files is None:
            if not download:
                raise self.absent()
            files = self.fetch()
        if files is None:
            return None, []
        if not verify:
            return files, ["checksums were not compared (verify=False)"]
        return files, self.verify(files)

    def fetch(self) -> dict[str, Path] | None:
        """Download the files by `urls` into the cache; None without addresses.

        If a file is unavailable, the result is None for a set that OpenML has too; for others
        DataError. DataError also for a file with another SHA-256, which is not stored.
        """
        found: dict[str, Path] = {}
        for name, url in self.urls.items():
            try:
                with urllib.request.urlopen(url, timeout=_SECONDS) as stream:
                    content = stream.read(_LARGEST)
            except OSError as error:
                if self.openml:
                    return None
                raise self.absent(f", and {url} could not be read ({error})") from error
            if hashlib.sha256(content).hexdigest() != known_checksums(self.folder)[name]:
                raise DataError(
                    f"{url}: the SHA-256 is not the known one, so the file is damaged or another "
                    "version; nothing was kept."
                )
            folder = cache_folder() / self.folder
            make_folder(folder)
            write_durably(found.setdefault(name, folder / name), content)
        return found or None

    def verify(self, files: dict[str, Path]) -> list[str]:
        """Notes that name files without a known checksum; DataError for another checksum."""
        known = known_checksums(self.folder)
        for name, path in files.items():
            if name not in known:
                continue  # a file of tens of gigabytes is not read to compare it with nothing
            with path.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if known[name] != found:
                raise DataError(
                    f"{path}: the SHA-256 is {found[:16]}... and not {known[name][:16]}..., so the "
                    f"file is damaged or another version; fetch it again ({self.obtain}), or "
                    f"accept it with verify=False."
                )
        unknown = sorted(set(files) - set(known))
        return [f"no checksum is known for {', '.join(unknown[:4])}"] if unknown else []

    def absent(self, reason: str = "") -> DataError:
        """The error that names the source of a missing data set and the folder for its files."""
        files = self.forms[0] if len(self.forms[0]) <= 6 else (*self.forms[0][:2], "...")
        return DataError(
            f"data set {self.name!r} is not on this machine{reason}; get it from {self.obtain}, "
            f"put {', '.join(files)} into FOLDER/{self.folder}, and name FOLDER by data_dir= "
            f"(--data-dir) or {FOLDER_VARIABLE}."
        )


@functools.cache
def known_checksums(folder: str) -> dict[str, str]:
    """SHA-256 of the published files of a folder by name; ``sha256sum -c`` reads the list, too.

    The files of mnist, fashion-mnist, credit-card, parkinson and adult are the original bytes;
    those of the other sets are this project's own packing of the published values.
    """
    lines = Path(__file__).with_name("SHA256SUMS").read_text().splitlines()
    entries = (line.split("  ") for line in lines)
    return {Path(path).name: digest for digest, path in entries if Path(path).parts[0] == folder}


def cache_folder() -> Path:
    """Folder of fetched files: ``securevfl`` in ``XDG_CACHE_HOME``, or in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "securevfl"


def data_folder(data_dir: str | Path | None = None) -> Path | None:
    """The folder of data sets from the argument or environment; DataError if it does not exist."""
    named = data_dir if data_dir is not None else os.environ.get(FOLDER_VARIABLE)
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        how = "data_dir" if data_dir is not None else FOLDER_VARIABLE
        raise DataError(f"{how}={named}: there is no such folder; name an existing one.")
    return folder
