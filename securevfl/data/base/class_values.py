"""Classes as the user gave them: values, which predictions return, and names, which are shown.

Labels from arrays and frames keep their values and type. A CSV file has no types, so its labels
have the type that `pandas.read_csv` finds (integers, floats, booleans or texts), and their names
are the texts of the file. Two labels that are written differently are never merged.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypedDict, get_args

import numpy as np
from pydantic import Field, model_validator

from securevfl.data.preparation.cells import look_of
from securevfl.errors import DataError
from securevfl.reading import Stored

if TYPE_CHECKING:
    import pandas as pd

_WHOLE = re.compile(r"[+-]?\d+")
_MOST_NOTED = 5
_Type = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "str", "object",
]  # fmt: skip


class Classes(NamedTuple):
    """Classes in the order of their numbers: values (C,) as the user gave them, and names."""

    values: np.ndarray
    names: tuple[str, ...]


class Given(NamedTuple):
    """Original labels by their parsed value (the key), with the type of their column.

    `texts` tells whether they come from a file without types.
    """

    labels: Mapping[Hashable, object]
    dtype: np.dtype
    texts: bool


class ClassesOnFile(TypedDict):
    """JSON form of class values: their type by name, and a list; `stored_classes` makes it."""

    type: str
    values: list[bool | int | float | str]


class StoredClassValues(Stored):
    """JSON form of class values as read from a file, checked: type, two or more, distinct."""

    type: _Type
    values: Annotated[list[bool | int | float | str], Field(min_length=2)]

    @model_validator(mode="after")
    def _of_their_type(self) -> Self:
        try:
            back = restored_classes({"type": self.type, "values": self.values}).tolist()
        except OverflowError as error:
            raise ValueError(f"values: {error}") from None
        if [*map(type, back)] != [*map(type, self.values)] or len({*back}) < len(back):
            raise ValueError(f"values are no different classes of type {self.type}")
        return self


def given_values(labels: pd.Series) -> np.ndarray:
    """Labels as the user gave them, (rows,) of a NumPy type; none is missing.

    Categories become their values, and numbers and booleans of pandas and Arrow types become
    NumPy's; texts have dtype object.
    """
    import pandas as pd

    dtype: Any = labels.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        of_category: np.ndarray = given_values(pd.Series(dtype.categories))
        return of_category[labels.cat.codes.to_numpy()]
    if isinstance(dtype, pd.SparseDtype):
        sparse: Any = labels
        return given_values(sparse.sparse.to_dense())
    kind = dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", None)
    numbers = kind is not None and kind.kind in "biuf"
    return labels.to_numpy(dtype=kind if numbers else object)


def one_each(keys: np.ndarray, given: np.ndarray, column: str, *, texts: bool) -> Given:
    """The original label of each key, `given` (rows,) of `column`, by which errors name it.

    A key is the parsed label: a number, or a text without surrounding blanks. `texts` is whether
    the labels come from a file without types; the result stores it. DataError if two labels are
    written differently and have one key, such as 1 and 1.0 in a file.
    """
    raw = given.tolist()
    found: dict[Hashable, object] = {}
    for key, _, label in dict.fromkeys(zip(keys.tolist(), map(type, raw), raw, strict=True)):
        if key in found:
            raise _alike(column, found[key], label)
        found[key] = label
    return Given(found, given.dtype, texts)


def refuse_other_writing(train: Given, test: Given, column: str) -> None:
    """Raise DataError for a test label written differently from the training label of its class.

    Each test label has the key of a training label. The message names the label and the `column`.
    """
    same_type = train.dtype == test.dtype
    for key, label in test.labels.items():
        one = train.labels[key]
        if train.texts != test.texts:
            alike = str(one).strip() == str(label).strip()
        else:  # whole numbers are those of a test column of floats, too
            alike = one == label and (not same_type or type(one) is type(label))
        if not alike:
            raise _alike(column, one, label, " in training and test rows")


def as_classes(keys: Sequence[Hashable], given: Given, column: str) -> Classes:
    """Values and names of the classes, for labels of `column`; keys in the order of class numbers.

    DataError for labels that are not numbers, booleans or texts, for equal ones such as 1 and True,
    and for texts that a reader cannot tell apart.
    """
    labels = [given.labels[key] for key in keys]
    values = _typed([*map(str, labels)]) if given.texts else _array(labels, given.dtype, column)
    names = tuple(str(label).strip() for label in (labels if given.texts else values))
    seen: dict[Hashable, object] = {}
    for label, value in zip(labels, values.tolist(), strict=True):
        if value in seen:
            raise _alike(column, seen[value], label)
        seen[value] = label
    _refuse_look_alikes(names, column)
    return Classes(values, names)


def capital_notes(names: Sequence[str], column: str) -> list[str]:
    """Sentences on classes whose names differ only in capital letters."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.casefold(), []).append(name)
    notes = [
        f"label {column!r}: {', '.join(map(repr, group))} differ only in capital letters and are "
        f"{len(group)} classes; if they are one, write them alike"
        for group in groups.values()
        if len(group) > 1
    ]
    return notes[:_MOST_NOTED]


def stored_classes(values: np.ndarray) -> ClassesOnFile:
    """Values of classes in JSON types, for files and messages; `restored_classes` is the inverse.

    TypeError for values of a type that `StoredClassValues` does not take.
    """
    kinds = {"U": "str", "O": "object"}
    name = kinds.get(values.dtype.kind, values.dtype.name)
    if name not in get_args(_Type):
        raise TypeError(f"classes are of type {name}; they can be {', '.join(get_args(_Type))}")
    return {"type": name, "values": values.tolist()}


def restored_classes(content: ClassesOnFile | None, names: Sequence[str] = ()) -> np.ndarray:
    """Class values, (C,), from the form of `stored_classes` in a file; `names` if none are stored.

    The content must have passed `StoredClassValues.check`.
    """
    if content is None:
        return np.array(names, dtype=object)
    return np.array(content["values"], dtype=content["type"])


def _typed(texts: Sequence[str]) -> np.ndarray:
    """Texts of a file converted to the type that `pandas.read_csv` would give them."""
    bare = [text.strip() for text in texts]
    if all(text.lower() in ("true", "false") for text in bare):
        return np.array([text.lower() == "true" for text in bare])
    try:
        if all(map(_WHOLE.fullmatch, bare)):
            return np.array([int(text) for text in bare], dtype=np.int64)
        if not any("_" in text for text in bare):  # float() would read 1_000 as a number
            return np.array([float(text) for text in bare])
    except (ValueError, OverflowError):  # whole numbers beyond 64 bits stay texts, too
        pass
    return np.array(list(texts), dtype=object)


def _array(given: Sequence[object], dtype: np.dtype, column: str) -> np.ndarray:
    """Labels as an array of type `dtype`; errors name `column`."""
    if dtype.kind == "U":
        return np.array(given)
    if dtype.kind != "O":
        return np.array(given, dtype=np.float64 if dtype == np.longdouble else dtype)
    values = np.empty(len(given), dtype=object)
    values[:] = [_scalar(label, column) for label in given]
    return values


def _scalar(label: object, column: str) -> bool | int | float | str:
    if isinstance(label, (bool, np.bool_)):
        return bool(label)
    if isinstance(label, (int, np.integer)):
        return int(label)
    if isinstance(label, (float, np.floating)):
        return float(label)
    if isinstance(label, str):
        return str.__str__(label)
    raise DataError(
        f"label column {column!r} holds objects of {type(label).__name__}, such as {label!r}; "
        "classes are numbers, truth values or texts, so turn them into these (.astype(str), for "
        "example)."
    )


def _refuse_look_alikes(names: Sequence[str], column: str) -> None:
    """Refuse class names that look the same but differ in code points (DataError)."""
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(look_of(name), name)
        if first != name:
            raise DataError(
                f"label column {column!r}: {first!a} and {name!a} look the same and are "
                "different texts; write them alike."
            )


def _alike(column: str, first: object, second: object, where: str = "") -> DataError:
    one, other = sorted((first, second), key=repr)  # whatever the order of rows
    return DataError(
        f"label column {column!r} has {one!r} and {other!r}{where}, which are written "
        "differently and would be read as one label; write each label in one way."
    )
