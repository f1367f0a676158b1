"""Join of several parties' tables by an id column in plain form."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from securevfl.data.preparation.cells import id_of, look_of, read_texts, row_name
from securevfl.data.preparation.ids import id_cells, refuse_other_order
from securevfl.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd


# Finds the common ones among every table's own ids: their rows in each table, in one order, and
# what there is to say about how they were found.
Match = Callable[[Sequence[Sequence[str]]], tuple[list[NDArray[np.intp]], list[str]]]


@dataclass(frozen=True)
class PartyTable:
    """A table of one party, with its name for error messages."""

    name: str
    frame: pd.DataFrame


@dataclass(frozen=True)
class Joined:
    """Joined columns and labels, row for row, and notes on dropped rows.

    `parts` has one frame per party, without ids and labels. `alone` has, if kept, each party's rows
    whose id is not in every table. `alone_labels` has the labels of `alone[0]` if the first party's
    own table has the labels, else None.
    """

    parts: tuple[pd.DataFrame, ...]
    labels: pd.Series
    notes: tuple[str, ...]
    alone: tuple[pd.DataFrame, ...] = ()
    alone_labels: pd.Series | None = None


def join_parties(
    tables: Sequence[PartyTable],
    label_table: PartyTable | None,
    label: str,
    id_column: str | None,
    match: Match | None = None,
    *,
    keep: bool = False,
) -> Joined:
    """Keep the rows whose id is in every table, in the order of the table with the labels.

    The label is in `label_table`, which belongs to no party, or in exactly one party's table.
    Tables without an id column must be aligned; one index in two orders is refused. `match` finds
    the common ids; by default ids are compared in the clear. With `keep`, rows whose id is not in
    every table are returned as well.
    DataError if there is no table, a label or id column is missing, several tables have the label,
    ids are missing, repeated or written differently, no id is common, or tables without ids differ
    in length.
    """
    if not tables:
        raise DataError("no party's table was given; at least one is needed.")
    everyone = [*tables, *([label_table] if label_table else [])]
    owner = _label_owner(tables, label_table, label)
    if id_column is None:
        sizes = [len(table.frame) for table in everyone]
        if len(set(sizes)) > 1:
            raise DataError(
                f"the tables have {sizes} rows; name the column that joins them with id_column=."
            )
        refuse_other_order([table.frame for table in everyone])
        orders = [np.arange(sizes[0]) for _ in everyone]
        notes: list[str] = []
    else:
        orders, notes = _common_rows(everyone, owner, id_column, match or match_plainly, keep)
    aligned = [t.frame.iloc[order] for t, order in zip(everyone, orders, strict=True)]
    labels = aligned[owner][label]
    not_features = {id_column} | ({label} if label_table is None else set())

    def features(frames: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, ...]:
        return tuple(f[[c for c in f.columns if c not in not_features]] for f in frames)

    parts = features(aligned[: len(tables)])
    if not keep:
        return Joined(parts, labels, tuple(notes))
    rest = [
        table.frame.iloc[np.setdiff1d(np.arange(len(table.frame)), order)]
        for table, order in zip(tables, orders, strict=False)
    ]
    own = rest[0][label] if owner == 0 and label_table is None else None
    if own is None:
        notes.append(
            f"the rows that {tables[0].name} holds alone have no label: the labels are not in "
            f"that table, the first party's"
        )
    return Joined(parts, labels, tuple(notes), features(rest), own)


def _label_owner(tables: Sequence[PartyTable], label_table: PartyTable | None, label: str) -> int:
    """Index of the table with the label, `len(tables)` for `label_table`; DataError for 0 or 2."""
    if label_table is not None:
        if label not in label_table.frame.columns:
            raise DataError(
                f"{label_table.name} has no column {label!r} for the label; its columns are "
                f"{', '.join(map(str, label_table.frame.columns[:12]))}."
                f"{did_you_mean(label, map(str, label_table.frame.columns))}"
            )
        for table in tables:
            refuse_label(table, label)
        return len(tables)
    owners = [n for n, table in enumerate(tables) if label in table.frame.columns]
    if not owners:
        every = {str(column) for table in tables for column in table.frame.columns}
        raise DataError(
            f"no party's table has the label column {label!r} "
            f"({', '.join(table.name for table in tables)}); name the label as it is called there, "
            f"or give the labels a file of their own.{did_you_mean(label, every)}"
        )
    if len(owners) != 1:
        files = ", ".join(tables[n].name for n in owners)
        raise DataError(
            f"the label column {label!r} must be in exactly one party's table and is in "
            f"{len(owners)} ({files}); rename a column, or give the labels a file of their own."
        )
    return owners[0]


def refuse_label(table: PartyTable, label: str) -> None:
    """Raise DataError if a table of features has a column with the name of the label."""
    if label in table.frame.columns:
        raise DataError(
            f"{table.name} has a column {label!r}, too, and the labels have a file of their own: "
            f"as a feature it would tell the label. Remove the column from {table.name}, or rename "
            f"it if it is something else."
        )


def join_rows(tables: Sequence[pd.DataFrame], id_column: str) -> list[pd.DataFrame]:
    """Keep the rows whose id is in every table, in the order of the first table.

    `Run.predict` needs tables of the same rows in the same order, as this returns them. Row k of a
    prediction has the id of row k of any table.

    Parameters
    ----------
    tables : sequence of DataFrame
        One table per party, in order.
    id_column : str
        Name of the id column in every table; ids are compared as texts.

    Returns
    -------
    list of DataFrame
        The tables, with all of their columns.

    Raises
    ------
    DataError
        If a table lacks the column, ids are missing, repeated or written differently, or no id is
        in all tables.

    Examples
    --------
    >>> import pandas as pd
    >>> from securevfl.data import join_rows
    >>> bank = pd.DataFrame({"who": ["a", "b", "c"], "age": [30, 40, 50]})
    >>> shop = pd.DataFrame({"who": ["c", "a"], "spent": [7, 9]})
    >>> [list(table["who"]) for table in join_rows([bank, shop], "who")]
    [['a', 'c'], ['a', 'c']]
    """
    tables = list(tables)
    for n, table in enumerate(tables):
        if not hasattr(table, "columns"):
            raise DataError(
                f"join_rows: table {n} is of the type {type(table).__name__}; give data frames."
            )
    if not tables:
        raise DataError("join_rows: no table was given; at least one is needed.")
    named = [PartyTable(f"table {n}", table) for n, table in enumerate(tables)]
    return common_rows(named, id_column)[0]


def common_rows(
    tables: Sequence[PartyTable], id_column: str
) -> tuple[list[pd.DataFrame], dict[str, int]]:
    """Rows whose id is in all tables, in the first table's order, and how many rows each loses.

    DataError if a table lacks the id column, ids are missing or repeated, or none is common.
    """
    held = [own_ids(table, id_column) for table in tables]
    common = [key for key in held[0] if all(key in own for own in held[1:])]
    if not common:
        raise DataError(
            f"no id of column {id_column!r} is in all {len(tables)} tables "
            f"({', '.join(table.name for table in tables)}); give the rows of the same people"
        )
    _refuse_other_writing(tables, held, set(common))
    found = [
        table.frame.iloc[[own[key] for key in common]]
        for table, own in zip(tables, held, strict=True)
    ]
    left = {t.name: len(own) - len(common) for t, own in zip(tables, held, strict=True)}
    return found, {name: count for name, count in left.items() if count}


def match_plainly(
    ids: Sequence[Sequence[str]],
) -> tuple[list[NDArray[np.intp]], list[str]]:
    """(rows of the common ids, an array a table; no notes); ids are compared as they are."""
    rows = [{key: row for row, key in enumerate(held)} for held in ids]
    common = set(rows[0]).intersection(*rows[1:])
    return [np.array([held[key] for key in common], dtype=np.intp) for held in rows], []


def _common_rows(
    everyone: Sequence[PartyTable], first: int, id_column: str, match: Match, keep: bool
) -> tuple[list[NDArray[np.intp]], list[str]]:
    """(rows of the common ids a table, in the order of `first`; notes); DataError for none."""
    ids = [own_ids(table, id_column) for table in everyone]
    kinds = [_kind(held) for held in ids]
    if len(set(kinds)) > 1:
        other = next(n for n, kind in enumerate(kinds) if kind != kinds[0])
        raise DataError(
            f"the ids are of different types: {everyone[0].name} has {kinds[0]} such as "
            f"{_example(ids[0], kinds[0])!r}, {everyone[other].name} has {kinds[other]} such as "
            f"{_example(ids[other], kinds[other])!r}; write them the same way in every file."
        )
    orders, match_notes = match([list(held) for held in ids])
    common = len(orders[0])
    if not common:
        _refuse_alike(everyone, ids)
        examples = ", ".join(
            f"{t.name} has {next(iter(held))!a}" for t, held in zip(everyone, ids, strict=True)
        )
        raise DataError(
            f"no id is in all {len(everyone)} tables ({examples}); ids are compared as texts in "
            f"column {id_column!r}, so check that it is the same kind of id everywhere."
        )
    every = list(ids[0])
    _refuse_other_writing(everyone, ids, {every[row] for row in orders[0].tolist()})
    ordered = np.argsort(orders[first])
    fate = "kept as the party's alone" if keep else "left out"
    notes = [
        f"{table.name}: {len(held) - common} of {len(held)} rows {fate}, because their id "
        f"is not in every table"
        for table, held in zip(everyone, ids, strict=True)
        if len(held) > common
    ]
    return [order[ordered] for order in orders], [*match_notes, *notes]


def _refuse_other_writing(
    tables: Sequence[PartyTable], ids: Sequence[dict[str, int]], common: set[str]
) -> None:
    """Raise DataError if ids were left out only because tables write them differently.

    Ids that are not common are compared after normalisation: capitals, spaces, leading and trailing
    zeros, and look-alike characters. Nothing is refused if two ids of one table differ only in
    these, because then the difference may be meaningful.
    """
    rest = [[key for key in own if key not in common] for own in ids]
    if not all(rest):
        return
    bare = [{_bare(key): key for key in own} for own in ids]
    if any(len(form) < len(own) for form, own in zip(bare, ids, strict=True)):
        return
    alike = set.intersection(*({_bare(key) for key in keys} for keys in rest))
    if alike:
        first = min(alike)
        written = ", ".join(
            f"{table.name} has {form[first]!a}" for table, form in zip(tables, bare, strict=True)
        )
        raise DataError(
            f"{len(alike)} ids are written differently and would be left out, such as: {written}. "
            "Write them alike in every file."
        )


def _bare(key: str) -> str:
    """An id without capitals, spaces, and zeros that spreadsheets drop or add."""
    seen = key if key.isascii() else look_of(unicodedata.normalize("NFKC", key))
    form = "".join(seen.casefold().split())
    return re.sub(r"^0+(?=\d)|(?<=\d)\.0+$", "", form) if form[:1].isdigit() else form


def _refuse_alike(everyone: Sequence[PartyTable], ids: Sequence[dict[str, int]]) -> None:
    """Refuse ids that look the same but differ in their code points (DataError)."""
    forms = [{look_of(unicodedata.normalize("NFKC", key)): key for key in own} for own in ids]
    shared = min(set.intersection(*map(set, forms)), default=None)
    if shared is not None:
        written = ", ".join(
            f"{table.name} has {form[shared]!a}"
            for table, form in zip(everyone, forms, strict=True)
        )
        raise DataError(
            f"no id is in all {len(everyone)} tables, but some look alike: {written}. Write them "
            "with the same letters in every file."
        )


def own_ids(table: PartyTable, id_column: str) -> dict[str, int]:
    """Row number of each id, as text; DataError for missing or repeated ids, or no id column."""
    series = id_cells(table.frame, id_column)
    if series is None:
        raise DataError(
            f"{table.name} has no id column {id_column!r}; its columns are "
            f"{', '.join(map(str, table.frame.columns[:12]))}."
            f"{did_you_mean(id_column, map(str, table.frame.columns))}"
        )
    codes, texts = read_texts(series, names=True)

    def place(row: int) -> str:
        return row_name(series, row).removeprefix(f"{table.name}, ")

    found: dict[str, int] = {}
    for row, code in enumerate(codes.tolist()):
        key = texts[code]
        if key is None:
            raise DataError(
                f"{table.name}, {place(row)}: the id in column {id_column!r} is "
                f"missing; every row needs one."
            )
        key = id_of(key)
        if key in found:
            raise DataError(
                f"{table.name}: the id {key!r} occurs more than once "
                f"({place(found[key])} and {place(row)}); an id names one "
                f"row, so remove the repeated ones."
            )
        found[key] = row
    return found


_WHOLE, _DECIMAL = r"[+-]?\d+", r"[+-]?\d*\.\d*(e[+-]?\d+)?"


def _kind(ids: dict[str, int]) -> str:
    """Phrase for the way in which the ids are written, such as "whole numbers"."""
    if all(re.fullmatch(_WHOLE, key) for key in ids):
        return "whole numbers"
    if all(re.fullmatch(_DECIMAL, key, re.IGNORECASE) for key in ids):
        return "decimal numbers"
    return "texts"


def _example(ids: dict[str, int], kind: str) -> str:
    """First id; among texts the first that is no whole number."""
    first = next(iter(ids))
    if kind != "texts":
        return first
    return next((key for key in ids if not re.fullmatch(_WHOLE, key)), first)
