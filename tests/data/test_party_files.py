"""Several parties' own files, joined by an id column in plain form."""

import numpy as np
import pandas as pd
import pytest

from securevfl.data import VerticalDataset, load_dataset
from securevfl.errors import DataError


def tables(count=40):
    source = np.random.Generator(np.random.Philox(1))
    ids = [f"u{k:03d}" for k in range(count)]
    a = pd.DataFrame({"id": ids, "age": np.arange(count), "job": list("xy") * (count // 2)})
    b = pd.DataFrame({"id": ids, "age": 1000 + np.arange(count), "sum": source.normal(size=count)})
    y = pd.DataFrame({"id": ids, "y": np.arange(count) % 2})
    return a, b, y


def save(folder, a, b, y=None):
    paths = [folder / "bank.csv", folder / "shop.csv"]
    a.to_csv(paths[0], index=False)
    b.to_csv(paths[1], index=False)
    if y is not None:
        y.to_csv(folder / "labels.csv", index=False)
    return paths


def test_rows_are_matched_by_id_whatever_their_order(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a.iloc[::-1], b.sample(frac=1, random_state=1), y)
    data = load_dataset(
        party_files=paths, id_column="id", label="y", label_file=tmp_path / "labels.csv",
        scaling="none",
    )  # fmt: skip
    assert data.party_names == ("bank", "shop")
    assert data.columns == (("age", "job=x", "job=y"), ("age", "sum"))
    for side in ("train", "test"):
        bank, shop = getattr(data, side)
        assert np.array_equal(bank[:, 0] + 1000, shop[:, 0])
        labels = getattr(data, f"{side}_labels")
        assert np.array_equal(bank[:, 0] % 2, labels)


def test_rows_that_are_not_everywhere_are_left_out_and_counted(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a.iloc[:30], b.iloc[10:], y)
    data = VerticalDataset.from_files(
        paths, id_column="id", label="y", label_file=tmp_path / "labels.csv"
    )
    assert data.rows + data.test_rows == 20
    assert "bank.csv: 10 of 30 rows left out" in " ".join(data.about.notes)


def test_the_label_may_lie_with_one_party(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a.merge(y, on="id"), b)
    data = load_dataset(party_files=paths, id_column="id", label="y", name="mine")
    assert data.name == "mine"
    assert "y" not in data.columns[0]


def test_data_frames_join_as_files_do():
    a, b, y = tables()
    data = VerticalDataset.from_pandas([a, b], "y", id_column="id", label_frame=y)
    assert data.widths == (3, 2)
    assert data.party_names == ("party 0", "party 1")
    new = data.transform.apply([a.iloc[:2], b.iloc[:2]])
    assert [part.shape for part in new] == [(2, 3), (2, 2)]
    with pytest.raises(DataError, match="two columns are called 'age'"):
        data.transform.apply(a.merge(b.drop(columns="age"), on="id"))


def test_repeated_ids_are_refused(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, pd.concat([a, a.iloc[[3]]]), b, y)
    with pytest.raises(
        DataError, match=r"bank.csv: the id 'u003' occurs more than once \(line 5 and line 42\)"
    ):
        load_dataset(
            party_files=paths, id_column="id", label="y", label_file=tmp_path / "labels.csv"
        )


def test_a_missing_id_is_refused(tmp_path):
    a, b, y = tables()
    a.loc[2, "id"] = None
    paths = save(tmp_path, a, b, y)
    with pytest.raises(DataError, match=r"bank.csv, line 4: the id in column 'id' is missing"):
        load_dataset(
            party_files=paths, id_column="id", label="y", label_file=tmp_path / "labels.csv"
        )


def test_no_common_id_is_refused_with_examples(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a, b.assign(id=[f"v{k}" for k in range(40)]), y)
    with pytest.raises(DataError, match=r"no id is in all 3 tables .*'u000'.*'v0'"):
        load_dataset(
            party_files=paths, id_column="id", label="y", label_file=tmp_path / "labels.csv"
        )


def test_ids_of_different_types_are_refused(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a, b.assign(id=range(40)), y)
    with pytest.raises(DataError, match=r"different types: bank.csv has texts such as 'u000'"):
        load_dataset(
            party_files=paths, id_column="id", label="y", label_file=tmp_path / "labels.csv"
        )


def test_ids_that_are_floats_in_a_frame_match_whole_numbers():
    a, b, y = (t.assign(id=np.arange(40)) for t in tables())
    data = VerticalDataset.from_pandas(
        [a, b.assign(id=np.arange(40.0))], "y", id_column="id", label_frame=y
    )
    assert data.rows + data.test_rows == 40


def test_absent_columns_and_empty_parties_are_refused(tmp_path):
    a, b, y = tables()
    labels = tmp_path / "labels.csv"
    paths = save(tmp_path, a, b, y)
    with pytest.raises(DataError, match=r"bank.csv has no id column 'key'"):
        load_dataset(party_files=paths, id_column="key", label="y", label_file=labels)
    with pytest.raises(DataError, match=r"labels.csv has no column 'z' for the label"):
        load_dataset(party_files=paths, id_column="id", label="z", label_file=labels)
    with pytest.raises(DataError, match="exactly one party's table and is in 0"):
        load_dataset(party_files=paths, id_column="id", label="y")
    with pytest.raises(DataError, match="need id_column="):
        load_dataset(party_files=paths, label="y")
    with pytest.raises(DataError, match="parties=3 and 2 party files"):
        load_dataset(party_files=paths, id_column="id", label="y", parties=3)
    save(tmp_path, a[["id"]], b, y)
    with pytest.raises(DataError, match=r"bank.csv has no columns besides ids and labels"):
        load_dataset(party_files=paths, id_column="id", label="y", label_file=labels)
