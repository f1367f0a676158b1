"""Data sets from the user's files, of one owner or of several parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, Unpack

from securevfl.data.alignment.join import Match, PartyTable
from securevfl.data.base.content import DatasetContent
from securevfl.data.base.options import TableKeywords, TableOptions, own_data, table_options
from securevfl.data.base.origin import About
from securevfl.data.base.partition import named_owners
from securevfl.data.builders.frame_columns import label_column, listed
from securevfl.data.builders.frames import from_frame, from_parties
from securevfl.data.preparation.columns import column_name
from securevfl.data.preparation.tables import read_table
from securevfl.errors import DataError


class FromFiles(DatasetContent):
    """Class methods of `VerticalDataset` that build it from CSV files."""

    @classmethod
    @table_options(TableKeywords)
    def from_csv(
        cls,
        path: str | Path,
        label: str | None = None,
        *,
        test_file: str | Path | None = None,
        separator: str | None = None,
        parties: int | None = None,
        owners: Sequence[Sequence[str]] | Mapping[str, Sequence[str]] | None = None,
        **options: Unpack[TableKeywords],
    ) -> Self:
        """Build a data set from a file: CSV with a header line, Parquet or Arrow.

        Parameters
        ----------
        path : path
            The file; .gz, .bz2 and .xz of CSV files are unpacked. Parquet and Arrow files need the
            extra ``tables``.
        label : str
            Name of the label column; required.
        test_file : path, optional
            A file with the same columns that holds the test rows.
        separator : str, optional
            Separator of CSV files; by default a comma, or a tab for .tsv files.
        parties, owners : optional
            Number of parties among which the columns are divided, 8 by default; or the columns'
            names of each party, in a mapping with the parties' names as keys.
        **options
            Fields of `securevfl.data.base.options.TableOptions`.

        Raises
        ------
        DataError
            For an unusable file, column or cell; the message names it.
        """
        path = Path(path)
        owners, party_names = named_owners(owners, options.get("party_names"))
        asked = TableOptions.of(
            {**options, "party_names": party_names},
            name=path.name.split(".")[0],
            about=_about([path]),
        )
        frame = read_table(path, separator)
        if label is None:
            raise DataError(
                f"{path.name}: label= is missing; name the label column, one of {listed(frame)}."
            )
        label = column_name(label, "label")
        label_column(frame, label, path.name)  # before the test rows are read
        test = None if test_file is None else read_table(Path(test_file), separator)
        return from_frame(cls, frame, test, label, parties, owners, asked, path.name)

    @classmethod
    @table_options(TableKeywords)
    def from_files(
        cls,
        party_files: Sequence[str | Path],
        *,
        id_column: str | None,
        label: str | None,
        label_file: str | Path | None = None,
        separator: str | None = None,
        match: Match | None = None,
        unmatched: str = "dropped",
        **options: Unpack[TableKeywords],
    ) -> Self:
        """Build a data set from several parties' own files, joined by an id column.

        Ids are compared as texts. Rows whose id is not in every file are dropped, or kept as
        unaligned rows of their party; the notes give their number. Rows have the order of the file
        with the labels.

        Parameters
        ----------
        party_files : sequence of paths
            One file per party, each with the id column and the party's own columns.
        id_column : str
            Name of the id column in every file; None is refused.
        label : str
            Name of the label column (None is refused), in `label_file` or in one of the parties'
            files.
        label_file : path, optional
            File with ids and labels, if no party's file has the labels.
        separator : str, optional
            Separator of CSV files; by default a comma, or a tab for .tsv files.
        match : callable, optional
            Function that finds the common ids: by default in the clear; by private set intersection
            with `securevfl.runs.alignment.match_privately` (``align="psi"`` on the command line).
        unmatched : {"dropped", "kept"}
            Treatment of rows whose id is not in every file. Kept rows are training rows in
            ``alone``, with labels for the first party if its own file has the labels; preprocessing
            is then fitted on them too. Test rows are always common rows.
        **options
            Fields of `securevfl.data.base.options.TableOptions`.

        Raises
        ------
        DataError
            If a file is given twice or unusable, ids are repeated, missing or written differently,
            the intersection is empty, a party has no columns, or `from_pandas` refuses the data.
        """
        paths = [Path(p) for p in party_files]
        refuse_twice(paths)
        if label is None or id_column is None:
            option = "label=" if label is None else "id_column="
            raise DataError(f"party files need {option}, the name of that column; give it.")
        called = tuple(options.get("party_names") or _stems(paths))
        asked = TableOptions.of(
            {
                "stratified": False,
                **options,
                "name": options.get("name") or "+".join(called),
                "party_names": called,
            },
            about=_about(paths),
        )
        tables = [_table(path, separator) for path in paths]
        label_table = None if label_file is None else _table(Path(label_file), separator)
        return from_parties(
            cls, tables, label_table, label, id_column, asked, match, unmatched=unmatched
        )


def refuse_twice(paths: Sequence[Path]) -> None:
    """Refuse a file that is given for two parties (DataError)."""
    whole = [path.resolve() for path in paths]
    for number, path in enumerate(whole):
        if path in whole[:number]:
            raise DataError(
                f"{paths[number]} is given for party {whole.index(path)} and for party {number}; "
                f"give each party a file of its own."
            )


def _table(path: Path, separator: str | None) -> PartyTable:
    return PartyTable(path.name, read_table(path, separator))


def _about(paths: Sequence[Path]) -> About:
    return own_data(f"file of the user: {', '.join(path.name for path in paths)}")


def _stems(paths: Sequence[Path]) -> tuple[str, ...]:
    stems = tuple(path.name.split(".")[0] for path in paths)
    return stems if len(set(stems)) == len(stems) else tuple(str(path) for path in paths)
