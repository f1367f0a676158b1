"""The loaders on small files of each published format."""

import hashlib
import io
import urllib.error

import numpy as np
import pandas as pd
import pytest

from securevfl.data import dataset_catalogue, load_dataset
from securevfl.data.catalogue import facts, tables
from securevfl.data.catalogue.image_files import _grid
from securevfl.data.catalogue.registry import loaders
from securevfl.errors import DataError, UnknownNameError
from tests.data import small_sets as small


def whole(data, side="train"):
    return np.concatenate(getattr(data, side), axis=1)


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_files_keep_their_pixels_in_order(tmp_path, packed):
    train, test = small.write_mnist(tmp_path / "mnist", packed=packed)
    data = load_dataset("mnist", data_dir=tmp_path, verify=False, scaling="none")
    assert np.array_equal(whole(data), train.reshape(30, 784))
    assert np.array_equal(whole(data, "test"), test.reshape(10, 784))
    assert data.train_labels.tolist() == [k % 10 for k in range(30)]
    assert data.party_image_shapes == ((1, 7, 28),) * 4


def test_images_are_cut_into_strips_of_pixel_columns(tmp_path):
    train, _ = small.write_mnist(tmp_path / "fashion-mnist")
    data = load_dataset(
        "fashion-mnist", data_dir=tmp_path, parties=4, strips="columns", verify=False,
        scaling="none",
    )  # fmt: skip
    assert data.party_image_shapes == ((1, 28, 7),) * 4
    assert np.array_equal(data.train[2].reshape(30, 28, 7), train[:, :, 14:21])
    cut_again = data.with_parties(2)
    assert np.array_equal(cut_again.train[1].reshape(30, 28, 14), train[:, :, 14:])


def test_official_emnist_files_are_turned_upright(tmp_path):
    train, _ = small.write_mnist(tmp_path / "emnist", classes=47)
    data = load_dataset("emnist", data_dir=tmp_path, verify=False, scaling="none")
    assert np.array_equal(whole(data).reshape(-1, 28, 28), train.swapaxes(1, 2))
    assert data.num_classes == 47


def test_the_emnist_part_says_so_and_stays_as_it_is(tmp_path):
    train = small.write_emnist_part(tmp_path / "emnist")
    data = load_dataset("emnist", data_dir=tmp_path, verify=False, scaling="none")
    assert np.array_equal(whole(data).reshape(-1, 28, 28), train)
    assert "part" in data.about.split


def test_cifar_records_become_column_strips_of_colour(tmp_path):
    records = small.write_cifar(tmp_path / "cifar10")
    data = load_dataset("cifar10", data_dir=tmp_path, verify=False, scaling="none")
    images = records[:, 1:].reshape(50, 3, 32, 32)
    assert data.party_image_shapes == ((3, 32, 8),) * 4
    assert np.array_equal(data.train[1].reshape(50, 3, 32, 8), images[..., 8:16])
    assert data.train_labels.tolist() == records[:, 0].tolist()


def test_a_grid_of_tiles_is_read_row_by_row(tmp_path):
    from PIL import Image

    source = np.random.Generator(np.random.Philox(1))
    picture = source.integers(0, 256, size=(800, 1280, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "grid.webp", lossless=True)
    tiles = _grid(tmp_path / "grid.webp").reshape(1000, 3, 32, 32)
    assert np.array_equal(tiles[43].transpose(1, 2, 0), picture[32:64, 96:128])


@pytest.mark.parametrize("original", [False, True])
def test_handwritten_has_one_view_per_party(tmp_path, original):
    small.write_handwritten(tmp_path / "handwritten", original=original)
    data = load_dataset("handwritten", data_dir=tmp_path, verify=False, scaling="none")
    views = small.views(50, 6)
    rows = data.train[0][:, 0].astype(int)
    assert data.widths == small.VIEW_WIDTHS
    assert data.party_names == ("fac", "fou", "kar", "mor", "pix", "zer")
    assert (data.rows, data.test_rows) == (30, 20)
    assert np.array_equal(data.train_labels, rows // 5)
    for party in range(6):
        assert np.array_equal(data.train[party], views[party][rows].astype(np.float32))


def test_handwritten_views_of_other_rows_are_refused(tmp_path):
    small.write_handwritten(tmp_path / "handwritten")
    path = tmp_path / "handwritten" / "mfeat-kar.csv.gz"
    pd.read_csv(path).iloc[::-1].to_csv(path, index=False)
    with pytest.raises(DataError, match="labels of view 'kar' differ"):
        load_dataset("handwritten", data_dir=tmp_path, verify=False)


def test_caltech_is_read_from_a_matlab_cell(tmp_path):
    small.write_caltech(tmp_path / "caltech101-7")
    data = load_dataset("caltech-7", data_dir=tmp_path, scaling="none")
    rows = data.test[0][:, 0].astype(int)
    assert data.widths == small.VIEW_WIDTHS
    assert data.classes[0] == "Faces"
    assert np.array_equal(data.test_labels, rows // 10)
    assert any("no checksum is known" in note for note in data.about.notes)


def test_a_matlab_file_of_something_else_is_refused(tmp_path):
    from scipy.io import savemat

    savemat(tmp_path / "Caltech101-7.mat", {"A": np.ones(3)})
    with pytest.raises(DataError, match="no MATLAB file"):
        load_dataset("caltech-7", data_dir=tmp_path)


def test_credit_card_drops_the_id(tmp_path):
    small.write_credit_card(tmp_path / "credit-card")
    data = load_dataset("credit-card", data_dir=tmp_path, verify=False)
    assert data.widths == (3, *([2] * 10))
    assert data.task == "binary"
    assert (data.rows, data.test_rows) == (48, 12)
    assert np.bincount(data.test_labels).tolist() == [9, 3]


def test_parkinson_keeps_a_person_on_one_side(tmp_path):
    small.write_parkinson(tmp_path / "parkinson")
    data = load_dataset("parkinson", data_dir=tmp_path, verify=False, scaling="none")
    column = list(data.transform.columns).index("PPE")
    people = {
        side: set((whole(data, side)[:, column].astype(int) // 3).tolist())
        for side in ("train", "test")
    }
    assert people["train"].isdisjoint(people["test"])
    assert (len(people["train"]), len(people["test"])) == (14, 6)
    assert "id" not in data.transform.columns


def test_parkinson_split_by_row_is_named_as_leaking(tmp_path):
    small.write_parkinson(tmp_path / "parkinson")
    data = load_dataset("parkinson", data_dir=tmp_path, verify=False, split="row")
    assert "LEAKS" in data.about.split
    assert any("LEAKING" in note for note in data.about.notes)


def test_adult_reads_labels_with_a_full_stop_and_missing_jobs(tmp_path):
    small.write_adult(tmp_path / "adult")
    data = load_dataset("adult", data_dir=tmp_path, verify=False)
    assert data.classes == ("<=50K", ">50K")
    assert (data.rows, data.test_rows) == (24, 8)
    names = [name for party in data.columns for name in party]
    assert "occupation missing" in names
    assert "occupation=?" not in names
    assert whole(data, "test")[:, names.index("occupation missing")].tolist() == [1.0] * 8


def test_breast_cancer_joins_two_files_by_id(tmp_path):
    small.write_breast(tmp_path / "breast")
    data = load_dataset("breast-cancer", data_dir=tmp_path, verify=False)
    assert data.widths == (10, 20)
    assert data.party_names == ("guest", "host")


def test_breast_cancer_comes_with_scikit_learn(monkeypatch):
    monkeypatch.delenv("SECUREVFL_DATA", raising=False)
    data = load_dataset("breast-cancer")
    assert data.widths == (10, 20)
    assert np.bincount(np.concatenate([data.train_labels, data.test_labels])).tolist() == [212, 357]


def test_a_damaged_file_is_named_with_its_checksum(tmp_path):
    small.write_credit_card(tmp_path / "credit-card")
    path = tmp_path / "credit-card" / "UCI_Credit_Card.csv.gz"
    found = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    with pytest.raises(DataError, match=rf"UCI_Credit_Card.csv.gz: the SHA-256 is {found}"):
        load_dataset("credit-card", data_dir=tmp_path)


def test_a_cut_off_idx_file_is_refused(tmp_path):
    small.write_mnist(tmp_path / "mnist", packed=False)
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="the header says 7840"):
        load_dataset("mnist", data_dir=tmp_path)


@pytest.mark.parametrize("name", [e.name for e in dataset_catalogue() if e.openml])
def test_an_absent_set_says_where_to_get_it_and_where_to_put_it(tmp_path, name):
    with pytest.raises(DataError, match=r"get it from .* SECUREVFL_DATA") as error:
        load_dataset(name, data_dir=tmp_path, download=False)
    assert "\n" not in str(error.value)


def test_caltech_which_nobody_offers_for_download_says_where_to_put_it(tmp_path):
    with pytest.raises(DataError, match=r"Caltech101-7.mat into FOLDER/caltech101-7"):
        load_dataset("caltech-7", data_dir=tmp_path)


def test_the_catalogue_says_what_is_available_here(tmp_path, monkeypatch):
    monkeypatch.delenv("SECUREVFL_DATA", raising=False)
    small.write_credit_card(tmp_path / "credit-card")
    entries = {entry.name: entry for entry in dataset_catalogue(tmp_path)}
    assert sorted(name for name, entry in entries.items() if entry.available) == [
        "breast-cancer",
        "credit-card",
        "digits",
    ]
    assert entries["credit-card"].files == ("credit-card/UCI_Credit_Card.csv.gz",)
    assert all(entry.licence and entry.origin and entry.obtain for entry in entries.values())


def test_unknown_names_and_options_suggest_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean digits"):
        load_dataset("digit")
    with pytest.raises(UnknownNameError, match="did you mean strips"):
        load_dataset("digits", strip="rows")


def test_a_data_folder_that_does_not_exist_is_refused(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="there is no such folder"):
        load_dataset("mnist", data_dir=tmp_path / "nowhere")
    monkeypatch.setenv("SECUREVFL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="SECUREVFL_DATA="):
        load_dataset("mnist")


# -- files that are fetched by name ---------------------------------------------------------------

MORTGAGE_TABLE = b"rownames,deny,a,b,c\n" + b"".join(
    b"%d,%s,%d,%d,no\n" % (k, b"yes" if k % 4 == 0 else b"no", k % 7, k % 5) for k in range(40)
)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Files in place of the web, by address; what is asked for is listed."""
    files, asked = {}, []

    def urlopen(url, timeout):
        asked.append(url)
        if url not in files:
            raise urllib.error.URLError("no network")
        return io.BytesIO(files[url])

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SECUREVFL_DATA", raising=False)
    return files, asked


def test_a_set_is_fetched_once_and_checked(shelf, monkeypatch, tmp_path):
    files, asked = shelf
    (url,) = tables.MORTGAGE.urls.values()
    files[url] = MORTGAGE_TABLE
    with pytest.raises(DataError, match="SHA-256 is not the known one"):
        load_dataset("mortgage")
    assert not list(tmp_path.glob("cache/*/*"))
    digest = hashlib.sha256(MORTGAGE_TABLE).hexdigest()
    monkeypatch.setattr(facts, "known_checksums", lambda folder: {"HMDA.csv": digest})
    first = load_dataset("mortgage")
    assert (first.parties, first.rows + first.test_rows) == (3, 40)
    assert first.classes == ("no", "yes")
    files.clear()
    assert load_dataset("mortgage").fingerprint() == first.fingerprint()
    assert len(asked) == 2
    (kept,) = tmp_path.glob("cache/securevfl/mortgage/HMDA.csv")
    kept.write_bytes(b"")
    with pytest.raises(DataError, match="fetch it again"):
        load_dataset("mortgage")


def test_without_a_network_a_set_says_where_it_is(shelf):
    with pytest.raises(DataError, match=r"no network.*put HMDA.csv into FOLDER/mortgage"):
        load_dataset("mortgage")
    assert tables.ADULT.fetch() is None  # OpenML is asked then
    with pytest.raises(DataError, match="get it from"):
        load_dataset("mortgage", download=False)


def test_what_is_fetched_has_a_known_checksum_and_a_form():
    for known, _ in loaders().values():
        assert not set(known.urls) - set(facts.known_checksums(known.folder))
        assert not known.urls or tuple(known.urls) in known.forms
