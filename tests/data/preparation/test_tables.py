"""Parquet, Arrow and polars tables give what the same CSV file gives, or are refused by name."""

import contextlib
import datetime
import io
import sys

import numpy as np
import pandas as pd
import pytest

from securevfl import VerticalDataset
from securevfl.data import load_dataset
from securevfl.data.preparation.tables import as_frame, read_table
from securevfl.errors import DataError

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyarrow.feather")

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(20, 80, 60),
        "pulse": np.where(RNG.random(60) < 0.1, np.nan, RNG.normal(70, 9, 60).round(2)),
        "town": pd.Categorical(RNG.choice(["Bern", "Chur", "Genf"], 60)),
        "smokes": RNG.random(60) < 0.5,
        "ill": RNG.choice(["no", "yes"], 60),
    }
)


def write(path, frame=FRAME):
    table = pa.Table.from_pandas(frame)
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix == ".feather":
        pa.feather.write_feather(table, path)
    else:
        new = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow", ".ipc"])
def test_a_table_of_each_kind_trains_as_its_csv_file_does(tmp_path, suffix):
    FRAME.to_csv(tmp_path / "own.csv", index=False)
    texts = load_dataset(tmp_path / "own.csv", label="ill", parties=2)
    typed = load_dataset(write(tmp_path / f"own{suffix}"), label="ill", parties=2)
    for one, other in zip(texts.train + texts.test, typed.train + typed.test, strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(texts.train_labels, typed.train_labels)
    new = FRAME.iloc[:7]
    for one, other in zip(texts.transform.apply(new), typed.transform.apply(new), strict=True):
        np.testing.assert_array_equal(one, other)


def test_files_of_parties_may_be_of_different_kinds(tmp_path):
    ids = pd.DataFrame({"id": np.arange(60) + 1000})
    one, two = ids.join(FRAME[["age", "ill"]]), ids.join(FRAME[["pulse"]]).iloc[5:]
    one.to_csv(tmp_path / "bank.csv", index=False)
    two.to_csv(tmp_path / "shop.csv", index=False)
    files = [tmp_path / "bank.csv", write(tmp_path / "shop.parquet", two)]
    mixed = load_dataset(party_files=files, id_column="id", label="ill")
    files[1] = tmp_path / "shop.csv"
    texts = load_dataset(party_files=files, id_column="id", label="ill")
    for a, b in zip(mixed.train, texts.train, strict=True):
        np.testing.assert_array_equal(a, b)


def test_first_bytes_decide_where_the_name_says_nothing(tmp_path):
    write(tmp_path / "own.parquet").rename(tmp_path / "own.data")
    assert list(read_table(tmp_path / "own.data").columns) == list(FRAME.columns)


def test_a_named_index_is_a_column_and_another_is_not(tmp_path):
    named = FRAME.set_axis(pd.Index(np.arange(60) + 7, name="patient"))
    assert "patient" in read_table(write(tmp_path / "a.parquet", named)).columns
    moved = read_table(write(tmp_path / "b.parquet", FRAME.iloc[::-1]))
    assert list(moved.columns) == list(FRAME.columns)
    assert list(moved.index) == list(range(60))


def test_lists_and_damaged_files_are_refused_by_name(tmp_path):
    nested = pa.table({"a": [[1, 2], [3]], "ill": ["no", "yes"]})
    pa.parquet.write_table(nested, tmp_path / "n.parquet")
    with pytest.raises(DataError, match=r"n\.parquet: column 'a' holds list<.*one number"):
        read_table(tmp_path / "n.parquet")
    pa.parquet.write_table(
        pa.table({"b": [b"1", b"2"], "ill": ["no", "yes"]}), tmp_path / "n.parquet"
    )
    with pytest.raises(DataError, match=r"column 'b' holds binary"):
        read_table(tmp_path / "n.parquet")
    whole = write(tmp_path / "own.parquet").read_bytes()
    for name, content in [("x.parquet", b"PAR1"), ("y.arrow", b"abc"), ("z.parquet", whole[:-9])]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=rf"{name} cannot be read as a \w+ file"):
            read_table(tmp_path / name)
    rng = np.random.default_rng(1)
    for _ in range(60):  # no damage may end in another exception
        odd = np.frombuffer(whole, np.uint8).copy()
        odd[rng.integers(0, len(odd), 4)] = rng.integers(0, 256, 4)
        (tmp_path / "odd.parquet").write_bytes(odd.tobytes())
        with contextlib.suppress(DataError):
            read_table(tmp_path / "odd.parquet")


def test_dates_are_refused_as_those_of_a_frame_are(tmp_path):
    table = pa.table({"day": [datetime.date(2020, 1, 1 + k) for k in range(20)], "a": [0, 1] * 10})
    pa.parquet.write_table(table, tmp_path / "own.parquet")
    with pytest.raises(DataError, match=r"'day' holds dates or durations"):
        load_dataset(tmp_path / "own.parquet", label="a", parties=1)


def test_without_pyarrow_one_line_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "own.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"needs the package pyarrow.*securevfl\[tables\]"):
        read_table(path)


class Foreign:
    """A table of another library, such as polars', which knows how to become a data frame."""

    def __init__(self, frame):
        self.frame = frame

    def to_pandas(self):
        """What polars.DataFrame and pyarrow.Table have, too."""
        return self.frame.copy()


@pytest.mark.parametrize("change", [Foreign, pa.Table.from_pandas])
def test_tables_of_other_libraries_train_and_predict(change):
    same = VerticalDataset.from_pandas(FRAME, "ill", parties=2)
    other = VerticalDataset.from_pandas(change(FRAME), "ill", parties=2)
    for a, b in zip(same.train, other.train, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(same.transform.apply(FRAME), other.transform.apply(change(FRAME)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_polars_frames_train():
    polars = pytest.importorskip("polars")
    frame = polars.read_csv(io.StringIO(FRAME.to_csv(index=False)))
    same = VerticalDataset.from_pandas(FRAME, "ill", parties=2)
    other = VerticalDataset.from_pandas(frame, "ill", parties=2)
    for a, b in zip(same.train, other.train, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_table_that_cannot_be_changed_is_refused():
    class Odd:
        def to_pandas(self):
            raise ModuleNotFoundError("pyarrow is required")

    with pytest.raises(DataError, match=r"Odd cannot be made a data frame: pyarrow is required"):
        as_frame(Odd())
