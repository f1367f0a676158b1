"""Data sets that need neither files of the user nor a network."""

from __future__ import annotations

import functools
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
    origin="Alpaydin, Kaynak: UCI Optical Recognition of Handwritten Digits, test part; bundled",
    split="75/25, stratified, by seed",
    bundled=True,
)


@functools.lru_cache(maxsize=1)
def bundled_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The images (1797, 64), values 0 to 16, and the digits; both arrays are read-only.

    The package contains the file, byte for byte as in scikit-learn, so a first run needs no
    scikit-learn.
    """
    table = np.loadtxt(Path(__file__).with_name("digits.csv.gz"), delimiter=",")
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
