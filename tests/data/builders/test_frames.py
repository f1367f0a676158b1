"""CSV files and data frames: encoding, filling, labels, and every refusal at the door."""

import datetime
import re

import numpy as np
import pandas as pd
import pytest

from securevfl.data import VerticalDataset, load_dataset
from securevfl.errors import ConfigurationError, DataError, UnknownNameError


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def rows(count, line):
    return "\n".join(line(k) for k in range(count)) + "\n"


def column(data, name, side="train"):
    party = next(p for p, names in enumerate(data.columns) if name in names)
    return getattr(data, side)[party][:, data.columns[party].index(name)]


def test_texts_numbers_truth_values_and_gaps(tmp_path):
    cities = ["Oslo", "Rome", ""]
    text = "age,city,member,y\n" + rows(
        30,
        lambda k: (
            f"{20 + k if k % 5 else ''},{cities[k % 3]},{k % 2 == 0},{'no' if k % 4 else 'yes'}"
        ),
    )
    data = load_dataset(write(tmp_path / "t.csv", text), label="y", parties=2)
    assert data.classes == ("no", "yes")
    assert data.columns == (
        ("age", "age missing", "city=Oslo", "city=Rome", "city missing"),
        ("member",),
    )
    one_hot = [column(data, f"city{end}") for end in ("=Oslo", "=Rome", " missing")]
    assert np.array_equal(np.sum(one_hot, axis=0), np.ones(data.rows))
    assert set(np.unique(column(data, "member"))) == {0.0, 1.0}
    assert any("one-hot" in note for note in data.about.notes)
    assert any("missing values in age, city" in note for note in data.about.notes)


def test_missing_numbers_become_the_median_of_the_training_rows():
    train = pd.DataFrame(
        {"a": [1.0, 2.0, np.nan, 9.0], "b": [0.0, 1.0, 2.0, 3.0], "y": [0, 1, 0, 1]}
    )
    test = pd.DataFrame({"a": [np.nan, 5.0], "b": [np.nan, 1.0], "y": [0, 1]})
    data = VerticalDataset.from_pandas(train, "y", test_frame=test, parties=1, scaling="none")
    assert data.columns == (("a", "a missing", "b"),)
    assert data.train[0][:, 0].tolist() == [1.0, 2.0, 2.0, 9.0]
    assert data.train[0][:, 1].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert data.test[0].tolist() == [[2.0, 1.0, 1.5], [5.0, 0.0, 1.0]]
    assert any("'b': 1 values are missing in test rows only" in n for n in data.about.notes)


def test_a_text_that_the_training_rows_lack_becomes_all_zero():
    train = pd.DataFrame({"c": ["u", "v", "u", "v"], "y": [0, 1, 0, 1]})
    test = pd.DataFrame({"c": ["w", "v"], "y": [0, 1]})
    data = VerticalDataset.from_pandas(train, "y", test_frame=test)
    assert data.test[0].tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_a_pandas_category_of_numbers_stays_a_category():
    frame = pd.DataFrame({"self": pd.Categorical([1, 2, 3, 1] * 3), "y": [0, 1] * 6})
    data = VerticalDataset.from_pandas(frame, "y")
    assert data.columns == (("self=1", "self=2", "self=3"),)


@pytest.mark.parametrize("cell", ["1_000", "0x10", "12 kg"])
def test_texts_that_only_resemble_numbers_stay_texts(cell):
    frame = pd.DataFrame({"a": ["1", cell] * 4, "y": ["u", "v"] * 4})
    expected = tuple(sorted(["a=1", f"a={cell}"]))
    assert VerticalDataset.from_pandas(frame, "y").columns == (expected,)


@pytest.mark.parametrize(
    "shown",
    ["{:,.2f}", "{:,.0f}", "${:,.2f}", "{:.1f} EUR", "\u20ac{:.0f}", "{:.1f}%", "{:.0f} %",
     "'{:.2f}", '"{:.2f}"', "({:.2f})", "\u2212{:.2f}", "{:.2f}-", "{:.2f}\u00a0\u00a3"],
)  # fmt: skip
def test_numbers_as_spreadsheets_show_them_are_no_categories(tmp_path, shown):
    cells = [shown.format(1000 + 7.5 * k) for k in range(40)]
    frame = pd.DataFrame({"x": range(40), "sum": cells, "y": ["a", "b"] * 20})
    frame.to_csv(tmp_path / "own.csv", index=False)
    for refused in (
        lambda: VerticalDataset.from_csv(tmp_path / "own.csv", "y", parties=2),
        lambda: VerticalDataset.from_pandas(frame, "y", parties=2),
    ):
        with pytest.raises(DataError, match=r"40 of 40 look like .* spreadsheet .* plain ones"):
            refused()


@pytest.mark.parametrize("cell", ["1,5", "1,234", "(2)", "2 %"])
def test_such_numbers_among_plain_ones_are_refused(cell):
    frame = pd.DataFrame({"a": ["1", cell] * 4, "y": ["u", "v"] * 4})
    with pytest.raises(DataError, match=r"would be one of categories. All but 4 of 8 are numbers"):
        VerticalDataset.from_pandas(frame, "y")


@pytest.mark.parametrize("text", ["c{}", "{} months", "{}-{}", "2024-01-{:02d}", "192.168.0.{}"])
def test_texts_with_numbers_in_them_stay_categories(text):
    cells = [text.format(k % 5, k % 5 + 1) for k in range(40)]
    frame = pd.DataFrame({"x": range(40), "t": cells, "y": ["a", "b"] * 20})
    assert VerticalDataset.from_pandas(frame, "y", parties=2).widths == (1, 5)


@pytest.mark.parametrize("cell", [datetime.date(2020, 1, 1), datetime.time(9), (1, 2)])
def test_dates_and_tuples_as_objects_are_no_categories(cell):
    frame = pd.DataFrame({"x": [cell] * 40, "y": [0, 1] * 20})
    with pytest.raises(DataError, match=f"objects of {type(cell).__name__}"):
        VerticalDataset.from_pandas(frame, "y", parties=1)


def test_bytes_are_no_texts():
    frame = pd.DataFrame({"x": range(40), "t": [b"u", b"v"] * 20, "y": ["a", "b"] * 20})
    with pytest.raises(
        DataError, match=r"column 't' holds objects of bytes, such as b'[uv]'; decode"
    ):
        VerticalDataset.from_pandas(frame, "y", parties=2)


def test_files_of_write_table_are_named_as_such(tmp_path):
    write(tmp_path / "a.txt", "x z y\n1 2 a\n2 3 b\n")
    with pytest.raises(DataError, match=r"one column, 'x z y'; name the .* separator=' '"):
        VerticalDataset.from_csv(tmp_path / "a.txt", "y")
    write(tmp_path / "b.csv", "x,z,y\nr1,1,2,a\nr2,2,3,b\n")
    with pytest.raises(DataError, match=r"4 fields where 3 .* header: it lacks .* write.table"):
        VerticalDataset.from_csv(tmp_path / "b.csv", "y")
    text = "x;z;y\n" + "".join(f"{k};{k},5E+03;{'ab'[k % 2]}\n" for k in range(1, 9))
    write(tmp_path / "c.csv", text)
    assert VerticalDataset.from_csv(tmp_path / "c.csv", "y", parties=2).widths == (1, 1)


def test_new_rows_are_encoded_as_the_training_rows_were(tmp_path):
    text = "age,city,y\n" + rows(40, lambda k: f"{k},{'AB'[k % 2]},{k % 3 % 2}")
    path = write(tmp_path / "t.csv", text)
    data = load_dataset(path, label="y", parties=2)
    again = data.transform.apply(pd.read_csv(path))
    pool = {row.tobytes() for row in np.concatenate(data.train, axis=1)}
    encoded = [row.tobytes() for row in np.concatenate(again, axis=1)]
    assert sum(row in pool for row in encoded) == data.rows
    assert [a.shape[1] for a in data.transform.apply({"age": [7], "city": ["B"]})] == [1, 2]


@pytest.mark.parametrize(
    ("labels", "classes", "task"),
    [
        (["no", "yes"] * 10, ("no", "yes"), "binary"),
        ([True, False] * 10, ("False", "True"), "binary"),
        ([1, -1] * 10, ("-1", "1"), "binary"),
        ([2.0, 10.0, 1.0, 2.0] * 5, ("1.0", "2.0", "10.0"), "multiclass"),
        ([f"c{k % 4}" for k in range(20)], ("c0", "c1", "c2", "c3"), "multiclass"),
        (list(pd.Categorical([3, 5] * 10)), ("3", "5"), "binary"),
        (np.linspace(0, 1, 20).tolist(), (), "regression"),
        (list(range(100, 140)), (), "regression"),
    ],
)
def test_labels_of_any_type(labels, classes, task):
    frame = pd.DataFrame({"a": np.arange(len(labels)), "y": labels})
    data = VerticalDataset.from_pandas(frame, "y")
    assert (data.classes, data.task) == (classes, task)
    raw = VerticalDataset.from_pandas(frame, "y", scaling="none")
    for row, label in zip(raw.train[0][:, 0].astype(int), raw.train_labels, strict=True):
        if not classes:
            assert np.isclose(label, labels[row])
        else:
            assert classes[label] == str(labels[row])
            assert data.class_values[label] == labels[row]


def test_a_task_that_is_asked_for_wins():
    frame = pd.DataFrame({"a": np.arange(60), "y": np.arange(60) % 30})
    assert VerticalDataset.from_pandas(frame, "y", task="multiclass").num_classes == 30
    assert VerticalDataset.from_pandas(frame, "y").task == "regression"
    with pytest.raises(DataError, match="task='binary' allows 2 classes and there are 30"):
        VerticalDataset.from_pandas(frame, "y", task="binary")
    with pytest.raises(DataError, match="task='ranking' does not exist"):
        VerticalDataset.from_pandas(frame, "y", task="ranking")


def test_an_id_column_is_kept_and_noted(tmp_path):
    text = "user_id,a,y\n" + rows(40, lambda k: f"{1000 + k},{k % 7},{k % 2}")
    path = write(tmp_path / "t.csv", text)
    data = load_dataset(path, label="y")
    assert "user_id" in data.transform.columns
    assert any("'user_id'" in note and "may be an id" in note for note in data.about.notes)
    assert load_dataset(path, label="y", drop=["user_id"]).transform.columns == ("a",)


@pytest.mark.parametrize(("different", "noted"), [(40, True), (18, True), (14, False)])
def test_a_column_of_texts_that_may_name_rows_is_noted(tmp_path, different, noted):
    text = "who,a,y\n" + rows(40, lambda k: f"Ms {k % different},{k % 7},{k % 2}")
    data = load_dataset(write(tmp_path / "t.csv", text), label="y")
    found = [note for note in data.about.notes if "may name them" in note]
    assert bool(found) == noted, data.about.notes
    assert all("column 'who' has" in note and "drop=['who'] leaves it" in note for note in found)


def test_owners_may_be_named(tmp_path):
    path = write(tmp_path / "t.csv", "a,b,c,y\n" + rows(12, lambda k: f"{k},{k},{k},{k % 2}"))
    data = load_dataset(path, label="y", owners=[["c"], ["a", "b"]], party_names=["bank", "shop"])
    assert data.columns == (("c",), ("a", "b"))
    assert data.party_names == ("bank", "shop")
    matrix = np.array([[0.0, 1.0, 11.0]])
    assert data.transform.apply(matrix)[0].tolist() == [[1.0]]


def test_a_test_file_holds_the_test_rows(tmp_path):
    train = write(tmp_path / "a.csv", "a,y\n1,u\n2,v\n3,u\n4,v\n")
    held = write(tmp_path / "b.csv", "y,a\nv,9\n")
    data = load_dataset(train, label="y", test_file=held)
    assert data.test[0].tolist() == [[1.0]]
    assert data.test_labels.tolist() == [1]
    write(held, "y,a\nw,9\n")
    with pytest.raises(DataError, match="the class 'w', which no training row has"):
        load_dataset(train, label="y", test_file=held)


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.bz2", ".csv.xz", ".tsv"])
def test_packed_and_tab_separated_files(tmp_path, suffix):
    frame = pd.DataFrame({"a": range(8), "b": range(8), "y": list("uv") * 4})
    path = tmp_path / f"t{suffix}"
    frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    assert load_dataset(path, label="y", parties=2).widths == (1, 1)


GOOD = "1,2,u\n3,4,v\n5,6,u\n7,8,v\n"

REFUSED = {
    "the label column does not exist": (
        "a,b,y\n" + GOOD,
        {"label": "z"},
        "no column 'z' for the label; its columns are a, b, y",
    ),
    "no label was named": ("a,b,y\n" + GOOD, {"label": None}, "label= is missing"),
    "a single class": ("a,y\n1,u\n2,u\n3,u\n4,u\n", {}, "all 3 training rows have the label 'u'"),
    "NaN": (
        "a,b,y\n1,2,u\nnan,4,v\n5,6,u\n7,8,v\n",
        {},
        "column 'a', t.csv, line 3: the value is nan",
    ),
    "infinity": (
        "a,b,y\n1,2,u\n3,4,v\n5,-inf,u\n7,8,v\n",
        {},
        "column 'b', t.csv, line 4: the value is infinite",
    ),
    "a label is missing": (
        "a,b,y\n1,2,u\n3,4,\n5,6,u\n7,8,v\n",
        {},
        "1 of 4 labels are missing, the first in t.csv, line 3",
    ),
    "repeated column names": ("a,a,y\n" + GOOD, {}, "two columns are called 'a'"),
    "more parties than columns": (
        "a,b,y\n" + GOOD,
        {"parties": 3},
        "2 columns cannot be divided among 3 parties",
    ),
    "no parties": ("a,b,y\n" + GOOD, {"parties": 0}, "at least 1 party"),
    "an empty party": ("a,b,y\n" + GOOD, {"owners": [["a", "b"], []]}, "party 1 owns no columns"),
    "an unknown column": ("a,b,y\n" + GOOD, {"owners": [["a"], ["c"]]}, "'c', which is no column"),
    "a column without owner": (
        "a,b,y\n" + GOOD,
        {"owners": [["a"]]},
        "1 of 2 columns have no owner",
    ),
    "a column with two owners": (
        "a,b,y\n" + GOOD,
        {"owners": [["a"], ["a", "b"]]},
        "owned by parties 0 and 1",
    ),
    "a column that cannot be dropped": ("a,b,y\n" + GOOD, {"drop": ["q"]}, "no column 'q'"),
    "only a label": ("y\nu\nv\nu\nv\n", {}, "no columns besides the label"),
    "no rows": ("a,b,y\n", {}, "has no rows below its header"),
    "an empty file": ("", {}, "is empty"),
    "a cut off file": ("a,b,y\n1,2,u\n3,4,v\n5", {}, "line 4: 1 fields where 3 are expected"),
    "another separator": ("a;b|y\n1;2|u\n3;4|v\n", {"label": "a;b|y"}, "name the separator"),
    "a column without values": (
        "a,b,y\n,2,u\n,4,v\n,6,u\n,8,v\n",
        {},
        "has no value in any of the 3 training rows",
    ),
    "too many texts": (
        "a,b,y\np,2,u\nq,4,v\nr,6,u\ns,8,v\n",
        {"max_categories": 2},
        "3 different texts in 3 training rows",
    ),
    "a fraction of one": ("a,b,y\n" + GOOD, {"test_fraction": 1.0}, "between 0 and 1"),
    "a negative seed": ("a,b,y\n" + GOOD, {"seed": -1}, "0 or more"),
    "an unknown scaling": ("a,b,y\n" + GOOD, {"scaling": "robust"}, "use minmax, standard or none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_whatever_cannot_be_used_is_refused_in_one_line(tmp_path, case):
    text, options, message = REFUSED[case]
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(DataError, match=re.escape(message)) as error:
        load_dataset(path, **{"label": "y", **options})
    assert "\n" not in str(error.value)
    assert isinstance(error.value, ConfigurationError)


def test_a_text_among_numbers_of_the_training_rows_is_named(tmp_path):
    train = write(tmp_path / "a.csv", "a,y\n1,u\n2,v\n3,u\n4,v\n")
    held = write(tmp_path / "b.csv", "a,y\n5,u\nfive,v\n")
    with pytest.raises(
        DataError, match=r"training rows are numbers, but b.csv, line 3 holds 'five'"
    ):
        load_dataset(train, label="y", test_file=held)


def test_files_that_are_no_text_or_absent_are_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,y\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="not UTF-8"):
        load_dataset(tmp_path / "t.csv", label="y")
    (tmp_path / "t.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="cannot be read"):
        load_dataset(tmp_path / "t.csv.gz", label="y")
    with pytest.raises(DataError, match="no such file"):
        load_dataset(tmp_path / "absent.csv", label="y")
    with pytest.raises(UnknownNameError, match="option of a CSV file 'lable'"):
        load_dataset(write(tmp_path / "u.csv", "a,y\n" + GOOD), lable="y")


def test_frames_of_strange_cells_are_refused():
    dates = pd.DataFrame({"when": pd.date_range("2020-01-01", periods=8), "y": [0, 1] * 4})
    with pytest.raises(DataError, match="holds dates"):
        VerticalDataset.from_pandas(dates, "y")
    lists = pd.DataFrame({"a": [[1], [2]] * 4, "y": [0, 1] * 4})
    with pytest.raises(DataError, match="compound cells"):
        VerticalDataset.from_pandas(lists, "y")
    layers = pd.DataFrame(
        np.ones((4, 2)), columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])
    )
    with pytest.raises(DataError, match="2 layers"):
        VerticalDataset.from_pandas(layers, "b")


def test_a_group_is_never_on_both_sides():
    frame = pd.DataFrame(
        {"who": np.repeat(np.arange(20), 4), "a": np.arange(80), "y": np.tile([0, 1], 40)}
    )
    data = VerticalDataset.from_pandas(frame, "y", group="who", scaling="none")
    train = set((data.train[0][:, 0] // 4).astype(int))
    test = set((data.test[0][:, 0] // 4).astype(int))
    assert train.isdisjoint(test)
    assert train | test == set(range(20))
    assert "who" not in data.transform.columns


@pytest.mark.parametrize(
    ("factor", "shift", "words"),
    [
        (1e20, 0.0, "squared errors is a float32; rescale"),
        (2.5e18, 0.0, "exceeds 2.4e.18, up to which the sum of 15 squared errors"),
        (1e-20, 0.0, "rescale the target"),
        (10.0, 1.7e9, "lose up to 10 as float32; subtract a constant"),
    ],
)
def test_targets_whose_errors_float32_cannot_hold_are_refused(factor, shift, words):
    frame = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20.0) ** 2})
    target = np.linspace(0.05, 1, 20)
    asked = {"parties": 2, "task": "regression"}
    VerticalDataset.from_pandas(frame.assign(y=1e9 + 1e6 * target), "y", **asked)
    with pytest.raises(DataError, match=words):
        VerticalDataset.from_pandas(frame.assign(y=shift + factor * target), "y", **asked)
