"""Data sets that come with scikit-learn and need neither files nor a network."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from securevfl.data.builders.arrays import describe_split, from_matrix
from securevfl.data.catalogue.facts import Facts
from securevfl.data.dataset import VerticalDataset
from securevfl.data.labels import encode_labels, read_labels
from securevfl.data.options import SplitKeywords, TableOptions, table_options
from securevfl.data.partition import split_stratified

DIGITS = Facts(
    name="digits",
    rows=1797,
    features=64,
    classes=10,
    parties=8,
    licence="CC BY 4.0 (UCI 80)",
    origin="UCI Optical Recognition of Handwritten Digits, test part; bundled with scikit-learn",
    split="75/25, stratified, by seed",
    bundled=True,
)


@table_options(SplitKeywords)
def load_digits(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    strips: str | None = None,
    **options: Unpack[SplitKeywords],
) -> VerticalDataset:
    """Load 1797 handwritten digits of 8 x 8 pixels, one pixel row for each of 8 parties.

    Parameters
    ----------
    parties : int, optional
        8 unless given; the 64 pixels are divided as `numpy.array_split` does.
    data_dir : path, optional
        Not used: the set is bundled.
    strips : {"rows", "columns", "pixels"}, optional
        How the images are cut; single pixels in order unless given.
    **options
        Fields of `securevfl.data.options.TableOptions`.

    Returns
    -------
    VerticalDataset
    """
    pixels, digits = _bundled_digits()
    asked = TableOptions.of(options, name=DIGITS.name, about=DIGITS.about())
    train, test = split_stratified(digits, asked.test_fraction, asked.seed)
    labels = read_labels(digits, "digit")
    train_labels, test_labels, classes, task = encode_labels(
        labels.take(train), labels.take(test), "multiclass"
    )
    return from_matrix(
        asked,
        train=pixels[train],
        test=pixels[test],
        labels=(train_labels, test_labels),
        classes=classes,
        task=task,
        names=[f"pixel {y},{x}" for y in range(8) for x in range(8)],
        parties=DIGITS.parties if parties is None else parties,
        strips=strips,
        image_shape=(1, 8, 8),
        split=describe_split(asked.test_fraction, asked.seed, stratified=True),
    )


LOADERS: tuple[tuple[Facts, Callable[..., VerticalDataset]], ...] = ((DIGITS, load_digits),)


def _bundled_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return pixels and digits as `sklearn.datasets.load_digits` does.

    They are read from scikit-learn's file where it can be found, which saves the second that its
    import takes.
    """
    found = find_spec("sklearn")
    for folder in (found.submodule_search_locations or []) if found else []:
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            table = np.loadtxt(file, delimiter=",")
            return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits as from_sklearn

    pixels, digits = from_sklearn(return_X_y=True)
    return pixels, digits
