"""`DatasetContent`: the arrays and names of a data set, checked when they are put together."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from securevfl.data.base.checks import (
    check_alone,
    check_columns,
    check_features,
    check_labels,
    checked_weights,
    frozen,
    frozen_classes,
)
from securevfl.data.base.labels import Task
from securevfl.data.base.origin import About
from securevfl.data.base.partition import Strips, strip_shapes
from securevfl.data.preparation.preprocess import Preprocessor
from securevfl.errors import DataError

Features = tuple[NDArray[np.float32], ...]
ImageShape = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class DatasetContent:
    """Fields of a `VerticalDataset`, whose docstring explains them.

    Builders derive from this class. Each is a class method, so that it creates a `VerticalDataset`
    without importing that class.
    """

    name: str
    task: Task
    train: Features
    test: Features
    train_labels: np.ndarray
    test_labels: np.ndarray
    classes: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    party_names: tuple[str, ...]
    about: About
    transform: Preprocessor = field(repr=False)
    image_shape: ImageShape | None = None
    strips: Strips | None = None
    alone: Features = ()
    alone_labels: np.ndarray | None = None
    class_values: np.ndarray = None  # type: ignore[assignment]  # then the names
    train_weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        asked = f"data set {self.name!r}"
        if not self.train:
            raise DataError(f"{asked} has no parties; at least one is needed.")
        kind = np.float32 if self.task == "regression" else np.int64
        for side in ("train", "test"):
            features = tuple(frozen(array, np.float32) for array in getattr(self, side))
            labels = frozen(getattr(self, f"{side}_labels"), kind)
            object.__setattr__(self, side, features)
            object.__setattr__(self, f"{side}_labels", labels)
            widths = [array.shape[-1] for array in self.train]
            check_features(f"{asked}, {side}", features, widths, len(labels))
            check_labels(f"{asked}, {side} labels", labels, self.task, self.classes)
        if self.train_weights is not None:
            weights = checked_weights(asked, self.train_weights, self.rows)
            object.__setattr__(self, "train_weights", weights)
        values = self.classes if self.class_values is None else self.class_values
        object.__setattr__(self, "class_values", frozen_classes(asked, values, self.classes))
        named = {len(self.party_names), len(self.columns), len(self.transform.parties)}
        if named != {self.parties}:
            raise DataError(
                f"{asked}: {self.parties} parties have {len(self.party_names)} names, "
                f"{len(self.columns)} lists of columns and {len(self.transform.parties)} "
                f"preprocessings; one of each per party is needed."
            )
        for party, names in enumerate(self.columns):
            fitted = self.transform.parties[party].encoded
            check_columns(f"{asked}, party {party}", names, self.widths[party], fitted)
        object.__setattr__(self, "alone", tuple(frozen(array, np.float32) for array in self.alone))
        if self.alone_labels is not None:
            object.__setattr__(self, "alone_labels", frozen(self.alone_labels, kind))
        check_alone(asked, self.widths, self.alone, self.alone_labels)
        if self.alone_labels is not None and len(self.alone_labels):
            where = f"{asked}, labels of party 0 alone"
            check_labels(where, self.alone_labels, self.task, self.classes)

    @property
    def parties(self) -> int:
        """Number of parties N."""
        return len(self.train)

    @property
    def rows(self) -> int:
        """Number of training rows M."""
        return len(self.train_labels)

    @property
    def test_rows(self) -> int:
        """Number of test rows."""
        return len(self.test_labels)

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of encoded columns d_n of each party."""
        return tuple(array.shape[1] for array in self.train)

    @property
    def cardinalities(self) -> tuple[tuple[int, ...], ...]:
        """Number of category codes of each party's columns; 0 for columns of numeric values."""
        return tuple(part.cardinalities for part in self.transform.parties)

    @property
    def has_leaves(self) -> bool:
        """Whether some columns are leaves of decision trees that parties grew."""
        return any(part.forest is not None for part in self.transform.parties)

    @property
    def without_leaves(self) -> Features:
        """Training columns of each party, (M, d_n), without leaf columns of its trees."""
        return tuple(
            array[:, : array.shape[1] - len(part.leaves.names)]
            for array, part in zip(self.train, self.transform.parties, strict=True)
        )

    @property
    def unseen(self) -> tuple[int, ...]:
        """Parties whose columns are on another machine, so that this data set has placeholders."""
        return tuple(n for n, part in enumerate(self.transform.parties) if part.remote)

    @property
    def num_classes(self) -> int:
        """Number of classes C; 0 for a regression."""
        return len(self.classes)

    @property
    def nbytes(self) -> int:
        """Bytes of all feature arrays."""
        return sum(array.nbytes for array in (*self.train, *self.test, *self.alone))

    @cached_property
    def party_image_shapes(self) -> tuple[ImageShape, ...] | None:
        """(channels, height, width) of each party's strip; None if a party owns no whole strip."""
        if self.image_shape is None:
            return None
        return strip_shapes(self.image_shape, self.transform.positions)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the content: features, labels, names of columns and classes.

        Returns
        -------
        str
            64 hexadecimal digits; equal content has an equal fingerprint on every machine.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        head: dict[str, object] = {
            "task": self.task,
            "classes": self.classes,
            "columns": self.columns,
            "party_names": self.party_names,
            "shapes": [array.shape for array in (*self.train, *self.test)],
            "labels": [str(self.train_labels.dtype), self.rows, self.test_rows],
        }
        arrays = [*self.train, *self.test, self.train_labels, self.test_labels]
        if self.train_weights is not None:
            arrays.append(self.train_weights)
            head["weights"] = self.rows
        if self.alone:
            labels = [] if self.alone_labels is None else [self.alone_labels]
            arrays += [*self.alone, *labels]
            head["alone"] = [array.shape for array in (*self.alone, *labels)]
        digest = hashlib.sha256(json.dumps(head, ensure_ascii=True).encode())
        for array in arrays:
            digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).data)
        return digest.hexdigest()


#: Class that a builder is asked to make: `VerticalDataset`, or one derived from it.
D = TypeVar("D", bound=DatasetContent)
