"""Files of images: the formats of the MNIST family, of EMNIST and of CIFAR-10."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import DataError, needs


@dataclass(frozen=True)
class Images:
    """Images as read: uint8 pixels, (M, C H W), class numbers, (M,), and words on the split."""

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    split: str
    notes: tuple[str, ...] = ()


def read_idx(files: dict[str, Path], test: str) -> Images:
    """Read the four files of the MNIST family: training images and labels, then test."""
    parts = [_idx_array(path) for path in files.values()]
    return Images(
        parts[0].reshape(len(parts[0]), -1), parts[1], parts[2].reshape(len(parts[2]), -1),
        parts[3], "official training and test files",
    )  # fmt: skip


def _idx_array(path: Path) -> NDArray[np.uint8]:
    """Values of an idx file of bytes, in the shape of its header; DataError if it is damaged."""
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


def read_emnist(files: dict[str, Path], test: str) -> Images:
    """Read EMNIST: the official files (`test` as in `read_idx`), made upright, or the extract."""
    part = files.get("emnist_balanced_part.npz")
    if part is None:
        images = read_idx(files, test)
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


def _upright(pixels: np.ndarray) -> np.ndarray:
    return pixels.reshape(-1, 28, 28).swapaxes(1, 2).reshape(len(pixels), -1)


def read_cifar(files: dict[str, Path], test: str) -> Images:
    """Read CIFAR-10's binary files or grids of 1000 images; "holdout" tests on training images."""
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
    """Read records of a label byte and 3072 bytes of red, green, blue planes; DataError if cut."""
    data = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    if data.size == 0 or data.size % 3073:
        raise DataError(f"{path}: {data.size} bytes are no whole CIFAR-10 records; fetch it again.")
    records = data.reshape(-1, 3073)
    return records[:, 1:], records[:, 0]


def _grid(path: Path) -> NDArray[np.uint8]:
    """Images, (1000, 3072), of a picture of 25 rows of 40 tiles; DataError for another picture."""
    needs("CIFAR-10's pictures", "images", "PIL")
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
