"""`VerticalDataset`: its checks, its cuts, its fingerprint, and building it from arrays."""

import re
from dataclasses import replace

import numpy as np
import pytest

from securevfl.data import VerticalDataset, load_dataset
from securevfl.errors import DataError


@pytest.fixture
def data():
    return load_dataset("digits", parties=4)


def small(rows=12, width=5, **options):
    features = np.random.Generator(np.random.Philox(1)).normal(size=(rows, width))
    return VerticalDataset.from_numpy(features, np.arange(rows) % 2, **options)


def test_arrays_are_read_only_contiguous_float32(data):
    for array in (*data.train, *data.test):
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1.0
    assert data.train_labels.dtype == np.int64


def test_every_builder_makes_the_class_on_which_it_is_called(tmp_path):
    pd = pytest.importorskip("pandas")

    class Mine(VerticalDataset):
        pass

    frame = pd.DataFrame({"a": np.arange(12) % 5, "b": np.arange(12), "y": np.arange(12) % 2})
    frame.to_csv(tmp_path / "t.csv", index=False)
    made = (
        Mine.from_numpy(np.eye(12, 2), np.arange(12) % 2),
        Mine.from_pandas(frame, "y", parties=2),
        Mine.from_pandas([frame[["a"]], frame[["b", "y"]]], "y"),
        Mine.from_csv(tmp_path / "t.csv", "y", parties=2),
    )
    assert [type(data) for data in made] == [Mine] * len(made)
    assert type(made[0].subset(4)) is Mine


def test_the_users_own_array_stays_writeable():
    features = np.ones((8, 2), dtype=np.float32)
    features[::2] = 0.0
    VerticalDataset.from_numpy(features, np.arange(8) % 2, scaling="none")
    features[0, 0] = 5.0
    assert features[0, 0] == 5.0


def test_other_numbers_of_parties_hold_the_same_values(data):
    whole = np.concatenate(data.train, axis=1)
    for parties in (1, 3, 7, 64):
        dealt = data.with_parties(parties)
        assert dealt.widths == tuple(len(p) for p in np.array_split(np.arange(64), parties))
        assert np.array_equal(np.concatenate(dealt.train, axis=1), whole)
        assert dealt.with_parties(4).fingerprint() == data.fingerprint()
    assert data.with_parties(4) is data
    with pytest.raises(DataError, match="64 columns cannot be divided among 65 parties"):
        data.with_parties(65)


def test_another_party_takes_encoded_columns_along():
    import pandas as pd

    frame = pd.DataFrame({"a": range(8), "c": list("uvwu") * 2, "y": [0, 1] * 4})
    before = VerticalDataset.from_pandas(frame, "y", parties=2)
    joined = before.with_parties(1)
    assert joined.columns == (("a", "c=u", "c=v", "c=w"),)
    assert np.array_equal(joined.train[0], np.hstack(before.train))
    new = pd.DataFrame({"a": [3], "c": ["v"]})
    assert np.array_equal(joined.transform.apply(new)[0], np.hstack(before.transform.apply(new)))


def test_the_fingerprint_sees_every_part(data):
    flipped = data.test[0].copy()
    flipped[0, 0] += 0.5
    labels = data.train_labels.copy()
    labels[0] = (labels[0] + 1) % 10
    others = [
        replace(data, test=(flipped, *data.test[1:])),
        replace(data, train_labels=labels),
        replace(data, party_names=("a", "b", "c", "d")),
        replace(data, classes=tuple("abcdefghij")),
        data.with_parties(5),
    ]
    prints = {data.fingerprint(), *(other.fingerprint() for other in others)}
    assert len(prints) == 6
    assert replace(data, name="other").fingerprint() == data.fingerprint()


def test_the_fingerprint_does_not_depend_on_the_machine():
    features = np.arange(24, dtype=np.float32).reshape(8, 3)
    made = VerticalDataset.from_numpy(features, np.arange(8) % 2, scaling="none", parties=1)
    assert made.fingerprint().startswith(PINNED)


# The first digits, once computed; another value means that stored results no longer match.
PINNED = "33f1eaa60b38254a"


def test_subsets_keep_rows_and_scaling(data):
    few = data.subset(rows=10)
    assert np.array_equal(few.train[1], data.train[1][:10])
    picked = data.subset(rows=np.array([5, 3]), test_rows=slice(0, 4))
    assert np.array_equal(picked.train_labels, data.train_labels[[5, 3]])
    assert picked.test_rows == 4
    masked = data.subset(rows=data.train_labels == 7)
    assert set(masked.train_labels.tolist()) == {7}
    assert masked.transform == data.transform
    assert any("subset" in note for note in picked.about.notes)


@pytest.mark.parametrize("rows", [0, 10**6, [], np.zeros(1348, dtype=bool), [10**6], "ten"])
def test_subsets_of_rows_that_do_not_exist_are_refused(data, rows):
    with pytest.raises(DataError, match="subset"):
        data.subset(rows=rows)


def with_value(data, value):
    array = data.train[2].copy()
    array[7, 3] = value
    return (*data.train[:2], array, *data.train[3:])


BROKEN = {
    "NaN": (lambda d: {"train": with_value(d, np.nan)}, "train, party 2: row 7, column 3 is nan"),
    "infinity": (lambda d: {"train": with_value(d, np.inf)}, "row 7, column 3 is inf"),
    "no parties": (lambda d: {"train": ()}, "has no parties"),
    "no columns": (
        lambda d: {"train": (np.empty((d.rows, 0)), *d.train[1:])},
        "party 0: the party owns no columns",
    ),
    "missing test party": (lambda d: {"test": d.test[:3]}, "3 parties have rows and 4 are needed"),
    "other widths": (lambda d: {"test": (d.test[0][:, 1:], *d.test[1:])}, "15 columns and 16"),
    "fewer rows": (
        lambda d: {"train": (d.train[0][1:], *d.train[1:])},
        "1347 rows for 1348 labels",
    ),
    "one axis": (lambda d: {"train": (d.train[0][:, 0], *d.train[1:])}, "rows x columns is needed"),
    "class out of range": (lambda d: {"test_labels": d.test_labels + 1}, "0 to 9 are allowed"),
    "float classes": (lambda d: {"test_labels": d.test_labels + 0.5}, "give integers"),
    "one class": (lambda d: {"classes": ("0",)}, "multiclass 3 or more"),
    "names": (lambda d: {"party_names": ("a",)}, "4 parties have 1 names"),
    "repeated columns": (
        lambda d: {"columns": (("p",) * 16, *d.columns[1:])},
        "two columns are called 'p'",
    ),
    "foreign columns": (
        lambda d: {"columns": (tuple("abcdefghijklmnop"), *d.columns[1:])},
        "not those that the preprocessing produces",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_parts_that_do_not_fit_are_refused(data, case):
    change, message = BROKEN[case]
    with pytest.raises(DataError, match=re.escape(message)) as error:
        replace(data, **change(data))
    assert "\n" not in str(error.value)


def test_numpy_arrays_of_several_parties_stay_theirs():
    parts = [np.arange(20.0).reshape(10, 2), np.arange(10.0).reshape(10, 1)]
    made = VerticalDataset.from_numpy(parts, list("ab") * 5, scaling="none")
    assert made.widths == (2, 1)
    assert np.array_equal(made.train[0][:, 0], 2 * made.train[1][:, 0])
    assert made.with_parties(3).widths == (1, 1, 1)


def test_numpy_images_keep_their_shape():
    images = np.arange(8 * 3 * 4 * 6).reshape(8, 3, 4, 6)
    made = VerticalDataset.from_numpy(
        images, np.arange(8) % 2, parties=2, strips="columns", scaling="none",
        test_features=images, test_labels=np.arange(8) % 2,
    )  # fmt: skip
    assert made.image_shape == (3, 4, 6)
    assert made.party_image_shapes == ((3, 4, 3), (3, 4, 3))
    assert np.array_equal(made.train[1].reshape(8, 3, 4, 3), images[..., 3:])
    assert np.array_equal(made.transform.apply(images)[0], made.test[0])


@pytest.mark.parametrize(
    ("features", "labels", "options", "message"),
    [
        (np.full((6, 2), np.nan), [0, 1] * 3, {}, "the value is NaN"),
        (np.array([[1, np.inf]] * 6), [0, 1] * 3, {}, "the value is infinite"),
        (np.ones((6, 0)), [0, 1] * 3, {}, "none of them 0"),
        ([np.ones((6, 2)), np.ones((6, 0))], [0, 1] * 3, {}, "each needs at least one"),
        ([np.ones((6, 2)), np.ones((5, 2))], [0, 1] * 3, {}, "[6, 5] rows"),
        (np.ones((6, 2)), [0, 1], {}, "6 rows of features have 2 labels"),
        (np.ones((6, 2)), np.eye(6), {}, "not one-hot rows"),
        (np.array([["a", "b"]] * 6), [0, 1] * 3, {}, "numbers are needed"),
        (np.ones((6, 2)) * 1j, [0, 1] * 3, {}, "numbers are needed"),
        (np.ones((6, 2)), [0] * 6, {}, "have the label '0'"),
        (np.ones((6, 2)), [0, 1] * 3, {"columns": ["a"]}, "1 column names for 2 columns"),
        (np.ones((6, 2)), [0, 1] * 3, {"columns": ["a", "a"]}, "two columns are called 'a'"),
        (np.ones((6, 2)), [0, 1] * 3, {"strips": "rows"}, "this data set has none"),
        (np.ones((6, 2)), [0, 1] * 3, {"test_features": np.ones((2, 2))}, "go together"),
        ([[1, 2], [3]], [0, 1], {}, "do not have one shape"),
        (np.ones((6, 2)), [0.0, np.nan] * 3, {}, "3 of 6 labels are missing"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(features, labels, options, message):
    with pytest.raises(DataError, match=re.escape(message)):
        VerticalDataset.from_numpy(features, labels, **options)


def test_test_rows_must_have_the_same_columns():
    with pytest.raises(DataError, match="both must be the same"):
        small(test_features=np.ones((2, 4)), test_labels=[0, 1])


def test_torch_data_sets():
    import torch
    from torch.utils.data import Dataset, IterableDataset, TensorDataset

    images = torch.arange(12 * 4, dtype=torch.float32).reshape(12, 1, 2, 2)
    labels = torch.arange(12) % 3

    class Map(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, k):
            if k >= 12:
                raise IndexError(k)
            return images[k], int(labels[k])

    class Stream(IterableDataset):
        def __iter__(self):
            return iter([(images[k], labels[k]) for k in range(12)])

    made = [
        VerticalDataset.from_torch(source, parties=2, name="t")
        for source in (TensorDataset(images, labels), Map(), Stream())
    ]
    assert made[0].image_shape == (1, 2, 2)
    assert len({m.fingerprint() for m in made}) == 1
    held = VerticalDataset.from_torch(Map(), TensorDataset(images[:6], labels[:6]), parties=2)
    assert (held.rows, held.test_rows) == (12, 6)


def test_torch_data_sets_that_are_no_pairs_are_refused():
    import torch
    from torch.utils.data import TensorDataset

    with pytest.raises(DataError, match="not a \\(features, label\\) pair"):
        VerticalDataset.from_torch(TensorDataset(torch.ones(4, 2)))
    ragged = [(np.ones(2), 0), (np.ones(3), 1)]
    with pytest.raises(DataError, match="all need one shape"):
        VerticalDataset.from_torch(ragged)
    with pytest.raises(DataError, match="no items"):
        VerticalDataset.from_torch([])


def test_importing_the_data_package_is_light():
    import subprocess
    import sys

    code = (
        "import sys, securevfl.data.catalogue.registry, securevfl.data;"
        "heavy = {'pandas', 'sklearn', 'torch', 'scipy', 'PIL', 'rich'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def classes_or_sizes(count, first=0, rows=400):
    stream = np.random.default_rng(0)
    labels = np.concatenate([np.arange(count), stream.integers(0, count, rows - count)]) + first
    return VerticalDataset.from_numpy([stream.random((rows, 2))] * 2, labels, seed=1)


@pytest.mark.parametrize("first", [0, 1])
def test_many_gapless_whole_numbers_are_not_taken_for_sizes_in_silence(first):
    said = f"40 whole numbers from {first} to {first + 39} without a gap, in 400 rows"
    with pytest.raises(DataError, match=said):
        classes_or_sizes(40, first)
    assert classes_or_sizes(20, first).task == "multiclass"
    assert classes_or_sizes(40, 18).task == "regression"  # ages, say
    assert classes_or_sizes(100, first).task == "regression"  # four rows of each


def test_a_stated_task_settles_what_whole_numbers_are():
    stream = np.random.default_rng(0)
    labels = np.arange(400) % 40
    columns = [stream.random((400, 2))] * 2
    for task in ("multiclass", "regression"):
        assert VerticalDataset.from_numpy(columns, labels, task=task).task == task
