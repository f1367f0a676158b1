"""Classes are what the user gave: values and types from every source, and nothing merged."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from securevfl.data import VerticalDataset, load_dataset
from securevfl.data.base.class_values import StoredClassValues, restored_classes, stored_classes
from securevfl.errors import DataError

ROWS = 24


def typed(kind: str) -> tuple[pd.Series, list, str]:
    """Labels of a type in pandas, the classes in order, and NumPy's type of predictions."""
    first, second, dtype = {
        "int64": (1, 2, "int64"),
        "int8": (-1, 1, "int8"),
        "uint8": (0, 1, "uint8"),
        "bool": (False, True, "bool"),
        "float64": (1.0, 2.0, "float64"),
        "float32": (1.0, 2.0, "float32"),
        "object": ("no", "yes", "object"),
        "str": ("1", "2", "object"),  # texts in a frame stay texts
        "string": ("no", "yes", "object"),
        "Int64": (1, 2, "int64"),
        "boolean": (False, True, "bool"),
        "Float64": (1.0, 2.0, "float64"),
        "int64[pyarrow]": (1, 2, "int64"),
        "bool[pyarrow]": (False, True, "bool"),
        "category": (3, 5, "int64"),
        "category of texts": ("no", "yes", "object"),
    }[kind]
    series = pd.Series([first, second] * (ROWS // 2), name="y")
    return series.astype(kind.removesuffix(" of texts")), [first, second], dtype


KINDS = ["int64", "int8", "uint8", "bool", "float64", "float32", "object", "str", "string",
         "Int64", "boolean", "Float64", "int64[pyarrow]", "bool[pyarrow]", "category",
         "category of texts"]  # fmt: skip
OF_NUMPY = ["int64", "int8", "uint8", "bool", "float64", "float32", "object"]


def frame(labels) -> pd.DataFrame:
    return pd.DataFrame({"a": np.arange(ROWS) % 7.0, "b": np.arange(ROWS) % 5.0, "y": labels})


def has(data: VerticalDataset, values: list, dtype: str) -> None:
    assert data.class_values.dtype == np.dtype(dtype)
    found = data.class_values.tolist()
    assert [*map(type, found)] == [*map(type, values)]
    assert found == values


@pytest.mark.parametrize("kind", KINDS)
def test_frames_keep_their_types(kind):
    labels, values, dtype = typed(kind)
    has(VerticalDataset.from_pandas(frame(labels), "y"), values, dtype)
    test = frame(labels).iloc[:6]
    has(VerticalDataset.from_pandas(frame(labels), "y", test_frame=test), values, dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_joined_frames_keep_their_types(kind):
    labels, values, dtype = typed(kind)
    ids = [f"p{k}" for k in range(ROWS)]
    tables = [pd.DataFrame({"id": ids, c: np.arange(ROWS) * 1.0}) for c in "ab"]
    own = [tables[0].assign(y=labels), tables[1].iloc[::-1]]
    has(VerticalDataset.from_pandas(own, "y", id_column="id"), values, dtype)
    apart = pd.DataFrame({"id": ids, "y": labels})
    data = VerticalDataset.from_pandas(tables, "y", id_column="id", label_frame=apart)
    has(data, values, dtype)


@pytest.mark.parametrize("kind", OF_NUMPY)
def test_arrays_and_lists_keep_their_types(kind):
    labels, values, dtype = typed(kind)
    array, rows = labels.to_numpy(), frame(labels)[["a", "b"]].to_numpy()
    has(VerticalDataset.from_numpy(rows, array, parties=2), values, dtype)
    has(VerticalDataset.from_numpy(rows, array[:, None], parties=2), values, dtype)
    whole = VerticalDataset.from_numpy(rows, labels, parties=2)
    has(whole.with_parties(1).subset(12), values, dtype)
    listed = VerticalDataset.from_numpy(rows, array.tolist(), parties=2).class_values
    assert listed.tolist() == values
    assert type(listed.tolist()[0]) is type(values[0])


@pytest.mark.parametrize("kind", OF_NUMPY)
def test_parquet_and_arrow_keep_their_types(kind, tmp_path):
    pa = pytest.importorskip("pyarrow")
    labels, values, dtype = typed(kind)
    frame(labels).to_parquet(tmp_path / "t.parquet")
    has(load_dataset(tmp_path / "t.parquet", label="y"), values, dtype)
    has(VerticalDataset.from_pandas(pa.Table.from_pandas(frame(labels)), "y"), values, dtype)
    polars = pytest.importorskip("polars")
    has(VerticalDataset.from_pandas(polars.from_pandas(frame(labels)), "y"), values, dtype)


@pytest.mark.parametrize("kind", [kind for kind in OF_NUMPY if kind != "object"])
def test_torch_keeps_types(kind):
    import torch

    labels, values, dtype = typed(kind)
    rows = torch.as_tensor(frame(labels)[["a", "b"]].to_numpy().copy())
    tensors = torch.utils.data.TensorDataset(rows, torch.as_tensor(labels.to_numpy().copy()))
    has(VerticalDataset.from_torch(tensors, parties=2), values, dtype)
    pairs = [tensors[k] for k in range(ROWS)]
    has(VerticalDataset.from_torch(pairs, parties=2), values, dtype)
    texts = [(x, "no" if k % 2 else "yes") for k, (x, _) in enumerate(pairs)]
    assert VerticalDataset.from_torch(texts, parties=2).class_values.tolist() == ["no", "yes"]


def test_texts_of_numpy_keep_their_type():
    rows = np.arange(2.0 * ROWS).reshape(ROWS, 2)
    data = VerticalDataset.from_numpy(rows, np.array(["no", "maybe"] * (ROWS // 2)))
    assert data.class_values.dtype == np.dtype("<U5")
    assert data.class_values.tolist() == ["maybe", "no"]


@pytest.mark.parametrize(
    ("cells", "values", "names", "dtype"),
    [
        (("0", "1"), [0, 1], ("0", "1"), "int64"),
        (("-1", "+1"), [-1, 1], ("-1", "+1"), "int64"),
        (("01", "02"), [1, 2], ("01", "02"), "int64"),
        (("1.0", "2.0"), [1.0, 2.0], ("1.0", "2.0"), "float64"),
        (("FALSE", "TRUE"), [False, True], ("FALSE", "TRUE"), "bool"),
        (("no", "yes"), ["no", "yes"], ("no", "yes"), "object"),
        (("1", "a"), ["1", "a"], ("1", "a"), "object"),
    ],
)
def test_labels_of_a_csv_file_are_what_pandas_reads_and_shown_as_written(
    cells, values, names, dtype, tmp_path
):
    labels = [cells[k % 2] for k in range(ROWS)]
    path = tmp_path / "t.csv"
    frame(labels).to_csv(path, index=False)
    read = pd.read_csv(path)["y"].unique().tolist()
    assert read == values
    assert [*map(type, read)] == [*map(type, values)]
    for data in (
        load_dataset(path, label="y"),
        VerticalDataset.from_csv(path, "y", test_file=path),
        VerticalDataset.from_csv(path, "y", group="a"),
        load_dataset(path, label="y", parties=2),
    ):
        has(data, values, dtype)
        assert data.classes == names


def test_labels_of_parties_files_are_what_pandas_reads(tmp_path):
    ids = [f"p{k}" for k in range(ROWS)]
    for name in "ab":
        table = pd.DataFrame({"id": ids[:-2] if name == "b" else ids})
        table.assign(**{name: np.arange(len(table))}).to_csv(tmp_path / f"{name}.csv", index=False)
    pd.DataFrame({"id": ids, "y": ["01", "02"] * 12}).to_csv(tmp_path / "l.csv", index=False)
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    options = {"party_files": files, "id_column": "id", "label": "y"}
    data = load_dataset(**options, label_file=tmp_path / "l.csv")
    has(data, [1, 2], "int64")
    assert data.classes == ("01", "02")
    pd.read_csv(files[0]).assign(y=["1", "2"] * 12).to_csv(files[0], index=False)
    has(load_dataset(**options, unmatched="kept"), [1, 2], "int64")


ALIKE = "which are written differently and would be read as one label"


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (("0", "1", "1.0"), rf"has '1' and '1\.0', {ALIKE}"),
        (("1", "01", "2"), rf"has '01' and '1', {ALIKE}"),
        (("1", "2", "+2"), rf"has '\+2' and '2', {ALIKE}"),
        (("True", "false", "TRUE"), rf"has 'TRUE' and 'True', {ALIKE}"),
        (("no", "yes", "yes "), rf"has 'yes ' and 'yes', {ALIKE}"),
        (("no", "\u00e9", "e\u0301"), r"'e\\u0301' and '\\xe9' look the same"),
        (("no", "a b", "a\u00a0b\u200b"), r"'a b' and 'a\\xa0b\\u200b' look the same"),
    ],
)
def test_two_spellings_of_one_label_in_a_file_are_refused(cells, message, tmp_path):
    path = tmp_path / "t.csv"
    frame([cells[k % 3] for k in range(ROWS)]).to_csv(path, index=False)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(path, label="y")
    assert "'y'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_spelling_in_a_test_file_is_refused(tmp_path):
    frame(["1", "2"] * 12).to_csv(tmp_path / "train.csv", index=False)
    frame(["1.0", "2.0"] * 12).to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(DataError, match=r"has '.' and '.\.0' in training and test rows"):
        load_dataset(tmp_path / "train.csv", label="y", test_file=tmp_path / "test.csv")


def test_test_rows_of_another_type_are_taken_where_they_are_equal():
    train, test = frame([1, 2] * 12), frame([1.0, 2.0] * 12)
    has(VerticalDataset.from_pandas(train, "y", test_frame=test), [1, 2], "int64")
    with pytest.raises(DataError, match=r"has '1' and 1 in training and test rows"):
        VerticalDataset.from_pandas(train, "y", test_frame=frame(["1", "2"] * 12))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["1", "1.0", "2"], rf"has '1' and '1\.0', {ALIKE}"),
        ([1, 1.0, 2], rf"has 1 and 1\.0, {ALIKE}"),
        ([1, "1", "a"], rf"has '1' and 1, {ALIKE}"),
        ([True, 1, "a"], rf"has 1 and True, {ALIKE}"),
        ([2**53, 2**53 + 1, 0], rf"has {2**53} and {2**53 + 1}, {ALIKE}"),
        ([Decimal(1), Decimal(2), Decimal(3)], r"holds objects of Decimal, such as Decimal\('1'\)"),
        ([b"a", b"b", b"c"], r"holds objects of bytes, such as b'a'"),
    ],
)
def test_labels_that_a_frame_or_list_tells_apart_are_not_merged(labels, message):
    rows = frame(pd.Series(labels * 8, dtype=object))
    with pytest.raises(DataError, match=message):
        VerticalDataset.from_pandas(rows, "y", task="multiclass")
    if {*map(type, labels)} == {int, float}:  # a list of numbers is one of floats
        return
    with pytest.raises(DataError, match=message):
        VerticalDataset.from_numpy(rows[["a", "b"]].to_numpy(), labels * 8, task="multiclass")


def test_texts_and_numbers_may_be_mixed():
    data = VerticalDataset.from_numpy(frame(0)[["a", "b"]].to_numpy(), [1, "a", 2.5] * 8)
    has(data, [1, 2.5, "a"], "object")


def test_classes_that_differ_in_capitals_alone_stay_apart_and_are_noted(tmp_path):
    path = tmp_path / "t.csv"
    frame(["yes", "Yes", "no", "NO"] * 6).to_csv(path, index=False)
    for data in (
        load_dataset(path, label="y"),
        VerticalDataset.from_numpy(np.eye(ROWS), ["yes", "Yes", "no", "NO"] * 6),
    ):
        assert data.classes == ("NO", "Yes", "no", "yes")
        noted = [note for note in data.about.notes if "capital letters" in note]
        assert len(noted) == 2
        assert "'NO', 'no' differ only in capital letters and are 2 classes" in noted[0]


def test_numbers_written_in_two_ways_may_be_targets(tmp_path):
    path = tmp_path / "t.csv"
    frame([f"{k}" if k % 2 else f"{k}.0" for k in range(ROWS)]).to_csv(path, index=False)
    data = load_dataset(path, label="y", task="regression")
    assert data.class_values.tolist() == []


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 2], np.int8),
        np.array([2**63, 2**64 - 1], np.uint64),
        np.array([False, True]),
        np.array([0.1, 0.2], np.float32),
        np.array([0.1, 0.2, 1e300]),
        np.array(["no", "maybe"]),
        np.array(["no", 1, 2.5, True], dtype=object)[:3],
    ],
)
def test_stored_values_are_the_same_again(values):
    import json

    stored = json.loads(json.dumps(stored_classes(values)))
    StoredClassValues.check(stored)
    again = restored_classes(stored)
    assert again.dtype == values.dtype
    assert again.tolist() == values.tolist()
    assert [*map(type, again.tolist())] == [*map(type, values.tolist())]


@pytest.mark.parametrize(
    "content",
    [
        {"type": "int64", "values": ["1", "2"]},
        {"type": "int8", "values": [1, 300]},
        {"type": "bool", "values": [0, 1]},
        {"type": "object", "values": [1, True]},
        {"type": "float64", "values": [1.0]},
        {"type": "datetime64[ns]", "values": [1, 2]},
        {"type": "<U1000000000", "values": ["a", "b"]},
        {"type": "object", "values": [[1], [2]]},
    ],
)
def test_changed_values_are_refused(content):
    with pytest.raises(ValueError, match=r"values|type"):
        StoredClassValues.check(content)


def test_as_many_values_as_classes():
    from dataclasses import replace

    data = VerticalDataset.from_pandas(frame([1, 2] * 12), "y")
    with pytest.raises(DataError, match=r"class_values have the shape \(3,\) for 2 classes"):
        replace(data, class_values=np.arange(3))
    with pytest.raises(ValueError, match="read-only"):
        data.class_values[0] = 7
