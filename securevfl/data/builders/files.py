"""Data sets from the user's CSV files, of one owner or of several parties."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from securevfl.data.alignment.join import Match, PartyTable
from securevfl.data.builders.frames import from_pandas, from_parties
from securevfl.data.builders.tabular import Request, checked_frame, label_column, listed
from securevfl.data.dataset import VerticalDataset
from securevfl.data.origin import About
from securevfl.data.preparation.cells import MISSING_TEXTS
from securevfl.data.preparation.columns import listed_names
from securevfl.data.preparation.csvfile import read_csv
from securevfl.errors import DataError


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
        The file; .gz, .bz2 and .xz are unpacked.
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
    label_column(checked_frame(frame, path.name), label, path.name)
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
    coding: str = "onehot",
    about: About | None = None,
    match: Match | None = None,
    unmatched: str = "dropped",
) -> VerticalDataset:
    """Build a data set from several parties' own CSV files, joined by an id column.

    The ids are compared as texts; rows whose id is not in every file are left out, or kept as
    what their party holds alone, and the notes say how many. Rows come in the order of the
    file with the labels.

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
max_categories, coding, about
        As for `from_csv` and `from_pandas`; parties are named after their files.
    match : callable, optional
        Finds the common ids: in plain form if not given, by private set intersection with
        `securevfl.runs.alignment.match_privately` (``align="psi"`` on the command line).
    unmatched : {"dropped", "kept"}
        What becomes of rows whose id is not in every file. Kept ones are training rows in
        ``alone``, those of the first party with labels if its own file has the labels; columns are
        then fitted on them too. Test rows are common ones always.

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
    refuse_twice(paths)
    if label is None or id_column is None:
        option = "label=" if label is None else "id_column="
        raise DataError(f"party files need {option}, the name of that column; give it.")
    tables = [PartyTable(path.name, read_csv(path, separator)) for path in paths]
    holder = None
    if label_file is not None:
        holder = PartyTable(Path(label_file).name, read_csv(Path(label_file), separator))
    called = tuple(party_names) if party_names else _stems(paths)
    request = Request(
        name=name or "+".join(called),
        about=about or _own_data(", ".join(path.name for path in paths)),
        task=task,
        party_names=called,
        drop=listed_names(drop),
        group=group,
        test_fraction=test_fraction,
        seed=seed,
        scaling=scaling,
        missing=tuple(missing_values),
        max_categories=max_categories,
        coding=coding,
    )
    return from_parties(tables, holder, label, id_column, request, match, unmatched=unmatched)


def refuse_twice(paths: Sequence[Path]) -> None:
    """Refuse a file that is given for two parties.

    Raises
    ------
    DataError
    """
    whole = [path.resolve() for path in paths]
    for number, path in enumerate(whole):
        if path in whole[:number]:
            raise DataError(
                f"{paths[number]} is given for party {whole.index(path)} and for party {number}; "
                f"give each party a file of its own."
            )


def _own_data(files: str) -> About:
    return About(f"file of the user: {files}", "the user's own data", "", "", "")


def _stems(paths: Sequence[Path]) -> tuple[str, ...]:
    stems = tuple(path.name.split(".")[0] for path in paths)
    return stems if len(set(stems)) == len(stems) else tuple(str(path) for path in paths)
