"""Queries over files: what they give, in which order, and what is refused in one line."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from securevfl.data import load_dataset
from securevfl.data.preparation.tables import read_table
from securevfl.errors import DataError

pytest.importorskip("duckdb", reason="the extra tables is not installed")

ROWS = 3000
FRAME = pd.DataFrame(
    {"id": np.arange(ROWS), "age": np.arange(ROWS) % 83, "town": ["Bern", "Chur", "Genf"] * 1000}
)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    FRAME.to_csv(tmp_path / "people.csv", index=False)
    pd.DataFrame({"id": np.arange(ROWS), "ill": np.arange(ROWS) % 2}).to_csv(
        tmp_path / "ill.csv", index=False
    )
    return tmp_path


def query(folder, text):
    path = folder / "query.sql"
    path.write_text(text)
    return path


def test_files_are_those_beside_the_query(folder, monkeypatch):
    monkeypatch.chdir("/")
    path = query(folder, "SELECT age, town FROM 'people.csv' WHERE id < 9 -- a few\n;")
    pd.testing.assert_frame_equal(
        read_table(path), FRAME.loc[:8, ["age", "town"]], check_dtype=False
    )


def test_a_join_has_the_same_order_each_time(folder):
    path = query(folder, "SELECT age, town, ill FROM 'people.csv' JOIN 'ill.csv' USING (id)")
    first = read_table(path)
    for _ in range(3):
        pd.testing.assert_frame_equal(read_table(path), first)


def test_a_party_may_be_a_query(folder):
    path = query(folder, "SELECT id, age FROM 'people.csv' WHERE id < 100")
    files = [path, folder / "ill.csv"]
    data = load_dataset(
        party_files=[files[0], _other(folder)], label_file=files[1], id_column="id", label="ill"
    )
    assert data.rows + data.test_rows == 100
    assert data.parties == 2


def _other(folder):
    FRAME[["id", "town"]].to_csv(folder / "towns.csv", index=False)
    return folder / "towns.csv"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "holds nothing"),
        ("SELECT 1 AS a; SELECT 2 AS a", "holds SELECT, SELECT"),
        ("COPY (SELECT 1) TO 'made.csv'", "holds COPY"),
        ("INSTALL httpfs", "one SELECT"),
        ("SET threads = 4", "holds SET"),
        ("SELECT * FROM 'gone.csv'", "gone.csv"),
        ("SELEC 1", "syntax error"),
        ("SELECT nobody FROM 'people.csv'", "nobody"),
        ("SELECT [1, 2] AS a", "column 'a' holds"),
        ("SELECT {'x': 1} AS a", "column 'a' holds"),
        ("SELECT 'x'::BLOB AS a", "column 'a' holds BLOB"),
        ("SELECT 1 AS a, 2 AS a", "two columns are called 'a'"),
        ("SELECT * FROM 'https://example.org/x.parquet'", "refused"),
    ],
)
def test_what_is_no_table_is_one_line(folder, text, part):
    with pytest.raises(DataError, match=r"query\.sql") as caught:
        read_table(query(folder, text))
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (folder / "made.csv").exists()


def test_without_duckdb_one_line_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(DataError, match=r"duckdb.*securevfl\[tables\]"):
        read_table(query(folder, "SELECT 1 AS a"))
