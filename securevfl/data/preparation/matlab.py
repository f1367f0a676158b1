"""Tables from MATLAB files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


def read_matlab(path: Path) -> pd.DataFrame:
    """Variables of a .mat file (version 4 to 7.2) as columns.

    A vector and a cell array of texts are one column under their name; a matrix of rows and d
    columns is ``name_1`` to ``name_d``, as MATLAB counts.

    Raises
    ------
    DataError
        When the file cannot be read, a variable is neither numbers, truth values nor texts, or its
        rows are not as many as those of the others.
    """
    import pandas as pd
    from scipy.io import loadmat

    try:
        stored = loadmat(path, chars_as_strings=True)
    except NotImplementedError:
        raise DataError(
            f"{path.name} is a MATLAB file of version 7.3, which is not read; write it by "
            "save(..., '-v7'), or as CSV by writetable"
        ) from None
    except Exception as error:  # scipy raises some ten classes for bytes that are damaged
        why = (str(error) or repr(error)).splitlines()[0]
        raise DataError(f"{path.name} cannot be read as a MATLAB file: {why}") from error
    tables = {name: _table(path, name, v) for name, v in stored.items() if name[:2] != "__"}
    rows = {name: len(table) for name, table in tables.items()}
    if not rows:
        raise DataError(f"{path.name} holds no variables")
    if len(set(rows.values())) > 1:
        counted = ", ".join(f"{name} {count}" for name, count in rows.items())
        raise DataError(
            f"{path.name}: variables have different numbers of rows ({counted}); save those of one "
            "table into a file"
        )
    return pd.DataFrame(
        {
            name if table.shape[1] == 1 else f"{name}_{number}": column
            for name, table in tables.items()
            for number, column in enumerate(table.T, 1)
        }
    )


def _table(path: Path, name: str, value: Any) -> np.ndarray:
    """A variable as rows by columns."""
    array = np.asarray(value)
    if array.dtype == object:
        array = _texts(array)
    if array.dtype.kind not in "biufU" or array.ndim > 2:
        raise DataError(
            f"{path.name}: variable {name!r} is {type(value).__name__} of shape {array.shape} and "
            f"type {array.dtype}; columns are vectors and matrices of real numbers, truth values "
            "or texts"
        )
    if array.ndim < 2:
        return array.reshape(-1, 1)
    return array.T if len(array) == 1 else array


def _texts(array: np.ndarray) -> np.ndarray:
    """A cell array of texts; anything else as it is."""
    cells = [np.asarray(cell) for cell in array.reshape(-1)]
    if not all(cell.dtype.kind == "U" and cell.size <= 1 for cell in cells):
        return array
    texts = np.array([str(cell.reshape(-1)[0]) if cell.size else "" for cell in cells])
    return texts.reshape(array.shape)
