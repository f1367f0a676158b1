"""Preprocessing fitted on training rows only: filling, one-hot encoding and scaling.

Each party's part is a `PartyPreprocessor` that needs that party's columns and nothing else; a
`Preprocessor` deals whole rows to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from securevfl.data.cells import MISSING_TEXTS, first_non_number, read_numbers, read_texts
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Scaling = Literal["minmax", "standard", "none"]

# Rows are scaled in blocks of about this many values, which stay in the processor's cache.
_BLOCK = 1 << 16

SCALING_RULES: dict[str, str] = {
    "minmax": "min-max on the training rows, clipped to [0, 1]; a constant column becomes 0",
    "standard": "mean 0 and variance 1 on the training rows; a constant column becomes 0",
    "none": "none",
}


@dataclass(frozen=True)
class Column:
    """One source column and how it is encoded.

    Parameters
    ----------
    name : str
        Name of the source column.
    categories : tuple of str, optional
        The training rows' texts, one encoded column each; None for a numeric column.
    fill : float, optional
        Median of the training rows, put where a number is missing; None refuses missing numbers.
    indicator : bool
        Whether a further encoded column says that the value is missing.
    """

    name: str
    categories: tuple[str, ...] | None = None
    fill: float | None = None
    indicator: bool = False

    @property
    def encoded(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        names = (
            (self.name,)
            if self.categories is None
            else tuple(f"{self.name}={text}" for text in self.categories)
        )
        return (*names, f"{self.name} missing") if self.indicator else names

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON types."""
        fields: dict[str, Any] = {"name": self.name}
        if self.categories is not None:
            fields["categories"] = list(self.categories)
        if self.fill is not None:
            fields["fill"] = self.fill
        if self.indicator:
            fields["indicator"] = True
        return fields

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Column:
        """Rebuild a column from what `to_json` returned."""
        categories = fields.get("categories")
        return Column(
            name=str(fields["name"]),
            categories=None if categories is None else tuple(map(str, categories)),
            fill=fields.get("fill"),
            indicator=bool(fields.get("indicator", False)),
        )


@dataclass(frozen=True)
class PartyPreprocessor:
    """One party's columns, their encoding and their scaling: ``(x - offset) / divisor``.

    Parameters
    ----------
    columns : tuple of Column
        Source columns in the party's order.
    offset, divisor : tuple of float, length d_n
        One number per encoded column; a divisor of 0 marks a constant column, which becomes 0.
    clip : bool
        Whether the results are clipped into [0, 1].
    missing : tuple of str
        Texts that stand for a missing value.
    """

    columns: tuple[Column, ...]
    offset: tuple[float, ...]
    divisor: tuple[float, ...]
    clip: bool
    missing: tuple[str, ...] = MISSING_TEXTS

    @cached_property
    def encoded(self) -> tuple[str, ...]:
        """Names of the encoded columns, length d_n."""
        return tuple(name for column in self.columns for name in column.encoded)

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """Where each source column's encoded columns begin, and the end; length columns + 1."""
        sizes = [len(column.encoded) for column in self.columns]
        return tuple(int(end) for end in np.concatenate([[0], np.cumsum(sizes)]))

    def apply(self, rows: pd.DataFrame | ArrayLike) -> NDArray[np.float32]:
        """Encode and scale this party's raw rows.

        Parameters
        ----------
        rows : DataFrame, or array of shape (m, number of source columns)
            A frame may hold further columns, which are ignored; an array must be numeric.

        Returns
        -------
        ndarray of float32, shape (m, d_n), C-contiguous

        Raises
        ------
        DataError
            For absent columns, texts among numbers, infinite values, and for missing values in a
            column for which no filling was fitted.
        """
        import pandas as pd

        if isinstance(rows, pd.DataFrame):
            return self._apply_frame(rows)
        matrix = _numeric_matrix(rows, len(self.columns))
        if any(column.categories is not None or column.indicator for column in self.columns):
            names = [column.name for column in self.columns]
            return self._apply_frame(pd.DataFrame(matrix, columns=names))
        return self.scale_matrix(matrix)

    def scale_matrix(self, matrix: NDArray[Any]) -> NDArray[np.float32]:
        """Fill and scale a numeric matrix whose columns are encoded one to one.

        Parameters
        ----------
        matrix : ndarray, shape (m, d_n)
            Any real dtype; it is read block by block and never copied whole.

        Returns
        -------
        ndarray of float32, shape (m, d_n)

        Raises
        ------
        DataError
            For NaN where no filling was fitted, and for infinite values.
        """
        out = np.empty(matrix.shape, dtype=np.float32)
        fill = np.array([np.nan if c.fill is None else c.fill for c in self.columns])
        offset, divisor = self._parameters
        step = max(1, _BLOCK // max(1, matrix.shape[1]))
        for start in range(0, len(matrix), step):
            block = matrix[start : start + step].astype(np.float64)
            if not np.isfinite(block).all():
                block = np.where(np.isnan(block), fill, block)
                self._refuse_not_finite(block, start)
            with np.errstate(over="ignore"):
                block -= offset
                block /= divisor
                if self.clip:
                    np.clip(block, 0.0, 1.0, out=block)
                out[start : start + step] = block
        return self._within_float32(out)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return {
            "columns": [column.to_json() for column in self.columns],
            "offset": list(self.offset),
            "divisor": list(self.divisor),
            "clip": self.clip,
            "missing": list(self.missing),
        }

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> PartyPreprocessor:
        """Rebuild a party's part from what `to_json` returned."""
        return PartyPreprocessor(
            columns=tuple(map(Column.from_json, fields["columns"])),
            offset=tuple(map(float, fields["offset"])),
            divisor=tuple(map(float, fields["divisor"])),
            clip=bool(fields["clip"]),
            missing=tuple(map(str, fields["missing"])),
        )

    @property
    def _parameters(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Offset, and divisor with inf where a constant column must become 0."""
        divisor = np.array(self.divisor)
        return np.array(self.offset), np.where(divisor > 0, divisor, np.inf)

    def _apply_frame(self, frame: pd.DataFrame) -> NDArray[np.float32]:
        if not frame.columns.is_unique:
            twice = frame.columns[frame.columns.duplicated()][0]
            raise DataError(f"the rows have two columns {twice!r}; rename or drop one.")
        absent = [c.name for c in self.columns if c.name not in frame.columns]
        if absent:
            raise DataError(
                f"the rows have no column {absent[0]!r} ({len(absent)} of {len(self.columns)} "
                f"columns are absent); give the columns that the data set was built from."
            )
        out = np.empty((len(frame), self.bounds[-1]), dtype=np.float32)
        offset, divisor = self._parameters
        for column, (start, stop) in zip(self.columns, pairwise(self.bounds), strict=True):
            here = slice(start, stop)
            low, high = self._levels(offset[here], divisor[here])
            series = frame[column.name]
            if column.categories is None:
                values, absent_rows = _filled(column, series, self.missing)
                with np.errstate(over="ignore"):
                    scaled = (values - offset[start]) / divisor[start]
                    out[:, start] = np.clip(scaled, 0.0, 1.0) if self.clip else scaled
            else:
                absent_rows = _one_hot(column, series, self.missing, low, high, out[:, here])
            if column.indicator:
                out[:, stop - 1] = np.where(absent_rows, high[-1], low[-1])
        return self._within_float32(out)

    def _levels(
        self, offset: NDArray[np.float64], divisor: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what an encoded 0 and an encoded 1 are scaled to."""
        low, high = (0.0 - offset) / divisor, (1.0 - offset) / divisor
        return (np.clip(low, 0, 1), np.clip(high, 0, 1)) if self.clip else (low, high)

    def _within_float32(self, out: NDArray[np.float32]) -> NDArray[np.float32]:
        """Refuse numbers that overflowed on their way to float32; clipped ones cannot."""
        if not self.clip and not np.isfinite(out).all():
            column = int(np.argwhere(~np.isfinite(out))[0, 1])
            raise DataError(
                f"column {self.encoded[column]!r}: a scaled value exceeds the range of float32 "
                f"(3.4e38); rescale the column, or use scaling='minmax'."
            )
        return out

    def _refuse_not_finite(self, block: NDArray[np.float64], start: int) -> None:
        bad = ~np.isfinite(block)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            kind = "NaN" if np.isnan(block[row, column]) else "infinite"
            raise DataError(
                f"column {self.columns[column].name!r}, row {start + row}: the value is {kind}; "
                f"give finite numbers (a data frame or a CSV file may leave values missing)."
            )


@dataclass(frozen=True)
class Preprocessor:
    """The whole table's preprocessing: one part per party, and where each part's columns stand.

    Parameters
    ----------
    parties : tuple of PartyPreprocessor
        One per party.
    positions : tuple of tuple of int
        For each party, the positions of its source columns in a whole row, 0 to d - 1.
    scaling : {"minmax", "standard", "none"}
        The rule that was fitted.
    """

    parties: tuple[PartyPreprocessor, ...]
    positions: tuple[tuple[int, ...], ...]
    scaling: Scaling

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the source columns in the order of a whole row."""
        named = {
            position: column.name
            for part, positions in zip(self.parties, self.positions, strict=True)
            for position, column in zip(positions, part.columns, strict=True)
        }
        return tuple(named[position] for position in sorted(named))

    def apply(
        self, rows: pd.DataFrame | Mapping[str, ArrayLike] | Sequence[Any] | ArrayLike
    ) -> tuple[NDArray[np.float32], ...]:
        """Encode and scale raw rows for all parties, as the training rows were.

        Parameters
        ----------
        rows : DataFrame, mapping of columns, array, or sequence with one table per party
            A frame or mapping is read by column name. An array has one row per sample: its
            remaining axes are flattened and must make up the columns in source order. A list or
            tuple of one frame or two-dimensional array per party is given to the parties in order.

        Returns
        -------
        tuple of ndarray of float32, shape (m, d_n)

        Raises
        ------
        DataError
            If the rows do not have the columns or values that were fitted.
        """
        import pandas as pd

        if _one_table_per_party(rows, len(self.parties)):
            parts = [p.apply(r) for p, r in zip(self.parties, cast("Any", rows), strict=True)]
            if len({len(part) for part in parts}) > 1:
                raise DataError(
                    f"the parties' tables have {[len(part) for part in parts]} rows; "
                    f"all need the same rows in the same order."
                )
            return tuple(parts)
        if isinstance(rows, Mapping):
            rows = pd.DataFrame(rows)
        if isinstance(rows, pd.DataFrame):
            refuse_repeated(self.columns, "give a list of one table per party")
            return tuple(part.apply(rows) for part in self.parties)
        matrix = _numeric_matrix(rows, len(self.columns))
        return tuple(
            part.apply(take_columns(matrix, positions))
            for part, positions in zip(self.parties, self.positions, strict=True)
        )

    def deal(self, positions: Sequence[Sequence[int]]) -> Preprocessor:
        """Deal the same fitted columns to other parties.

        Parameters
        ----------
        positions : sequence of sequences of int
            For each new party, the positions of its source columns; no position twice.

        Returns
        -------
        Preprocessor
            With the same fitted numbers, in the new order.
        """
        where = self.locations()
        parts = []
        for wanted in positions:
            columns: list[Column] = []
            offset: list[float] = []
            divisor: list[float] = []
            for position in wanted:
                party, k = where[position]
                part = self.parties[party]
                columns.append(part.columns[k])
                offset.extend(part.offset[part.bounds[k] : part.bounds[k + 1]])
                divisor.extend(part.divisor[part.bounds[k] : part.bounds[k + 1]])
            first = self.parties[0]
            parts.append(
                PartyPreprocessor(
                    tuple(columns), tuple(offset), tuple(divisor), first.clip, first.missing
                )
            )
        return Preprocessor(
            tuple(parts), tuple(tuple(map(int, wanted)) for wanted in positions), self.scaling
        )

    def locations(self) -> dict[int, tuple[int, int]]:
        """Map each position of a whole row to (party, number of the column in that party)."""
        return {
            position: (party, k)
            for party, positions in enumerate(self.positions)
            for k, position in enumerate(positions)
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON types; numbers survive exactly."""
        return {
            "version": 1,
            "scaling": self.scaling,
            "positions": [list(positions) for positions in self.positions],
            "parties": [part.to_json() for part in self.parties],
        }

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Preprocessor:
        """Rebuild a preprocessor from what `to_json` returned.

        Raises
        ------
        DataError
            If the fields are not those of a preprocessor of this version.
        """
        if fields.get("version") != 1:
            raise DataError(
                f"a preprocessor of version {fields.get('version')!r} cannot be read; "
                f"this securevfl reads version 1."
            )
        try:
            return Preprocessor(
                parties=tuple(map(PartyPreprocessor.from_json, fields["parties"])),
                positions=tuple(tuple(map(int, p)) for p in fields["positions"]),
                scaling=check_scaling(fields["scaling"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the stored preprocessor is damaged: {error!r}.") from error


def check_scaling(scaling: str) -> Scaling:
    """Return `scaling` if it is a rule that exists.

    Raises
    ------
    DataError
        For any other text.
    """
    if scaling not in get_args(Scaling):
        raise DataError(f"scaling={scaling!r} does not exist; use minmax, standard or none.")
    return cast("Scaling", scaling)


def fit_matrix(block: NDArray[Any], names: Sequence[str], scaling: Scaling) -> PartyPreprocessor:
    """Fit the scaling of one party's numeric training rows.

    Parameters
    ----------
    block : ndarray, shape (M, d_n)
        The training rows of the party's columns; NaN and infinite values are refused.
    names : sequence of str, length d_n
        Column names.
    scaling : {"minmax", "standard", "none"}
        The rule.

    Returns
    -------
    PartyPreprocessor
    """
    offset, divisor = _fit_scaling(block, scaling, names)
    return PartyPreprocessor(tuple(map(Column, names)), offset, divisor, scaling == "minmax")


def fit_frame(
    frame: pd.DataFrame,
    scaling: Scaling,
    *,
    missing: tuple[str, ...] = MISSING_TEXTS,
    max_categories: int = 1000,
) -> tuple[PartyPreprocessor, list[str]]:
    """Fit the encoding and scaling of one party's training rows.

    Numbers stay one column, texts and pandas categories become one column per value of the
    training rows. A column with missing training values gets one more column that marks them.

    Parameters
    ----------
    frame : DataFrame
        Training rows only.
    scaling : {"minmax", "standard", "none"}
        The rule.
    missing : tuple of str
        Texts that stand for a missing value.
    max_categories : int
        Largest number of distinct texts in one column.

    Returns
    -------
    part : PartyPreprocessor
    notes : list of str
        What was done to columns that are not plain numbers.

    Raises
    ------
    DataError
        For columns that cannot be encoded: no value at all, too many distinct texts, dates.
    """
    columns: list[Column] = []
    offset: list[float] = []
    divisor: list[float] = []
    for name in frame.columns:
        series = frame[name]
        column = _fit_column(series, missing, max_categories)
        if column.categories is None:
            values, absent = _filled(column, series, missing)
            encoded = np.column_stack([values, absent] if column.indicator else [values])
        else:
            encoded = np.empty((len(frame), len(column.encoded)), dtype=np.float32)
            ones = np.ones(len(column.encoded))
            absent = _one_hot(column, series, missing, 0 * ones, ones, encoded)
            if column.indicator:
                encoded[:, -1] = absent
        low, width = _fit_scaling(encoded, scaling, column.encoded)
        columns.append(column)
        offset.extend(low)
        divisor.extend(width)
    part = PartyPreprocessor(
        tuple(columns), tuple(offset), tuple(divisor), scaling == "minmax", missing
    )
    return part, _describe(columns)


def refuse_repeated(names: Sequence[str], remedy: str = "rename or drop one") -> None:
    """Refuse a name that occurs twice.

    Raises
    ------
    DataError
        Naming the first such name.
    """
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise DataError(f"two columns are called {twice!r}; {remedy}.")


def take_columns(matrix: NDArray[Any], positions: Sequence[int]) -> NDArray[Any]:
    """Return the columns at `positions`, as a view where they stand side by side."""
    if len(positions) and list(positions) == list(range(positions[0], positions[-1] + 1)):
        return matrix[:, positions[0] : positions[-1] + 1]
    return matrix[:, list(positions)]


def _fit_column(series: pd.Series[Any], missing: tuple[str, ...], max_categories: int) -> Column:
    import pandas as pd

    name = str(series.name)
    categorical = isinstance(series.dtype, pd.CategoricalDtype)
    numbers = None if categorical else read_numbers(series, missing)
    if numbers is not None:
        absent = np.isnan(numbers)
        if absent.all():
            raise DataError(
                f"column {name!r} has no value in any of the {len(series)} training rows; "
                f"drop it with drop=[{name!r}]."
            )
        return Column(name, None, float(np.median(numbers[~absent])), bool(absent.any()))
    codes, texts = read_texts(series, missing)
    present = np.zeros(len(texts), dtype=bool)
    present[codes] = True
    categories = sorted({t for t, here in zip(texts, present, strict=True) if here and t})
    if not categories:
        raise DataError(
            f"column {name!r} has no value in any of the {len(series)} training rows; "
            f"drop it with drop=[{name!r}]."
        )
    if len(categories) > max_categories:
        raise DataError(
            f"column {name!r} has {len(categories)} different texts in {len(series)} training "
            f"rows, more than max_categories={max_categories}; drop it with drop=[{name!r}] if it "
            f"names single rows, or raise max_categories."
        )
    absent_text = any(t is None and here for t, here in zip(texts, present, strict=True))
    return Column(name, tuple(categories), None, absent_text)


def _filled(
    column: Column, series: pd.Series[Any], missing: tuple[str, ...]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Read a numeric column and fill what is missing; also say where it was missing."""
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


def _one_hot(
    column: Column,
    series: pd.Series[Any],
    missing: tuple[str, ...],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    out: NDArray[np.float32],
) -> NDArray[np.bool_]:
    """Write `high` where a row has the category and `low` elsewhere; say where it was missing."""
    codes, texts = read_texts(series, missing)
    place = {text: k for k, text in enumerate(column.categories or ())}
    # A category that the training rows lack has no column: the row keeps `low` everywhere.
    hot = np.array([-1 if text is None else place.get(text, -1) for text in texts])[codes]
    out[:] = low
    rows = np.flatnonzero(hot >= 0)
    out[rows, hot[rows]] = high[hot[rows]]
    return np.array([text is None for text in texts])[codes]


def _fit_scaling(
    block: NDArray[Any], scaling: Scaling, names: Sequence[str]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return offset and divisor of each column; a divisor of 0 where the column is constant."""
    if block.dtype.kind == "f":
        # The smallest and the largest value of a column show every NaN and infinity in it.
        bad = ~np.isfinite(block.min(axis=0)) | ~np.isfinite(block.max(axis=0))
        if bad.any():
            column = int(np.argmax(bad))
            row = int(np.argmin(np.isfinite(block[:, column])))
            kind = "NaN" if np.isnan(block[row, column]) else "infinite"
            raise DataError(
                f"column {names[column]!r}, training row {row}: the value is {kind}; "
                f"give finite numbers (a data frame or a CSV file may leave values missing)."
            )
    if scaling == "none":
        return (0.0,) * block.shape[1], (1.0,) * block.shape[1]
    with np.errstate(over="ignore"):
        if scaling == "minmax":
            offset = block.min(axis=0).astype(np.float64)
            divisor = block.max(axis=0).astype(np.float64) - offset
        else:
            offset = block.mean(axis=0, dtype=np.float64)
            divisor = block.std(axis=0, dtype=np.float64)
            # Rounding in the mean leaves a tiny spread in a column that never changes.
            divisor[block.min(axis=0) == block.max(axis=0)] = 0.0
    if not np.isfinite(divisor).all():
        column = int(np.argmin(np.isfinite(divisor)))
        raise DataError(
            f"column {names[column]!r}: the values span more than the range of float64; "
            f"rescale or drop the column."
        )
    return tuple(map(float, offset)), tuple(map(float, divisor))


def _describe(columns: Sequence[Column]) -> list[str]:
    notes = []
    texts = [c for c in columns if c.categories is not None]
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


def _one_table_per_party(rows: Any, parties: int) -> bool:
    import pandas as pd

    return (
        isinstance(rows, (list, tuple))
        and len(rows) == parties
        and all(
            isinstance(r, pd.DataFrame) or (isinstance(r, np.ndarray) and r.ndim == 2) for r in rows
        )
    )


def _numeric_matrix(rows: ArrayLike | Sequence[Any], width: int) -> NDArray[Any]:
    """Return rows as a real matrix of `width` columns, flattening image axes."""
    try:
        matrix = np.asarray(rows)
    except ValueError as error:
        raise DataError(f"the rows do not make up an array: {error}.") from error
    if matrix.dtype.kind not in "biuf":
        raise DataError(
            f"the rows are an array of {matrix.dtype}; give numbers, or a data frame for texts."
        )
    if matrix.ndim < 2 or int(np.prod(matrix.shape[1:])) != width:
        raise DataError(
            f"the rows have shape {matrix.shape}; {width} columns per row are needed, "
            f"in the order of the source."
        )
    return matrix.reshape(len(matrix), width)
