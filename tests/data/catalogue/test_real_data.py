"""The published sets themselves; skipped where SECUREVFL_DATA does not name them."""

import os

import numpy as np
import pytest

from securevfl.data import load_dataset

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(
        not os.environ.get("SECUREVFL_DATA"),
        reason="SECUREVFL_DATA does not name a folder with the published data sets",
    ),
]


def counts(labels):
    return np.bincount(labels).tolist()


def load_or_skip(name, **options):
    from securevfl.data import dataset_catalogue

    if not {entry.name: entry.available for entry in dataset_catalogue()}[name]:
        pytest.skip(f"SECUREVFL_DATA holds no files of {name}")
    return load_dataset(name, **options)


@pytest.mark.parametrize(
    ("name", "mean"),
    # Published means of the training pixels, as parts of 255.
    [("mnist", 0.1307), ("fashion-mnist", 0.2860)],
)
def test_mnist_family(name, mean):
    data = load_or_skip(name, scaling="none")
    assert (data.rows, data.test_rows) == (60000, 10000)
    assert sum(data.widths) == 784
    total = sum(float(array.sum(dtype=np.float64)) for array in data.train)
    assert total / (60000 * 784 * 255) == pytest.approx(mean, abs=1e-4)


def test_fashion_mnist_gives_28_parties_one_pixel_row_each():
    data = load_or_skip("fashion-mnist")
    assert data.widths == (28,) * 28
    assert counts(data.train_labels) == [6000] * 10
    assert counts(data.test_labels) == [1000] * 10


def test_emnist_part():
    data = load_or_skip("emnist")
    assert data.widths == (28,) * 28
    assert data.num_classes == 47
    assert len(set(counts(data.train_labels))) == 1


@pytest.mark.slow
def test_cifar10():
    data = load_or_skip("cifar10", scaling="none")
    assert (data.rows, data.test_rows) == (50000, 1000)
    assert data.party_image_shapes == ((3, 32, 8),) * 4
    assert counts(data.train_labels) == [5000] * 10
    means = np.mean(
        [a.reshape(50000, 3, -1).mean(axis=(0, 2), dtype=np.float64) for a in data.train], axis=0
    )
    assert means / 255 == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)


def test_handwritten():
    data = load_or_skip("handwritten")
    assert data.widths == (216, 76, 64, 6, 240, 47)
    assert (counts(data.train_labels), counts(data.test_labels)) == ([120] * 10, [80] * 10)


def test_credit_card():
    data = load_or_skip("credit-card", scaling="none")
    assert data.widths == (3, *([2] * 10))
    assert (data.rows, data.test_rows) == (24000, 6000)
    assert int(data.train_labels.sum() + data.test_labels.sum()) == 6636
    limits = np.concatenate([data.train[0][:, 0], data.test[0][:, 0]]).astype(np.float64)
    assert limits.mean() == pytest.approx(167484.32, abs=0.01)


def test_parkinson():
    data = load_or_skip("parkinson")
    assert data.widths == (76, 76, 76, *([75] * 7))
    assert (data.rows, data.test_rows) == (528, 228)
    whole = np.array(counts(data.train_labels)) + counts(data.test_labels)
    assert whole.tolist() == [192, 564]
    by_row = load_or_skip("parkinson", split="row")
    assert (by_row.rows, by_row.test_rows) == (529, 227)


def test_caltech():
    data = load_or_skip("caltech-7")
    assert data.widths == (48, 40, 254, 1984, 512, 928)
    whole = np.array(counts(data.train_labels)) + counts(data.test_labels)
    assert whole.tolist() == [435, 798, 52, 34, 35, 64, 56]


def test_adult():
    data = load_or_skip("adult")
    assert (data.rows, data.test_rows) == (32561, 16281)
    assert (int(data.train_labels.sum()), int(data.test_labels.sum())) == (7841, 3846)


def test_breast_cancer_files_hold_the_columns_of_scikit_learn(monkeypatch):
    filed = load_dataset("breast-cancer", scaling="none")
    monkeypatch.delenv("SECUREVFL_DATA")
    bundled = load_dataset("breast-cancer", scaling="none")
    assert filed.widths == bundled.widths == (10, 20)
    for party in range(2):
        # The rows stand in another order and the files are standardised, so compare each column's
        # sorted standardised values with those of all columns.
        sides = []
        for data in (filed, bundled):
            values = np.concatenate([data.train[party], data.test[party]]).astype(np.float64)
            sides.append(np.sort((values - values.mean(0)) / values.std(0), axis=0))
        gaps = np.abs(sides[0][:, :, None] - sides[1][:, None, :]).max(axis=0)
        assert gaps.min(axis=0).max() < 1e-4
        assert sorted(gaps.argmin(axis=0)) == list(range(filed.widths[party]))
