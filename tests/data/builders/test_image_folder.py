"""Folders of images: what is read, in which order, and what is refused."""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import securevfl as svfl
from securevfl.data import VerticalDataset, load_dataset
from securevfl.data.preparation import pictures
from securevfl.errors import DataError, UnknownNameError

HEIGHT, WIDTH = 6, 8
STREAM = np.random.default_rng(0)


def draw(path, pixels=None, **options):
    """Write an image, of random grey pixels unless given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if pixels is None:
        pixels = STREAM.integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)
    return pixels


def folder(path, count=8, classes=("cat", "dog")):
    """Write images of some classes; return them by file."""
    return {
        file: draw(file) for c in classes for k in range(count) for file in [path / c / f"{k}.png"]
    }


def test_pixels_classes_and_strips_are_those_of_the_files(tmp_path):
    drawn = folder(tmp_path / "pets")
    data = VerticalDataset.from_image_folder(tmp_path / "pets", parties=4, seed=3)
    assert (data.name, data.classes, data.task) == ("pets", ("cat", "dog"), "binary")
    assert (data.rows, data.test_rows) == (12, 4)
    assert data.party_image_shapes == ((1, HEIGHT, 2),) * 4
    assert data.columns[1][:2] == ("pixel 0,2", "pixel 0,3")
    images = {(np.float32(pixels / 255)).tobytes(): f.parent.name for f, pixels in drawn.items()}
    for parts, labels in ((data.train, data.train_labels), (data.test, data.test_labels)):
        whole = np.concatenate([p.reshape(-1, HEIGHT, 2) for p in parts], axis=2)
        for image, label in zip(whole, labels, strict=True):
            assert images.pop(image.tobytes()) == data.classes[label]
    assert not images


def test_the_order_is_that_of_the_names(tmp_path, monkeypatch):
    folder(tmp_path)
    first = VerticalDataset.from_image_folder(tmp_path, seed=1)
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: reversed([*listed(path)]))
    assert VerticalDataset.from_image_folder(tmp_path, seed=1).fingerprint() == first.fingerprint()
    other = VerticalDataset.from_image_folder(tmp_path, seed=2)
    assert other.fingerprint() != first.fingerprint()


def test_names_of_classes_are_texts(tmp_path):
    folder(tmp_path, 2, ("10", "2", "02", "NA"))
    assert load_dataset(tmp_path).classes == ("02", "10", "2", "NA")


@pytest.mark.parametrize("test", ["test", "val"])
def test_train_and_test_folders_are_the_split(tmp_path, test):
    folder(tmp_path / "train", 3)
    folder(tmp_path / test, 2, ("dog",))
    data = load_dataset(tmp_path, parties=2)
    assert (data.rows, data.test_rows, data.classes) == (6, 2, ("cat", "dog"))
    assert data.test_labels.tolist() == [1, 1]
    assert data.about.split == f"folders train and {test}"
    with pytest.raises(DataError, match=f"{test}' holds the test images, so test_fraction= has no"):
        load_dataset(tmp_path, test_fraction=0.5)


def test_of_three_folders_val_is_left_out_and_noted(tmp_path):
    for part in ("train", "test", "val"):
        folder(tmp_path / part, 2)
    assert load_dataset(tmp_path).about.notes == (
        "images below val left out: the test images are those of test",
    )


def test_classes_may_be_called_train_and_test(tmp_path):
    folder(tmp_path, 2, ("train", "test"))
    assert load_dataset(tmp_path).classes == ("test", "train")


def test_colours_are_three_channels(tmp_path):
    pixels = {k: STREAM.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8) for k in range(4)}
    for k, image in pixels.items():
        draw(tmp_path / "ab"[k % 2] / f"{k}.png", image)
    data = load_dataset(tmp_path, color="rgb", parties=2, test_fraction=0.5)
    assert data.party_image_shapes == ((3, HEIGHT, 4),) * 2
    assert data.columns[0][0] == "r 0,0"
    assert data.columns[1][-1] == f"b {HEIGHT - 1},{WIDTH - 1}"
    wanted = {np.float32(np.moveaxis(p, 2, 0)[..., :4] / 255).tobytes() for p in pixels.values()}
    found = {row.tobytes() for rows in (data.train[0], data.test[0]) for row in rows}
    assert found == wanted


def test_images_are_scaled_to_a_size_as_pillow_does(tmp_path):
    drawn = folder(tmp_path, 2)
    wide = draw(tmp_path / "cat" / "wide.png", STREAM.integers(0, 256, (4, 40), np.uint8))
    made = [
        load_dataset(tmp_path, size=size, parties=1) for size in ("3x5", (3, 5), [3, 5], " 3 X 5 ")
    ]
    assert len({one.fingerprint() for one in made}) == 1
    wanted = {
        np.float32(
            np.asarray(Image.fromarray(p).resize((5, 3), Image.Resampling.BILINEAR)) / 255
        ).tobytes()
        for p in [*drawn.values(), wide]
    }
    found = {row.tobytes() for rows in (made[0].train[0], made[0].test[0]) for row in rows}
    assert found == wanted
    assert load_dataset(tmp_path, size=4).image_shape == (1, 4, 4)


@pytest.mark.parametrize("size", [0, -1, "3x", "3x5x1", (3,), (3, 0), (3.0, 2.0), True, "0x4"])
def test_sizes_that_do_not_exist(tmp_path, size):
    folder(tmp_path, 2)
    with pytest.raises(DataError, match="height and width in pixels are needed"):
        load_dataset(tmp_path, size=size)


@pytest.mark.parametrize("kind", ["bmp", "jpg", "JPEG", "pgm", "ppm", "tif", "webp", "gif"])
def test_other_kinds_are_read(tmp_path, kind):
    for k in range(4):
        draw(tmp_path / "ab"[k % 2] / f"{k}.{kind}", np.full((4, 4), 60 * k, np.uint8))
    data = load_dataset(tmp_path, parties=1, test_fraction=0.5)
    values = sorted(float(rows[k].mean()) for rows in (*data.train, *data.test) for k in (0, 1))
    np.testing.assert_allclose(values, np.arange(4) * 60 / 255, atol=0.02)


@pytest.mark.parametrize("mode", ["1", "P", "RGBA", "LA", "CMYK"])
def test_other_modes_become_grey(tmp_path, mode):
    for c in "ab":
        for k in range(2):
            (tmp_path / c).mkdir(exist_ok=True)
            kind = "tif" if mode == "CMYK" else "png"
            Image.new("RGB", (4, 4), "white").convert(mode).save(tmp_path / c / f"{k}.{kind}")
    data = load_dataset(tmp_path, parties=1)
    assert all((rows == 1).all() for rows in (*data.train, *data.test))
    through = mode in ("RGBA", "LA")
    assert data.about.notes == (
        ("4 images have transparency, which is left out",) if through else ()
    )


def test_a_palette_with_transparency_warns_nobody(tmp_path):
    for c in "ab":
        (tmp_path / c).mkdir()
        image = Image.new("P", (4, 4), 1)
        image.putpalette([0, 0, 0, 255, 255, 255])
        for k in range(2):
            image.save(tmp_path / c / f"{k}.png", transparency=b"\x80\x10")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = load_dataset(tmp_path, parties=1, color="rgb")
    assert (data.train[0] == 1).all()


def test_files_that_are_no_images_are_left_out_and_noted(tmp_path):
    folder(tmp_path, 2)
    for name in ("readme.txt", "cat/list.csv", "cat/.DS_Store", ".cache"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".git").mkdir()
    assert load_dataset(tmp_path).about.notes == (
        f"2 files that are no images of a class left out: {Path('cat/list.csv')}, readme.txt",
    )


def test_other_strips_and_more_parties_than_lines(tmp_path):
    folder(tmp_path, 2)
    assert load_dataset(tmp_path).widths == (HEIGHT,) * 8
    rows = load_dataset(tmp_path, strips="rows")
    assert rows.party_image_shapes == ((1, 1, WIDTH),) * 6
    assert load_dataset(tmp_path, strips="pixels", parties=5).parties == 5
    message = rf"{tmp_path}: images of 6 x 8 pixels have 8 columns of pixels, too few for 9 parties"
    with pytest.raises(DataError, match=message):
        load_dataset(tmp_path, parties=9)
    with pytest.raises(DataError, match="at least 1 party"):
        load_dataset(tmp_path, parties=0)
    with pytest.raises(DataError, match="strips='x' does not exist"):
        load_dataset(tmp_path, strips="x")


def test_scaling_is_that_of_other_data_where_it_is_asked_for(tmp_path):
    folder(tmp_path)
    plain, scaled = (load_dataset(tmp_path, scaling=s, parties=1) for s in (None, "minmax"))
    assert plain.transform.scaling == "none"
    rows = plain.train[0]
    low, high = rows.min(axis=0), rows.max(axis=0)
    np.testing.assert_allclose(scaled.train[0], (rows - low) / (high - low), atol=1e-6)


def test_a_model_takes_new_images_as_bytes_or_floats(tmp_path):
    drawn = folder(tmp_path / "x")
    data = load_dataset(tmp_path / "x", parties=4)
    run = svfl.run("split", data, rounds=2, width=4, hidden=4, conditions="none")
    run.export(tmp_path / "models")
    model = svfl.load_models(tmp_path / "models")
    images = np.stack([*drawn.values()])[:5]
    wanted = run.predict(images)
    strips = np.split(images, 4, axis=2)
    assert (run.predict(images / 255) == wanted).all()
    assert (run.predict(images[:, None]) == wanted).all()
    assert (model.predict([strip / 255 for strip in strips]) == wanted).all()
    assert (model.predict(strips) == wanted).all()
    for wrong in (images.astype(float), images.astype(int)):
        with pytest.raises(DataError, match="pixels are bytes"):
            run.predict(wrong)
        with pytest.raises(DataError, match="pixels are bytes"):
            model.predict(np.split(wrong, 4, axis=2))
    with pytest.raises(DataError, match="48 columns per row are needed"):
        run.predict(images[:, :5])


# -- what is refused --------------------------------------------------------------------------


def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(
        ">I", zlib.crc32(name + content)
    )  # fmt: skip


def bomb(path, width, height):
    """A PNG file that declares so many pixels in a few bytes."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def truncated(path):
    draw(path)
    path.write_bytes(path.read_bytes()[:-40])


def animated(path):
    frames = [Image.new("L", (WIDTH, HEIGHT), k) for k in (0, 90)]
    frames[0].save(path, save_all=True, append_images=frames[1:])


SPOILT = {
    "no image": (lambda p: p.write_text("x"), r"0\.png is no image of the kinds BMP, GIF"),
    "an empty file": (lambda p: p.write_bytes(b""), r"0\.png is no image of the kinds"),
    "cut off": (truncated, r"0\.png cannot be read as an image: .*replace it"),
    "pixels beyond ours": (
        lambda p: bomb(p, 9000, 9000),
        r"0\.png: 9000 x 9000 pixels, and at most 67108864 are read",
    ),
    "a bomb by warning": (lambda p: bomb(p, 10000, 10000), r"0\.png: Image size .* 67108864"),
    "a bomb": (lambda p: bomb(p, 60000, 60000), r"0\.png: Image size .* at most 67108864 are read"),
    "another size": (
        lambda p: draw(p, np.zeros((5, 7), np.uint8)),
        r"dog/0\.png has 5 x 7 pixels, and .*cat/0\.png has 6 x 8; give size=HEIGHTxWIDTH",
    ),
    "16 bits": (
        lambda p: draw(p, np.zeros((HEIGHT, WIDTH), np.uint16)),
        r"0\.png has more than 8 bits for a pixel \(mode I;16\)",
    ),
    "a folder": (lambda p: folder(p, 1), r"0\.png is a folder within the class 'dog'"),
    "a pipe": (os.mkfifo, r"0\.png is no file that can be read"),
    "a broken link": (lambda p: p.symlink_to("nothing.png"), r"0\.png is no file"),
    "a loop": (lambda p: p.symlink_to(p.name), r"0\.png is no file"),
    "a link out": (lambda p: p.symlink_to("/etc/hosts"), r"0\.png is a link to /etc/hosts, outs"),
    "a link up": (lambda p: p.symlink_to("../../../x.png"), r"0\.png is a link to .*, outside of"),
}


@pytest.mark.parametrize(("spoil", "message"), SPOILT.values(), ids=SPOILT)
def test_a_file_that_cannot_be_used_is_named(tmp_path, spoil, message):
    folder(tmp_path, 2)
    (tmp_path / "dog" / "0.png").unlink()
    spoil(tmp_path / "dog" / "0.png")
    with pytest.raises(DataError, match=message) as told:
        load_dataset(tmp_path)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("kind", ["gif", "png", "webp", "tif"])
def test_no_frame_is_taken_silently(tmp_path, kind):
    folder(tmp_path, 2)
    animated(tmp_path / "dog" / f"move.{kind}")
    with pytest.raises(DataError, match=rf"move\.{kind} has 2 frames, and a row is one image"):
        load_dataset(tmp_path)


def test_links_within_the_folder_are_followed(tmp_path):
    folder(tmp_path / "x", 2)
    plain = load_dataset(tmp_path / "x").fingerprint()
    (tmp_path / "x" / "cat" / "0.png").rename(tmp_path / "x" / "0.png")
    (tmp_path / "x" / "cat" / "0.png").symlink_to("../0.png")
    (tmp_path / "link").symlink_to(tmp_path / "x")
    assert load_dataset(tmp_path / "link", name="x").fingerprint() == plain


def one_class(path):
    folder(path, 2, ("cat",))


def without_images(path):
    one_class(path)
    (path / "dog").mkdir()
    (path / "dog" / "a.txt").write_text("x")


def beside(path):
    for part in ("train", "test"):
        folder(path / part, 2)
    folder(path, 2, ("more",))


def unknown_class(path):
    folder(path / "train", 2)
    folder(path / "test", 2, ("owl",))


def only_train(path):
    folder(path / "train", 2)


def no_tests(path):
    folder(path / "train", 2)
    (path / "test").mkdir()


def linked_class(path):
    one_class(path)
    (path / "dog").symlink_to(path.parent)


def linked_part(path):
    folder(path / "train", 2)
    folder(path.parent / "elsewhere", 2)
    (path / "test").symlink_to(path.parent / "elsewhere")


FOLDERS = {
    "nothing": (lambda p: p.mkdir(), r"has no folders of images; each class needs one .* A table"),
    "one class": (one_class, "all images are of the class 'cat', and at least two classes"),
    "a class without images": (without_images, r"dog has no image \(\.bmp"),
    "a folder beside the parts": (beside, "the folder 'more' is beside train and test"),
    "a class of test images": (unknown_class, r"owl: there is no .*train/owl"),
    "no folder of test images": (only_train, r"cat is a folder within the class 'train', .* name"),
    "no test images": (no_tests, "test has no folders of images; each class needs one"),
    "test images elsewhere": (linked_part, r"test is a link to .*elsewhere, outside of"),
    "a class elsewhere": (linked_class, r"dog is a link to .*, outside of"),
}


@pytest.mark.parametrize(("make", "message"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_that_cannot_be_used_is_named(tmp_path, make, message):
    make(tmp_path / "x")
    with pytest.raises(DataError, match=message) as told:
        load_dataset(tmp_path / "x")
    assert str(tmp_path / "x") in str(told.value)
    assert "\n" not in str(told.value)


def test_more_than_half_of_the_free_memory_is_refused(tmp_path, monkeypatch):
    folder(tmp_path, 2)
    free = SimpleNamespace(available=600)
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    with pytest.raises(DataError, match=r"4 images of 3 x 6 x 8 values need about 0\.00 GB, and"):
        load_dataset(tmp_path, color="rgb")
    with pytest.raises(DataError, match=r"need about 60\.00 GB, .* a smaller size="):
        load_dataset(tmp_path, size=50000)
    free.available = 2 * 6 * 4 * HEIGHT * WIDTH
    assert load_dataset(tmp_path).rows == 3


def test_options_that_do_not_exist(tmp_path):
    folder(tmp_path, 2)
    with pytest.raises(DataError, match="color='grau' does not exist; use grey or rgb"):
        load_dataset(tmp_path, color="grau")
    with pytest.raises(UnknownNameError, match=r"option of a folder of images 'sise'.*size"):
        load_dataset(tmp_path, sise=3)
    with pytest.raises(DataError, match="label='y' names a column"):
        load_dataset(tmp_path, label="y")
    with pytest.raises(DataError, match="there is no such folder"):
        VerticalDataset.from_image_folder(tmp_path / "none")


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp", "gif", "webp", "ppm"])
def test_damaged_files_are_read_or_refused_and_nothing_else(tmp_path, kind):
    stream = np.random.default_rng(len(kind))
    draw(tmp_path / f"whole.{kind}", stream.integers(0, 256, (24, 24, 3), dtype=np.uint8))
    whole = (tmp_path / f"whole.{kind}").read_bytes()
    path, refused = tmp_path / f"damaged.{kind}", []
    for number in range(120):
        damaged = bytearray(whole)
        for place in stream.integers(0, len(whole) if number % 2 else 40, 1 + number % 4):
            damaged[place] = stream.integers(256)
        path.write_bytes(damaged[: len(whole) if number % 3 else stream.integers(len(whole))])
        try:
            pixels, _ = pictures.Pictures(5, 5, "grey").read([path])
        except DataError as error:
            refused.append(str(error))
        else:
            assert pixels.shape == (1, 25)
    assert 20 < len(refused) <= 120
    assert not [message for message in refused if "\n" in message]
