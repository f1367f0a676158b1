"""Checks of the parts of a `VerticalDataset`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from securevfl.data.preparation.columns import refuse_repeated
from securevfl.errors import DataError

#: Which rows of so many: the first so many, a slice, their numbers, or a truth value for each.
RowChoice = int | slice | Sequence[int] | np.ndarray


def frozen(array: object, dtype: DTypeLike) -> np.ndarray:
    """A read-only C-contiguous view, or a copy where the layout or the type differs from `dtype`.

    The flags of `array` are not changed. DataError if `dtype` is an integer type and the array has
    other numbers.
    """
    if np.dtype(dtype).kind == "i" and np.asarray(array).dtype.kind not in "iu":
        raise DataError(
            f"class numbers are an array of {np.asarray(array).dtype}; give integers 0 to C - 1."
        )
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.setflags(write=False)
    return view


def check_features(
    asked: str, arrays: Sequence[np.ndarray], widths: Sequence[int], rows: int
) -> None:
    """Raise DataError unless each party has a finite (rows, d_n) array of training or test rows.

    The message begins with `asked` and names the party and the cell. `widths` are d_n.
    """
    if len(arrays) != len(widths):
        raise DataError(
            f"{asked}: {len(arrays)} parties have rows and {len(widths)} are needed; "
            f"all parties need training and test rows."
        )
    for party, array in enumerate(arrays):
        where = f"{asked}, party {party}"
        if array.ndim != 2:
            raise DataError(f"{where}: the shape is {array.shape}; rows x columns is needed.")
        if array.shape[1] == 0:
            raise DataError(f"{where}: the party owns no columns; give it at least one.")
        if array.shape[1] != widths[party]:
            raise DataError(
                f"{where}: {array.shape[1]} columns and {widths[party]} in training; "
                f"both must be the same."
            )
        if len(array) != rows:
            raise DataError(f"{where}: {len(array)} rows for {rows} labels; one label per row.")
        if rows == 0:
            raise DataError(f"{where}: there are no rows; at least one is needed.")
        _check_finite(where, array)


def checked_weights(asked: str, weights: object, rows: int, *, zero: bool = False) -> np.ndarray:
    """Weights of rows, (rows,) float32, read-only.

    DataError unless there is one for each row, finite and above 0 as float32; with `zero` some may
    be 0. The message begins with `asked`.
    """
    try:
        exact = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{asked}: the weights of rows are no numbers: {error}.") from None
    with np.errstate(over="ignore"):
        found = frozen(exact, np.float32)
    if found.shape != (rows,):
        raise DataError(
            f"{asked}: weights of rows of shape {found.shape}; give one for each of {rows} rows."
        )
    if zero and not exact.any():
        raise DataError(f"{asked}: the weights of all rows are zero; give some row one above 0.")
    good = np.isfinite(found) & ((found > 0) | ((exact == 0) if zero else False))
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(
            f"{asked}: the weight of row {row} is {exact[row]:g}; give weights from 1e-38 to 1e38, "
            "and leave rows out that are not to count."
        )
    return found


def check_alone(
    asked: str,
    widths: Sequence[int],
    alone: Sequence[np.ndarray],
    alone_labels: np.ndarray | None,
) -> None:
    """Raise DataError unless parties' unaligned rows are finite and as wide as their aligned ones.

    `alone` is empty if no party has unaligned rows; `alone_labels` has the labels of party 0's
    rows, or is None. The message begins with `asked`.
    """
    if alone and len(alone) != len(widths):
        raise DataError(
            f"{asked}: {len(alone)} parties hold rows alone and there are {len(widths)}; "
            f"give one array for each party, be it without rows."
        )
    for party, array in enumerate(alone):
        where = f"{asked}, party {party}, rows held alone"
        if array.ndim != 2 or array.shape[1] != widths[party]:
            raise DataError(
                f"{where}: the shape is {array.shape}; rows x {widths[party]} is needed."
            )
        if array.size:
            _check_finite(where, array)
    if alone_labels is None:
        return
    labelled = len(alone[0]) if alone else 0
    if len(alone_labels) != labelled:
        raise DataError(
            f"{asked}: {len(alone_labels)} labels for {labelled} rows that party 0 holds "
            f"alone; one label per row."
        )


def _check_finite(where: str, array: np.ndarray) -> None:
    # NaN and infinity both show in the extremes, and no mask of the array's size is made.
    if not (np.isfinite(array.min()) and np.isfinite(array.max())):
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise DataError(
            f"{where}: row {row}, column {column} is {array[row, column]}; "
            f"all features must be finite."
        )


def check_labels(asked: str, labels: np.ndarray, task: str, classes: Sequence[str]) -> None:
    """Raise DataError (`asked`: ...) unless labels are (rows,), of `classes` or finite targets."""
    if labels.ndim != 1:
        raise DataError(f"{asked}: the shape is {labels.shape}; one label per row is needed.")
    if task == "regression":
        if classes or not np.isfinite(labels).all():
            raise DataError(f"{asked}: a regression needs finite targets and has no classes.")
        return
    if len(classes) < 2 or (task == "binary") != (len(classes) == 2):
        raise DataError(
            f"{asked}: task {task!r} with {len(classes)} classes; binary needs 2, "
            f"multiclass 3 or more."
        )
    if labels.min(initial=0) < 0 or labels.max(initial=0) >= len(classes):
        raise DataError(
            f"{asked}: class numbers go from {labels.min()} to {labels.max()}; "
            f"0 to {len(classes) - 1} are allowed."
        )


def frozen_classes(asked: str, values: object, names: Sequence[str]) -> np.ndarray:
    """Class values as a read-only array (C,); DataError unless there is one for each name."""
    array = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
    if array.shape != (len(names),):
        raise DataError(
            f"{asked}: class_values have the shape {array.shape} for {len(names)} classes; one "
            "value each is needed."
        )
    return frozen(array, array.dtype)


def check_columns(asked: str, names: Sequence[str], width: int, fitted: Sequence[str]) -> None:
    """Raise DataError unless `names` are `width` distinct names, equal to those in `fitted`."""
    if len(names) != width:
        raise DataError(f"{asked}: {len(names)} names for {width} columns; one each is needed.")
    refuse_repeated(names, where=f"{asked}: ")
    if tuple(names) != tuple(fitted):
        raise DataError(f"{asked}: the columns are not those that the preprocessing produces.")


def row_numbers(rows: RowChoice, count: int) -> NDArray[np.int64]:
    """Row numbers of a subset, int64; an int n asks for the first n rows.

    DataError if a row does not exist, or the subset is empty.
    """
    if isinstance(rows, (int, np.integer)) and not isinstance(rows, bool):
        if not 1 <= rows <= count:
            raise DataError(f"subset: the first {rows} of {count} rows; use 1 to {count}.")
        rows = slice(0, int(rows))
    try:
        numbers: NDArray[np.int64] = np.asarray(np.arange(count, dtype=np.int64)[rows])
    except (IndexError, TypeError) as error:
        raise DataError(f"subset: {count} rows cannot be indexed so: {error}.") from error
    if numbers.ndim != 1 or not len(numbers):
        raise DataError(f"subset: no row is left of {count}; choose at least one.")
    return numbers
