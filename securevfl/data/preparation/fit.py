"""Fitting a party's preprocessing on its training rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from securevfl.data.preparation.cells import MISSING_TEXTS, row_name
from securevfl.data.preparation.columns import Column, encode, fit_column
from securevfl.data.preparation.party_preprocessor import PartyPreprocessor
from securevfl.data.preparation.scaling import Scaling, fit_scaling, flattened
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


def fit_matrix(block: np.ndarray, names: Sequence[str], scaling: Scaling) -> PartyPreprocessor:
    """Fit the scaling of one party's numeric training rows, (M, d_n), all finite."""
    offset, divisor = fit_scaling(block, scaling, names)
    columns = tuple(map(Column, names))
    return PartyPreprocessor(columns, offset, divisor, scaling == "minmax", MISSING_TEXTS)


def fit_frame(
    frame: pd.DataFrame,
    scaling: Scaling,
    *,
    missing: tuple[str, ...] = MISSING_TEXTS,
    max_categories: int = 1000,
    coding: str = "onehot",
) -> PartyPreprocessor:
    """Encoding and scaling of one party, fitted on its training rows.

    Numbers stay one column; texts and pandas categories become one column per value of the training
    rows, or one unscaled column of category codes. A column with missing training values gets a
    further column that marks them. DataError for columns without any value, with too many distinct
    texts, with dates, or flattened by a far value (`flattened`).
    """
    columns: list[Column] = []
    offset: list[float] = []
    divisor: list[float] = []
    for name in frame.columns:
        series = frame[name]
        column = fit_column(series, missing, max_categories, coded=coding == "codes")
        encoded, _ = encode(column, series, missing)
        if column.categories is not None and not column.coded:
            size = len(column.encoded)
            encoded = np.eye(size + 1, size, -1, dtype=bool)[encoded[:, 0]]
        rule = "none" if column.coded else scaling
        low, width = fit_scaling(encoded, rule, column.encoded)
        if column.categories is None and scaling != "none":
            refuse_flattened(encoded[:, :1], (column.name,), partial(row_name, series))
        columns.append(column)
        offset.extend(low)
        divisor.extend(width)
    return PartyPreprocessor(
        tuple(columns), tuple(offset), tuple(divisor), scaling == "minmax", missing
    )


def refuse_flattened(
    block: np.ndarray, names: Sequence[str], row_of: Callable[[int], str] = "training row {}".format
) -> None:
    """Raise DataError (column, `row_of` it) if an outlier in (M, d) makes scaling merge others."""
    found = flattened(block)
    if found is not None:
        column, row, value = found
        raise DataError(
            f"column {names[column]!r}, {row_of(row)}: the value is {value:g}, so far from the "
            "others that scaling makes these one number; correct it, or leave the cell empty if "
            "the value is unknown. Or take logarithms, or scaling='none'."
        )


def describe(columns: Sequence[Column]) -> list[str]:
    """Sentences on the encoding of columns that are not plain numbers."""
    notes = []
    coded = [c for c in columns if c.coded]
    if coded:
        names = ", ".join(c.name for c in coded[:6]) + (", ..." if len(coded) > 6 else "")
        notes.append(
            f"text columns {names}: category codes of the training rows' "
            f"{sum(c.cardinality - 1 for c in coded)} values; 0 is a missing, rare or unseen one"
        )
    texts = [c for c in columns if c.categories is not None and not c.coded]
    if texts:
        width = sum(len(c.categories or ()) for c in texts)
        names = ", ".join(c.name for c in texts[:6]) + (", ..." if len(texts) > 6 else "")
        notes.append(
            f"text columns {names}: one-hot over the training rows' {width} values; "
            f"a value that the training rows lack becomes all zero"
        )
    holes = [c for c in columns if c.indicator]
    if holes:
        names = ", ".join(c.name for c in holes[:6]) + (", ..." if len(holes) > 6 else "")
        notes.append(
            f"missing values in {names}: numbers filled with the training median, texts left all "
            f"zero, and one more column marks them"
        )
    return notes
