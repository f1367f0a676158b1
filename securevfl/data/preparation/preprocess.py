"""Preprocessing fitted on training rows only: filling, one-hot encoding and scaling.

Each party's part is a `PartyPreprocessor` that needs that party's columns and nothing else; a
`Preprocessor` divides whole rows among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from securevfl.data.preparation.cells import MISSING_TEXTS
from securevfl.data.preparation.columns import (
    Column,
    code_numbers,
    filled,
    one_hot,
    refuse_repeated,
    take_columns,
)
from securevfl.data.preparation.ids import refuse_other_rows
from securevfl.data.preparation.scaling import Scaling, check_scaling
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

# Rows are scaled in blocks of about this many values, which stay in the processor's cache.
_BLOCK = 1 << 16


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

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """For each encoded column the number of its category codes; 0 where values are sizes."""
        return tuple(column.cardinality for column in self.columns for _ in column.encoded)

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """First encoded column of each source column, and the end; length columns + 1."""
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
        unknown = [c.name for c in self.columns if c.name not in frame.columns]
        if unknown:
            raise DataError(
                f"the rows have no column {unknown[0]!r} ({len(unknown)} of {len(self.columns)} "
                f"columns are absent); give the columns that the data set was built from."
            )
        out = np.empty((len(frame), self.bounds[-1]), dtype=np.float32)
        offset, divisor = self._parameters
        for column, (start, stop) in zip(self.columns, pairwise(self.bounds), strict=True):
            here = slice(start, stop)
            low, high = self._levels(offset[here], divisor[here])
            series = frame[column.name]
            if column.coded:
                out[:, start] = code_numbers(column, series, self.missing)
                continue
            if column.categories is None:
                values, absent = filled(column, series, self.missing)
                with np.errstate(over="ignore"):
                    values = (values - offset[start]) / divisor[start]
                    out[:, start] = np.clip(values, 0.0, 1.0) if self.clip else values
            else:
                absent = one_hot(column, series, self.missing, low, high, out[:, here])
            if column.indicator:
                out[:, stop - 1] = np.where(absent, high[-1], low[-1])
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
    id_column : str, optional
        Column by which the parties' training rows were joined, if they were.
    """

    parties: tuple[PartyPreprocessor, ...]
    positions: tuple[tuple[int, ...], ...]
    scaling: Scaling
    id_column: str | None = None

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
            tuple of one frame or two-dimensional array per party is given to the parties in order;
            frames that have the `id_column` must hold the same ids in the same order.

        Returns
        -------
        tuple of ndarray of float32, shape (m, d_n)

        Raises
        ------
        DataError
            If the rows do not have the columns or values that were fitted, and if the parties'
            tables hold other rows or another order.
        """
        import pandas as pd

        if _one_table_per_party(rows, len(self.parties)):
            refuse_other_rows(cast("Any", rows), self.id_column)
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
        """Divide the same fitted columns among other parties.

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
            tuple(parts),
            tuple(tuple(map(int, wanted)) for wanted in positions),
            self.scaling,
            self.id_column,
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
            "id_column": self.id_column,
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
                id_column=fields.get("id_column"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the stored preprocessor is damaged: {error!r}.") from error


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
