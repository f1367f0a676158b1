"""MATLAB files as tables, written by scipy; what is no table is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.io import savemat

from securevfl.data import load_dataset
from securevfl.data.preparation.tables import read_table
from securevfl.errors import DataError

X = np.arange(80.0).reshape(40, 2)
TOWNS = np.array([["Bern", "Chur"][n % 2] for n in range(40)], object)


def write(folder, **variables):
    savemat(folder / "own.mat", variables)
    return folder / "own.mat"


def test_vectors_matrices_and_cells_are_columns(tmp_path):
    path = write(tmp_path, X=X, age=np.arange(40), ill=np.arange(40) % 2 == 1, town=TOWNS)
    frame = read_table(path)
    assert list(frame.columns) == ["X_1", "X_2", "age", "ill", "town"]
    np.testing.assert_array_equal(frame[["X_1", "X_2"]], X)
    np.testing.assert_array_equal(frame["age"], np.arange(40))
    assert list(frame["town"]) == list(TOWNS)


def test_it_trains_as_the_csv_file_of_its_table_does(tmp_path):
    path = write(tmp_path, X=X, town=TOWNS, y=np.arange(40) % 2)
    read_table(path).to_csv(tmp_path / "own.csv", index=False)
    one, other = (
        load_dataset(tmp_path / f"own.{kind}", label="y", parties=2) for kind in ("mat", "csv")
    )
    for a, b in zip(one.train + one.test, other.train + other.test, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_first_bytes_decide_where_the_name_says_nothing(tmp_path):
    write(tmp_path, y=np.arange(5)).rename(tmp_path / "own.data")
    assert list(read_table(tmp_path / "own.data")["y"]) == list(range(5))


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"X": X, "y": np.arange(39)}, r"X 40, y 39"),
        ({"s": {"a": 1}}, "variable 's'"),
        ({"z": np.array([1 + 2j, 3])}, "real numbers"),
        ({"cube": np.zeros((3, 3, 3))}, "shape"),
        ({"c": np.array([np.arange(3), "x"], object)}, "variable 'c'"),
    ],
)
def test_what_is_no_column_is_refused_by_name(tmp_path, variables, part):
    with pytest.raises(DataError, match=part):
        read_table(write(tmp_path, **variables))


@pytest.mark.parametrize("cut", [20, 140, 200])
def test_a_damaged_file_is_one_line(tmp_path, cut):
    path = write(tmp_path, X=X)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"own\.mat"):
        read_table(path)


def test_version_7_3_is_named(tmp_path):
    (tmp_path / "own.mat").write_bytes(
        b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF" * 99
    )
    with pytest.raises(DataError, match=r"version 7\.3"):
        read_table(tmp_path / "own.mat")
