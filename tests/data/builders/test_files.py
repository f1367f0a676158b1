"""Several parties' own files, joined by an id column in plain form."""

import gzip

import numpy as np
import pandas as pd
import pytest

from securevfl.data import VerticalDataset, join_rows, load_dataset
from securevfl.data.preparation.csvfile import read_csv
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


def test_ids_that_print_alike_are_shown_by_code_points(tmp_path):
    a, b, y = tables()
    a, y = (one.assign(id=[f"\ufb01{k}\u200b" for k in range(len(one))]) for one in (a, y))
    paths = save(tmp_path, a, b.assign(id=[f"fi{k}" for k in range(len(b))]), y)
    with pytest.raises(
        DataError, match=r"some look alike: .*'\\ufb010\\u200b'.*'fi0'.*same letters"
    ):
        load_dataset(
            party_files=paths, id_column="id", label="y", label_file=tmp_path / "labels.csv"
        )


@pytest.mark.parametrize(
    ("plain", "other"),
    [("{}", "{:03d}"), ("u{}", "U{}"), ("u {}", "u\u00a0{}"), ("u{}", "u{}\u200b")],
)
def test_ids_of_which_some_are_written_otherwise_are_refused(tmp_path, plain, other):
    a, b, y = tables()
    a, y = (one.assign(id=[plain.format(k) for k in range(90, 130)]) for one in (a, y))
    b = b.assign(id=[(other if k < 100 else plain).format(k) for k in range(90, 130)])
    paths = save(tmp_path, a, b, y)
    given = {"id_column": "id", "label": "y", "label_file": tmp_path / "labels.csv"}
    with pytest.raises(DataError, match=r"10 ids are written differently .* Write them alike"):
        load_dataset(party_files=paths, **given)
    with pytest.raises(DataError, match=r"10 ids are written differently"):
        join_rows([a, b], "id")


def test_ids_that_differ_in_a_table_by_capitals_alone_are_different(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a, b.assign(id=["U000", *b["id"][:-1]]), y)
    given = {"id_column": "id", "label": "y", "label_file": tmp_path / "labels.csv"}
    data = load_dataset(party_files=paths, **given)
    assert data.rows + data.test_rows == 39


def test_the_example_of_other_ids_is_one_that_differs(tmp_path):
    a, b, y = tables()
    a, y = (one.assign(id=range(99_980, 100_020)) for one in (a, y))
    written = ["1e+05" if k == 100_000 else str(k) for k in range(99_980, 100_020)]  # as R has it
    paths = save(tmp_path, a, b.assign(id=written), y)
    with pytest.raises(DataError, match=r"shop.csv has texts such as '1e\+05'"):
        load_dataset(
            party_files=paths, id_column="id", label="y", label_file=tmp_path / "labels.csv"
        )


def test_ids_in_another_form_of_unicode_are_the_same(tmp_path):
    a, b, y = tables()
    given = {"id_column": "id", "label": "y", "label_file": tmp_path / "labels.csv"}
    a, y = (one.assign(id=[f"\u00e9{k}" for k in range(len(one))]) for one in (a, y))
    rows = []
    for letter in ("\u00e9", "e\u0301"):
        paths = save(tmp_path, a, b.assign(id=[f"{letter}{k}" for k in range(len(b))]), y)
        rows.append(load_dataset(party_files=paths, **given).fingerprint())
    assert rows[0] == rows[1]


def test_a_party_with_labels_alone_is_the_file_of_the_labels(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a, b, y)
    given = {"id_column": "id", "label": "y"}
    whole = load_dataset(party_files=paths, label_file=tmp_path / "labels.csv", **given)
    found = load_dataset(party_files=[tmp_path / "labels.csv", *paths], **given)
    assert found.fingerprint() == whole.fingerprint()
    assert any("labels.csv has labels and no columns" in note for note in found.about.notes)


def test_a_packed_file_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("securevfl.reading._SMALL", 10_000)
    for lines, said in (
        (10, None),
        (100_000, r"p\.csv\.gz has .* bytes, and unpacks to more than"),
    ):
        path = tmp_path / "p.csv.gz"
        path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * lines))
        if said is None:
            assert len(read_csv(path)) == lines
            continue
        with pytest.raises(DataError, match=said):
            read_csv(path)
        path.write_bytes(gzip.compress(b"a,b\n1," + b"2" * 4 * lines))  # one line
        with pytest.raises(DataError, match=said):
            read_csv(path)


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
    with pytest.raises(DataError, match="no party's table has the label column 'y'"):
        load_dataset(party_files=paths, id_column="id", label="y")
    with pytest.raises(DataError, match="need id_column="):
        load_dataset(party_files=paths, label="y")
    with pytest.raises(DataError, match="parties=3 and 2 party files"):
        load_dataset(party_files=paths, id_column="id", label="y", parties=3)
    save(tmp_path, a[["id"]], b, y)
    with pytest.raises(DataError, match=r"bank.csv has no columns besides ids and labels"):
        load_dataset(party_files=paths, id_column="id", label="y", label_file=labels)


# -- rows without a partner ------------------------------------------------------------------------


def partly(tmp_path, first=range(30), second=range(10, 40), **options):
    """Files whose ids overlap; the first one holds the labels."""
    a, b, y = tables()
    paths = save(tmp_path, a.merge(y, on="id").iloc[list(first)], b.iloc[list(second)])
    options = {"scaling": "none", "unmatched": "kept"} | options
    return load_dataset(party_files=paths, id_column="id", label="y", **options)


def test_rows_without_a_partner_are_kept_alone_with_the_first_party_s_labels(tmp_path):
    data = partly(tmp_path)
    assert (data.rows + data.test_rows, [len(part) for part in data.alone]) == (20, [10, 10])
    assert data.alone[0][:, 0].tolist() == list(range(10))
    assert data.alone[1][:, 0].tolist() == list(range(1030, 1040))
    assert data.alone_labels.tolist() == [k % 2 for k in range(10)]
    assert "bank.csv: 10 of 30 rows kept as the party's alone" in " ".join(data.about.notes)


def test_the_common_rows_are_split_as_without_them(tmp_path):
    kept, dropped = partly(tmp_path), partly(tmp_path, unmatched="dropped")
    assert dropped.alone == ()
    for side in ("train", "test"):
        for one, two in zip(getattr(kept, side), getattr(dropped, side), strict=True):
            assert np.array_equal(one, two)


def test_columns_are_fitted_on_rows_held_alone_and_never_on_test_rows(tmp_path):
    data = partly(tmp_path, range(20), scaling="minmax")
    known = np.sort(np.concatenate([data.train[0], data.alone[0]])[:, 0])
    # Ages 0 to 9 are held alone; those of the test rows are among 10 to 19.
    largest = round(float(1 / known[1]))
    assert (known[0], known[-1]) == (0.0, 1.0)
    assert largest >= 19 - len(data.test[0])
    np.testing.assert_allclose(known[:10], np.arange(10) / largest, rtol=1e-6)


def test_values_of_categories_that_only_rows_held_alone_have_are_known(tmp_path):
    a, b, y = tables()
    a.loc[:9, "job"] = "z"
    paths = save(tmp_path, a.merge(y, on="id").iloc[:30], b.iloc[10:])
    options = {"party_files": paths, "id_column": "id", "label": "y"}
    assert "job=z" in load_dataset(unmatched="kept", **options).columns[0]
    assert "job=z" not in load_dataset(**options).columns[0]


def test_classes_of_rows_held_alone_count(tmp_path):
    a, b, y = tables()
    y["y"] = ["rare" if k < 3 else "ab"[k % 2] for k in range(40)]
    paths = save(tmp_path, a.merge(y, on="id").iloc[:30], b.iloc[10:])
    data = load_dataset(party_files=paths, id_column="id", label="y", unmatched="kept")
    assert data.classes == ("a", "b", "rare")
    assert data.alone_labels.tolist()[:4] == [2, 2, 2, 1]


def test_labels_elsewhere_leave_rows_held_alone_without_any(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a.iloc[:30], b.iloc[10:], y)
    data = load_dataset(
        party_files=paths, id_column="id", label="y", label_file=tmp_path / "labels.csv",
        unmatched="kept",
    )  # fmt: skip
    assert data.alone_labels is None
    assert [len(part) for part in data.alone] == [10, 10]
    assert "have no label" in " ".join(data.about.notes)


def test_a_party_may_have_no_row_alone_and_all_may(tmp_path):
    data = partly(tmp_path, range(10, 30), range(10, 40))
    assert [len(part) for part in data.alone] == [0, 10]
    assert len(data.alone_labels) == 0
    assert partly(tmp_path, range(40), range(40)).alone == ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unmatched": "keep"}, "unmatched='keep' does not exist"),
        ({"unmatched": "kept", "group": "job"}, "may belong to a group that is held out"),
        ({"unmatched": "kept", "id_column": None}, "need id_column="),
    ],
)
def test_mistakes_about_rows_without_a_partner_are_told(tmp_path, options, said):
    a, b, y = tables()
    paths = save(tmp_path, a.merge(y, on="id").iloc[:30], b.iloc[10:])
    with pytest.raises(DataError, match=said):
        load_dataset(**{"party_files": paths, "id_column": "id", "label": "y"} | options)


def test_a_partys_copy_of_the_label_is_no_feature(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a.merge(y), b, y)
    given = {"id_column": "id", "label": "y", "label_file": tmp_path / "labels.csv"}
    with pytest.raises(DataError, match=r"bank.csv has a column 'y', too"):
        load_dataset(party_files=paths, **given)


def test_a_file_is_one_partys(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a, b, y)
    given = {"id_column": "id", "label": "y", "label_file": tmp_path / "labels.csv"}
    with pytest.raises(DataError, match="is given for party 0 and for party 2"):
        load_dataset(party_files=[*paths, paths[0]], **given)


def test_a_single_name_can_be_dropped(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a, b, y)
    given = {"id_column": "id", "label": "y", "label_file": tmp_path / "labels.csv"}
    data = load_dataset(party_files=paths, drop="job", **given)
    assert data.columns[0] == ("age",)


def test_a_column_without_a_name_is_refused(tmp_path):
    a, b, y = tables()
    paths = save(tmp_path, a, b, y)
    given = {"id_column": "id", "label": "y", "label_file": tmp_path / "labels.csv"}
    found = load_dataset(party_files=paths, **given).fingerprint()
    a.to_csv(paths[0])  # with pandas' row numbers
    assert load_dataset(party_files=paths, **given).fingerprint() == found
    a.rename(columns={"age": ""}).to_csv(paths[0], index=False)
    with pytest.raises(DataError, match=r"bank.csv: column \d of 3 has no name"):
        load_dataset(party_files=paths, **given)


def test_a_label_that_is_nearly_a_column_is_hinted_at(tmp_path):
    a, b, y = tables(40)
    paths = save(tmp_path, a.assign(affair=y["y"]), b, y)
    with pytest.raises(DataError, match=r"no party's table has .* 'affairs' .* mean 'affair'\?$"):
        load_dataset(party_files=paths, id_column="id", label="affairs")
    given = {"id_column": "id", "label": "yy", "label_file": tmp_path / "labels.csv"}
    with pytest.raises(DataError, match=r"labels.csv has no column 'yy' .* Did you mean 'y'\?$"):
        load_dataset(party_files=paths, **given)
    with pytest.raises(DataError, match=r"has no id column 'idd'; .* Did you mean 'id'\?$"):
        load_dataset(party_files=paths, **given | {"id_column": "idd", "label": "y"})


def test_texts_that_name_single_rows_are_no_classes(tmp_path):
    a, b, y = tables(400)
    given = {"id_column": "id", "label": "y", "label_file": tmp_path / "labels.csv"}
    paths = save(tmp_path, a, b, y.assign(y=[f"{k}.5 EUR" for k in range(400)]))
    with pytest.raises(DataError, match=r"400 different texts in 400 rows, .* no classes"):
        load_dataset(party_files=paths, **given)
    odd = [str(k) for k in range(400)]
    odd[7] = "unknown"
    paths = save(tmp_path, a, b, y.assign(y=odd))
    with pytest.raises(DataError, match=r"All but 1 of 400 .* 'unknown' in labels.csv, line 9"):
        load_dataset(party_files=paths, **given)


def test_a_column_of_numbers_with_an_odd_cell_says_which(tmp_path):
    a, b, y = tables(400)
    paths = save(tmp_path, a.assign(age=["n/a?", *map(str, range(399))]), b, y)
    given = {"id_column": "id", "label": "y", "label_file": tmp_path / "labels.csv"}
    with pytest.raises(DataError, match=r"All but 1 of 400 .* 'n/a\?' in bank.csv, line 2 is none"):
        load_dataset(party_files=paths, max_categories=50, seed=1, **given)


@pytest.mark.parametrize("seed", range(6))
def test_one_wrong_cell_makes_no_categories_whatever_the_split(tmp_path, seed):
    """The wrong cell is a training row of some splits and a test row of others."""
    rows = [f"{k},{k / 2},{k % 2}" for k in range(60)]
    rows[11] = "11,7.5x,1"
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["id,size,y", *rows]))
    with pytest.raises(DataError, match=r"'size'.* All but 1 of 60 .* '7.5x' in own.csv, line 13"):
        load_dataset(path, label="y", parties=2, seed=seed)


def test_a_rare_text_among_codes_is_refused_and_can_be_named_as_missing(tmp_path):
    """Few different codes, nearly all rows of which are numbers."""
    rows = [f"{'?!' if k % 25 == 3 else k % 3},{k},{k % 2}" for k in range(100)]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["code,size,y", *rows]))
    with pytest.raises(DataError, match=r"All but 4 of 100 are numbers; '\?!' in own.csv, line"):
        load_dataset(path, label="y", parties=2)
    data = load_dataset(path, label="y", parties=2, missing_values=["?!"])
    assert data.widths == (2, 1)  # the code and where it is missing; the size


def test_a_spreadsheet_with_semicolons_and_decimal_commas_is_the_same_table(tmp_path):
    rows = [f"{k},5;1.{k + 100},25;{k % 2}" for k in range(40)]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["a;b;y", *rows]))
    found = load_dataset(path, label="y", parties=2).fingerprint()
    path.write_text("\n".join(["sep=;", "a;b;y", *rows]))
    assert load_dataset(path, label="y", parties=2).fingerprint() == found
    points = [row.replace("1.", "1").replace(",", ".").replace(";", ",") for row in rows]
    path.write_text("\n".join(["a,b,y", *points]))
    assert load_dataset(path, label="y", parties=2).fingerprint() == found


def test_points_that_may_stand_between_thousands_are_refused(tmp_path):
    rows = [f"{k},5;{k % 3}.125;{k % 2}" for k in range(40)]
    (tmp_path / "own.csv").write_text("\n".join(["a;b;y", *rows]))
    with pytest.raises(DataError, match=r"'b' has numbers such as '0.125', and other columns"):
        load_dataset(tmp_path / "own.csv", label="y", parties=2)


def test_row_names_of_r_are_left_out(tmp_path):
    rows = [f'"{k + 1}",{k},{k % 3},"{"ja" if k % 2 else "nein"}"' for k in range(40)]
    (tmp_path / "own.csv").write_text("\n".join(['"","a","b","y"', *rows]))
    assert load_dataset(tmp_path / "own.csv", label="y", parties=2).widths == (1, 1)


def test_numbers_among_texts_stay_categories(tmp_path):
    rows = [f"{'other' if k % 5 == 3 else k % 4},{k},{k % 2}" for k in range(100)]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["code,size,y", *rows]))
    assert load_dataset(path, label="y", parties=2).widths == (5, 1)


def test_an_index_with_the_name_of_the_id_column_has_the_ids():
    a, b, y = tables()
    a, y = a.drop(columns="job"), y.set_index("id")
    given = {"label": "y", "id_column": "id"}
    found = VerticalDataset.from_pandas([a, b], label_frame=y, **given)
    indexed = [one.set_index("id") for one in (a, b)]
    made = VerticalDataset.from_pandas(indexed, label_frame=y, **given)
    assert made.fingerprint() == found.fingerprint()
    made.transform.apply(indexed)
    with pytest.raises(DataError, match="do not hold the same rows"):
        made.transform.apply([indexed[0], indexed[1].iloc[::-1]])
