"""Data sets from folders of images, one sub-folder for each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self, Unpack

import numpy as np

from securevfl.data.base.content import DatasetContent, ImageShape
from securevfl.data.base.labels import RawLabels, encode_labels
from securevfl.data.base.options import ImageKeywords, TableOptions, own_data, table_options
from securevfl.data.base.partition import DEFAULT_PARTIES, pixel_names
from securevfl.data.builders.arrays import check_strips, draw_test_rows, from_matrix
from securevfl.data.preparation.class_folders import ClassFolders, list_images
from securevfl.data.preparation.pictures import form_of
from securevfl.errors import DataError


class FromImageFolder(DatasetContent):
    """Class method of `VerticalDataset` that builds it from a folder of images."""

    @classmethod
    @table_options(ImageKeywords, scaling="none")
    def from_image_folder(
        cls,
        path: str | Path,
        *,
        parties: int | None = None,
        size: int | str | Sequence[int] | None = None,
        color: str = "grey",
        strips: str = "columns",
        **options: Unpack[ImageKeywords],
    ) -> Self:
        """Build a data set from a folder with one sub-folder of images for each class.

        Images are read in the order of their names, so that a seed splits them alike everywhere.
        Pixels are float32 in [0, 1]: bytes divided by 255. New images are given to models in the
        same form, as bytes (uint8, 0 to 255) or floats in [0, 1] of shape (images, channels,
        height, width).

        Parameters
        ----------
        path : path
            The folder: ``CLASS/IMAGE.png``. The classes may lie below ``train`` and ``test`` (or
            ``val``), whose images are then the training and the test rows. BMP, GIF, JPEG, PNG,
            PPM, TIFF and WebP files are read; an image is one frame of at most 8 bits a channel.
        parties : int, optional
            Number of parties, each of which owns one strip; 8 unless given, or one per line where
            there are fewer.
        size : (height, width), "HEIGHTxWIDTH" or int, optional
            Pixels to which all images are scaled (bilinearly); a single number is both. The common
            size of all images unless given.
        color : {"grey", "rgb"}
            One channel, or three. Transparency is left out.
        strips : {"columns", "rows", "pixels"}
            How images are cut: from left to right, from top to bottom, or into single pixels in
            order.
        **options
            Fields of `securevfl.data.base.options.TableOptions`.

        Raises
        ------
        DataError
            For fewer than two classes, a class without images, an image that cannot be read, has
            several frames or another size, links that lead out of the folder, more images than half
            of the free memory holds, and more parties than lines of pixels; the message names the
            file.
        """
        path = Path(path)
        listed = list_images(path)
        if listed.split and options.get("test_fraction") is not None:
            raise DataError(
                f"{path}: its folder {listed.split!r} holds the test images, so test_fraction= has "
                f"no use; leave it out."
            )
        form = form_of(listed.train.files[0], size, color)
        number = _parties(path, parties, form.shape, strips)
        parts = [listed.train, *([] if listed.test is None else [listed.test])]
        form.check_memory(sum(len(part.files) for part in parts), path)
        read = [form.read(part.files) for part in parts]
        notes = listed.notes
        if transparent := sum(count for _, count in read):
            notes = (*notes, f"{transparent} images have transparency, which is left out")
        about = own_data(f"images of the user: {path.resolve().name}")
        asked = TableOptions.of(
            options, name=path.resolve().name, about=replace(about, notes=notes)
        )
        labels = [_labels(part) for part in parts]
        if listed.test is None:
            train, test, split = draw_test_rows(labels[0], asked)
            pixels = [read[0][0][train], read[0][0][test]]
            labels = [labels[0].take(rows) for rows in (train, test)]
        else:
            pixels = [images for images, _ in read]
            split = f"folders train and {listed.split}"
        return from_matrix(
            cls,
            asked,
            train=pixels[0],
            test=pixels[1],
            labels=encode_labels(labels[0], labels[1]),
            names=pixel_names(form.shape),
            parties=number,
            strips=strips,
            image_shape=form.shape,
            split=split,
            pixels=True,
        )


def _labels(part: ClassFolders) -> RawLabels:
    # Names as they are: "01" and "1" are two classes, and "NA" is one.
    names = np.array(part.classes, dtype=object)
    return RawLabels(names, "class", names)


def _parties(path: Path, parties: int | None, shape: ImageShape, strips: str) -> int:
    """Number of parties, each of which can have a strip."""
    cut = check_strips(strips, shape)
    lines = int(np.prod(shape)) if cut is None else shape[1 if cut == "rows" else 2]
    if parties is None:
        return min(DEFAULT_PARTIES, lines)
    if isinstance(parties, (int, np.integer)) and parties > lines:
        what = "pixels" if cut is None else f"{cut} of pixels"
        raise DataError(
            f"{path}: images of {shape[1]} x {shape[2]} pixels have {lines} {what}, too few for "
            f"{parties} parties; use at most {lines}, another strips=, or a larger size=."
        )
    return parties
