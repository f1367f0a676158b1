"""Data sets from tables: data frames and CSV files, of one owner or of several parties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from securevfl.data.arrays import DEFAULT_PARTIES, describe_split
from securevfl.data.cells import MISSING_TEXTS, read_numbers, read_texts
from securevfl.data.csvfile import read_csv
from securevfl.data.dataset import About, VerticalDataset
from securevfl.data.join import PartyTable, join_parties
from securevfl.data.labels import RawLabels, encode_labels, read_labels
from securevfl.data.partition import (
    Positions,
    deal_columns,
    owned_columns,
    split_groups,
    split_random,
    split_stratified,
)
from securevfl.data.preprocess import (
    SCALING_RULES,
    Preprocessor,
    check_scaling,
    fit_frame,
    refuse_repeated,
)
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

# Fewer distinct whole numbers than this say nothing about being row numbers.
_FEWEST_IDS = 20


@dataclass(frozen=True)
class _Table:
    """Each party's source columns, row for row, and the labels."""

    parts: tuple[pd.DataFrame, ...]
    labels: RawLabels

    def take(self, rows: NDArray[np.int64]) -> _Table:
        return _Table(tuple(part.iloc[rows] for part in self.parts), self.labels.take(rows))


def from_pandas(
    frame: pd.DataFrame | Sequence[pd.DataFrame],
    label: str,
    *,
    test_frame: pd.DataFrame | None = None,
    id_column: str | None = None,
    label_frame: pd.DataFrame | None = None,
    name: str = "table",
    task: str | None = None,
    parties: int | None = None,
    owners: Sequence[Sequence[str]] | None = None,
    party_names: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    group: str | None = None,
    test_fraction: float = 0.25,
    seed: int = 0,
    scaling: str = "minmax",
    missing_values: Sequence[str] = MISSING_TEXTS,
    max_categories: int = 1000,
    about: About | None = None,
) -> VerticalDataset:
    """Build a data set from one data frame, or from one per party.

    Numbers and truth values stay one column; texts and pandas categories are one-hot encoded;
    missing numbers become the training median, and one more column marks them where the training
    rows have any. All of it is fitted on the training rows, as is the type of each column.

    Parameters
    ----------
    frame : DataFrame, or sequence of one DataFrame per party
        Several frames are joined by `id_column`.
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
    owners : sequence of sequences of str, optional
        Names of each party's columns, instead of `parties`.
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

    missing = tuple(missing_values)
    given = about or About("data frame of the user", "the user's own data", "", "", "")
    if not isinstance(frame, pd.DataFrame):
        if test_frame is not None or parties not in (None, len(frame)) or owners is not None:
            raise DataError(
                f"{len(frame)} parties' tables own their columns and are split after the join; "
                f"leave out parties=, owners= and test_frame=."
            )
        called = tuple(party_names or (f"party {n}" for n in range(len(frame))))
        tables = [
            PartyTable(who, checked_frame(f, who)) for who, f in zip(called, frame, strict=True)
        ]
        holder = None if label_frame is None else PartyTable("label_frame", label_frame)
        return _from_parties(
            tables, holder, label, id_column, name=name, task=task, drop=drop, group=group,
            test_fraction=test_fraction, seed=seed, scaling=scaling, missing=missing,
            max_categories=max_categories, about=given,
        )  # fmt: skip
    source = checked_frame(frame, name)
    labels = read_labels(label_column(source, label, name), label, missing)
    groups = None if group is None else _groups(source, group, name, missing)
    features = _features(source, [label, *([group] if group else []), *drop], name)
    names = [str(c) for c in features.columns]
    positions, partition = _owners(names, parties, owners)
    table = _Table(tuple(features.iloc[:, list(p)] for p in positions), labels)
    if test_frame is None:
        train, test, split = _split(table, task, groups, group, test_fraction, seed)
    else:
        held = checked_frame(test_frame, "the test rows")
        test_labels = read_labels(label_column(held, label, "the test rows"), label, missing)
        absent = [c for c in names if c not in held.columns]
        if absent:
            raise DataError(
                f"the test rows have no column {absent[0]!r}; give the same columns as in training."
            )
        test = _Table(tuple(held[[names[k] for k in p]] for p in positions), test_labels)
        train, split = table, "test rows given by the user"
    return build_table(
        train, test, positions=positions, name=name, task=task, party_names=party_names,
        scaling=scaling, missing=missing, max_categories=max_categories,
        about=replace(given, split=split, partition=partition),
    )  # fmt: skip


def from_csv(
    path: str | Path,
    label: str | None = None,
    *,
    test_file: str | Path | None = None,
    separator: str | None = None,
    **options: Any,
) -> VerticalDataset:
    """Build a data set from a CSV file with a header line.

    Parameters
    ----------
    path : path
        The file; .gz, .bz2, .xz and .zip are unpacked.
    label : str
        Name of the label column.
    test_file : path, optional
        A file with the same columns that holds the test rows.
    separator : str, optional
        A comma, or a tab for .tsv files, unless given.
    **options
        As for `from_pandas`.

    Returns
    -------
    VerticalDataset

    Raises
    ------
    DataError
        For a file, column or cell that cannot be used; the message names it.
    """
    path = Path(path)
    frame = read_csv(path, separator)
    if label is None:
        raise DataError(
            f"{path.name}: label= is missing; name the label column, one of {listed(frame)}."
        )
    label_column(frame, label, path.name)
    test = None if test_file is None else read_csv(Path(test_file), separator)
    options.setdefault("about", _own_data(str(path.name)))
    options.setdefault("name", path.name.split(".")[0])
    return from_pandas(frame, label, test_frame=test, **options)


def from_files(
    party_files: Sequence[str | Path],
    *,
    id_column: str | None,
    label: str | None,
    label_file: str | Path | None = None,
    separator: str | None = None,
    name: str | None = None,
    task: str | None = None,
    party_names: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    group: str | None = None,
    test_fraction: float = 0.25,
    seed: int = 0,
    scaling: str = "minmax",
    missing_values: Sequence[str] = MISSING_TEXTS,
    max_categories: int = 1000,
    about: About | None = None,
) -> VerticalDataset:
    """Build a data set from several parties' own CSV files, joined by an id column.

    The ids are compared in plain form as texts; rows whose id is not in every file are left out,
    and the notes say how many. Rows come in the order of the file with the labels.

    Parameters
    ----------
    party_files : sequence of paths
        One file per party, each with the id column and the party's own columns.
    id_column : str
        Name of the id column in every file.
    label : str
        Name of the label column, in `label_file` or in one of the parties' files.
    label_file : path, optional
        File of ids and labels.
    separator, name, task, party_names, drop, group, test_fraction, seed, scaling, missing_values, \
max_categories, about
        As for `from_csv` and `from_pandas`; parties are named after their files.

    Returns
    -------
    VerticalDataset

    Raises
    ------
    DataError
        For repeated, missing or differently written ids, an empty intersection, a party without
        columns, and for whatever `from_pandas` refuses.
    """
    paths = [Path(p) for p in party_files]
    if label is None or id_column is None:
        option = "label=" if label is None else "id_column="
        raise DataError(f"party files need {option}, the name of that column; give it.")
    tables = [PartyTable(path.name, read_csv(path, separator)) for path in paths]
    holder = None
    if label_file is not None:
        holder = PartyTable(Path(label_file).name, read_csv(Path(label_file), separator))
    called = tuple(party_names) if party_names else _stems(paths)
    data = _from_parties(
        tables, holder, label, id_column, name=name or "+".join(called), task=task, drop=drop,
        group=group, test_fraction=test_fraction, seed=seed, scaling=scaling,
        missing=tuple(missing_values), max_categories=max_categories,
        about=about or _own_data(", ".join(path.name for path in paths)),
    )  # fmt: skip
    return replace(data, party_names=called)


def build_table(
    train: _Table,
    test: _Table,
    *,
    positions: Positions,
    name: str,
    task: str | None,
    party_names: Sequence[str] | None,
    scaling: str,
    missing: tuple[str, ...],
    max_categories: int,
    about: About,
) -> VerticalDataset:
    """Fit each party's columns on the training rows and encode both sides.

    Parameters
    ----------
    train, test : _Table
        Rows of both sides.
    positions : tuple of tuple of int
        Where each party's columns stand in a whole row.
    name, task, party_names, scaling, missing, max_categories, about
        As for `from_pandas`; `about` has split and partition.

    Returns
    -------
    VerticalDataset
    """
    rule = check_scaling(scaling)
    notes: list[str] = []
    fitted = []
    for part in train.parts:
        preprocessor, done = fit_frame(part, rule, missing=missing, max_categories=max_categories)
        fitted.append(preprocessor)
        notes.extend(done + _id_notes(part, missing))
    train_labels, test_labels, classes, found = encode_labels(train.labels, test.labels, task)
    if task is None and train.labels.numeric:
        kind = "the target of a regression" if found == "regression" else f"{len(classes)} classes"
        notes.append(f"label {train.labels.name!r} is numeric and was taken as {kind}")
    return VerticalDataset(
        name=name,
        task=found,
        train=tuple(f.apply(part) for f, part in zip(fitted, train.parts, strict=True)),
        test=tuple(f.apply(part) for f, part in zip(fitted, test.parts, strict=True)),
        train_labels=train_labels,
        test_labels=test_labels,
        classes=classes,
        columns=tuple(f.encoded for f in fitted),
        party_names=tuple(party_names or (f"party {n}" for n in range(len(fitted)))),
        about=replace(about, scaling=SCALING_RULES[rule], notes=(*about.notes, *notes)),
        transform=Preprocessor(tuple(fitted), positions, rule),
    )


def checked_frame(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """Return the frame with its column names as texts, or refuse it.

    Raises
    ------
    DataError
        For a frame without rows, with repeated column names, or with layered ones.
    """
    if frame.columns.nlevels > 1:
        raise DataError(f"{what}: the column names have {frame.columns.nlevels} layers; use one.")
    if not len(frame):
        raise DataError(f"{what}: the table has no rows; at least two are needed.")
    names = [str(c) for c in frame.columns]
    if len(set(names)) < len(names):
        try:
            refuse_repeated(names)
        except DataError as error:
            raise DataError(f"{what}: {error}") from None
    return frame.set_axis(names, axis=1)


def label_column(frame: pd.DataFrame, label: str, what: str) -> pd.Series[Any]:
    """Return the label column.

    Raises
    ------
    DataError
        If the table has no such column; the message lists those that it has.
    """
    if label not in frame.columns:
        raise DataError(
            f"{what} has no column {label!r} for the label; its columns are {listed(frame)}."
        )
    return frame[label]


def listed(frame: pd.DataFrame, most: int = 12) -> str:
    """Return the names of the first columns, for messages."""
    names = [str(c) for c in frame.columns]
    more = f", ... ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _from_parties(
    tables: Sequence[PartyTable],
    holder: PartyTable | None,
    label: str,
    id_column: str | None,
    *,
    name: str,
    task: str | None,
    drop: Sequence[str],
    group: str | None,
    test_fraction: float,
    seed: int,
    scaling: str,
    missing: tuple[str, ...],
    max_categories: int,
    about: About,
) -> VerticalDataset:
    """Join the parties' tables, split the rows, and build the data set."""
    joined = join_parties(tables, holder, label, id_column)
    everything = [c for part in joined.parts for c in part.columns]
    unknown = [c for c in drop if c not in everything]
    if unknown:
        raise DataError(f"drop= names {unknown[0]!r}, which no party's table has.")
    groups = None
    if group is not None:
        owner = [part for part in joined.parts if group in part.columns]
        if len(owner) != 1:
            raise DataError(f"group={group!r} is a column of {len(owner)} tables; one is needed.")
        groups = _groups(owner[0], group, "the parties", missing)
    parts = []
    for table, part in zip(tables, joined.parts, strict=True):
        left = [c for c in part.columns if c not in drop and c != group]
        if not left:
            raise DataError(
                f"{table.name} has no columns besides ids and labels; each party needs at least "
                f"one, so leave this party out."
            )
        parts.append(part[left])
    ends = np.cumsum([part.shape[1] for part in parts]).tolist()
    positions = tuple(
        tuple(range(end - part.shape[1], end)) for part, end in zip(parts, ends, strict=True)
    )
    whole = _Table(tuple(parts), read_labels(joined.labels, label, missing))
    train, test, split = _split(whole, task, groups, group, test_fraction, seed)
    partition = "each party's own table" + (f", joined by {id_column!r}" if id_column else "")
    noted = replace(about, split=split, partition=partition, notes=(*about.notes, *joined.notes))
    return build_table(
        train, test, positions=positions, name=name, task=task,
        party_names=[table.name for table in tables], scaling=scaling, missing=missing,
        max_categories=max_categories, about=noted,
    )  # fmt: skip


def _split(
    table: _Table,
    task: str | None,
    groups: NDArray[Any] | None,
    group: str | None,
    test_fraction: float,
    seed: int,
) -> tuple[_Table, _Table, str]:
    labels = table.labels
    regression = (task or labels.task()) == "regression"
    strata = np.zeros(len(labels)) if regression else labels.values
    if groups is not None:
        train, test = split_groups(groups, strata, test_fraction, seed)
        split = (
            f"{test_fraction:.0%} of the values of {group!r} held out at random with all their "
            f"rows, seed {seed}"
        )
    elif regression:
        train, test = split_random(len(labels), test_fraction, seed)
        split = describe_split(test_fraction, seed, stratified=False)
    else:
        train, test = split_stratified(labels.values, test_fraction, seed)
        split = describe_split(test_fraction, seed, stratified=True)
    return table.take(train), table.take(test), split


def _features(frame: pd.DataFrame, leave_out: Sequence[str], what: str) -> pd.DataFrame:
    unknown = [c for c in leave_out if c not in frame.columns]
    if unknown:
        raise DataError(
            f"{what} has no column {unknown[0]!r}, which is to be dropped; its columns are "
            f"{listed(frame)}."
        )
    features = frame.drop(columns=list(leave_out))
    if not features.shape[1]:
        raise DataError(f"{what} has no columns besides the label; at least one is needed.")
    return features


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


def _groups(
    frame: pd.DataFrame, group: str, what: str, missing: tuple[str, ...]
) -> NDArray[np.intp]:
    if group not in frame.columns:
        raise DataError(
            f"{what} has no column {group!r} for the groups; its columns are {listed(frame)}."
        )
    codes, texts = read_texts(frame[group], missing)
    absent = np.array([text is None for text in texts])[codes]
    if absent.any():
        raise DataError(
            f"group column {group!r}: {int(absent.sum())} rows have no value; each row needs one."
        )
    return codes


def _id_notes(part: pd.DataFrame, missing: tuple[str, ...]) -> list[str]:
    """Say which columns look like row numbers; they are kept."""
    return [
        f"column {name!r} has a different whole number in every training row and may be an id: "
        f"kept as a feature; drop=[{name!r}] leaves it out"
        for name in part.columns
        if _is_id(str(name), part[name], missing)
    ]


def _is_id(name: str, series: pd.Series[Any], missing: tuple[str, ...]) -> bool:
    numbers = read_numbers(series, missing)
    if numbers is None or len(numbers) < _FEWEST_IDS or not (numbers == np.floor(numbers)).all():
        return False
    if len(np.unique(numbers)) < len(numbers):
        return False
    named = name.lower() in ("", "id", "index") or name.lower().endswith(("_id", " id"))
    return named or float(np.ptp(numbers)) < 2 * len(numbers)


def _own_data(files: str) -> About:
    return About(f"file of the user: {files}", "the user's own data", "", "", "")


def _stems(paths: Sequence[Path]) -> tuple[str, ...]:
    stems = tuple(path.name.split(".")[0] for path in paths)
    return stems if len(set(stems)) == len(stems) else tuple(str(path) for path in paths)
