"""Data sets that come with scikit-learn and need neither files nor a network."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from securevfl.data.base.labels import RawLabels, encode_labels
from securevfl.data.base.options import SplitKeywords, TableOptions, table_options
from securevfl.data.builders.arrays import draw_test_rows, from_matrix
from securevfl.data.catalogue.facts import Facts
from securevfl.data.dataset import VerticalDataset

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


def bundled_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The images (1797, 64), values 0 to 16, and the digits, from scikit-learn's own file.

    The file is read where it lies, since scikit-learn's loader imports pandas and scipy first:
    each party's process would pay more than a second for it. Where it lies elsewhere, the loader
    is asked.
    """
    found = importlib.util.find_spec("sklearn")
    places = [] if found is None else list(found.submodule_search_locations or ())
    path = Path(*places[:1], "datasets", "data", "digits.csv.gz")
    if places and path.is_file():
        return _read_digits(path)
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    return pixels, digits


@functools.lru_cache(maxsize=1)
def _read_digits(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Images and digits of the file, read once in a process; nobody may write to them."""
    table = np.loadtxt(path, delimiter=",")
    pixels, digits = np.ascontiguousarray(table[:, :-1]), table[:, -1].astype(np.int64)
    for array in (pixels, digits):
        array.setflags(write=False)
    return pixels, digits


@table_options(SplitKeywords)
def load_digits(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    strips: str | None = None,
    **options: Unpack[SplitKeywords],
) -> VerticalDataset:
    """Load 1797 handwritten digits of 8 x 8 pixels, one pixel row for each of 8 parties.

    The 64 pixels are divided as `numpy.array_split` does, or in `strips`. The set is bundled, so
    `data_dir` is not used.
    """
    pixels, digits = bundled_digits()
    asked = TableOptions.of(options, name=DIGITS.name, about=DIGITS.about())
    labels = RawLabels(digits.astype(np.float64), "digit", digits.astype(np.int64))
    train, test, split = draw_test_rows(labels, asked)
    return from_matrix(
        VerticalDataset,
        asked,
        train=pixels[train],
        test=pixels[test],
        labels=encode_labels(labels.take(train), labels.take(test), "multiclass"),
        names=[f"pixel {y},{x}" for y in range(8) for x in range(8)],
        parties=DIGITS.parties if parties is None else parties,
        strips=strips,
        image_shape=(1, 8, 8),
        split=split,
    )


LOADERS: tuple[tuple[Facts, Callable[..., VerticalDataset]], ...] = ((DIGITS, load_digits),)
