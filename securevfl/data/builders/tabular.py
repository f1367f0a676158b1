"""Builder of data sets from tables: the split, the fit on training rows, the encoding of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from securevfl.data.base.content import D
from securevfl.data.base.labels import RawLabels, encode_labels
from securevfl.data.base.options import TableOptions
from securevfl.data.base.partition import Positions, split_groups
from securevfl.data.builders.arrays import draw_test_rows
from securevfl.data.preparation.cells import read_numbers, refuse_odd_cells, row_name
from securevfl.data.preparation.columns import filled
from securevfl.data.preparation.fit import describe, fit_frame
from securevfl.data.preparation.party_preprocessor import PartyPreprocessor
from securevfl.data.preparation.preprocess import Preprocessor
from securevfl.data.preparation.scaling import SCALING_RULES, flattened

if TYPE_CHECKING:
    import pandas as pd


# Fewer different whole numbers than this say nothing about being row numbers.
_FEWEST_IDS = 20


@dataclass(frozen=True)
class Rows:
    """Each party's source columns, row for row, and the labels."""

    parts: tuple[pd.DataFrame, ...]
    labels: RawLabels

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """The rows with these numbers, with their labels."""
        return Rows(tuple(part.iloc[rows] for part in self.parts), self.labels.take(rows))


@dataclass(frozen=True)
class Alone:
    """Unaligned rows, each held by a single party, with labels for the first party's."""

    parts: tuple[pd.DataFrame, ...]
    labels: RawLabels | None = None


def split_rows(
    rows: Rows, groups: np.ndarray | None, options: TableOptions
) -> tuple[Rows, Rows, str]:
    """(training rows, test rows by group, stratified or at random, a sentence for reports)."""
    labels, fraction, seed = rows.labels, options.test_fraction, options.seed
    if groups is None:
        train, test, rule = draw_test_rows(labels, options)
    else:
        classes = options.stratified and (options.task or labels.task()) != "regression"
        strata = labels.values if classes else np.zeros(len(labels))
        train, test = split_groups(groups, strata, fraction, seed)
        rule = (
            f"{fraction:.0%} of the values of {options.group!r} held out at random with all their "
            f"rows, seed {seed}"
        )
    return rows.take(train), rows.take(test), rule


def build(
    kind: type[D],
    train: Rows,
    test: Rows,
    positions: Positions,
    options: TableOptions,
    *,
    split: str,
    partition: str,
    alone: Alone | None = None,
    id_column: str | None = None,
) -> D:
    """Data set of class `kind`: each party's columns are fitted on its training rows, and encoded.

    `positions` are the places of each party's columns in a whole row; `split` and `partition` are
    sentences for reports. Unaligned rows (`alone`) are included in the fit. `id_column` is the
    column by which tables were joined, and by which new tables are matched. DataError for columns
    and labels that cannot be encoded.
    """
    rows, labels = len(train.labels), train.labels
    if alone is not None:
        train = _with_rows(train, alone)
    parts = [_encoded(*sides, options) for sides in zip(train.parts, test.parts, strict=True)]
    fitted = [part.fitted for part in parts]
    notes = describe([column for preprocessor in fitted for column in preprocessor.columns])
    notes += [note for part in parts for note in part.notes]
    encoded = encode_labels(train.labels, test.labels, options.task)
    labelled = alone is not None and alone.labels is not None
    if options.task is None and labels.numeric:
        classes = encoded.classes
        found = f"{len(classes.names)} classes" if classes else "the target of a regression"
        notes.append(f"label {train.labels.name!r} is numeric and was taken as {found}")
    notes += encoded.notes
    return kind(
        name=options.name,
        train=tuple(part.train[:rows] for part in parts),
        test=tuple(part.test for part in parts),
        **encoded.fields() | {"train_labels": encoded.train[:rows]},
        alone=() if alone is None else tuple(part.train[rows:] for part in parts),
        alone_labels=encoded.train[rows:] if labelled else None,
        columns=tuple(f.encoded for f in fitted),
        party_names=options.called(len(fitted)),
        about=replace(
            options.origin,
            split=split,
            partition=partition,
            scaling=SCALING_RULES[options.scaling_rule],
            notes=(*options.origin.notes, *notes),
        ),
        transform=Preprocessor(tuple(fitted), positions, options.scaling_rule, id_column),
    )


def _with_rows(train: Rows, alone: Alone) -> Rows:
    """Training rows, and below them in each party's part (and labels) the rows of it alone."""
    import pandas as pd

    both = zip(train.parts, alone.parts, strict=True)
    labels = train.labels
    if alone.labels is not None:
        labels = labels.followed_by(alone.labels)
    return Rows(tuple(pd.concat([part, more]) for part, more in both), labels)


class _EncodedPart(NamedTuple):
    """A party's training and test columns, the fitted preprocessing, and notes for reports."""

    fitted: PartyPreprocessor
    train: NDArray[np.float32]
    test: NDArray[np.float32]
    notes: list[str]


def _encoded(train: pd.DataFrame, test: pd.DataFrame, options: TableOptions) -> _EncodedPart:
    """Fit one party's columns on its training rows; encode training and test rows."""
    train, test = _numbers_of(train, test, options.missing)
    fitted = fit_frame(
        train,
        options.scaling_rule,
        missing=options.missing,
        max_categories=options.max_categories,
        coding=options.coding,
    )
    notes = _id_notes(train, options.missing) + _name_notes(fitted, train)
    notes += _test_gap_notes(fitted, test) + _far_notes(fitted, train)
    return _EncodedPart(fitted, fitted.apply(train), fitted.apply(test), notes)


def _far_notes(fitted: PartyPreprocessor, train: pd.DataFrame) -> list[str]:
    """Notes on columns of numbers that one far value stretches, so that most rows are alike."""
    notes = []
    for column in fitted.columns if fitted.clip else ():
        if column.categories is None:
            values, _ = filled(column, train[column.name], fitted.missing)
            if (found := flattened(values[:, None], 1e-3)) is not None:
                where = row_name(train[column.name], found[1])
                notes.append(
                    f"column {column.name!r}: most rows lie within a thousandth of its range, "
                    f"which {found[2]:g} in {where} stretches; correct it, or take logarithms"
                )
    return notes


def _numbers_of(
    train: pd.DataFrame, test: pd.DataFrame, missing: tuple[str, ...]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One party's training and test columns, with numeric texts converted to numbers.

    A column's type is decided on all of its rows, so that a wrong cell has the same consequence
    under every split.
    """
    import pandas as pd

    train, test = train.copy(deep=False), test.copy(deep=False)
    for name in train.columns:
        series = train[name]
        if series.dtype.kind != "O" or isinstance(series.dtype, pd.CategoricalDtype):
            continue
        numbers = [read_numbers(part[name], missing) for part in (train, test)]
        if numbers[0] is not None and numbers[1] is not None:
            train[name], test[name] = numbers
        else:
            refuse_odd_cells(pd.concat([series, test[name]]), missing)
    return train, test


def _test_gap_notes(preprocessor: PartyPreprocessor, test: pd.DataFrame) -> list[str]:
    """Notes on columns where only test rows miss values, for which there is no indicator column."""
    notes = []
    for column in preprocessor.columns:
        series = test[column.name]
        gaps = int((series.isna() | series.isin(preprocessor.missing)).sum())
        if gaps and not column.indicator:
            filling = "the training median" if column.categories is None else "zeros"
            filling = "the code 0" if column.coded else filling
            notes.append(
                f"column {column.name!r}: {gaps} values are missing in test rows only and were "
                f"filled with {filling}"
            )
    return notes


def _id_notes(train: pd.DataFrame, missing: tuple[str, ...]) -> list[str]:
    """Notes on columns that look like row numbers; they stay features."""
    return [
        f"column {name!r} has a different whole number in every training row and may be an id: "
        f"kept as a feature; drop=[{name!r}] leaves it out"
        for name in train.columns
        if _is_id(str(name), train[name], missing)
    ]


def _name_notes(preprocessor: PartyPreprocessor, train: pd.DataFrame) -> list[str]:
    """Notes on text columns that look like names of rows; they stay features."""
    texts = [column.name for column in preprocessor.columns if column.categories]
    different = {name: train[name].nunique() for name in texts}
    return [
        f"column {name!r} has {count} different texts in {len(train)} training rows and may name "
        f"them: kept as a feature; drop=[{name!r}] leaves it out"
        for name, count in different.items()
        if _FEWEST_IDS <= len(train) < 2 * count
    ]


def _is_id(name: str, series: pd.Series, missing: tuple[str, ...]) -> bool:
    numbers = read_numbers(series, missing)
    if numbers is None or len(numbers) < _FEWEST_IDS or not (numbers == np.floor(numbers)).all():
        return False
    if len(np.unique(numbers)) < len(numbers):
        return False
    named = name.lower() in ("", "id", "index") or name.lower().endswith(("_id", " id"))
    return named or float(np.ptp(numbers)) < 2 * len(numbers)
