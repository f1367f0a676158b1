"""New images as a table of pixels, in the form on which a model was trained."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from securevfl.data.base.partition import pixel_names
from securevfl.data.preparation.class_folders import images_of
from securevfl.data.preparation.pictures import Pictures
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

_PIXEL = re.compile(r"(pixel|r|g|b) (\d{1,9}),(\d{1,9})")


def read_image_table(
    folder: Path, columns: Sequence[str], *, scaled: bool
) -> tuple[pd.DataFrame, list[str]]:
    """Rows of bytes, one for each image of a folder, and the images' names.

    `columns` are the pixels on which the model was trained, of all parties. Images of another size
    are refused unless they are `scaled`. DataError for columns that are no pixels of whole images,
    and as for `VerticalDataset.from_image_folder`.
    """
    import pandas as pd

    height, width, color = _form(folder, columns)
    files = images_of(folder)
    refusal = (
        f"the run was trained on {height} x {width}; give images of that size, or train with size="
    )
    form = Pictures(height, width, color, "" if scaled else refusal)
    form.check_memory(len(files), folder)
    pixels, _ = form.read(files)
    names = [str(file.relative_to(folder)) for file in files]
    return pd.DataFrame(pixels, columns=pixel_names(form.shape)), names


def _form(folder: Path, columns: Sequence[str]) -> tuple[int, int, str]:
    """Height, width and colour of the images whose pixels the columns are."""
    found = [match for name in columns if (match := _PIXEL.fullmatch(name))]
    if found:
        height, width = (1 + max(int(match[k]) for match in found) for k in (2, 3))
        color = "grey" if found[0][1] == "pixel" else "rgb"
        channels = 1 if color == "grey" else 3
        # Few columns may have large numbers: the whole is counted before it is written out.
        if channels * height * width == len(columns):
            shape = (channels, height, width)
            if sorted(pixel_names(shape)) == sorted(columns):
                return height, width, color
    raise DataError(
        f"predict: {folder} is a folder, and the run was not trained on a folder of images; give "
        f"the file of a table."
    )
