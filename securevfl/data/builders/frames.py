"""Data sets from data frames, of one owner or of several parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self, Unpack

import numpy as np

from securevfl.data.alignment.join import Joined, Match, PartyTable, join_parties
from securevfl.data.base.content import D, DatasetContent
from securevfl.data.base.labels import RawLabels, read_labels
from securevfl.data.base.options import TableKeywords, TableOptions, own_data, table_options
from securevfl.data.base.partition import divide_columns, named_owners, side_by_side
from securevfl.data.builders.frame_columns import (
    checked_frame,
    feature_columns,
    group_codes,
    label_column,
)
from securevfl.data.builders.tabular import Alone, Rows, build, split_rows
from securevfl.data.preparation.columns import column_name
from securevfl.data.preparation.tables import as_frame
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


class FromFrames(DatasetContent):
    """Class method of `VerticalDataset` that builds it from data frames."""

    @classmethod
    @table_options(TableKeywords)
    def from_pandas(
        cls,
        frame: pd.DataFrame | Sequence[pd.DataFrame] | Mapping[str, pd.DataFrame],
        label: str,
        *,
        test_frame: pd.DataFrame | None = None,
        id_column: str | None = None,
        label_frame: pd.DataFrame | None = None,
        parties: int | None = None,
        owners: Sequence[Sequence[str]] | Mapping[str, Sequence[str]] | None = None,
        **options: Unpack[TableKeywords],
    ) -> Self:
        """Build a data set from one data frame, or from one per party.

        Numbers and booleans stay one column. `coding` selects the encoding of texts and pandas
        categories. Missing numbers become the training median, and a further column marks them if
        training rows have any. Encoding and column types are fitted on the training rows.

        Parameters
        ----------
        frame : DataFrame, or sequence of one DataFrame per party, or mapping of party names to them
            Several frames are joined by `id_column`; without one they must be aligned. Tables of
            polars, pyarrow and DuckDB are converted; the first two need the extra ``tables``.
        label : str
            Name of the label column.
        test_frame : DataFrame, optional
            The test rows, with the same columns; for a single frame only.
        id_column : str, optional
            Name of the id column in every party's frame.
        label_frame : DataFrame, optional
            Frame with ids and labels, if no party's frame has the labels.
        parties : int, optional
            Number of parties among which a single frame's columns are divided; 8 by default.
        owners : sequence of sequences of str, or mapping of str to them, optional
            Names of each party's columns, instead of `parties`; the keys of a mapping are the
            parties' names.
        **options
            Fields of `securevfl.data.base.options.TableOptions`.

        Raises
        ------
        DataError
            For unusable data; the message names the fault and its place.

        Examples
        --------
        >>> import pandas as pd
        >>> from securevfl import VerticalDataset
        >>> frame = pd.DataFrame(
        ...     {"age": range(40), "town": ["a", "b"] * 20, "ill": [0, 1] * 20}
        ... )
        >>> VerticalDataset.from_pandas(frame, "ill", parties=2)
        VerticalDataset('table', 2 classes, 2 parties, 30 + 10 rows, widths (1, 2))
        """
        import pandas as pd

        owners, party_names = named_owners(owners, options.get("party_names"))
        if isinstance(frame, Mapping):
            given, party_names = named_owners(frame, party_names)
            frame = list(given or ())
        asked = TableOptions.of(
            {**options, "party_names": party_names},
            name="table",
            about=own_data("data frame of the user"),
        )
        frame, test_frame, label_frame = map(as_frame, (frame, test_frame, label_frame))
        if isinstance(frame, pd.DataFrame):
            if id_column is not None or label_frame is not None:
                raise DataError(
                    "id_column= and label_frame= join several tables; give a list of data frames."
                )
            whole = checked_frame(frame, asked.name)
            return from_frame(cls, whole, test_frame, label, parties, owners, asked)
        if test_frame is not None or parties not in (None, len(frame)) or owners is not None:
            raise DataError(
                f"{len(frame)} parties' tables own their columns and are split after the join; "
                f"leave out parties=, owners= and test_frame=."
            )
        called = asked.called(len(frame))
        if len(called) != len(frame):
            raise DataError(
                f"{len(called)} party names for {len(frame)} tables; give one per table."
            )
        tables = [
            PartyTable(who, checked_frame(as_frame(f), who))
            for who, f in zip(called, frame, strict=True)
        ]
        labels = None
        if label_frame is not None:
            labels = PartyTable("label_frame", checked_frame(label_frame, "label_frame"))
        return from_parties(
            cls, tables, labels, label, id_column, replace(asked, party_names=called)
        )


def from_parties(
    kind: type[D],
    tables: Sequence[PartyTable],
    label_table: PartyTable | None,
    label: str,
    id_column: str | None,
    options: TableOptions,
    match: Match | None = None,
    *,
    unmatched: str = "dropped",
) -> D:
    """Join the parties' tables, split the rows, and build the data set.

    `checked_frame` has checked the tables; `label_table` belongs to no party. Without an id column
    the rows count as aligned. `unmatched` decides whether rows whose id is not in every table are
    dropped or kept as unaligned rows (``alone``). DataError for tables or columns that do not fit.
    """
    label = column_name(label, "label")
    id_column = None if id_column is None else column_name(id_column, "id_column")
    keep = unmatched == "kept"
    _check_unmatched(unmatched, options)
    if label_table is None and id_column is not None:
        tables, label_table, options = _labels_apart(tables, label, id_column, options)
    joined = join_parties(tables, label_table, label, id_column, match, keep=keep)
    unknown = [c for c in options.drop if all(c not in part.columns for part in joined.parts)]
    if unknown:
        raise DataError(f"drop= names {unknown[0]!r}, which no party's table has.")
    groups = None
    if options.group is not None:
        owner = [part for part in joined.parts if options.group in part.columns]
        if len(owner) != 1:
            raise DataError(
                f"group={options.group!r} is a column of {len(owner)} tables; one is needed."
            )
        groups = group_codes(owner[0], options.group, "the parties", options.missing)
    parts = []
    for table, part in zip(tables, joined.parts, strict=True):
        left = [c for c in part.columns if c not in (*options.drop, options.group)]
        if not left:
            raise DataError(
                f"{table.name} has no columns besides ids and labels: an empty party; each party "
                f"needs at least one column, so leave this party out."
            )
        parts.append(part[left])
    positions = side_by_side([part.shape[1] for part in parts])
    labels, alone = _labels_and_alone(joined, parts, label, options)
    train, test, split = split_rows(Rows(tuple(parts), labels), groups, options)
    partition = "each party's own table" + (f", joined by {id_column!r}" if id_column else "")
    about = replace(options.origin, notes=(*options.origin.notes, *joined.notes))
    noted = replace(options, about=about)
    return build(
        kind,
        train,
        test,
        positions,
        noted,
        split=split,
        partition=partition,
        alone=alone,
        id_column=id_column,
    )


def _labels_apart(
    tables: Sequence[PartyTable], label: str, id_column: str, options: TableOptions
) -> tuple[Sequence[PartyTable], PartyTable | None, TableOptions]:
    """(parties' tables, a table of only ids and labels, or None, options for those parties)."""
    bare = {label, id_column}
    found = [n for n, table in enumerate(tables) if set(table.frame.columns) == bare]
    if len(found) != 1 or len(tables) < 2:
        return tables, None, options
    own = tables[found[0]]
    usual = options.called(len(tables)) == tuple(f"party {n}" for n in range(len(tables)))
    given = () if usual else options.called(len(tables))
    called = [name for n, name in enumerate(given) if n != found[0]] or None
    note = f"{own.name} has labels and no columns: taken as the file of the labels, and no party"
    about = replace(options.origin, notes=(*options.origin.notes, note))
    asked = replace(options, party_names=called, about=about)
    return [table for table in tables if table is not own], own, asked


def _check_unmatched(unmatched: str, options: TableOptions) -> None:
    if unmatched not in ("dropped", "kept"):
        raise DataError(f"unmatched={unmatched!r} does not exist; use dropped or kept.")
    if unmatched == "kept" and options.group is not None:
        raise DataError(
            f"unmatched='kept' and group={options.group!r}: rows that a party holds alone are "
            f"trained on, and some may belong to a group that is held out; leave one of them out."
        )


def _labels_and_alone(
    joined: Joined, parts: Sequence[pd.DataFrame], label: str, options: TableOptions
) -> tuple[RawLabels, Alone | None]:
    """(labels of the common rows, rows and labels outside the join, or None), as one column."""
    import pandas as pd

    common = len(joined.labels)
    if not any(len(frame) for frame in joined.alone):
        return read_labels(joined.labels, label, options.missing), None
    own = [] if joined.alone_labels is None else [joined.alone_labels]
    labels = read_labels(pd.concat([joined.labels, *own]), label, options.missing)
    rest = tuple(f[list(p.columns)] for f, p in zip(joined.alone, parts, strict=True))
    others = labels.take(np.arange(common, len(labels))) if own else None
    return labels.take(np.arange(common)), Alone(rest, others)


def from_frame(
    kind: type[D],
    frame: pd.DataFrame,
    test_frame: pd.DataFrame | None,
    label: str,
    parties: int | None,
    owners: Sequence[Sequence[str]] | None,
    options: TableOptions,
    what: str = "",
) -> D:
    """Divide one frame's columns among parties and build the data set.

    `frame` has the training rows, or all rows, and was checked by `checked_frame`; `test_frame` is
    unchecked. DataError, which names the table (`what` or its own name), for unusable cells.
    """
    label = column_name(label, "label")
    name, group, missing = what or options.name, options.group, options.missing
    labels = read_labels(label_column(frame, label, name), label, missing)
    groups = None if group is None else group_codes(frame, group, name, missing)
    left_out = [label, *([group] if group is not None else []), *options.drop]
    features = feature_columns(frame, left_out, name)
    names = [str(c) for c in features.columns]
    positions, partition = divide_columns(names, parties, owners)
    rows = Rows(tuple(features.iloc[:, list(p)] for p in positions), labels)
    if test_frame is None:
        train, test, split = split_rows(rows, groups, options)
    else:
        tested = checked_frame(test_frame, "the test rows")
        test_labels = read_labels(label_column(tested, label, "the test rows"), label, missing)
        absent = [c for c in names if c not in tested.columns]
        if absent:
            raise DataError(
                f"the test rows have no column {absent[0]!r}; give the same columns as in training."
            )
        test = Rows(tuple(tested[[names[k] for k in p]] for p in positions), test_labels)
        train, split = rows, "test rows given by the user"
    return build(kind, train, test, positions, options, split=split, partition=partition)
