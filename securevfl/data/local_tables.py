"""Local tables: each party reads its own file on its own machine; no machine has all.

The parties do by messages what `VerticalDataset.from_files` does in one process. They find their
common rows by private set intersection, order them by the hashes of their ids, and draw the same
training and test rows, each by itself. Each party fits its own columns on its own training rows. A
party's `VerticalDataset` then has its own columns, and placeholder arrays of zeros for the others';
the server's has the labels and no columns. Each row equals that of `from_files`, if the table of
the labels has that row order.

The parties share the number of common rows, the choice of test rows, the names of the classes and
each party's number of columns. The server learns which columns to drop a party has. With an id
column they also share what `securevfl.data.alignment.psi` says; without one, the common order of
rows, which must not depend on labels.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from securevfl.data.alignment.join import PartyTable, own_ids, refuse_label
from securevfl.data.alignment.psi import id_order, intersect
from securevfl.data.base.class_values import (
    ClassesOnFile,
    StoredClassValues,
    restored_classes,
    stored_classes,
)
from securevfl.data.base.labels import EncodedLabels, RawLabels, encode_labels, read_labels
from securevfl.data.base.options import TableKeywords, TableOptions
from securevfl.data.base.origin import About
from securevfl.data.base.partition import side_by_side, split_random
from securevfl.data.builders.frame_columns import checked_frame, label_column
from securevfl.data.builders.tabular import Rows, build
from securevfl.data.dataset import VerticalDataset
from securevfl.data.leaves import add_leaves
from securevfl.data.preparation.cells import MISSING_TEXTS
from securevfl.data.preparation.columns import Column
from securevfl.data.preparation.party_preprocessor import PartyPreprocessor
from securevfl.data.preparation.preprocess import Preprocessor
from securevfl.data.preparation.tables import read_table
from securevfl.engine.party import SERVER, Party
from securevfl.errors import DataError
from securevfl.reading import read_arrays
from securevfl.writing import make_folder, write_durably

ROWS = "rows.npz"
_PAIRS = "pairs"  # folder of what an intersection has so far
_LONG = 1_000_000  # steps of an intersection from which its progress is recorded
# A group is a column that one party has; the others, which draw the same test rows, do not.
# Everybody knows who is a test row, so it must not follow from labels.
_TABLE_OPTIONS = set(TableKeywords.__annotations__) - {"group", "about", "stratified"}
_OPTIONS = {
    "party_files",
    "label",
    "label_file",
    "id_column",
    "separator",
    "align",
    "trees",
    "tree_depth",
} | _TABLE_OPTIONS


@dataclass(frozen=True)
class PublicFacts:
    """Public facts of the data, known to every party.

    `widths` has each party's number of encoded columns; `class_values` has the form of
    `stored_classes`, and is None for a regression.
    """

    widths: tuple[int, ...]
    rows: int
    test_rows: int
    classes: tuple[str, ...]
    task: str
    class_values: ClassesOnFile | None = None

    def plain(self) -> dict[str, Any]:
        """Fields in JSON types, for messages and files."""
        return asdict(self) | {"widths": list(self.widths), "classes": list(self.classes)}

    @classmethod
    def of_labels(cls, widths: tuple[int, ...], labels: EncodedLabels) -> PublicFacts:
        """Public facts from the parties' widths and the server's labels."""
        sizes, classes = (len(labels.train), len(labels.test)), labels.classes
        if classes is None:
            return cls(widths, *sizes, (), labels.task)
        return cls(widths, *sizes, classes.names, labels.task, stored_classes(classes.values))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PublicFacts:
        """Public facts from their plain form (inverse of `plain`)."""
        lists = {"widths": tuple(values["widths"]), "classes": tuple(values["classes"])}
        if values.get("class_values") is not None:
            StoredClassValues.check(values["class_values"])
        return cls(**dict(values) | lists)


@dataclass(frozen=True)
class Tables:
    """Paths of the parties' files, each on its party's machine, and options for reading them.

    The server has the label file. Without an id column all tables must have the same row order.
    `trees` is the number of random trees of each party, of depth `tree_depth`; clients have no
    labels to boost on. `options` are further keywords of `from_files`.
    """

    party_files: tuple[str, ...]
    label_file: str
    label: str
    id_column: str | None
    separator: str | None
    options: TableOptions
    trees: int = 0
    tree_depth: int = 3

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Tables:
        """Tables from the options of `load_dataset`.

        DataError for options that need all tables at one place, and without label or label file.
        """
        given = {key: value for key, value in options.items() if value is not None}
        strange = sorted(set(given) - _OPTIONS)
        if strange:
            raise DataError(
                f"local tables cannot have {strange[0]} = {given[strange[0]]!r}: it "
                "needs all columns in one process; use the simulation, or leave it out"
            )
        for name, what in (("label", "the name of the label column"),
                           ("label_file", "the server's own table of the labels")):  # fmt: skip
            if name not in given:
                raise DataError(f"local tables need {name}=, {what}")
        files = tuple(map(str, given["party_files"]))
        called = tuple(given.get("party_names") or (f"party {n}" for n in range(len(files))))
        named = {key: value for key, value in given.items() if key in _TABLE_OPTIONS}
        asked = TableOptions.of(
            named | {"party_names": called, "stratified": False},
            name="+".join(Path(file).name.split(".")[0] for file in files),
            about=About("tables of their owners", "their owners' own data", "", "", ""),
        )
        return cls(files, str(given["label_file"]), given["label"], given.get("id_column"),
                   given.get("separator"), asked, given.get("trees", 0),
                   given.get("tree_depth", 3))  # fmt: skip

    def read(self, index: int) -> PartyTable:
        """The table of a party, or the server's; called on the machine that has the file."""
        path = Path(self.label_file if index == SERVER else self.party_files[index])
        return PartyTable(path.name, checked_frame(read_table(path, self.separator), path.name))

    def checked(self, index: int) -> PartyTable:
        """A party's table as read, after the checks that need this table only.

        DataError if a client's table has the label column, or labels or ids are absent, missing or
        (ids) repeated.
        """
        table = self.read(index)
        if index == SERVER:
            self.labels(table)
        else:
            refuse_label(table, self.label)
        if self.id_column is not None:
            own_ids(table, self.id_column)
        return table

    def labels(self, table: PartyTable) -> RawLabels:
        """The label column of the server's table."""
        return read_labels(
            label_column(table.frame, self.label, table.name), missing=self.options.missing
        )

    def part(self, index: int, train: np.ndarray, test: np.ndarray) -> VerticalDataset:
        """Columns of a party at two sets of rows, with placeholder labels; DataError for none."""
        table = self.read(index)
        left_out = {self.id_column, *self.options.drop}
        columns = [name for name in table.frame.columns if name not in left_out]
        if not columns:
            raise DataError(
                f"{table.name} has no columns besides ids: an empty party; each party needs at "
                "least one column, so leave this party out."
            )
        train_rows, test_rows = (
            Rows((table.frame.iloc[rows][columns],), _no_labels(len(rows)))
            for rows in (train, test)
        )
        places = (tuple(range(len(columns))),)
        asked = replace(self.options, task="regression", party_names=None, drop=())
        own = build(VerticalDataset, train_rows, test_rows, places, asked, split="", partition="")
        if not self.trees:
            return own
        return add_leaves(own, self.trees, depth=self.tree_depth, seed=asked.seed)

    def seen_by(self, index: int | None, facts: PublicFacts, place: Path | None) -> VerticalDataset:
        """Data set with the values that party `index` has; for None those of the experimenter.

        `facts` are the public facts of the data. `place` is the folder of the party's row numbers.
        A helper, numbered after all owners, has none. DataError if that folder's file of row
        numbers cannot be used.
        """
        sizes = (facts.rows, facts.test_rows)
        features = [[np.zeros((m, d), np.float32) for d in facts.widths] for m in sizes]
        fitted: list[PartyPreprocessor] = [
            RemoteColumns.of(width, leaves=self.trees > 0) for width in facts.widths
        ]
        kind = np.float32 if facts.task == "regression" else np.int64
        labels = [np.zeros(m, kind) for m in sizes]
        notes: tuple[str, ...] = ()
        if index is not None and index < len(fitted):
            assert place is not None
            try:
                kept = read_arrays(place / ROWS)
                train, test = kept["train"], kept["test"]
            except (OSError, ValueError, KeyError) as error:
                raise DataError(
                    f"{place / ROWS} cannot be used ({error}); start the run anew"
                ) from None
            if index == SERVER:
                raw = self.labels(self.read(index))
                found = encode_labels(raw.take(train), raw.take(test), self.options.task)
                labels, notes = [found.train, found.test], found.notes
            else:
                own = self.part(index, train, test)
                if "leaves" in kept and not np.array_equal(kept["leaves"], _digest(own)):
                    raise DataError(
                        f"{place / ROWS}: the trees are others than those of the training; use the "
                        "version of scikit-learn with which they were grown"
                    )
                features[0][index], features[1][index] = own.train[0], own.test[0]
                fitted[index], notes = own.transform.parties[0], own.about.notes
        positions = side_by_side([len(f.columns) for f in fitted])
        about = replace(
            self.options.origin,
            split=f"{self.options.test_fraction:.0%} held out by the holder of the labels",
            partition="each party's own table, which stays where it is",
            notes=notes,
        )
        return VerticalDataset(
            name=self.options.name,
            task=facts.task,  # type: ignore[arg-type]
            train=tuple(features[0]),
            test=tuple(features[1]),
            train_labels=labels[0],
            test_labels=labels[1],
            classes=facts.classes,
            class_values=restored_classes(facts.class_values, facts.classes),
            columns=tuple(f.encoded for f in fitted),
            party_names=self.options.called(len(fitted)),
            about=about,
            transform=Preprocessor(
                tuple(fitted), positions, self.options.scaling_rule, self.id_column
            ),
        )


def _digest(own: VerticalDataset) -> NDArray[np.uint8]:
    """SHA-256 of a party's trees, (32,)."""
    text = json.dumps(own.transform.parties[0].to_json()["forest"])
    return np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)


def _no_labels(rows: int) -> RawLabels:
    """Placeholder regression targets, for a party without labels."""
    numbers = np.arange(rows) % 2.0
    return RawLabels(numbers, "none", numbers)


class RemoteColumns(PartyPreprocessor):
    """Preprocessor for a party on another machine, of which only the column count is known."""

    remote: ClassVar[bool] = True

    @classmethod
    def of(cls, width: int, *, leaves: bool = False) -> RemoteColumns:
        """Preprocessor for `width` unnamed columns; `leaves` says whether some are tree leaves."""
        columns = tuple(Column(f"column {i}") for i in range(width))
        forest = () if leaves else None
        return cls(columns, (0.0,) * width, (1.0,) * width, False, MISSING_TEXTS, forest)

    def apply(self, rows: object, told: list[str] | None = None) -> NDArray[np.float32]:
        """Raise DataError: the columns are encoded on their own party's machine."""
        raise DataError(
            "the columns of this party are encoded where its table is, and nobody else knows how; "
            "let the party encode its rows itself"
        )


class TableOwner(Party):
    """Owner of a local table: finds the rows common to all parties and stores their numbers.

    It stores in the folder `place` the positions of the common training and test rows in its table
    (`keep`), one of `tables`, which stays in its file. SERVER owns the label table.
    """

    kept: ClassVar[tuple[str, ...]] = ("facts",)

    def __init__(self, index: int, peers: Sequence[int], tables: Tables, place: Path) -> None:
        super().__init__(index, peers)
        self.tables = tables
        self.place = place
        self.facts: dict[str, Any] = {}
        self._steps = 0

    async def setup(self) -> None:
        """Find the common rows, split them, and fit the own columns."""
        table = self.tables.checked(self.index)
        rows = await self.common(table)
        if self.index == SERVER:
            await self.partition(table, rows)
        else:
            self.fit(table, rows)

    def fit(self, table: PartyTable, rows: np.ndarray) -> None:
        """Draw the split, fit and store this client's part, and send its width to the server."""
        self.send(SERVER, "common rows", len(rows))
        train, test = self.split(rows)
        own = self.tables.part(self.index, train, test)
        self.keep(train, test, **({"leaves": _digest(own)} if own.has_leaves else {}))
        dropped = [name for name in self.tables.options.drop if name in table.frame.columns]
        self.send(SERVER, "width", (own.widths[0], dropped))

    async def run(self) -> None:
        """Remove the files that only a restart of `setup` needs; there is nothing else to run."""
        self.forget_pairs()

    async def common(self, table: PartyTable) -> np.ndarray:
        """Row numbers whose id all parties have, int64 (M,); all rows without an id column.

        The order is the same at all parties: by hashes of ids, which reveals nothing about any
        table; without ids, that of the tables.
        """
        if self.tables.id_column is None:
            return np.arange(len(table.frame))
        ids = list(own_ids(table, self.tables.id_column))
        rows = await self.intersection(ids, [*self.peers, SERVER], SERVER)
        ordered: np.ndarray = rows[id_order([ids[row] for row in rows])]
        return ordered

    async def intersection(
        self, ids: Sequence[str], members: Sequence[int], collector: int
    ) -> np.ndarray:
        """Own rows of the common ids, (common,); a restart continues after the finished pairs."""
        return await intersect(
            self,
            ids,
            members,
            collector=collector,
            progress=self._count,
            kept=self.place / _PAIRS,
        )

    def _count(self, steps: int, total: int) -> None:
        """Record an event at each tenth of a long intersection, from its steps and all steps."""
        before, self._steps = 10 * self._steps // total, self._steps + steps
        tenths = 10 * self._steps // total
        if total >= _LONG and tenths > before:
            self.record("aligning", percent=10 * tenths)

    async def partition(self, table: PartyTable, rows: np.ndarray) -> None:
        """Collect public facts at the server; DataError if the tables' row counts differ."""
        counts = await self.collect("common rows", senders=self.peers)
        sizes = [*counts.values(), len(rows)]
        if len(set(sizes)) > 1:
            raise DataError(
                f"the tables have {sizes} rows, the labels last; name the column that joins them "
                "with id_column="
            )
        train, test = self.split(rows)
        raw = self.tables.labels(table)
        labels = encode_labels(raw.take(train), raw.take(test), self.tables.options.task)
        self.keep(train, test)
        answers = await self.collect("width", senders=self.peers)
        unknown = set(self.tables.options.drop).difference(
            *(names for _, names in answers.values())
        )
        if unknown:
            raise DataError(f"drop= names {min(unknown)!r}, which no party's table has.")
        found = tuple(int(answers[n][0]) for n in self.peers)
        self.facts = PublicFacts.of_labels(found, labels).plain()

    def split(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Training and test rows among `rows`; seed and row count give the same draw everywhere.

        No party sends these numbers to another. A server that sent them could give one number to
        two people, or two numbers to one, which would defeat counting and masking by row number.
        """
        options = self.tables.options
        train, test = split_random(len(rows), options.test_fraction, options.seed)
        return rows[train], rows[test]

    def forget_pairs(self) -> None:
        """Remove what a restart of the intersection would need."""
        shutil.rmtree(self.place / _PAIRS, ignore_errors=True)

    def keep(self, train: np.ndarray, test: np.ndarray, **more: np.ndarray) -> None:
        """Store row positions, and any further arrays, on this party's disk."""
        make_folder(self.place, mode=0o700)
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, train=train, test=test, **more)
        write_durably(self.place / ROWS, content.getvalue(), mode=0o600)
