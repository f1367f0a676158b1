"""Data sets from data frames, of one owner or of several parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from securevfl.data.alignment.join import Joined, Match, PartyTable, join_parties
from securevfl.data.builders.arrays import DEFAULT_PARTIES
from securevfl.data.builders.tabular import (
    Alone,
    Request,
    Rows,
    build,
    checked_frame,
    feature_columns,
    group_codes,
    label_column,
    split_rows,
)
from securevfl.data.dataset import VerticalDataset
from securevfl.data.labels import RawLabels, read_labels
from securevfl.data.origin import About
from securevfl.data.partition import Positions, deal_columns, named_owners, owned_columns
from securevfl.data.preparation.cells import MISSING_TEXTS
from securevfl.data.preparation.columns import listed_names
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


def from_pandas(
    frame: pd.DataFrame | Sequence[pd.DataFrame] | Mapping[str, pd.DataFrame],
    label: str,
    *,
    test_frame: pd.DataFrame | None = None,
    id_column: str | None = None,
    label_frame: pd.DataFrame | None = None,
    name: str = "table",
    task: str | None = None,
    parties: int | None = None,
    owners: Sequence[Sequence[str]] | Mapping[str, Sequence[str]] | None = None,
    party_names: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    group: str | None = None,
    test_fraction: float = 0.25,
    seed: int = 0,
    scaling: str = "minmax",
    missing_values: Sequence[str] = MISSING_TEXTS,
    max_categories: int = 1000,
    coding: str = "onehot",
    about: About | None = None,
) -> VerticalDataset:
    """Build a data set from one data frame, or from one per party.

    Numbers and truth values stay one column; texts and pandas categories are one-hot encoded
    unless `coding` says otherwise;
    missing numbers become the training median, and one more column marks them where the training
    rows have any. All of it is fitted on the training rows, as is the type of each column.

    Parameters
    ----------
    frame : DataFrame, or sequence of one DataFrame per party, or mapping of party names to them
        Several frames are joined by `id_column`, or taken row by row without one.
    label : str
        Name of the label column.
    test_frame : DataFrame, optional
        The test rows, with the same columns; for a single frame only.
    id_column : str, optional
        Column that names the rows in every party's frame.
    label_frame : DataFrame, optional
        Frame of ids and labels, where no party's frame has them.
    name : str
        Name of the data set.
    task : {"binary", "multiclass", "regression"}, optional
        Found from the labels unless given.
    parties : int, optional
        How many parties a single frame's columns are dealt to; 8 unless given.
    owners : sequence of sequences of str, or mapping of str to them, optional
        Names of each party's columns, instead of `parties`; the keys of a mapping are the parties'
        names.
    party_names : sequence of str, optional
        One per party.
    drop : sequence of str
        Columns that are left out.
    group : str, optional
        Column whose values (people, for example) are never on both sides of the split; it is no
        feature.
    test_fraction : float
        Part of the rows (or groups) that is held out, in (0, 1).
    seed : int
        Seed of the split, 0 or more.
    scaling : {"minmax", "standard", "none"}
        Fitted on training rows; min-max is clipped into [0, 1].
    missing_values : sequence of str
        Texts that stand for a missing value.
    max_categories : int
        Largest number of distinct texts in one column.
    coding : {"onehot", "codes"}
        How texts and pandas categories are encoded: one column for each value of the training
        rows, or one column of code numbers (`VerticalDataset.cardinalities`), for networks that
        look them up; beyond `max_categories` the rarer values then share the code 0.
    about : About, optional
        Origin, licence and notes; split, scaling and partition are filled in.

    Returns
    -------
    VerticalDataset

    Raises
    ------
    DataError
        For whatever cannot be used; the message says what and where.
    """
    import pandas as pd

    owners, party_names = named_owners(owners, party_names)
    if isinstance(frame, Mapping):
        tables, party_names = named_owners(frame, party_names)
        frame = list(tables or ())
    request = Request(
        name=name,
        about=about or About("data frame of the user", "the user's own data", "", "", ""),
        task=task,
        party_names=None if party_names is None else tuple(party_names),
        drop=listed_names(drop),
        group=group,
        test_fraction=test_fraction,
        seed=seed,
        scaling=scaling,
        missing=tuple(missing_values),
        max_categories=max_categories,
        coding=coding,
    )
    if isinstance(frame, pd.DataFrame):
        if id_column is not None or label_frame is not None:
            raise DataError(
                "id_column= and label_frame= join several tables; give a list of data frames."
            )
        return _from_frame(frame, test_frame, label, parties, owners, request)
    if test_frame is not None or parties not in (None, len(frame)) or owners is not None:
        raise DataError(
            f"{len(frame)} parties' tables own their columns and are split after the join; "
            f"leave out parties=, owners= and test_frame=."
        )
    called = request.party_names or tuple(f"party {n}" for n in range(len(frame)))
    if len(called) != len(frame):
        raise DataError(f"{len(called)} party names for {len(frame)} tables; give one per table.")
    tables = [PartyTable(who, f) for who, f in zip(called, frame, strict=True)]
    holder = None if label_frame is None else PartyTable("label_frame", label_frame)
    return from_parties(tables, holder, label, id_column, replace(request, party_names=called))


def from_parties(
    tables: Sequence[PartyTable],
    holder: PartyTable | None,
    label: str,
    id_column: str | None,
    request: Request,
    match: Match | None = None,
    *,
    unmatched: str = "dropped",
) -> VerticalDataset:
    """Join the parties' tables, split the rows, and build the data set.

    Parameters
    ----------
    tables : sequence of PartyTable
        One per party.
    holder : PartyTable, optional
        A table of ids and labels, which is no party's.
    label, id_column : str
        Names of columns; without an id column the rows are taken as aligned.
    request : Request
        Everything else that was asked.
    match : callable, optional
        As for `join_parties`.
    unmatched : {"dropped", "kept"}
        What becomes of rows whose id is not in every table; kept ones are ``alone``.

    Returns
    -------
    VerticalDataset
    """
    keep = unmatched == "kept"
    _check_unmatched(unmatched, request)
    tables = [PartyTable(t.name, checked_frame(t.frame, t.name)) for t in tables]
    if holder is not None:
        holder = PartyTable(holder.name, checked_frame(holder.frame, holder.name))
    joined = join_parties(tables, holder, label, id_column, match, keep=keep)
    unknown = [c for c in request.drop if all(c not in part.columns for part in joined.parts)]
    if unknown:
        raise DataError(f"drop= names {unknown[0]!r}, which no party's table has.")
    groups = None
    if request.group is not None:
        owner = [part for part in joined.parts if request.group in part.columns]
        if len(owner) != 1:
            raise DataError(
                f"group={request.group!r} is a column of {len(owner)} tables; one is needed."
            )
        groups = group_codes(owner[0], request.group, "the parties", request.missing)
    parts = []
    for table, part in zip(tables, joined.parts, strict=True):
        left = [c for c in part.columns if c not in (*request.drop, request.group)]
        if not left:
            raise DataError(
                f"{table.name} has no columns besides ids and labels: an empty party; each party "
                f"needs at least one column, so leave this party out."
            )
        parts.append(part[left])
    ends = np.cumsum([part.shape[1] for part in parts]).tolist()
    positions = tuple(
        tuple(range(end - part.shape[1], end)) for part, end in zip(parts, ends, strict=True)
    )
    labels, alone = _labels_and_alone(joined, parts, label, request)
    train, test, split = split_rows(Rows(tuple(parts), labels), groups, request)
    partition = "each party's own table" + (f", joined by {id_column!r}" if id_column else "")
    about = replace(request.about, notes=(*request.about.notes, *joined.notes))
    noted = replace(request, about=about)
    return build(train, test, positions, noted, split=split, partition=partition, alone=alone)


def _check_unmatched(unmatched: str, request: Request) -> None:
    if unmatched not in ("dropped", "kept"):
        raise DataError(f"unmatched={unmatched!r} does not exist; use dropped or kept.")
    if unmatched == "kept" and request.group is not None:
        raise DataError(
            f"unmatched='kept' and group={request.group!r}: rows that a party holds alone are "
            f"trained on, and some may belong to a group that is held out; leave one of them out."
        )


def _labels_and_alone(
    joined: Joined, parts: Sequence[pd.DataFrame], label: str, request: Request
) -> tuple[RawLabels, Alone | None]:
    """Labels of the common rows, and the others with theirs, read as one column."""
    import pandas as pd

    common = len(joined.labels)
    if not any(len(frame) for frame in joined.alone):
        return read_labels(joined.labels, label, request.missing), None
    own = [] if joined.alone_labels is None else [joined.alone_labels]
    labels = read_labels(pd.concat([joined.labels, *own]), label, request.missing)
    rest = tuple(f[list(p.columns)] for f, p in zip(joined.alone, parts, strict=True))
    others = labels.take(np.arange(common, len(labels))) if own else None
    return labels.take(np.arange(common)), Alone(rest, others)


def _from_frame(
    frame: pd.DataFrame,
    test_frame: pd.DataFrame | None,
    label: str,
    parties: int | None,
    owners: Sequence[Sequence[str]] | None,
    request: Request,
) -> VerticalDataset:
    """Deal a single frame's columns to parties and build the data set."""
    name, group, missing = request.name, request.group, request.missing
    source = checked_frame(frame, name)
    labels = read_labels(label_column(source, label, name), label, missing)
    groups = None if group is None else group_codes(source, group, name, missing)
    left_out = [label, *([group] if group is not None else []), *request.drop]
    features = feature_columns(source, left_out, name)
    names = [str(c) for c in features.columns]
    positions, partition = _owners(names, parties, owners)
    rows = Rows(tuple(features.iloc[:, list(p)] for p in positions), labels)
    if test_frame is None:
        train, test, split = split_rows(rows, groups, request)
    else:
        held = checked_frame(test_frame, "the test rows")
        test_labels = read_labels(label_column(held, label, "the test rows"), label, missing)
        absent = [c for c in names if c not in held.columns]
        if absent:
            raise DataError(
                f"the test rows have no column {absent[0]!r}; give the same columns as in training."
            )
        test = Rows(tuple(held[[names[k] for k in p]] for p in positions), test_labels)
        train, split = rows, "test rows given by the user"
    return build(train, test, positions, request, split=split, partition=partition)


def _owners(
    names: Sequence[str], parties: int | None, owners: Sequence[Sequence[str]] | None
) -> tuple[Positions, str]:
    if owners is not None:
        if parties not in (None, len(owners)):
            raise DataError(
                f"parties={parties} and owners= for {len(owners)} parties; give one of them."
            )
        return owned_columns(names, owners), "owners named by the user"
    count = min(DEFAULT_PARTIES, len(names)) if parties is None else parties
    return (
        deal_columns(len(names), count),
        f"source columns dealt to {count} parties by numpy.array_split",
    )
