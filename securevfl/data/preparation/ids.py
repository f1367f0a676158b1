"""Checks of id columns: several parties' tables have the same rows in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from securevfl.data.preparation.cells import id_of, text_of
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


def id_cells(table: object, id_column: str) -> pd.Series | None:
    """Ids of a data frame from the column or index of that name; None if there is neither."""
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        return None
    if id_column in table.columns:
        return table[id_column]
    return table.index.to_series() if table.index.name == id_column else None


def refuse_other_rows(tables: Sequence[Any], id_column: str | None) -> None:
    """Raise DataError unless the rows of parties' tables have the same ids in the same order.

    Tables without the id column cannot be compared, so their rows count as aligned; DataError if
    only some tables have it.
    """
    if id_column is None:
        return
    keys = [id_cells(table, id_column) for table in tables]
    having = [one is not None for one in keys]
    if not any(having):
        return
    ways = (
        f"join them with securevfl.data.join_rows(tables, {id_column!r}), which also says whose "
        f"rows they are; or leave the column out of all tables if the rows are aligned"
    )
    if not all(having):
        raise DataError(
            f"table {having.index(True)} has the id column {id_column!r} and table "
            f"{having.index(False)} has not, so that rows cannot be matched; {ways}."
        )
    first, *others = ([id_of(text_of(key)) for key in one] for one in keys if one is not None)
    for n, other in enumerate(others, start=1):
        if other == first:
            continue
        row = next((k for k, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), None)
        where = (
            f"they have {len(first)} and {len(other)} rows"
            if row is None
            else f"row {row} is {first[row]!r} in the one and {other[row]!r} in the other"
        )
        raise DataError(
            f"tables 0 and {n} do not hold the same rows in the same order: {where} "
            f"(column {id_column!r}); {ways}."
        )
