"""One source column of a table and its encoding, fitted on training rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from securevfl.data.preparation.cells import (
    first_non_number,
    odd_cell,
    read_numbers,
    read_texts,
    row_name,
)
from securevfl.errors import DataError
from securevfl.reading import STORED

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, config=STORED)
class Column:
    """One source column and how it is encoded; files have it, so that its fields are checked.

    Parameters
    ----------
    name : str
        Name of the source column.
    categories : tuple of str, optional
        Distinct texts of the training rows, one encoded column each; None for a numeric column.
    fill : float, optional
        Median of the training rows, which replaces missing numbers; None refuses missing numbers.
    indicator : bool
        Whether a further encoded column marks missing values.
    coded : bool
        Whether categories are encoded as one column of codes: from 1 in their order, 0 for missing
        and unknown texts.
    """

    name: str
    categories: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    fill: float | None = None
    indicator: bool = False
    coded: bool = False

    @property
    def cardinality(self) -> int:
        """Number of category codes of the column; 0 if encoded values are numeric."""
        return len(self.categories or ()) + 1 if self.coded else 0

    @property
    def encoded(self) -> tuple[str, ...]:
        """Names of the encoded columns that this source column becomes."""
        names = (
            (self.name,)
            if self.categories is None or self.coded
            else tuple(f"{self.name}={text}" for text in self.categories)
        )
        return (*names, f"{self.name} missing") if self.indicator else names

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if self.coded and (self.categories is None or self.indicator):
            raise ValueError("a column of category codes has categories and no indicator")
        if len(set(self.categories or ())) != len(self.categories or ()):
            raise ValueError("a category stands twice")
        return self


def fit_column(
    series: pd.Series, missing: tuple[str, ...], max_categories: int, *, coded: bool = False
) -> Column:
    """Choose a column's encoding from its training rows.

    `missing` has the texts that mean a missing value. If texts are `coded`, those rarer than the
    `max_categories` most frequent share the code 0. DataError if no row has a value, or there are
    too many distinct texts.
    """
    import pandas as pd

    name = str(series.name)
    nothing = DataError(
        f"column {name!r} has no value in any of the {len(series)} training rows; drop it with "
        f"drop=[{name!r}]."
    )
    categorical = isinstance(series.dtype, pd.CategoricalDtype)
    numbers = None if categorical else read_numbers(series, missing)
    if numbers is not None:
        absent = np.isnan(numbers)
        if absent.all():
            raise nothing
        middle = 2 * float(np.median(numbers[~absent] / 2))  # a sum of two could overflow
        return Column(name, None, middle, bool(absent.any()))
    codes, texts = read_texts(series, missing)
    counts = np.bincount(codes, minlength=len(texts)).tolist()
    found = Counter(dict.fromkeys(sorted({text for text in texts if text}), 0))
    for text, count in zip(texts, counts, strict=True):
        if text:
            found[text] += count
    categories = tuple(found)
    if not categories:
        raise nothing
    if coded:  # ties go to the first
        kept = sorted(text for text, _ in found.most_common(max_categories))
        return Column(name, tuple(kept), coded=True)
    if len(categories) > max_categories:
        raise DataError(
            f"column {name!r} has {len(categories)} different texts in {len(series)} training "
            f"rows, more than max_categories={max_categories}.{odd_cell(series, missing)} Correct "
            f"such cells; drop the column with drop=[{name!r}] if it names single rows; or raise "
            f"max_categories."
        )
    absent_text = any(count for text, count in zip(texts, counts, strict=True) if text is None)
    return Column(name, categories, None, absent_text)


def filled(
    column: Column, series: pd.Series, missing: tuple[str, ...]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Filled numbers of a column, and the mask of missing ones, both (rows,).

    DataError for texts, or for missing values if the training rows had none to fill.
    """
    values = read_numbers(series, missing)
    if values is None:
        raise DataError(
            f"column {column.name!r}: the training rows are numbers, but "
            f"{first_non_number(series, missing)}; correct the cell, or leave it empty."
        )
    absent = np.isnan(values)
    if column.fill is None and absent.any():
        raise DataError(
            f"column {column.name!r}: {int(absent.sum())} of {len(values)} values are NaN or "
            f"missing; this data set was built from whole numeric arrays, so give all values."
        )
    return (np.where(absent, column.fill, values) if column.fill is not None else values), absent


def encode(
    column: Column, series: pd.Series, missing: tuple[str, ...]
) -> tuple[np.ndarray, NDArray[np.bool_]]:
    """Unscaled columns of a source column, (rows, 1 or 2), and the mask of missing values, (rows,).

    For texts the first has codes: 0 for a text that is no category, else 1 and up. A missing text
    has the last code where it has an indicator, else 0.
    """
    if column.categories is None:
        values, absent = filled(column, series, missing)
        return np.column_stack([values, absent] if column.indicator else [values]), absent
    codes, texts = read_texts(series, missing)
    known = (*column.categories, *([None] if column.indicator else []))
    numbers = {text: k for k, text in enumerate(known, 1)}
    absent = np.array([text is None for text in texts])[codes]
    return np.array([numbers.get(text, 0) for text in texts])[codes, None], absent


def told_of_new(
    column: Column, series: pd.Series, missing: tuple[str, ...], absent: NDArray[np.bool_]
) -> list[str]:
    """Sentences on new rows' unknown texts, and missing values if training rows had none.

    `absent` (rows,) marks missing values. A column of category codes gives no sentence, because it
    has a code for all values.
    """
    said = []
    if absent.any() and not column.indicator:
        first = row_name(series, int(np.argmax(absent)))
        so = "each counts as no text" if column.categories else "each is filled with their median"
        said.append(
            f"column {column.name!r}: {int(absent.sum())} of {len(absent)} rows have no value, "
            f"first {first}, where the training rows have all; {so}"
        )
    if column.categories is not None:
        codes, texts = read_texts(series, missing)
        known = {None, "", *column.categories}
        new = np.array([text not in known for text in texts], bool)[codes]
        if new.any():
            at = int(np.argmax(new))
            said.append(
                f"column {column.name!r}: {int(new.sum())} of {len(new)} rows have a text that the "
                f"training rows lack, first {texts[codes[at]]!r} in {row_name(series, at)}; each "
                "counts as none of theirs"
            )
    return said


def column_name(given: object, option: str) -> str:
    """Name of one column, a text or an integer, as a text; DataError for anything else."""
    if isinstance(given, str | int | np.integer):
        return str(given)
    raise DataError(
        f"{option}={given!r}: the name of one column is needed; make one of several in every "
        "table, such as of the texts 'Ada' and '1990' the text 'Ada 1990'."
    )


def listed_names(given: Sequence[str] | str) -> tuple[str, ...]:
    """Names of columns; a single text is one name."""
    return (given,) if isinstance(given, str) else tuple(given)


def refuse_repeated(
    names: Sequence[str], remedy: str = "rename or drop one", *, where: str = ""
) -> None:
    """Raise DataError for repeated names, which says the first, `where` and the `remedy`."""
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise DataError(f"{where}two columns are called {twice!r}; {remedy}.")


def take_columns(matrix: np.ndarray, positions: Sequence[int]) -> np.ndarray:
    """Columns at `positions`, as a view if they are adjacent."""
    if len(positions) and list(positions) == list(range(positions[0], positions[-1] + 1)):
        return matrix[:, positions[0] : positions[-1] + 1]
    return matrix[:, list(positions)]
