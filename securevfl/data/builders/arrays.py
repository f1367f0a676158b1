"""Data sets from numeric arrays: NumPy, PyTorch, and the image and multi-view loaders."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from securevfl.data.base.content import D, DatasetContent, ImageShape
from securevfl.data.base.labels import EncodedLabels, RawLabels, encode_labels, read_labels
from securevfl.data.base.options import ArrayKeywords, TableOptions, own_data, table_options
from securevfl.data.base.partition import (
    Positions,
    Strips,
    divide_columns,
    divide_images,
    named_owners,
    side_by_side,
    split_random,
    split_stratified,
)
from securevfl.data.preparation.columns import refuse_repeated, take_columns
from securevfl.data.preparation.fit import fit_matrix, refuse_flattened
from securevfl.data.preparation.preprocess import Preprocessor
from securevfl.data.preparation.scaling import SCALING_RULES
from securevfl.data.preparation.tables import as_array
from securevfl.errors import DataError


class FromArrays(DatasetContent):
    """Class methods of `VerticalDataset` that build it from arrays."""

    @classmethod
    @table_options(ArrayKeywords)
    def from_numpy(
        cls,
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
    ) -> Self:
        """Build a data set from numeric arrays.

        Parameters
        ----------
        features : array of shape (rows, ...), or list or tuple of one (rows, d_n) array per party
            Real and finite numbers. Images have shape (rows, height, width) or (rows, channels,
            height, width), which is stored.
        labels : array of shape (rows,)
            Class names or class numbers of any type, or regression targets.
        test_features, test_labels : optional
            The test rows, in the same form; by default a fraction of the rows is drawn at random,
            stratified by class.
        parties : int, optional
            Number of parties among which the columns are divided; by default 8, or one per array.
        owners : sequence of sequences of str, or mapping of str to them, optional
            Names of each party's columns, instead of `parties`; the keys of a mapping are the
            parties' names.
        columns : sequence of str, optional
            Names of all source columns; by default "x0", "x1", ...
        strips : {"rows", "columns", "pixels"}, optional
            Division of images into strips; by default single pixels in order.
        image_shape : (channels, height, width), optional
            Shape of images that are given flat.
        **options
            Fields of `securevfl.data.base.options.TableOptions`.

        Raises
        ------
        DataError
            For unusable data; the message names the fault and its place.

        Examples
        --------
        >>> from securevfl import VerticalDataset
        >>> rows = [[0.0, 1.0, 5.0], [1.0, 0.0, 6.0], [0.5, 0.5, 7.0], [0.2, 0.9, 8.0]]
        >>> VerticalDataset.from_numpy(rows, ["a", "b", "a", "b"], parties=2, test_fraction=0.5)
        VerticalDataset('arrays', 2 classes, 2 parties, 2 + 2 rows, widths (2, 1))
        """
        if (test_features is None) != (test_labels is None):
            raise DataError("test_features and test_labels go together; give both or neither.")
        owners, party_names = named_owners(owners, options.get("party_names"))
        asked = TableOptions.of(
            {**options, "party_names": party_names},
            name="arrays",
            about=own_data("arrays of the user"),
        )
        matrix, views, found_shape = _as_matrix(features, "features")
        raw = read_labels(labels)
        if len(raw) != len(matrix):
            raise DataError(
                f"{len(matrix)} rows of features have {len(raw)} labels; "
                f"one label per row is needed."
            )
        if test_features is not None and test_labels is not None:
            test_matrix, test_views, _ = _as_matrix(test_features, "test_features")
            if test_views != views:
                raise DataError(
                    f"test_features have the columns {test_views} and features {views}; "
                    f"both must be the same."
                )
            train_part, test_part = (matrix, raw), (test_matrix, read_labels(test_labels))
            split = "test rows given by the user"
        else:
            train_rows, test_rows, split = draw_test_rows(raw, asked)
            train_part = (matrix[train_rows], raw.take(train_rows))
            test_part = (matrix[test_rows], raw.take(test_rows))
        return from_matrix(
            cls,
            asked,
            train=train_part[0],
            test=test_part[0],
            labels=encode_labels(train_part[1], test_part[1], asked.task),
            names=_column_names(columns or _names_of(features), matrix.shape[1]),
            views=None if len(views) == 1 else views,
            parties=parties,
            owners=owners,
            strips=strips,
            image_shape=image_shape or found_shape,
            split=split,
        )

    @classmethod
    def from_torch(cls, train: object, test: object = None, **options: Any) -> Self:
        """Build a data set from `torch.utils.data` data sets of (features, label) pairs.

        Parameters
        ----------
        train : torch.utils.data.Dataset
            Map-style or iterable. Features are tensors, arrays or images that NumPy can read, all
            of one shape; labels are numbers, texts or one-element tensors.
        test : torch.utils.data.Dataset, optional
            The test rows; by default a fraction of `train`.
        **options
            Keyword arguments of `from_numpy`.

        Raises
        ------
        DataError
            If an item is no pair, the features differ in shape, or `from_numpy` refuses the data.
        """
        features, labels = _torch_arrays(train, "train")
        options.setdefault("name", type(train).__name__)
        if test is not None:
            options["test_features"], options["test_labels"] = _torch_arrays(test, "test")
        return cls.from_numpy(features, labels, **options)


def from_matrix(
    kind: type[D],
    options: TableOptions,
    *,
    train: np.ndarray,
    test: np.ndarray,
    labels: EncodedLabels,
    names: Sequence[str],
    split: str,
    parties: int | None = None,
    owners: Sequence[Sequence[str]] | None = None,
    views: Sequence[int] | None = None,
    strips: str | None = None,
    image_shape: ImageShape | None = None,
) -> D:
    """Data set of class `kind` from two numeric matrices; the source is never copied whole.

    `train` and `test` are raw features, (M, d) and (M_test, d), of any real dtype; `names` are the
    d source columns' names. `views` has the number of columns of each view, if each party owns one
    view. `split` is a sentence for reports; other arguments and errors are as for `from_numpy`.
    """
    rule, about = options.scaling_rule, options.origin
    refuse_repeated(names)
    if image_shape is not None and int(np.prod(image_shape)) != train.shape[1]:
        raise DataError(
            f"images of shape {image_shape} have {int(np.prod(image_shape))} values and the rows "
            f"have {train.shape[1]} columns; both must be the same."
        )
    cut = _check_strips(strips, image_shape)
    positions, partition = _positions(names, parties, owners, views, image_shape, cut)
    owned = [[names[k] for k in party] for party in positions]
    fitted, scaled = [], []
    for party, columns in zip(positions, owned, strict=True):
        block = take_columns(train, party)
        fitted.append(fit_matrix(block, columns, rule))
        if rule != "none":
            refuse_flattened(block, columns)
        scaled.append(fitted[-1].scale_matrix(block))
    notes = (*about.notes, *labels.notes)
    return kind(
        name=options.name,
        train=tuple(scaled),
        test=tuple(
            part.scale_matrix(take_columns(test, party))
            for part, party in zip(fitted, positions, strict=True)
        ),
        **labels.fields(),
        columns=tuple(map(tuple, owned)),
        party_names=options.called(len(positions)),
        about=replace(
            about, split=split, scaling=SCALING_RULES[rule], partition=partition, notes=notes
        ),
        transform=Preprocessor(tuple(fitted), positions, rule),
        image_shape=image_shape,
        strips=cut,
    )


def draw_test_rows(
    labels: RawLabels, options: TableOptions
) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    """Training rows, test rows and a sentence for reports; stratified by class if asked."""
    fraction, seed = options.test_fraction, options.seed
    if not options.stratified or (options.task or labels.task()) == "regression":
        train, test = split_random(len(labels), fraction, seed)
        how = ""
    else:
        train, test = split_stratified(labels.values, fraction, seed)
        how = "stratified by class, "
    return train, test, f"{fraction:.0%} of the rows held out at random, {how}seed {seed}"


def _check_strips(strips: str | None, image_shape: ImageShape | None) -> Strips | None:
    """Cut of images by rows, columns or pixels (None); DataError if unknown or without images."""
    if strips is None or strips == "pixels":
        return None
    if strips not in ("rows", "columns"):
        raise DataError(f"strips={strips!r} does not exist; use rows, columns or pixels.")
    if image_shape is None:
        raise DataError(
            f"strips={strips!r} cuts images, and this data set has none; "
            f"give image_shape=(channels, height, width)."
        )
    return "rows" if strips == "rows" else "columns"


def _positions(
    names: Sequence[str],
    parties: int | None,
    owners: Sequence[Sequence[str]] | None,
    views: Sequence[int] | None,
    image_shape: ImageShape | None,
    strips: Strips | None,
) -> tuple[Positions, str]:
    """Column positions of each party, and a phrase for reports on the rule.

    The first rule that applies: `owners`; `views`, numbers of columns; strips of an image; evenly.
    DataError for a party without a column, unknown names or those of two parties, and another
    number of `parties` than of `owners`.
    """
    if owners is not None:
        return divide_columns(names, parties, owners)
    if views is not None and parties in (None, len(views)):
        if 0 in views:
            raise DataError(f"the parties own {tuple(views)} columns; each needs at least one.")
        return side_by_side(views), "one view per party"
    if image_shape is not None and strips is not None:
        return divide_images(image_shape, parties, strips)
    return divide_columns(names, parties)


def _as_matrix(
    features: object, what: str
) -> tuple[np.ndarray, tuple[int, ...], ImageShape | None]:
    """One matrix of all columns, the width of each party's part, and the image shape or None.

    DataError for other shapes, and for parties with different rows or without columns.
    """
    if isinstance(features, (list, tuple)):
        features = [as_array(part) for part in features]
    if isinstance(features, list) and all(np.ndim(part) == 2 for part in features):
        parts = [_real_array(part, f"{what}[{n}]") for n, part in enumerate(features)]
        if not parts or len({len(part) for part in parts}) != 1:
            raise DataError(
                f"{what}: the parties' arrays have {[len(part) for part in parts]} rows; "
                f"all parties need the same rows in the same order."
            )
        widths = tuple(part.shape[1] for part in parts)
        if 0 in widths:
            raise DataError(f"{what}: the parties own {widths} columns; each needs at least one.")
        return np.concatenate(parts, axis=1), widths, None
    array = _real_array(features, what)
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise DataError(
            f"{what}: the shape is {array.shape}; rows x columns, rows x height x width or "
            f"rows x channels x height x width is needed, none of them 0."
        )
    shape = None if array.ndim == 2 else (1, *array.shape[1:])[-3:]
    flat = array.reshape(len(array), -1)
    return flat, (flat.shape[1],), shape


def _real_array(values: object, what: str) -> np.ndarray:
    try:
        array = np.asarray(as_array(values))
    except ValueError as error:
        raise DataError(f"{what}: the rows do not have one shape: {error}.") from error
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"{what}: an array of {array.dtype}; numbers are needed (use from_pandas for texts)."
        )
    return array


def _names_of(features: object) -> list[str] | None:
    """Names of the columns where all features are data frames, else None."""
    pd = sys.modules.get("pandas")  # without it nothing is a frame, and it takes half a second
    if pd is None:
        return None
    parts = features if isinstance(features, (list, tuple)) else [features]
    frames = [part for part in parts if isinstance(part, pd.DataFrame)]
    if not frames or len(frames) < len(parts):
        return None
    return [str(name) for frame in frames for name in frame.columns]


def _column_names(columns: Sequence[str] | None, width: int) -> tuple[str, ...]:
    if columns is None:
        return tuple(f"x{k}" for k in range(width))
    if len(columns) != width:
        raise DataError(f"{len(columns)} column names for {width} columns; give one per column.")
    return tuple(map(str, columns))


def _torch_arrays(dataset: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a torch data set as arrays; DataError, which begins with `what`."""
    tensors = getattr(dataset, "tensors", None)
    if tensors is not None and len(tensors) == 2:
        return np.asarray(as_array(tensors[0])), np.asarray(as_array(tensors[1]))
    try:
        by_place = not hasattr(dataset, "__iter__")
        items = map(dataset.__getitem__, range(len(dataset))) if by_place else dataset
        pairs = [(np.asarray(as_array(x)), np.asarray(as_array(y))) for x, y in items]
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{what}: an item is not a (features, label) pair: {error}.") from error
    if not pairs:
        raise DataError(f"{what}: the data set has no items; at least one is needed.")
    shapes = {x.shape for x, _ in pairs}
    if len(shapes) > 1:
        raise DataError(
            f"{what}: the items' features have the shapes {sorted(shapes)[:3]}; all need one shape."
        )
    return np.stack([x for x, _ in pairs]), np.stack([y for _, y in pairs]).reshape(len(pairs), -1)
