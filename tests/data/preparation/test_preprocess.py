import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from securevfl.data.dataset import VerticalDataset
from securevfl.data.preparation.fit import fit_frame, fit_matrix
from securevfl.data.preparation.party_preprocessor import PartyPreprocessor
from securevfl.data.preparation.preprocess import Preprocessor
from securevfl.errors import DataError, SecureVFLWarning

numbers = st.floats(-1e30, 1e30, allow_nan=False, width=64)
matrices = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=8), elements=numbers)


def names(matrix):
    return [f"x{k}" for k in range(matrix.shape[1])]


@given(matrices)
def test_minmax_lies_in_the_unit_interval_and_reaches_both_ends(matrix):
    part = fit_matrix(matrix, names(matrix), "minmax")
    scaled = part.apply(matrix)
    assert scaled.dtype == np.float32
    for column, result in zip(matrix.T, scaled.T, strict=True):
        # A range below the smallest normal number has no inverse: such a column is constant.
        if column.max() - column.min() < np.finfo(np.float64).tiny:
            assert not result.any()
        else:
            assert result.min() == 0.0
            assert result.max() == 1.0
            exact = (column - column.min()) / (column.max() - column.min())
            assert np.array_equal(result, exact.astype(np.float32))


@given(matrices)
def test_everything_survives_json(matrix):
    part = fit_matrix(matrix, names(matrix), "standard")
    assert PartyPreprocessor.from_json(json.loads(json.dumps(part.to_json()))) == part


def test_standard_has_mean_zero_and_variance_one():
    matrix = np.random.Generator(np.random.Philox(1)).normal(5, 3, size=(400, 3))
    matrix[:, 2] = 0.1
    scaled = fit_matrix(matrix, names(matrix), "standard").apply(matrix)
    assert np.allclose(scaled[:, :2].mean(0), 0, atol=1e-6)
    assert np.allclose(scaled[:, :2].std(0), 1, atol=1e-6)
    assert not scaled[:, 2].any()


def test_large_offsets_keep_their_digits():
    stamps = np.array([[1.6e9], [1.6e9 + 1], [1.6e9 + 4]])
    assert fit_matrix(stamps, ["t"], "minmax").apply(stamps).ravel().tolist() == [0.0, 0.25, 1.0]


def test_values_outside_the_training_range_are_clipped():
    part = fit_matrix(np.array([[0.0], [2.0]]), ["a"], "minmax")
    assert part.apply([[-1e300], [1.0], [1e300]]).ravel().tolist() == [0.0, 0.5, 1.0]


def test_values_beyond_float32_are_refused():
    part = fit_matrix(np.array([[0.0], [1.0]]), ["a"], "none")
    with pytest.raises(DataError, match="exceeds the range of float32"):
        part.apply([[1e39]])
    with pytest.raises(DataError, match="span more than the range of float64"):
        fit_matrix(np.array([[-1e308], [1e308]]), ["a"], "minmax")


def test_blocks_of_any_size_give_the_same(monkeypatch):
    from securevfl.data.preparation import party_preprocessor as module

    matrix = np.random.Generator(np.random.Philox(2)).integers(0, 256, (101, 5), dtype=np.uint8)
    part = fit_matrix(matrix, names(matrix), "minmax")
    whole = part.apply(matrix)
    monkeypatch.setattr(module, "_BLOCK", 7)
    assert np.array_equal(part.apply(matrix), whole)


@pytest.mark.parametrize("scaling", ["minmax", "standard", "none"])
def test_one_hot_columns_are_scaled_as_numbers_would_be(scaling):
    frame = pd.DataFrame({"c": list("uvuuw"), "n": [1.0, 2.0, 3.0, 4.0, 9.0]})
    part = fit_frame(frame, scaling)
    plain = pd.get_dummies(frame["c"]).to_numpy(np.float64)
    both = np.column_stack([plain, frame["n"]])
    expected = fit_matrix(both, list("uvwn"), scaling).apply(both)
    assert np.allclose(part.apply(frame), expected, atol=1e-7)


def test_a_mapping_that_is_no_table_is_refused():
    part = fit_matrix(np.array([[0.0], [1.0]]), ["a"], "minmax")
    for rows in ({"a": [1.0, 2.0], "b": [1.0]}, {"a": 1.0}):
        with pytest.raises(DataError, match="a mapping that is no table of columns"):
            Preprocessor((part,), ((0,),), "minmax").apply(rows)


def test_rows_may_come_in_every_form():
    parts = tuple(
        fit_matrix(np.array([[0.0, 0.0], [1.0, 2.0]]), cols, "minmax") for cols in ("ab", "cd")
    )
    # The second party's columns stand first in a whole row.
    whole = Preprocessor(parts, ((2, 3), (0, 1)), "minmax")
    assert whole.columns == ("c", "d", "a", "b")
    row = {"c": 0.5, "d": 1.0, "a": 1.0, "b": 0.5}
    expected = ([[1.0, 0.25]], [[0.5, 0.5]])
    forms = [
        pd.DataFrame([row]).assign(extra="ignored"),
        {name: [value] for name, value in row.items()},
        [[0.5, 1.0, 1.0, 0.5]],
        np.array([[[0.5, 1.0], [1.0, 0.5]]]),
        [np.array([[1.0, 0.5]]), np.array([[0.5, 1.0]])],
        (pd.DataFrame([row]), pd.DataFrame([row])),
    ]
    for form in forms:
        assert tuple(part.tolist() for part in whole.apply(form)) == expected


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pd.DataFrame({"a": [1.0]}), "no column 'b'"),
        (pd.DataFrame({"a": [1.0], "b": ["x"]}), "row 0 holds 'x'"),
        (pd.DataFrame({"a": [1.0], "b": [np.nan]}), "1 of 1 values are NaN or missing"),
        (np.ones((2, 3)), "2 columns per row are needed"),
        (np.ones(2), "2 columns per row are needed"),
        (np.array([[1.0, np.nan]]), "the value is NaN"),
        (np.array([["a", "b"]]), "give numbers"),
        ([[1.0], [1.0, 2.0]], "do not make up an array"),
    ],
)
def test_new_rows_that_do_not_fit_are_refused(rows, message):
    part = fit_matrix(np.array([[0.0, 0.0], [1.0, 2.0]]), "ab", "minmax")
    whole = Preprocessor((part,), ((0, 1),), "minmax")
    with pytest.raises(DataError, match=message):
        whole.apply(rows)


def test_parties_tables_must_have_the_same_rows():
    part = fit_matrix(np.array([[0.0], [1.0]]), "a", "minmax")
    whole = Preprocessor((part, part), ((0,), (1,)), "minmax")
    with pytest.raises(DataError, match="the same rows in the same order"):
        whole.apply([np.ones((2, 1)), np.ones((3, 1))])


def test_a_party_needs_only_its_own_part():
    frame = pd.DataFrame({"a": ["x", "y", None], "b": [1.0, None, 4.0]})
    part = fit_frame(frame, "minmax")
    stored = json.loads(json.dumps(part.to_json()))
    assert np.array_equal(PartyPreprocessor.from_json(stored).apply(frame), part.apply(frame))


def test_values_of_a_new_kind_are_told_when_rows_are_predicted():
    """Not when a data set is built, whose notes say how its columns were prepared."""
    n = 40
    frame = pd.DataFrame(
        {"size": np.arange(n) / n, "city": ["Rome", "Oslo"] * (n // 2), "kind": np.arange(n) % 2}
    )
    transform = VerticalDataset.from_pandas(frame, "kind", parties=2).transform
    transform.apply(frame)
    new = frame.astype({"city": object})
    new.loc[3, "size"] = np.nan
    new.loc[[5, 6], "city"] = ["Lima", None]
    with pytest.warns(SecureVFLWarning) as told:
        parts = transform.apply(new)
    assert sorted(str(one.message) for one in told) == [
        "column 'city': 1 of 40 rows have a text that the training rows lack, first 'Lima' in row "
        "5; each counts as none of theirs",
        "column 'city': 1 of 40 rows have no value, first row 6, where the training rows have all; "
        "each counts as no text",
        "column 'size': 1 of 40 rows have no value, first row 3, where the training rows have all; "
        "each is filled with their median",
    ]
    assert all(np.isfinite(part).all() for part in parts)


def test_gaps_of_a_numeric_array_are_told_where_the_training_rows_can_be_filled():
    frame = pd.DataFrame({"a": np.arange(8.0), "b": np.arange(8.0), "y": np.arange(8) % 2})
    transform = VerticalDataset.from_pandas(frame, "y", parties=2).transform
    new = np.array([[1.0, np.nan], [2.0, 3.0]])
    with pytest.warns(SecureVFLWarning, match="column 'b': 1 of 2 rows have no value, first row 0"):
        transform.apply(new)


@pytest.mark.parametrize("far", [1e300, -1e9, 1.7e308])
def test_a_value_that_would_make_all_others_one_number_is_refused(far):
    """1e300 among numbers near 1 left a column of zeros with a single 1."""
    values = np.random.default_rng(0).normal(size=(60, 2))
    values[30, 1] = far
    frame = pd.DataFrame({"a": values[:, 0], "b": values[:, 1], "y": np.arange(60) % 2})
    given = {"labels": frame["y"].to_numpy(), "test_features": values[:8], "parties": 2}
    given["test_labels"] = given["labels"][:8]
    with pytest.raises(DataError, match=r"'x1', training row 30: the value is .* makes these one"):
        VerticalDataset.from_numpy(values, **given)
    with pytest.raises(DataError, match=r"'b', row 30: the value is .* makes these one"):
        VerticalDataset.from_pandas(frame, "y", test_frame=frame[:8], parties=2)
    if abs(far) < 1e300:
        VerticalDataset.from_numpy(values, **given, scaling="none")


def test_a_value_that_stretches_a_column_is_named_and_sparse_columns_are_not():
    values = np.random.default_rng(0).normal(size=60)
    values[30] = 1e5
    mostly_zero = np.where(np.arange(60) % 9, 0.0, values)
    frame = pd.DataFrame({"a": values, "b": mostly_zero, "y": np.arange(60) % 2})
    made = VerticalDataset.from_pandas(frame, "y", test_frame=frame[:8], parties=2)
    told = [note for note in made.about.notes if "stretches" in note]
    assert len(told) == 1
    assert told[0].startswith("column 'a': most rows")
    assert "100000 in row 30" in told[0]


@pytest.mark.parametrize("names", [["y"], ("a", "b"), {"y"}])
def test_several_names_for_one_column_are_refused(names):
    frame = pd.DataFrame({"id": range(8), "a": range(8), "y": [0, 1] * 4})
    with pytest.raises(DataError, match=r"label=.* name of one column is needed"):
        VerticalDataset.from_pandas(frame, names, parties=2)
    with pytest.raises(DataError, match=r"id_column=.* name of one column is needed"):
        VerticalDataset.from_pandas([frame, frame[["id", "a"]]], "y", id_column=names)


def test_a_number_that_names_a_column_names_the_label():
    frame = pd.DataFrame({0: range(8), 1: [0, 1] * 4, 2: range(8)})
    assert VerticalDataset.from_pandas(frame, 1, parties=2).columns == (("0",), ("2",))


@pytest.mark.filterwarnings("error")
def test_a_constant_at_the_end_of_float64_stays_a_constant():
    far = 1.7e308
    part = fit_frame(pd.DataFrame({"a": [far] * 4}), "minmax")
    assert part.columns[0].fill == far
    assert part.apply(pd.DataFrame({"a": [-far, 0.0, far]})).ravel().tolist() == [0.0, 0.0, 0.0]
