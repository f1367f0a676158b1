"""Downloads from OpenML through scikit-learn, which keeps them in a cache."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from securevfl.data.catalogue.facts import Facts
from securevfl.errors import needs

if TYPE_CHECKING:
    import pandas as pd


def fetch(facts: Facts, data_id: int) -> tuple[pd.DataFrame, pd.Series]:
    """Features and labels of a data set from OpenML.

    scikit-learn keeps the file in its cache folder (``SCIKIT_LEARN_DATA``, or
    ``~/scikit_learn_data``) and checks its MD5. DataError if it is not in the cache and cannot be
    downloaded, or is damaged.
    """
    needs("OpenML", "sklearn", "sklearn")
    from rich.console import Console
    from sklearn.datasets import fetch_openml

    waiting = Console(stderr=True).status(f"reading {facts.name} (OpenML {data_id})")
    try:
        with waiting, warnings.catch_warnings():
            # Retries are announced as warnings; the outcome is an error of ours or none.
            warnings.simplefilter("ignore")
            # Without this, nominal columns become pandas categories, on which scikit-learn up to
            # 1.9.1 fails under pandas 3.1 if they are numbers (scikit-learn issue 34892).
            inferred = {"dtype": None}
            bunch = fetch_openml(
                data_id=data_id, as_frame=True, n_retries=1, delay=0.5, read_csv_kwargs=inferred
            )
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise facts.absent(f", and OpenML {data_id} could not be read ({reason})") from error
    texts = [c for c in bunch.data.columns if bunch.data[c].dtype.kind not in "biuf"]
    frame = bunch.data.assign(**{c: _unquoted(bunch.data[c]) for c in texts})
    if bunch.target is None:
        # OpenML names no target for some sets; theirs stands last, as in the original file.
        return frame.iloc[:, :-1], frame.iloc[:, -1]
    return frame, _unquoted(bunch.target)


def _unquoted(column: pd.Series) -> pd.Series:
    """Strip the single quotes that ARFF puts around texts with blanks."""
    if column.dtype.kind in "biuf":
        return column
    return column.map(lambda cell: cell.strip("'") if isinstance(cell, str) else cell)
