"""Preprocessing of a whole table, fitted on training rows only.

Each party's part is a `PartyPreprocessor`, which needs only that party's columns; a `Preprocessor`
divides whole rows among them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from securevfl.data.preparation.columns import (
    Column,
    refuse_repeated,
    take_columns,
)
from securevfl.data.preparation.ids import refuse_other_rows
from securevfl.data.preparation.party_preprocessor import PartyPreprocessor, numeric_matrix
from securevfl.data.preparation.scaling import Scaling
from securevfl.data.preparation.tables import as_frame
from securevfl.errors import DataError, SecureVFLWarning

if TYPE_CHECKING:
    import pandas as pd

    from securevfl.data.preparation.party_preprocessor import Table

    RawRows = Table | Mapping[str, ArrayLike] | Sequence[Table]


@dataclass(frozen=True)
class Preprocessor:
    """Preprocessing of the whole table: one part per party, and the positions of its columns.

    Parameters
    ----------
    parties : tuple of PartyPreprocessor
        One per party.
    positions : tuple of tuple of int
        For each party, the positions of its source columns in a whole row, 0 to d - 1.
    scaling : {"minmax", "standard", "none"}
        The fitted scaling.
    id_column : str, optional
        Column by which the parties' training rows were joined; None if they were not.
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

    def apply(self, rows: RawRows) -> tuple[NDArray[np.float32], ...]:
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
            If columns are missing or values cannot be encoded, or if the parties' tables have
            different rows or orders.

        Warns
        -----
        SecureVFLWarning
            For unknown texts, and for missing values in columns that had none in the training rows.
        """
        told: list[str] = []
        parts = self._apply(rows, told)
        for sentence in told:
            warnings.warn(sentence, SecureVFLWarning, stacklevel=2)
        return parts

    def _apply(self, rows: RawRows, told: list[str]) -> tuple[NDArray[np.float32], ...]:
        """Arrays, and DataError, of `apply`; warnings are not raised but added to `told`."""
        import pandas as pd

        if isinstance(rows, (list, tuple)) and len(rows) == len(self.parties):
            rows = [as_frame(one) for one in rows]
        rows = as_frame(rows)
        if _one_table_per_party(rows, len(self.parties)):
            refuse_other_rows(rows, self.id_column)
            parts = [p.apply(r, told) for p, r in zip(self.parties, rows, strict=True)]
            if len({len(part) for part in parts}) > 1:
                raise DataError(
                    f"the parties' tables have {[len(part) for part in parts]} rows; "
                    f"all need the same rows in the same order."
                )
            return tuple(parts)
        if isinstance(rows, Mapping):
            try:
                rows = pd.DataFrame(rows)
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"the rows are a mapping that is no table of columns: {error}. Give a list of "
                    "values for each column name, or a list of one table per party"
                ) from None
        if isinstance(rows, pd.DataFrame):
            refuse_repeated(self.columns, "give a list of one table per party")
            return tuple(part.apply(rows, told) for part in self.parties)
        matrix = numeric_matrix(rows, len(self.columns))
        return tuple(
            part.apply(take_columns(matrix, positions), told)
            for part, positions in zip(self.parties, self.positions, strict=True)
        )

    def deal(self, positions: Sequence[Sequence[int]]) -> Preprocessor:
        """The same fitted columns divided among other parties.

        Parameters
        ----------
        positions : sequence of sequences of int
            For each new party, the positions of its source columns, without repetition.

        Returns
        -------
        Preprocessor
            Preprocessor with the same fitted numbers, in the new order.

        Raises
        ------
        DataError
            If a party has trees.
        """
        if any(part.forest is not None for part in self.parties):
            raise DataError(
                "trees= are each party's own, so columns with leaves cannot be divided anew; "
                "choose the parties first, then add the leaves."
            )
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
            fitted = tuple(columns), tuple(offset), tuple(divisor)
            first = self.parties[0]
            parts.append(PartyPreprocessor(*fitted, first.clip, first.missing))
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


def _one_table_per_party(
    rows: object, parties: int
) -> TypeGuard[Sequence[pd.DataFrame | np.ndarray]]:
    import pandas as pd

    return (
        isinstance(rows, (list, tuple))
        and len(rows) == parties
        and all(
            isinstance(r, pd.DataFrame) or (isinstance(r, np.ndarray) and r.ndim == 2) for r in rows
        )
    )
