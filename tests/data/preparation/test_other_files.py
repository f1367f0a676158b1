"""Files of another kind than CSV are refused with what they are and how they can be read."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

from securevfl.data import load_dataset
from securevfl.data.preparation.csvfile import read_csv
from securevfl.data.preparation.other_files import KINDS, refuse_other_kind
from securevfl.errors import DataError


@pytest.mark.parametrize("suffix", KINDS)
def test_the_name_says_what_it_is(tmp_path, suffix):
    path = tmp_path / f"bank{suffix.upper()}"
    path.write_bytes(b"a,b\n1,2\n")
    what, reader, taker = KINDS[suffix]
    with pytest.raises(DataError, match=rf"is {what}, .* by {reader} .* {taker}\.$"):
        read_csv(path)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"SQLite format 3\x00", "is a database"),
        (b"\x93NUMPY\x01\x00", "is a NumPy file"),
        (b"PK\x03\x04\x14\x00", "is an archive; unpack it"),
    ],
)
def test_the_first_bytes_say_what_it_is(tmp_path, start, said):
    path = tmp_path / "bank.csv"
    path.write_bytes(start + bytes(range(200)))
    with pytest.raises(DataError, match=said):
        read_csv(path)


def test_readers_that_are_named_exist():
    for module, _, name in {reader.rpartition(".") for _, reader, _ in KINDS.values()}:
        if module in ("pandas", "numpy", "scipy.io") or find_spec(module):
            assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("suffix", [".pkl", ".pickle", ".joblib", ".pt", ".pth"])
def test_a_pickle_is_never_read(tmp_path, suffix):
    path = tmp_path / f"bank{suffix}"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(DataError, match=r"is a pickle: loading it may run any program.* Parquet"):
        read_csv(path)


def test_csv_files_and_files_that_are_not_there_pass(tmp_path):
    refuse_other_kind(tmp_path / "gone.xlsx")
    path = tmp_path / "bank.csv"
    path.write_text("a,b\n1,2\n")
    refuse_other_kind(path)
    assert list(read_csv(path)["b"]) == ["2"]


def test_a_file_that_is_not_there_is_no_unknown_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"bank\.xlsx: there is no such file"):
        load_dataset("bank.xlsx", label="y")
    Path("bank.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match="is a spreadsheet"):
        load_dataset("bank.xlsx", label="y")
