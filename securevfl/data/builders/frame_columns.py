"""Columns of a data frame by role (label, features, groups); missing ones are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from securevfl.data.preparation.cells import read_texts
from securevfl.data.preparation.columns import refuse_repeated
from securevfl.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd


def checked_frame(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """The data frame with column names as texts; DataError if it is no data frame.

    DataError also for a frame without rows, and for repeated or multi-level names.
    """
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise DataError(
            f"{what}: an object of the type {type(frame).__name__} is no table; give a data frame "
            "(pandas.DataFrame makes one of columns or records)."
        )
    if frame.columns.nlevels > 1:
        raise DataError(f"{what}: the column names have {frame.columns.nlevels} layers; use one.")
    if not len(frame):
        raise DataError(f"{what}: the table has no rows; at least two are needed.")
    names = [str(c) for c in frame.columns]
    refuse_repeated(names, where=f"{what}: ")
    return frame.set_axis(names, axis=1)


def label_column(frame: pd.DataFrame, label: str, what: str) -> pd.Series:
    """The label column; if there is none, a DataError begins with `what` and lists the columns."""
    if label not in frame.columns:
        raise DataError(
            f"{what} has no column {label!r} for the label; its columns are {listed(frame)}."
            f"{did_you_mean(label, map(str, frame.columns))}"
        )
    return frame[label]


def listed(frame: pd.DataFrame, most: int = 12) -> str:
    """Names of the first columns of a table, for error messages."""
    names = [str(c) for c in frame.columns]
    more = f", ... ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def feature_columns(frame: pd.DataFrame, leave_out: Sequence[str], what: str) -> pd.DataFrame:
    """The table without the columns `leave_out`; DataError, which names `what`, if none is left."""
    unknown = [c for c in leave_out if c not in frame.columns]
    if unknown:
        raise DataError(
            f"{what} has no column {unknown[0]!r}, which is to be dropped; its columns are "
            f"{listed(frame)}."
        )
    features = frame.drop(columns=list(leave_out))
    if not features.shape[1]:
        raise DataError(f"{what} has no columns besides the label; at least one is needed.")
    return features


def group_codes(
    frame: pd.DataFrame, group: str, what: str, missing: tuple[str, ...]
) -> NDArray[np.intp]:
    """Group number of each row, (rows,); DataError for a missing column or value."""
    if group not in frame.columns:
        raise DataError(
            f"{what} has no column {group!r} for the groups; its columns are {listed(frame)}."
        )
    codes, texts = read_texts(frame[group], missing, names=True)
    absent = np.array([text is None for text in texts])[codes]
    if absent.any():
        raise DataError(
            f"group column {group!r}: {int(absent.sum())} rows have no value; each row needs one."
        )
    return codes
