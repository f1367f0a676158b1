"""Labels of any type: classes numbered 0 to C - 1, or regression targets."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from securevfl.data.base.class_values import (
    Classes,
    as_classes,
    capital_notes,
    given_values,
    one_each,
    refuse_other_writing,
)
from securevfl.data.preparation.cells import (
    MISSING_TEXTS,
    TEXT_CELLS,
    odd_cell,
    read_numbers,
    read_texts,
    row_name,
    text_of,
)
from securevfl.data.preparation.tables import as_array
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Task = Literal["binary", "multiclass", "regression"]

#: Whole numbers with more distinct values than this are taken for a regression's target.
MOST_NUMERIC_CLASSES = 20
#: Beyond that, gapless whole numbers in so many rows each could as well be classes.
LEAST_ROWS_PER_CLASS = 5
#: More distinct texts than this, and than one in so many rows, are refused as classes.
MOST_TEXT_CLASSES = 50
MOST_TEXT_CLASSES_PER_ROW = 1 / 5
_LEAST_SPREAD = 2.0**-60  # of targets: squares of errors are float32
_LOST_OF_SPREAD = 2.0**-10  # of a target's deviation, by rounding to float32


@dataclass(frozen=True)
class RawLabels:
    """Labels as read, before classes are numbered.

    `values` (rows,) is float64 if every label is a number, else texts; `given` has the user's
    labels in their own type. `texts` is whether they come from a file without types. `name` is used
    in error messages.
    """

    values: np.ndarray
    name: str
    given: np.ndarray
    texts: bool = False

    @property
    def numeric(self) -> bool:
        """Whether all labels are numbers, so that `values` is float64."""
        return self.values.dtype.kind == "f"

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: NDArray[np.int64]) -> RawLabels:
        """Labels of the rows with these numbers."""
        return replace(self, values=self.values[rows], given=self.given[rows])

    def followed_by(self, more: RawLabels) -> RawLabels:
        """Labels of this object, followed by the labels `more` of the same column."""
        values = np.concatenate([self.values, more.values])
        return replace(self, values=values, given=np.concatenate([self.given, more.given]))

    def as_texts(self) -> RawLabels:
        """The same labels with `values` as texts, to compare with labels that are no numbers."""
        texts = [text_of(label) for label in self.given.tolist()]
        return replace(self, values=np.array(texts, dtype=object))

    def task(self) -> Task:
        """Task that the labels suggest: classification or regression.

        Texts, booleans and at most 20 distinct integers are classes. DataError for more integers
        that may be class numbers: without gaps from 0 or 1, with five rows each or more on average.
        Either task could be wrong.
        """
        distinct = np.unique(self.values.astype(str) if not self.numeric else self.values)
        if self.numeric:
            whole = bool((distinct == np.floor(distinct)).all())
            if not whole:
                return "regression"
            if len(distinct) > MOST_NUMERIC_CLASSES:
                self._refuse_class_numbers(distinct)
                return "regression"
        return "binary" if len(distinct) <= 2 else "multiclass"

    def _refuse_class_numbers(self, distinct: np.ndarray) -> None:
        first, last = int(distinct[0]), int(distinct[-1])
        gapless = first in (0, 1) and last - first + 1 == len(distinct)
        if gapless and len(self.values) >= LEAST_ROWS_PER_CLASS * len(distinct):
            raise DataError(
                f"label column {self.name!r} holds the {len(distinct)} whole numbers from {first} "
                f"to {last} without a gap, in {len(self.values)} rows: they may be classes or "
                "sizes. Set task='multiclass' or task='regression'."
            )


class EncodedLabels(NamedTuple):
    """Training and test labels: class numbers (int64) or regression targets (float32).

    `classes` is sorted by value (texts alphabetically); None for a regression.
    """

    train: np.ndarray
    test: np.ndarray
    classes: Classes | None
    task: Task
    notes: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Data set fields for the labels, by name: task, labels, classes and their values."""
        values, names = self.classes or (None, ())
        return {
            "task": self.task,
            "train_labels": self.train,
            "test_labels": self.test,
            "classes": names,
            "class_values": values,
        }


def read_labels(
    labels: pd.Series | ArrayLike,
    name: str = "labels",
    missing: tuple[str, ...] = MISSING_TEXTS,
) -> RawLabels:
    """Read labels of any type, (rows,): numbers, truth values or texts.

    A single further axis of length 1 is dropped. `name` is for errors, unless a series has its own;
    `missing` has the texts that mean a missing label. DataError if a label is missing or not
    finite, texts differ in nearly every row, or there is not one label per row.
    """
    if isinstance(labels, np.ma.MaskedArray):
        labels = cast("np.ndarray", as_array(labels))
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":  # pandas takes half a second
        whole = _as_array(labels, name)
        return RawLabels(whole.astype(np.float64), name, whole)
    import pandas as pd

    array = None
    if not isinstance(labels, pd.Series):
        array = _as_array(labels, name)
        labels = pd.Series(array, name=name)
    series = labels
    categorical = isinstance(series.dtype, pd.CategoricalDtype)
    numbers = None if categorical or series.dtype.kind == "b" else read_numbers(series, missing)
    if numbers is not None and _all_truth_texts(series):
        numbers = None
    if numbers is not None:
        absent = np.isnan(numbers)
        values: np.ndarray = numbers
    else:
        codes, texts = read_texts(series, missing)
        values = np.array(texts, dtype=object)[codes]
        absent = np.array([text is None for text in texts])[codes]
        _refuse_many(series, [text for text in texts if text is not None])
    if absent.any():
        at = row_name(series, int(np.argmax(absent)))
        raise DataError(
            f"label column {series.name!r}: {int(absent.sum())} of {len(values)} labels are "
            f"missing, the first in {at}; every row needs a label."
        )
    # Pandas has no type for texts of NumPy's.
    given = given_values(series) if array is None or array.dtype.kind != "U" else array
    return RawLabels(values, str(series.name), given, bool(series.attrs.get(TEXT_CELLS)))


def _as_array(labels: ArrayLike, name: str) -> np.ndarray:
    """Labels that are no pandas Series as an array, (rows,); a second axis of length 1 is dropped.

    DataError, which begins with `name`, for any other shape.
    """
    array = np.asarray(as_array(labels))
    if isinstance(labels, (list, tuple)) and len({*map(_sort, labels)}) > 1:
        array = np.array(labels, dtype=object)  # else 1 becomes a text beside texts, and True 1
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            f"{name} have shape {array.shape}; one label per row is needed "
            f"(class numbers or names, not one-hot rows)."
        )
    return array


def _sort(label: object) -> str:
    if isinstance(label, (bool, np.bool_)):
        return "truth value"
    return "text" if isinstance(label, str) else "another"


def encode_labels(train: RawLabels, test: RawLabels, task: str | None = None) -> EncodedLabels:
    """Class numbers or targets of all rows; classes are numbered in ascending order of values.

    Only training rows define classes; `task` is inferred unless given.

    DataError if there is a single class, only test rows have a class, two labels are written
    differently and have one value, or the labels do not suit `task`.
    """
    if task is not None and task not in get_args(Task):
        raise DataError(f"task={task!r} does not exist; use binary, multiclass or regression.")
    chosen = cast("Task", task) if task is not None else train.task()
    if train.numeric != test.numeric:
        train, test = train.as_texts(), test.as_texts()
    if chosen == "regression":
        return EncodedLabels(*_targets(train, test), None, chosen)
    distinct = np.array(sorted(set(train.values.tolist())), dtype=train.values.dtype)
    if len(distinct) < 2:
        raise DataError(
            f"label column {train.name!r}: all {len(train)} training rows have the label "
            f"{_name(distinct[0])!r}; at least two classes are needed."
        )
    unseen = sorted(set(test.values.tolist()) - set(distinct.tolist()))
    if unseen:
        raise DataError(
            f"label column {train.name!r}: the test rows have the class {_name(unseen[0])!r}, "
            f"which no training row has ({len(unseen)} such); choose another split, or drop "
            f"those rows."
        )
    if chosen == "binary" and len(distinct) > 2:
        raise DataError(
            f"label column {train.name!r}: task='binary' allows 2 classes and there are "
            f"{len(distinct)}; use task='multiclass'."
        )
    numbers = {value: k for k, value in enumerate(distinct.tolist())}
    coded = [np.array([numbers[v] for v in p.values.tolist()], np.int64) for p in (train, test)]
    classes = _classes(train, test, distinct.tolist())
    notes = tuple(capital_notes(classes.names, train.name))
    chosen = "binary" if len(distinct) == 2 else "multiclass"
    return EncodedLabels(coded[0], coded[1], classes, chosen, notes)


def _classes(train: RawLabels, test: RawLabels, keys: Sequence[Hashable]) -> Classes:
    """Values and names of the classes whose `keys` (parsed labels) are in ascending order."""
    given, tested = (
        one_each(part.values, part.given, part.name, texts=part.texts) for part in (train, test)
    )
    refuse_other_writing(given, tested, train.name)
    return as_classes(keys, given, train.name)


def _targets(train: RawLabels, test: RawLabels) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    if not (train.numeric and test.numeric):
        raise DataError(
            f"label column {train.name!r}: task='regression' needs numbers and the labels are "
            f"texts; use task='multiclass'."
        )
    if len(np.unique(train.values)) < 2:
        raise DataError(
            f"label column {train.name!r}: all {len(train)} training rows have the target "
            f"{_name(train.values[0])}; a regression needs at least two values."
        )
    largest = max(np.abs(train.values).max(), np.abs(test.values).max())
    rows = max(len(train), len(test))
    most = math.sqrt(float(np.finfo(np.float32).max) / rows) / 2  # an error may be twice a target
    if largest > most:
        raise DataError(
            f"label column {train.name!r}: {largest:g} exceeds {most:.2g}, up to which the sum of "
            f"{rows} squared errors is a float32; rescale the target."
        )
    kept, spread = train.values.astype(np.float32), float(train.values.std())
    lost = float(np.abs(kept - train.values).max())
    if spread < _LEAST_SPREAD or lost > _LOST_OF_SPREAD * spread:
        raise DataError(
            f"label column {train.name!r}: targets near {float(train.values[0]):g} of standard "
            f"deviation {spread:.3g} lose up to {lost:.3g} as float32; subtract a constant, such "
            "as the mean, or rescale the target."
        )
    return kept, test.values.astype(np.float32)


def _refuse_many(series: pd.Series, texts: list[str]) -> None:
    """Refuse label texts that differ in nearly every row, since they are no classes (DataError)."""
    if len(texts) <= MOST_TEXT_CLASSES or MOST_TEXT_CLASSES_PER_ROW * len(series) >= len(texts):
        return
    raise DataError(
        f"label column {series.name!r} has {len(texts)} different texts in {len(series)} rows, "
        f"such as {texts[0]!r}; these are no classes.{odd_cell(series)} Correct the column, or "
        f"name another."
    )


def _all_truth_texts(series: pd.Series) -> bool:
    """Whether all labels are the texts "true" and "false", which are read as class names."""
    if series.dtype.kind in "biufc":
        return False
    return all(str(v).strip().lower() in ("true", "false") for v in series.dropna().unique())


def _name(value: object) -> str:
    if isinstance(value, (float, np.floating)):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return str(value)
