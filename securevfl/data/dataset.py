"""`VerticalDataset`: rows that several parties share, columns that each owns alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from securevfl.data.checks import (
    check_alone,
    check_columns,
    check_features,
    check_labels,
    frozen,
    row_numbers,
)
from securevfl.data.labels import Task
from securevfl.data.options import ArrayKeywords, TableKeywords, table_options
from securevfl.data.origin import About
from securevfl.data.partition import (
    Positions,
    Strips,
    owned_columns,
    partition_columns,
    strip_columns,
    strip_shapes,
)
from securevfl.data.preparation.preprocess import Preprocessor
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from securevfl.data.alignment.join import Match

Features = tuple[NDArray[np.float32], ...]
ImageShape = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class VerticalDataset:
    """Aligned rows whose columns belong to several parties, and the labels of one of them.

    All arrays are C-contiguous, read-only and finite; they are checked when the object is made.

    Parameters
    ----------
    name : str
        Name of the data set.
    task : {"binary", "multiclass", "regression"}
        What the labels ask for.
    train, test : tuple of ndarray of float32
        One (M, d_n) and one (M_test, d_n) array per party.
    train_labels, test_labels : ndarray
        int64 class numbers 0 to C - 1, shape (M,) and (M_test,); float32 for a regression.
    classes : tuple of str
        Names of the classes in order; () for a regression.
    columns : tuple of tuple of str
        Names of each party's columns after encoding.
    party_names : tuple of str
        One name per party.
    about : About
        Origin, licence, split, scaling and notes.
    transform : Preprocessor
        What was fitted on the training rows; applies the same to new raw rows.
    image_shape : (channels, height, width), optional
        Shape of the whole image whose pixels are the source columns.
    strips : {"rows", "columns"}, optional
        How `with_parties` divides images into strips; None divides single pixels.
    alone : tuple of ndarray of float32
        One (m_n, d_n) array per party with training rows that only this party holds, or () where
        there are none; see `securevfl.data.alignment.overlap.limit_overlap`.
    alone_labels : ndarray, optional
        Labels of ``alone[0]``, if party 0 has any.

    Raises
    ------
    DataError
        If the parts do not fit together, hold NaN or infinite values, or a party is empty.
    """

    name: str
    task: Task
    train: Features
    test: Features
    train_labels: NDArray[Any]
    test_labels: NDArray[Any]
    classes: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    party_names: tuple[str, ...]
    about: About
    transform: Preprocessor = field(repr=False)
    image_shape: ImageShape | None = None
    strips: Strips | None = None
    alone: Features = ()
    alone_labels: NDArray[Any] | None = None

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
        """For each party and column the number of its category codes; 0 where values are sizes."""
        return tuple(part.cardinalities for part in self.transform.parties)

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
        """Each party's strip as (channels, height, width); None unless all own whole strips."""
        if self.image_shape is None:
            return None
        return strip_shapes(self.image_shape, self.transform.positions)

    def __repr__(self) -> str:
        target = f"{self.num_classes} classes" if self.classes else "regression"
        alone = ", alone " + str(tuple(map(len, self.alone))) if self.alone else ""
        return (
            f"VerticalDataset({self.name!r}, {target}, {self.parties} parties, "
            f"{self.rows} + {self.test_rows} rows, widths {self.widths}{alone})"
        )

    def with_parties(self, parties: int) -> VerticalDataset:
        """Divide the same source columns, in the same order, among another number of parties.

        Image strips stay strips; other columns are divided as `numpy.array_split` does. What was
        fitted on the training rows is kept, so the values do not change, only their owners.

        Parameters
        ----------
        parties : int
            1 to the number of source columns (of pixel lines, for strips).

        Returns
        -------
        VerticalDataset
            Itself when it already has that many parties.
        """
        if parties == self.parties and not isinstance(parties, bool):
            return self
        if self.image_shape is not None and self.strips is not None:
            positions = strip_columns(self.image_shape, parties, self.strips)
            rule = f"{parties} image strips of pixel {self.strips}, numpy.array_split"
        else:
            positions = partition_columns(len(self.transform.columns), parties)
            rule = f"source columns dealt to {parties} parties by numpy.array_split"
        return self._dealt(positions, _numbered(parties), rule)

    def with_owners(
        self, owners: Sequence[Sequence[str]], party_names: Sequence[str] | None = None
    ) -> VerticalDataset:
        """Divide the source columns among named owners.

        Parameters
        ----------
        owners : sequence of sequences of str
            For each party the names of its source columns; together all of them, each once.
        party_names : sequence of str, optional
            One per party; "party 0", "party 1", ... unless given.

        Returns
        -------
        VerticalDataset
        """
        positions = owned_columns(self.transform.columns, owners)
        names = tuple(party_names) if party_names is not None else _numbered(len(owners))
        return self._dealt(positions, names, "owners named by the user")

    def subset(self, rows: Any, test_rows: Any = None) -> VerticalDataset:
        """Keep some training rows, and optionally some test rows.

        The scaling stays the one that was fitted before.

        Parameters
        ----------
        rows : int, slice, array of int or array of bool
            Which training rows; an int keeps the first so many.
        test_rows : int, slice, array of int or array of bool, optional
            Which test rows; all unless given.

        Returns
        -------
        VerticalDataset

        Raises
        ------
        DataError
            If no row is left, or a row does not exist.
        """
        chosen = row_numbers(rows, self.rows)
        tested = row_numbers(slice(None) if test_rows is None else test_rows, self.test_rows)
        return replace(
            self,
            train=tuple(array[chosen] for array in self.train),
            train_labels=self.train_labels[chosen],
            test=self.test if test_rows is None else tuple(array[tested] for array in self.test),
            test_labels=self.test_labels[tested],
            about=self._noted(
                f"subset of {len(chosen)} of {self.rows} training and {len(tested)} of "
                f"{self.test_rows} test rows; the scaling is that of all training rows"
            ),
        )

    def fingerprint(self) -> str:
        """Return the SHA-256 of the content: features, labels, names of columns and classes.

        Returns
        -------
        str
            64 hexadecimal digits; the same content has the same fingerprint on every machine.
        """
        return self._fingerprint

    @staticmethod
    @table_options(ArrayKeywords)
    def from_numpy(
        features: ArrayLike | Sequence[ArrayLike],
        labels: ArrayLike,
        *,
        test_features: ArrayLike | Sequence[ArrayLike] | None = None,
        test_labels: ArrayLike | None = None,
        parties: int | None = None,
        owners: Sequence[Sequence[str]] | Mapping[str, Sequence[str]] | None = None,
        columns: Sequence[str] | None = None,
        strips: str | None = None,
        image_shape: ImageShape | None = None,
        **options: Unpack[ArrayKeywords],
    ) -> VerticalDataset:
        """Build from arrays.

        Parameters
        ----------
        features : array of shape (rows, ...), or sequence of one (rows, d_n) array per party
            Real numbers. Images of shape (rows, height, width) or (rows, channels, height, width)
            are flattened and their shape is kept.
        labels : array of shape (rows,)
            Of any type.
        test_features, test_labels : optional
            Given together they are the test rows; else `test_fraction` of the rows become them.
        parties : int, optional
            Number of parties among which the columns are divided; 8, or one per array where several
            are given.
        owners : sequence of sequences of str, or mapping of str to them, optional
            Names of each party's columns, instead of `parties`; the keys of a mapping are the
            parties' names.
        columns : sequence of str, optional
            Names of all source columns; "x0", "x1", ... unless given.
        strips : {"rows", "columns", "pixels"}, optional
            How images are divided: into strips of whole pixel rows or columns, or pixel by pixel
            (the default).
        image_shape : (channels, height, width), optional
            For images that are already flat.
        **options
            Fields of `securevfl.data.options.TableOptions`.

        Returns
        -------
        VerticalDataset

        Examples
        --------
        >>> rows = [[0.0, 1.0, 5.0], [1.0, 0.0, 6.0], [0.5, 0.5, 7.0], [0.2, 0.9, 8.0]]
        >>> VerticalDataset.from_numpy(rows, ["a", "b", "a", "b"], parties=2, test_fraction=0.5)
        VerticalDataset('arrays', 2 classes, 2 parties, 2 + 2 rows, widths (2, 1))
        """
        from securevfl.data.builders.arrays import from_numpy

        return from_numpy(
            features,
            labels,
            test_features=test_features,
            test_labels=test_labels,
            parties=parties,
            owners=owners,
            columns=columns,
            strips=strips,
            image_shape=image_shape,
            **options,
        )

    @staticmethod
    @table_options(TableKeywords)
    def from_pandas(
        frame: pd.DataFrame | Sequence[pd.DataFrame] | Mapping[str, pd.DataFrame],
        label: str,
        *,
        test_frame: pd.DataFrame | None = None,
        id_column: str | None = None,
        label_frame: pd.DataFrame | None = None,
        parties: int | None = None,
        owners: Sequence[Sequence[str]] | Mapping[str, Sequence[str]] | None = None,
        **options: Unpack[TableKeywords],
    ) -> VerticalDataset:
        """Build from one data frame, or from one per party.

        Numbers and truth values stay one column. Texts and pandas categories are encoded as
        `coding` says. Missing numbers become the training median.

        Parameters
        ----------
        frame : DataFrame, or sequence of one DataFrame per party, or mapping of names to them
            Several frames are joined by ``id_column``, or taken row by row without one.
        label : str
            Name of the label column.
        test_frame : DataFrame, optional
            The test rows, with the same columns; for a single frame only.
        id_column : str, optional
            Column that names the rows in every party's frame.
        label_frame : DataFrame, optional
            Frame of ids and labels, where no party's frame has them.
        parties : int, optional
            Number of parties among which a single frame's columns are divided; 8 unless given.
        owners : sequence of sequences of str, or mapping of str to them, optional
            Names of each party's columns, instead of `parties`; the keys of a mapping are the
            parties' names.
        **options
            Fields of `securevfl.data.options.TableOptions`.

        Returns
        -------
        VerticalDataset

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": range(40), "town": ["a", "b"] * 20, "ill": [0, 1] * 20})
        >>> VerticalDataset.from_pandas(frame, "ill", parties=2)
        VerticalDataset('table', 2 classes, 2 parties, 30 + 10 rows, widths (1, 2))
        """
        from securevfl.data.builders.frames import from_pandas

        return from_pandas(
            frame,
            label,
            test_frame=test_frame,
            id_column=id_column,
            label_frame=label_frame,
            parties=parties,
            owners=owners,
            **options,
        )

    @staticmethod
    def from_torch(train: Any, test: Any = None, **options: Any) -> VerticalDataset:
        """Build from `torch.utils.data` data sets of (features, label) pairs.

        Parameters
        ----------
        train : torch.utils.data.Dataset
            Map-style or iterable; features are tensors, arrays or images.
        test : torch.utils.data.Dataset, optional
            The test rows; else `test_fraction` of the rows become them.
        **options
            As for `from_numpy`.

        Returns
        -------
        VerticalDataset
        """
        from securevfl.data.builders.arrays import from_torch

        return from_torch(train, test, **options)

    @staticmethod
    def from_sklearn(bunch: Any, **options: Any) -> VerticalDataset:
        """Build from a `sklearn.utils.Bunch`; see `securevfl.data.builders.bunch.from_sklearn`.

        Parameters
        ----------
        bunch : Bunch
            What `sklearn.datasets.load_...` and `fetch_...` return.
        **options
            As for `from_pandas` where its data are a data frame, else as for `from_numpy`.

        Returns
        -------
        VerticalDataset
        """
        from securevfl.data.builders.bunch import from_sklearn

        return from_sklearn(bunch, **options)

    @staticmethod
    @table_options(TableKeywords)
    def from_files(
        party_files: Sequence[str | Path],
        *,
        id_column: str,
        label: str,
        label_file: str | Path | None = None,
        separator: str | None = None,
        match: Match | None = None,
        unmatched: str = "dropped",
        **options: Unpack[TableKeywords],
    ) -> VerticalDataset:
        """Build from several parties' own CSV files, joined by an id column.

        Parameters
        ----------
        party_files : sequence of paths
            One file per party, each with the id column.
        id_column : str
            Name of the id column in every file.
        label : str
            Name of the label column, in `label_file` or in one of the parties' files.
        label_file : path, optional
            File of ids and labels.
        separator : str, optional
            A comma, or a tab for .tsv files, unless given.
        match : callable, optional
            Finds the common ids; in plain form if not given.
        unmatched : {"dropped", "kept"}
            What becomes of rows whose id is not in every file; kept ones are unaligned rows of
            their party (``alone``).
        **options
            Fields of `securevfl.data.options.TableOptions`.

        Returns
        -------
        VerticalDataset
        """
        from securevfl.data.builders.files import from_files

        return from_files(
            party_files,
            id_column=id_column,
            label=label,
            label_file=label_file,
            separator=separator,
            match=match,
            unmatched=unmatched,
            **options,
        )

    @cached_property
    def _fingerprint(self) -> str:
        head: dict[str, Any] = {
            "task": self.task,
            "classes": self.classes,
            "columns": self.columns,
            "party_names": self.party_names,
            "shapes": [array.shape for array in (*self.train, *self.test)],
            "labels": [str(self.train_labels.dtype), self.rows, self.test_rows],
        }
        arrays = [*self.train, *self.test, self.train_labels, self.test_labels]
        if self.alone:
            labels = [] if self.alone_labels is None else [self.alone_labels]
            arrays += [*self.alone, *labels]
            head["alone"] = [array.shape for array in (*self.alone, *labels)]
        digest = hashlib.sha256(json.dumps(head, ensure_ascii=True).encode())
        for array in arrays:
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(little.data)
        return digest.hexdigest()

    def _dealt(self, positions: Positions, names: tuple[str, ...], rule: str) -> VerticalDataset:
        if self.alone:
            raise DataError(
                f"data set {self.name!r}: parties hold rows alone, so columns cannot be divided "
                f"anew; choose the parties first, then limit the overlap."
            )
        transform = self.transform.deal(positions)
        return replace(
            self,
            train=self._dealt_arrays(self.train, positions),
            test=self._dealt_arrays(self.test, positions),
            columns=tuple(part.encoded for part in transform.parties),
            party_names=names,
            transform=transform,
            about=replace(self.about, partition=rule),
        )

    def _dealt_arrays(self, arrays: Features, positions: Positions) -> Features:
        where = self.transform.locations()
        bounds = [part.bounds for part in self.transform.parties]
        dealt = []
        for wanted in positions:
            found = [where[position] for position in wanted]
            pieces = [arrays[p][:, bounds[p][k] : bounds[p][k + 1]] for p, k in found]
            dealt.append(np.concatenate(pieces, axis=1))
        return tuple(dealt)

    def _noted(self, note: str) -> About:
        return replace(self.about, notes=(*self.about.notes, note))


def _numbered(parties: int) -> tuple[str, ...]:
    return tuple(f"party {n}" for n in range(parties))


__all__ = ["About", "VerticalDataset"]
