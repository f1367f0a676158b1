"""No statistic of a test row reaches training, for any loader.

The features of the test rows of the source are changed beyond every training value; the training
arrays, the fitted preprocessing and the classes must stay byte-identical.
"""

import json

import numpy as np
import pandas as pd
import pytest

from securevfl.data import VerticalDataset, load_dataset
from tests.data import small_sets as small

SCALINGS = ("minmax", "standard")


def training_content(data):
    return (
        [array.tobytes() for array in data.train],
        data.train_labels.tobytes(),
        json.dumps([part.to_json() for part in data.transform.parties]),
        data.transform.positions,
        data.classes,
        data.columns,
    )


def assert_no_leak(before, after):
    assert training_content(before) == training_content(after)
    same = [a.tobytes() == b.tobytes() for a, b in zip(before.test, after.test, strict=True)]
    assert not all(same), "the change of the test rows did not reach the data set"


def invert(pixels):
    return 255 - pixels


def edit_rows(rows):
    """Return an edit that multiplies the given rows by -1000, so that they leave every range."""

    def edit(values):
        values[rows] = -1000.0 * values[rows] - 5.0
        return values

    return edit


@pytest.mark.parametrize(
    ("name", "folder", "write"),
    [
        ("mnist", "mnist", small.write_mnist),
        ("fashion-mnist", "fashion-mnist", small.write_mnist),
        ("emnist", "emnist", small.write_emnist_part),
        ("cifar10", "cifar10", small.write_cifar),
    ],
)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_images(tmp_path, name, folder, write, scaling):
    loaded = []
    for edit in (None, invert):
        write(tmp_path / folder, edit=edit)
        loaded.append(load_dataset(name, data_dir=tmp_path, verify=False, scaling=scaling))
    assert_no_leak(*loaded)


# The key is the column whose raw value is the row's number (plus a constant).
@pytest.mark.parametrize(
    ("name", "folder", "write", "key", "start"),
    [
        ("handwritten", "handwritten", small.write_handwritten, "fac 0", 0),
        ("caltech-7", "caltech101-7", small.write_caltech, "gabor 0", 0),
        ("credit-card", "credit-card", small.write_credit_card, "LIMIT_BAL", 10000),
        ("parkinson", "parkinson", small.write_parkinson, "PPE", 0),
        ("breast-cancer", "breast", small.write_breast, "x0", 0),
    ],
)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_random_splits(tmp_path, name, folder, write, key, start, scaling):
    write(tmp_path / folder)
    options = {"data_dir": tmp_path, "verify": False, "seed": 5}
    raw = load_dataset(name, scaling="none", **options)
    party = next(p for p, names in enumerate(raw.columns) if key in names)
    column = raw.columns[party].index(key)
    test_rows = (raw.test[party][:, column] - start).astype(int)
    before = load_dataset(name, scaling=scaling, **options)
    write(tmp_path / folder, edit=edit_rows(test_rows))
    assert_no_leak(before, load_dataset(name, scaling=scaling, **options))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_adult(tmp_path, scaling):
    loaded = []
    for strange in (False, True):
        small.write_adult(tmp_path / "adult", strange_test=strange)
        loaded.append(load_dataset("adult", data_dir=tmp_path, scaling=scaling, verify=False))
    assert_no_leak(*loaded)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_digits(monkeypatch, scaling):
    from securevfl.data.base.partition import split_stratified
    from securevfl.data.catalogue import bundled

    pixels, digits = bundled.bundled_digits()
    before = load_dataset("digits", scaling=scaling)
    _, test_rows = split_stratified(digits, 0.25, 0)
    changed = edit_rows(test_rows)(pixels.copy())
    monkeypatch.setattr(bundled, "bundled_digits", lambda: (changed, digits))
    assert_no_leak(before, load_dataset("digits", scaling=scaling))


def user_table(changed=()):
    """A table with numbers, gaps, texts and truth values; `changed` rows get strange cells."""
    source = np.random.Generator(np.random.Philox(3))
    frame = pd.DataFrame(
        {
            "row": np.arange(80).astype(str),
            "age": [str(v) if k % 9 else "" for k, v in enumerate(source.integers(18, 80, 80))],
            "city": source.choice(["Oslo", "Rome", "Lima"], 80),
            "member": source.choice(["true", "false"], 80),
            "y": np.arange(80) % 3,
        },
        dtype=object,
    )
    for row in changed:
        frame.loc[row, "row"] = str(-1e6 - row)
        frame.loc[row, ["age", "city", "member"]] = ["1e9", "Atlantis", ""]
    return frame


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("group", [None, "team"])
def test_csv_files(tmp_path, scaling, group):
    path = tmp_path / "users.csv"
    options = {"label": "y", "parties": 3, "seed": 2}
    if group:
        options["group"] = group
    user_table().assign(team=np.arange(80) // 4).to_csv(path, index=False)
    raw = load_dataset(path, scaling="none", **options)
    test_rows = raw.test[0][:, 0].astype(int)
    before = load_dataset(path, scaling=scaling, **options)
    user_table(test_rows).assign(team=np.arange(80) // 4).to_csv(path, index=False)
    assert_no_leak(before, load_dataset(path, scaling=scaling, **options))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_party_files(tmp_path, scaling):
    def load(changed, scaling):
        frame = user_table(changed).assign(id=np.arange(80) * 3)
        frame[["id", "row", "age", "y"]].to_csv(tmp_path / "a.csv", index=False)
        frame[["id", "city", "member"]].iloc[::-1].to_csv(tmp_path / "b.csv", index=False)
        files = [tmp_path / "a.csv", tmp_path / "b.csv"]
        return load_dataset(party_files=files, id_column="id", label="y", scaling=scaling)

    test_rows = load((), "none").test[0][:, 0].astype(int)
    assert_no_leak(load((), scaling), load(test_rows, scaling))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_arrays(scaling):
    features = np.random.Generator(np.random.Philox(4)).normal(size=(60, 7))
    features[:, 0] = np.arange(60)
    labels = np.arange(60) % 2
    raw = VerticalDataset.from_numpy(features, labels, scaling="none")
    test_rows = raw.test[0][:, 0].astype(int)
    before = VerticalDataset.from_numpy(features, labels, scaling=scaling)
    changed = edit_rows(test_rows)(features.copy())
    assert_no_leak(before, VerticalDataset.from_numpy(changed, labels, scaling=scaling))
