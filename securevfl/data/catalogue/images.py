"""MNIST, Fashion-MNIST, EMNIST Balanced and CIFAR-10, from local files or OpenML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from securevfl.data.base.class_values import Classes
from securevfl.data.base.content import ImageShape
from securevfl.data.base.labels import EncodedLabels
from securevfl.data.base.options import ScalingKeywords, TableOptions, table_options
from securevfl.data.base.partition import pixel_names, split_stratified
from securevfl.data.builders.arrays import from_matrix
from securevfl.data.catalogue.facts import Facts
from securevfl.data.catalogue.image_files import (
    Images,
    _upright,
    read_cifar,
    read_emnist,
    read_idx,
)
from securevfl.data.dataset import VerticalDataset
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


_GREY: ImageShape = (1, 28, 28)
_COLOUR: ImageShape = (3, 32, 32)
_IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_IDX_FORMS = (tuple(f"{name}.gz" for name in _IDX), _IDX)
_EMNIST_IDX = tuple(f"emnist-balanced-{name.replace('t10k', 'test')}" for name in _IDX)

MNIST = Facts(
    name="mnist",
    rows=70000,
    features=784,
    classes=10,
    parties=4,
    licence="CC BY-SA 3.0",
    origin="LeCun, Cortes, Burges: the MNIST database of handwritten digits",
    split="official, 60000 + 10000",
    folder="mnist",
    forms=_IDX_FORMS,
    obtain="OpenML 554, or the four original files of yann.lecun.com/exdb/mnist and its mirrors",
    openml=(554,),
)
FASHION = Facts(
    name="fashion-mnist",
    rows=70000,
    features=784,
    classes=10,
    parties=28,
    licence="MIT",
    origin="Xiao, Rasul, Vollgraf: Fashion-MNIST, github.com/zalandoresearch/fashion-mnist",
    split="official, 60000 + 10000",
    folder="fashion-mnist",
    forms=_IDX_FORMS,
    obtain="OpenML 40996, or the four files of github.com/zalandoresearch/fashion-mnist",
    openml=(40996,),
)
EMNIST = Facts(
    name="emnist",
    rows=131600,
    features=784,
    classes=47,
    parties=28,
    licence="public (derived from NIST Special Database 19)",
    origin="Cohen, Afshar, Tapson, van Schaik: EMNIST Balanced",
    split="official, 112800 + 18800",
    folder="emnist",
    forms=(
        tuple(f"{name}.gz" for name in _EMNIST_IDX),
        _EMNIST_IDX,
        ("emnist_balanced_part.npz",),
    ),
    obtain="OpenML 41039, or the files of nist.gov/itl/products-and-services/emnist-dataset",
    openml=(41039,),
)
CIFAR10 = Facts(
    name="cifar10",
    rows=60000,
    features=3072,
    classes=10,
    parties=4,
    licence="none stated; cite Krizhevsky 2009",
    origin="Krizhevsky: Learning multiple layers of features from tiny images, 2009",
    split="official, 50000 + 10000",
    folder="cifar10",
    forms=(
        (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"),
        ("labels.npz", *(f"train_{k:02d}.webp" for k in range(50)), "test_first1000.webp"),
    ),
    obtain="OpenML 40927, or the binary version of cs.toronto.edu/~kriz/cifar.html",
    openml=(40927,),
)

_DIGITS = tuple(map(str, range(10)))
_GARMENTS = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
    "Ankle boot",
)  # fmt: skip
_CHARACTERS = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt")
_OBJECTS = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip

_MNIST_TRAINING = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)


@dataclass(frozen=True)
class _Kind:
    """One of the four image sets: facts, image shape, classes, default strips, reader, tests."""

    facts: Facts
    shape: ImageShape
    classes: tuple[str, ...]
    strips: str
    training: tuple[int, ...]
    read: Callable[[dict[str, Path], str], Images]
    transposed: bool = False
    tests: tuple[str, ...] = ("official",)


@table_options(ScalingKeywords)
def load_images(
    kind: _Kind,
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    strips: str | None = None,
    verify: bool = True,
    download: bool = True,
    test: str = "official",
    **options: Unpack[ScalingKeywords],
) -> VerticalDataset:
    """Load the images of a set `kind`, with their official split, whatever the seed.

    ``test="official"`` uses the test batch, or its first 1000 images if the files of cifar10 have
    no more; ``"holdout"``, for cifar10 alone, uses the last 10000 training images, which are then
    not trained on. With `verify` the checksums of local files are compared; with `download` missing
    files come from OpenML. By default images are cut into single pixels, those of cifar10 into
    strips of pixel columns; `strips` changes this. DataError for another `test`, and for files that
    are absent or not the known ones.
    """
    facts = kind.facts
    if test not in kind.tests:
        choice = " or ".join(kind.tests)
        raise DataError(f"{facts.name}: test={test!r} does not exist; use {choice}.")
    files, notes = facts.find(data_dir, verify=verify, download=download)
    if files is None:
        images = _from_openml(kind, TableOptions.of(options).seed)
    else:
        images = kind.read(files, test)
        images = replace(images, notes=(*notes, *images.notes))
    for pixels, labels in ((images.train, images.train_labels), (images.test, images.test_labels)):
        _check_images(facts, pixels, labels, kind)
    asked = TableOptions.of(options, name=facts.name, about=facts.about(images.notes))
    return from_matrix(
        VerticalDataset,
        asked,
        train=images.train,
        test=images.test,
        labels=EncodedLabels(
            images.train_labels.astype(np.int64),
            images.test_labels.astype(np.int64),
            Classes(_values(kind), kind.classes),
            "multiclass",
        ),
        names=pixel_names(kind.shape),
        parties=facts.parties if parties is None else parties,
        strips=strips or kind.strips,
        image_shape=kind.shape,
        split=images.split,
    )


def _values(kind: _Kind) -> np.ndarray:
    """Class values: numbers for digits, names for other classes."""
    numbers = kind.classes is _DIGITS
    return np.arange(len(kind.classes)) if numbers else np.array(kind.classes, dtype=object)


def _from_openml(kind: _Kind, seed: int) -> Images:
    """Read a set from OpenML, where training rows come before test rows."""
    from securevfl.data.catalogue.openml import fetch

    facts = kind.facts
    frame, target = fetch(facts, facts.openml[0])
    pixels = _pixels(frame, facts)
    labels = target.astype(str).astype(float).to_numpy().astype(np.int64)
    if kind.transposed:
        pixels = _upright(pixels)
    note = f"from OpenML {facts.openml[0]}"
    first = sum(kind.training)
    if len(labels) == facts.rows and np.array_equal(np.bincount(labels[:first]), kind.training):
        return Images(
            pixels[:first], labels[:first], pixels[first:], labels[first:],
            f"official: the first {first} rows of OpenML {facts.openml[0]}", (note,),
        )  # fmt: skip
    fraction = 1.0 - first / facts.rows
    train, held = split_stratified(labels, fraction, seed)
    return Images(
        pixels[train], labels[train], pixels[held], labels[held],
        f"not the official split, which this copy does not show: {fraction:.1%} of its "
        f"{len(labels)} rows held out at random, stratified by class, seed {seed}", (note,),
    )  # fmt: skip


def _pixels(frame: pd.DataFrame, facts: Facts) -> NDArray[np.uint8]:
    values = frame.to_numpy()
    pixels = values.astype(np.uint8)
    if not np.array_equal(pixels, values):
        raise DataError(f"{facts.name}: OpenML {facts.openml[0]} holds values besides 0 to 255.")
    return pixels


def _check_images(facts: Facts, pixels: np.ndarray, labels: np.ndarray, kind: _Kind) -> None:
    if pixels.shape[1] != facts.features or len(labels) != len(pixels):
        raise DataError(
            f"{facts.name}: {len(pixels)} images of {pixels.shape[1]} values and {len(labels)} "
            f"labels; {facts.features} values and one label per image are needed."
        )
    if labels.size and int(labels.max()) >= len(kind.classes):
        raise DataError(
            f"{facts.name}: a label is {int(labels.max())}; 0 to {len(kind.classes) - 1} exist."
        )


_MNIST = _Kind(MNIST, _GREY, _DIGITS, "pixels", _MNIST_TRAINING, read_idx)
_FASHION = _Kind(FASHION, _GREY, _GARMENTS, "pixels", (6000,) * 10, read_idx)
_EMNIST = _Kind(EMNIST, _GREY, _CHARACTERS, "pixels", (2400,) * 47, read_emnist, transposed=True)
_CIFAR10 = _Kind(
    CIFAR10, _COLOUR, _OBJECTS, "columns", (5000,) * 10, read_cifar, tests=("official", "holdout")
)

LOADERS: Sequence[tuple[Facts, Callable[..., VerticalDataset]]] = tuple(
    (kind.facts, partial(load_images, kind)) for kind in (_MNIST, _FASHION, _EMNIST, _CIFAR10)
)
