"""Checks of id columns: several parties' tables have the same rows in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from securevfl.data.preparation.cells import id_of, text_of
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


_WHOLE_BELOW = {2: 2**11, 4: 2**24, 8: 2**53}  # by bytes of a float


def id_cells(table: object, id_column: str) -> pd.Series | None:
    """Ids of a data frame from the column or index of that name; None if there is neither.

    DataError for floats so large that whole numbers were rounded to other rows' ids, and for two
    such columns.
    """
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        return None
    if (many := list(table.columns).count(id_column)) > 1:
        raise DataError(f"{many} columns are named {id_column!r}; leave one for the ids")
    if many:
        cells: pd.Series = table[id_column]
    elif table.index.name == id_column:
        cells = table.index.to_series()
    else:
        return None
    size = getattr(cells.dtype, "itemsize", 0) if cells.dtype.kind == "f" else 0
    most = _WHOLE_BELOW.get(size)
    if most is not None and (large := cells.abs() >= most).any():
        raise DataError(
            f"the ids in column {id_column!r} are {cells.dtype}, in which whole numbers from "
            f"{most} on are rounded, such as {cells[large].iloc[0]:.17g}; read them as integers or "
            f"texts"
        )
    return cells


def refuse_other_order(tables: Sequence[object]) -> None:
    """Raise DataError if data frames have the same index in another order."""
    import pandas as pd

    first, *others = [t.index if isinstance(t, pd.DataFrame) else None for t in tables] or [None]
    for n, other in enumerate(others, start=1):
        if first is None or other is None or len(first) != len(other) or first.equals(other):
            continue
        # By Python's equality: pandas' own differs from kind to kind of index, and some raise.
        rows = {label: row for row, label in enumerate(first)}
        found = [rows.get(label, -1) for label in other]
        moved = next((row for row, there in enumerate(found) if row != there), None)
        if moved is not None and sorted(found) == list(range(len(first))):
            raise DataError(
                f"tables 0 and {n} have one index in two orders: row {moved} is {first[moved]!r} "
                f"in the one and {other[moved]!r} in the other, and rows are taken as they stand. "
                f"Sort them alike, or use .reset_index(drop=True) where they are aligned"
            )


def refuse_other_rows(tables: Sequence[Any], id_column: str | None) -> None:
    """Raise DataError unless the rows of parties' tables have the same ids in the same order.

    Tables without the id column count as aligned, unless their indices are one in two orders;
    DataError if only some tables have it.
    """
    if id_column is None:
        refuse_other_order(tables)
        return
    keys = [id_cells(table, id_column) for table in tables]
    having = [one is not None for one in keys]
    if not any(having):
        refuse_other_order(tables)
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
