"""MNIST, Fashion-MNIST, EMNIST Balanced and CIFAR-10, from local files or OpenML."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from securevfl.data.builders.arrays import from_matrix
from securevfl.data.catalogue.facts import Facts
from securevfl.data.content import ImageShape
from securevfl.data.dataset import VerticalDataset
from securevfl.data.options import ScalingKeywords, TableOptions, table_options
from securevfl.data.partition import split_stratified
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
class Images:
    """Images as read: uint8 pixels in rows of C x H x W, and class numbers."""

    train: NDArray[Any]
    train_labels: NDArray[Any]
    test: NDArray[Any]
    test_labels: NDArray[Any]
    split: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Kind:
    """Differences between the four sets."""

    facts: Facts
    shape: ImageShape
    classes: tuple[str, ...]
    strips: str
    training: tuple[int, ...]
    read: Callable[[dict[str, Path], str], Images]
    transposed: bool = False


@table_options(ScalingKeywords)
def load_images(
    kind: _Kind,
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    strips: str | None = None,
    verify: bool = True,
    download: bool = True,
    test: str = "",
    **options: Unpack[ScalingKeywords],
) -> VerticalDataset:
    """Load images with their official split, on which the seed has no effect.

    Parameters
    ----------
    kind : _Kind
        Which set.
    parties : int, optional
        The set's default unless given.
    data_dir : path, optional
        Folder of data sets; ``SECUREVFL_DATA`` unless given.
    strips : {"rows", "columns", "pixels"}, optional
        How images are cut: single pixels in order for the grey sets, strips of pixel columns for
        cifar10, unless given.
    verify : bool
        Whether checksums of local files are compared.
    download : bool
        Whether OpenML is asked when there are no local files.
    test : str
        Which test images, where there is a choice.
    **options
        Fields of `securevfl.data.options.TableOptions`.

    Returns
    -------
    VerticalDataset

    Raises
    ------
    DataError
        If the set is not to be had, or its files are damaged.
    """
    facts = kind.facts
    files = facts.locate(data_dir)
    if files is not None:
        notes = facts.notes(files, verify)
        images = kind.read(files, test)
        images = replace(images, notes=(*notes, *images.notes))
    elif download:
        images = _from_openml(kind, TableOptions.of(options).seed)
    else:
        raise facts.absent()
    channels, height, width = kind.shape
    for pixels, labels in ((images.train, images.train_labels), (images.test, images.test_labels)):
        _check_images(facts, pixels, labels, kind)
    asked = TableOptions.of(options, name=facts.name, about=facts.about(images.notes))
    return from_matrix(
        VerticalDataset,
        asked,
        train=images.train,
        test=images.test,
        labels=(images.train_labels.astype(np.int64), images.test_labels.astype(np.int64)),
        classes=kind.classes,
        task="multiclass",
        names=[
            f"pixel {y},{x}" if channels == 1 else f"{'rgb'[c]} {y},{x}"
            for c in range(channels)
            for y in range(height)
            for x in range(width)
        ],
        parties=facts.parties if parties is None else parties,
        strips=strips or kind.strips,
        image_shape=kind.shape,
        split=images.split,
    )


@table_options(ScalingKeywords)
def load_cifar10(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    strips: str | None = None,
    verify: bool = True,
    download: bool = True,
    test: str = "official",
    **options: Unpack[ScalingKeywords],
) -> VerticalDataset:
    """Load CIFAR-10: 60000 colour images of 32 x 32 pixels, in vertical strips of pixel columns.

    Parameters
    ----------
    parties, data_dir, strips, verify, download
        As for `load_images`.
    test : {"official", "holdout"}
        ``"official"``: the test batch, or where the files hold only its first 1000 images those.
        ``"holdout"``: the last 10000 training images, which then are not trained on.
    **options
        Fields of `securevfl.data.options.TableOptions`.

    Returns
    -------
    VerticalDataset
    """
    if test not in ("official", "holdout"):
        raise DataError(f"cifar10: test={test!r} does not exist; use official or holdout.")
    return load_images(
        _CIFAR10,
        parties=parties,
        data_dir=data_dir,
        strips=strips,
        verify=verify,
        download=download,
        test=test,
        **options,
    )


def _read_idx(files: dict[str, Path], test: str) -> Images:
    """Read the four files of the MNIST family: training images and labels, then test."""
    parts = [_idx_array(path) for path in files.values()]
    return Images(
        parts[0].reshape(len(parts[0]), -1), parts[1], parts[2].reshape(len(parts[2]), -1),
        parts[3], "official training and test files",
    )  # fmt: skip


def _idx_array(path: Path) -> NDArray[np.uint8]:
    """Read one idx file of bytes: magic 0, 0, 8, number of axes, big-endian sizes, values."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if data[:3] != b"\x00\x00\x08" or len(data) < 4 + 4 * data[3]:
        raise DataError(f"{path} is no idx file of bytes; fetch it again.")
    shape = np.frombuffer(data, dtype=">u4", count=data[3], offset=4).astype(np.int64)
    values = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * data[3])
    if values.size != int(shape.prod()):
        raise DataError(
            f"{path}: {values.size} values and the header says {int(shape.prod())}; the file is "
            f"cut off or damaged, fetch it again."
        )
    return values.reshape(shape)


def _read_emnist(files: dict[str, Path], test: str) -> Images:
    """Read the official files, which lie transposed, or the upright part of them."""
    part = files.get("emnist_balanced_part.npz")
    if part is None:
        images = _read_idx(files, test)
        return replace(images, train=_upright(images.train), test=_upright(images.test))
    with np.load(part, allow_pickle=False) as stored:
        train, held = stored["train_images"], stored["test_images"]
        return Images(
            train.reshape(len(train), -1),
            stored["train_labels"],
            held.reshape(len(held), -1),
            stored["test_labels"],
            "part of EMNIST Balanced, not the official split",
            (
                f"part: {len(train)} + {len(held)} of 131600 images, of which most are drawn from "
                "the pool (ByMerge and ByClass test files) that Balanced is drawn from",
            ),
        )


def _upright(pixels: NDArray[Any]) -> NDArray[Any]:
    return pixels.reshape(-1, 28, 28).swapaxes(1, 2).reshape(len(pixels), -1)


def _read_cifar(files: dict[str, Path], test: str) -> Images:
    """Read the binary version, or the lossless grids of 1000 images each."""
    if "test_batch.bin" in files:
        batches = [_cifar_batch(path) for path in files.values()]
        train = np.concatenate([pixels for pixels, _ in batches[:-1]])
        train_labels = np.concatenate([labels for _, labels in batches[:-1]])
        held, held_labels = batches[-1]
        split = "official training and test batches"
    else:
        with np.load(files["labels.npz"], allow_pickle=False) as stored:
            train_labels, held_labels = stored["train"], stored["test_first1000"]
        grids = [path for name, path in files.items() if name.startswith("train_")]
        train = np.empty((1000 * len(grids), 3072), dtype=np.uint8)
        for k, path in enumerate(grids):
            train[1000 * k : 1000 * (k + 1)] = _grid(path)
        held = _grid(files["test_first1000.webp"])
        split = "official training batches; tested on the first 1000 official test images only"
    if test != "holdout":
        return Images(train, train_labels, held, held_labels, split)
    kept = len(train) - 10000
    return Images(
        train[:kept], train_labels[:kept], train[kept:], train_labels[kept:],
        "tested on the last 10000 official training images, which are not trained on",
    )  # fmt: skip


def _cifar_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read records of one label byte and 3072 bytes of red, green and blue planes."""
    data = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    if data.size == 0 or data.size % 3073:
        raise DataError(f"{path}: {data.size} bytes are no whole CIFAR-10 records; fetch it again.")
    records = data.reshape(-1, 3073)
    return records[:, 1:], records[:, 0]


def _grid(path: Path) -> NDArray[np.uint8]:
    """Read 1000 images from a grid of 25 rows of 40 tiles of 32 x 32 pixels."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"{path} is no readable picture: {error}; fetch it again.") from error
    if pixels.shape != (800, 1280, 3):
        raise DataError(f"{path}: the picture is {pixels.shape}, not 800 x 1280 x 3.")
    tiles = pixels.reshape(25, 32, 40, 32, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(1000, 3072)


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


def _check_images(facts: Facts, pixels: NDArray[Any], labels: NDArray[Any], kind: _Kind) -> None:
    if pixels.shape[1] != facts.features or len(labels) != len(pixels):
        raise DataError(
            f"{facts.name}: {len(pixels)} images of {pixels.shape[1]} values and {len(labels)} "
            f"labels; {facts.features} values and one label per image are needed."
        )
    if labels.size and int(labels.max()) >= len(kind.classes):
        raise DataError(
            f"{facts.name}: a label is {int(labels.max())}; 0 to {len(kind.classes) - 1} exist."
        )


_MNIST = _Kind(MNIST, _GREY, _DIGITS, "pixels", _MNIST_TRAINING, _read_idx)
_FASHION = _Kind(FASHION, _GREY, _GARMENTS, "pixels", (6000,) * 10, _read_idx)
_EMNIST = _Kind(EMNIST, _GREY, _CHARACTERS, "pixels", (2400,) * 47, _read_emnist, transposed=True)
_CIFAR10 = _Kind(CIFAR10, _COLOUR, _OBJECTS, "columns", (5000,) * 10, _read_cifar)

LOADERS: Sequence[tuple[Facts, Callable[..., VerticalDataset]]] = (
    (MNIST, partial(load_images, _MNIST)),
    (FASHION, partial(load_images, _FASHION)),
    (EMNIST, partial(load_images, _EMNIST)),
    (CIFAR10, load_cifar10),
)
