"""New images as tables of pixels: which are taken, in which order, for which columns."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from securevfl.data.base.partition import pixel_names, strip_columns
from securevfl.data.builders.image_table import read_image_table
from securevfl.errors import DataError

GREY, RGB = pixel_names((1, 2, 3)), pixel_names((3, 2, 3))


def draw(path, shape=(2, 3)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(path.name)).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def test_images_of_a_folder_are_rows_of_bytes_by_name(tmp_path):
    last, first = draw(tmp_path / "b.png"), draw(tmp_path / "aa.png")
    (tmp_path / "list.txt").write_text("x")
    frame, names = read_image_table(tmp_path, GREY, scaled=False)
    assert names == ["aa.png", "b.png"]
    assert list(frame.columns) == GREY
    assert set(frame.dtypes) == {np.dtype(np.uint8)}
    assert frame.to_numpy().tolist() == [first.ravel().tolist(), last.ravel().tolist()]


def test_images_of_classes_are_taken_class_by_class(tmp_path):
    for name in ("b/1.png", "a/2.png", "a/1.png"):
        draw(tmp_path / name)
    assert read_image_table(tmp_path, GREY, scaled=False)[1] == ["a/1.png", "a/2.png", "b/1.png"]


def test_columns_may_come_party_by_party(tmp_path):
    pixels = draw(tmp_path / "a.png", (2, 3, 3))
    parts = strip_columns((3, 2, 3), 2, "columns")
    columns = [RGB[k] for part in parts for k in part]
    frame, _ = read_image_table(tmp_path, columns, scaled=False)
    assert list(frame.columns) == RGB
    assert frame.to_numpy()[0].tolist() == np.moveaxis(pixels, 2, 0).ravel().tolist()


def test_another_size_is_scaled_where_the_run_scales(tmp_path):
    draw(tmp_path / "a.png", (8, 8))
    assert read_image_table(tmp_path, GREY, scaled=True)[0].shape == (1, 6)
    with pytest.raises(
        DataError, match=r"a\.png has 8 x 8 pixels, and the run was trained on 2 x 3"
    ):
        read_image_table(tmp_path, GREY, scaled=False)


@pytest.mark.parametrize(
    "columns",
    [
        [],
        ["age"],
        GREY[:-1],
        [*GREY, "age"],
        [*GREY[:-1], GREY[0]],
        RGB[:12],
        ["pixel 999999999,999999999"],
        ["pixel 0,5"] * 6,
    ],
)
def test_columns_that_are_no_whole_images_are_refused(tmp_path, columns):
    draw(tmp_path / "a.png")
    with pytest.raises(DataError, match="was not trained on a folder of images; give the file"):
        read_image_table(tmp_path, columns, scaled=False)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "has no image"),
        (("a/1.png", "2.png"), r"holds images, such as 2\.png, beside folders"),
        (("a/b/1.png",), "b is a folder within the class 'a'"),
    ],
)
def test_folders_without_an_order_are_refused(tmp_path, files, message):
    for name in files:
        draw(tmp_path / name)
    with pytest.raises(DataError, match=message):
        read_image_table(tmp_path, GREY, scaled=False)
