"""What is known about a published data set, and where its files lie."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from securevfl.errors import DataError

#: Environment variable that names the folder of data sets.
FOLDER_VARIABLE = "SECUREVFL_DATA"


@dataclass(frozen=True)
class Facts:
    """Figures, terms and whereabouts of a published data set.

    Parameters
    ----------
    name : str
        Name for `load_dataset`.
    rows, features, classes, parties : int
        Of the whole set; default number of parties.
    licence, origin, split : str
        Terms of use, source, and default split.
    folder : str
        Folder below the data folder that holds the files; "" for a bundled set.
    files : tuple of str
        The files that are needed.
    obtain : str
        One sentence: where to get it.
    openml : tuple of int
        Numbers of the set at OpenML, where it is there.
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
    files: tuple[str, ...] = ()
    obtain: str = "comes with scikit-learn"
    openml: tuple[int, ...] = ()

    def available(self, data_dir: str | Path | None = None) -> bool:
        """Whether the set can be loaded without a download."""
        return not self.files or self.locate(data_dir) is not None

    def locate(self, data_dir: str | Path | None = None) -> Path | None:
        """Return the folder that holds all files, or None.

        Parameters
        ----------
        data_dir : path, optional
            ``SECUREVFL_DATA`` unless given. The files lie in it or in the set's own folder below.

        Raises
        ------
        DataError
            If the folder that was named does not exist.
        """
        root = data_folder(data_dir)
        if root is None:
            return None
        for folder in (root / self.folder, root):
            if all((folder / file).is_file() for file in self.files):
                return folder
        return None


def data_folder(data_dir: str | Path | None = None) -> Path | None:
    """Return the folder of data sets that was named by argument or environment.

    Raises
    ------
    DataError
        If it does not exist.
    """
    named = data_dir if data_dir is not None else os.environ.get(FOLDER_VARIABLE)
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        how = "data_dir" if data_dir is not None else FOLDER_VARIABLE
        raise DataError(f"{how}={named}: there is no such folder; name an existing one.")
    return folder
