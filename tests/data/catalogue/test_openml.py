"""OpenML without a network: small ARFF files laid in scikit-learn's cache folder."""

import numpy as np
import pandas as pd
import pytest

from securevfl.data import load_dataset
from securevfl.errors import DataError
from tests.data import small_sets as small


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    monkeypatch.delenv("SECUREVFL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def nothing(url, timeout):
        raise OSError("no network")

    monkeypatch.setattr("securevfl.data.catalogue.facts.urllib.request.urlopen", nothing)
    return tmp_path


def image_frame(count, classes, width=784):
    pixels = np.random.Generator(np.random.Philox(1)).integers(0, 256, size=(count, width))
    frame = pd.DataFrame(pixels, columns=[f"pixel{k}" for k in range(width)])
    return frame.assign(**{"class": np.arange(count) % classes})


def test_images_of_a_copy_without_the_official_rows_are_split_at_random(home):
    frame = image_frame(70, 10)
    small.lay_openml(home, 554, frame, "class")
    data = load_dataset("mnist", scaling="none")
    rows = np.concatenate([np.concatenate(data.train, 1), np.concatenate(data.test, 1)])
    labels = np.concatenate([data.train_labels, data.test_labels])
    expected = {
        row.astype(np.float32).tobytes(): k % 10 for k, row in enumerate(frame.to_numpy()[:, :-1])
    }
    assert {
        row.tobytes(): label for row, label in zip(rows, labels.tolist(), strict=True)
    } == expected
    assert "not the official split" in data.about.split
    assert "from OpenML 554" in data.about.notes


def test_the_official_rows_of_a_whole_copy_come_first(home, monkeypatch):
    from dataclasses import replace

    from securevfl.data.catalogue import images

    kind = images._FASHION
    small_kind = replace(kind, facts=replace(kind.facts, rows=70), training=(6,) * 10)
    frame = image_frame(70, 10)
    small.lay_openml(home, 40996, frame, "class")
    data = images.load_images(small_kind, scaling="none")
    assert np.array_equal(np.concatenate(data.train, 1), frame.to_numpy()[:60, :-1])
    assert data.about.split.startswith("official")


def test_emnist_is_turned_upright(home):
    frame = image_frame(94, 47)
    small.lay_openml(home, 41039, frame, "class")
    data = load_dataset("emnist", scaling="none")
    turned = frame.to_numpy()[:, :-1].reshape(-1, 28, 28).swapaxes(1, 2).reshape(94, 784)
    known = {row.astype(np.float32).tobytes() for row in turned}
    assert {row.tobytes() for row in np.concatenate(data.train, 1)} <= known


def test_handwritten_gathers_six_sets(home):
    labels = np.repeat(np.arange(1, 11), 5)
    for data_id, view in zip((12, 14, 16, 18, 20, 22), small.views(50, 6), strict=True):
        frame = pd.DataFrame(view, columns=[f"att{k}" for k in range(view.shape[1])])
        small.lay_openml(home, data_id, frame.assign(**{"class": labels}), "class")
    data = load_dataset("handwritten", scaling="none")
    assert data.widths == small.VIEW_WIDTHS
    rows = data.train[0][:, 0].astype(int)
    named = [int(data.classes[label]) for label in data.train_labels]
    assert named == (rows // 5 + 1).tolist()


def test_credit_card_by_other_column_names(home):
    values = np.random.Generator(np.random.Philox(2)).integers(0, 9, size=(60, 23))
    frame = pd.DataFrame(values, columns=[f"x{k + 1}" for k in range(23)])
    small.lay_openml(home, 42477, frame.assign(y=np.arange(60) % 3 // 2), "y")
    data = load_dataset("credit-card")
    assert data.widths == (3, *([2] * 10))
    assert data.classes == ("0", "1")


def test_parkinson_without_an_id_takes_three_rows_as_a_person(home):
    values = np.random.Generator(np.random.Philox(3)).normal(size=(60, 12))
    values[:, 1] = np.arange(60)
    frame = pd.DataFrame(values, columns=["gender", *(f"f{k}" for k in range(11))])
    frame["gender"] = np.repeat(np.arange(20) % 2, 3)
    frame["class"] = np.repeat((np.arange(20) % 4 > 0).astype(int), 3)
    small.lay_openml(home, 42176, frame, "class")
    data = load_dataset("parkinson", scaling="none")
    train = {int(k) // 3 for k in np.concatenate(data.train, 1)[:, 1]}
    test = {int(k) // 3 for k in np.concatenate(data.test, 1)[:, 1]}
    assert train.isdisjoint(test)
    frame["class"] = np.arange(60) % 2
    small.lay_openml(home, 42176, frame, "class")
    with pytest.raises(DataError, match="not three rows per person"):
        load_dataset("parkinson")
    by_row = load_dataset("parkinson", split="row")  # what the message offers
    assert by_row.rows + by_row.test_rows == 60
    assert any("LEAKING SPLIT" in note for note in by_row.about.notes)


def test_adult_texts_are_one_hot(home):
    frame = pd.DataFrame(
        {
            "age": np.arange(40) + 20,
            "job": ["Sales", "Tech", "Care", "Sales"] * 10,
            "class": [">50K", "<=50K", "<=50K", "<=50K"] * 10,
        }
    )
    small.lay_openml(home, 1590, frame, "class")
    data = load_dataset("adult", parties=2)
    assert data.columns == (("age",), ("job=Care", "job=Sales", "job=Tech"))


def test_a_damaged_download_is_refused(home):
    small.lay_openml(home, 554, image_frame(20, 10), "class")
    path = home / "openml/openml.org/api/v1/json/data/554.gz"
    import gzip

    text = gzip.decompress(path.read_bytes()).replace(b'"md5_checksum": "', b'"md5_checksum": "0')
    path.write_bytes(gzip.compress(text))

    # The retry would ask the network for a clean copy.
    def refuse(*_, **__):
        raise OSError("no network in tests")

    from sklearn.datasets import _openml

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_openml, "urlopen", refuse)
        with pytest.raises(DataError, match="OpenML 554 could not be read"):
            load_dataset("mnist")


def test_progress_is_shown_on_standard_error_only(home, capsys):
    small.lay_openml(home, 554, image_frame(20, 10), "class")
    load_dataset("mnist")
    assert capsys.readouterr().out == ""
