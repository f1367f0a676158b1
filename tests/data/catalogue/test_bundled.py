import subprocess
import sys

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.data.base.labels import read_labels
from securevfl.data.catalogue import bundled
from securevfl.errors import DataError


def test_digits_has_eight_parties_of_one_pixel_row():
    data = load_dataset("digits")
    assert data.parties == 8
    assert data.widths == (8,) * 8
    assert (data.rows, data.test_rows) == (1348, 449)
    assert data.party_image_shapes == ((1, 1, 8),) * 8


def test_digits_values_are_those_of_scikit_learn_after_minmax():
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    data = load_dataset("digits", scaling="none")
    mine = np.concatenate([*data.train], axis=1)
    order = np.lexsort(mine.T)
    theirs = pixels.astype(np.float32)
    keys = {row.tobytes(): int(label) for row, label in zip(theirs, digits, strict=True)}
    assert [keys[row.tobytes()] for row in mine[order]] == data.train_labels[order].tolist()


def test_digits_splits_are_disjoint_stratified_and_repeatable():
    first, again, other = (load_dataset("digits", seed=s) for s in (3, 3, 4))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    share = np.bincount(first.test_labels) / np.bincount(first.train_labels)
    assert np.all(np.abs(share - 1 / 3) < 0.02)


def test_digits_scaling_lies_in_the_unit_interval():
    data = load_dataset("digits")
    whole = np.concatenate(data.train, axis=1)
    assert whole.min() == 0.0
    assert whole.max() == 1.0
    assert all(array.max() <= 1.0 and array.min() >= 0.0 for array in data.test)


def test_digits_with_more_parties_than_pixels_is_refused():
    with pytest.raises(DataError, match="64 columns cannot be divided among 65 parties"):
        load_dataset("digits", parties=65)


def test_the_digits_are_scikit_learns_and_their_labels_those_of_any_column():
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    own, labels = bundled.bundled_digits()
    np.testing.assert_array_equal(own, pixels)
    np.testing.assert_array_equal(labels, digits)
    read = read_labels(digits, "digit")
    assert read.values.dtype == np.float64
    np.testing.assert_array_equal(read.values, labels.astype(np.float64))


def test_a_party_with_digits_imports_neither_pandas_nor_scikit_learn():
    program = (
        "import sys; from securevfl.data.source import DataSource; "
        "DataSource('digits', {'parties': 4, 'seed': 0}).load(); "
        "print(sorted({'pandas', 'sklearn', 'scipy', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
