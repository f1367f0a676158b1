"""Preprocessing of one party's columns: their encoding and scale, fitted on training rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from securevfl.data.preparation.columns import Column, encode, told_of_new
from securevfl.data.preparation.forest import Forest, Tree
from securevfl.data.preparation.tables import as_array
from securevfl.errors import DataError
from securevfl.reading import STORED, first_problem

if TYPE_CHECKING:
    import pandas as pd

    Table = pd.DataFrame | ArrayLike


# Rows are scaled in blocks of about this many values, which stay in the processor's cache.
_BLOCK = 1 << 16


@dataclass(frozen=True, config=STORED)
class PartyPreprocessor:
    """One party's columns, their encoding and their scaling: ``(x - offset) / divisor``.

    It is read from files, so its fields are checked.

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
    forest : tuple of Tree, optional
        The party's own trees on its encoded columns; their leaves become further columns.
    """

    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    offset: tuple[float, ...]
    divisor: tuple[Annotated[float, Field(ge=0)], ...]
    clip: bool
    missing: tuple[str, ...]
    forest: tuple[Tree, ...] | None = None

    remote: ClassVar[bool] = False  # whether the columns are on another machine

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        wanted = self.bounds[-1]
        if {len(self.offset), len(self.divisor)} != {wanted}:
            raise ValueError(
                f"{len(self.offset)} offsets and {len(self.divisor)} divisors for {wanted} columns"
            )
        for tree in self.forest or ():
            splits = zip(tree.column, tree.left, strict=True)
            if any(child >= 0 and not 0 <= column < wanted for column, child in splits):
                raise ValueError(f"a tree splits a column that is none of the {wanted}")
        return self

    @cached_property
    def encoded(self) -> tuple[str, ...]:
        """Names of the encoded columns, length d_n."""
        return (*(name for one in self.columns for name in one.encoded), *self.leaves.names)

    @property
    def leaves(self) -> Forest:
        """Trees of the party: `forest`, or an empty one."""
        return Forest(self.forest or ())

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of category codes of each encoded column; 0 for numeric columns."""
        codes = (column.cardinality for column in self.columns for _ in column.encoded)
        return (*codes, *(0 for _ in self.leaves.names))

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """First encoded column of each source column, and the end; length columns + 1."""
        sizes = [len(column.encoded) for column in self.columns]
        return tuple(int(end) for end in np.concatenate([[0], np.cumsum(sizes)]))

    def apply(self, rows: Table, told: list[str] | None = None) -> NDArray[np.float32]:
        """Encode and scale this party's raw rows.

        Parameters
        ----------
        rows : DataFrame, or array of shape (m, number of source columns)
            A frame's further columns are ignored; an array must be numeric.
        told : list of str, optional
            Receives a sentence on each column with values that the training rows lack: unknown
            texts, which match no category, and missing values, which become the median or match no
            category. Columns of category codes are skipped, because they have a code for such
            values.

        Returns
        -------
        ndarray of float32, shape (m, d_n), C-contiguous

        Raises
        ------
        DataError
            For missing columns, texts among numbers, infinite values, and missing values in a
            column without a fitted median.
        """
        return self.leaves.apply(self._encoded(rows, told))

    def _encoded(self, rows: Table, told: list[str] | None) -> NDArray[np.float32]:
        """The rows encoded and scaled, without leaf columns."""
        import pandas as pd

        if isinstance(rows, pd.DataFrame):
            return self._apply_frame(rows, told)
        matrix = numeric_matrix(rows, len(self.columns))
        filling = told is not None and any(c.fill is not None for c in self.columns)
        if filling or any(c.categories is not None or c.indicator for c in self.columns):
            names = [column.name for column in self.columns]
            return self._apply_frame(pd.DataFrame(matrix, columns=names), told)
        return self.scale_matrix(matrix)

    def scale_matrix(self, matrix: np.ndarray) -> NDArray[np.float32]:
        """Filled and scaled rows of a numeric matrix (m, d_n) in which each column stays one.

        The matrix is read block by block and never copied whole. DataError for infinite values, for
        NaN in a column without a fitted median, and for results beyond float32.
        """
        out = np.empty(matrix.shape, dtype=np.float32)
        self._scale(matrix, slice(None), out)
        return self._within_float32(out)

    def _scale(self, values: np.ndarray, here: slice, out: NDArray[np.float32]) -> None:
        """Write values of the encoded columns `here` into `out`, filled and scaled."""
        offset, divisor = (numbers[here] for numbers in self._parameters)
        constant = np.isinf(divisor)
        step = max(1, _BLOCK // max(1, values.shape[1]))
        for start in range(0, len(values), step):
            block = values[start : start + step].astype(np.float64)
            if not np.isfinite(block).all():
                fill = [np.nan if c.fill is None else c.fill for c in self.columns]
                block = np.where(np.isnan(block), fill, block)
                self._refuse_not_finite(block, start)
            with np.errstate(over="ignore", invalid="ignore"):
                block -= offset
                block /= divisor
                if constant.any():  # beside a far value, inf / inf is NaN
                    block[:, constant] = 0.0
                if self.clip:
                    np.clip(block, 0.0, 1.0, out=block)
                out[start : start + step] = block

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON types, without those at their defaults."""
        made: dict[str, Any] = _adapter().dump_python(self, mode="json", exclude_defaults=True)
        return made

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> PartyPreprocessor:
        """Preprocessing of one party from its JSON form (inverse of `to_json`).

        ValueError names the first field of another form.
        """
        try:
            return _adapter().validate_json(json.dumps(fields))
        except ValidationError as error:
            raise ValueError(first_problem(error)) from None

    @cached_property
    def _parameters(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Offset and divisor of each column; the divisor inf makes a constant column 0."""
        divisor = np.array(self.divisor)
        return np.array(self.offset), np.where(divisor > 0, divisor, np.inf)

    def _apply_frame(self, frame: pd.DataFrame, told: list[str] | None) -> NDArray[np.float32]:
        if frame.columns.nlevels == 1:  # numbers for names are texts, as in the training rows
            frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        if not frame.columns.is_unique:
            twice = frame.columns[frame.columns.duplicated()][0]
            raise DataError(f"the rows have two columns {twice!r}; rename or drop one.")
        unknown = [c.name for c in self.columns if c.name not in frame.columns]
        if unknown:
            raise DataError(
                f"the rows have no column {unknown[0]!r} ({len(unknown)} of {len(self.columns)} "
                f"columns are absent); give the columns that the data set was built from."
            )
        out = np.empty((len(frame), self.bounds[-1]), dtype=np.float32)
        for column, (start, stop) in zip(self.columns, pairwise(self.bounds), strict=True):
            series = frame[column.name]
            made, absent = encode(column, series, self.missing)
            here = slice(start, stop)
            if column.coded:  # codes are not scaled
                out[:, here] = made
                continue
            if column.categories is None:
                self._scale(made, here, out[:, here])
            else:  # a column has two values: they are scaled, and not the rows
                two = np.empty((2, stop - start), np.float32)
                self._scale(np.repeat([[0], [1]], stop - start, axis=1), here, two)
                out[:, here] = two[0]
                rows = np.flatnonzero(made)
                places = made[rows, 0] - 1
                out[rows, start + places] = two[1, places]
            if told is not None:
                told += told_of_new(column, series, self.missing, absent)
        return self._within_float32(out)

    def _within_float32(self, out: NDArray[np.float32]) -> NDArray[np.float32]:
        """Refuse scaled values beyond the range of float32, unless scaling clips (DataError)."""
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


@cache
def _adapter() -> TypeAdapter[PartyPreprocessor]:
    return TypeAdapter(PartyPreprocessor)


def numeric_matrix(rows: object, width: int) -> np.ndarray:
    """Rows as a real matrix (rows, width), images flattened; DataError for other input."""
    try:
        matrix = np.asarray(as_array(rows))
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
