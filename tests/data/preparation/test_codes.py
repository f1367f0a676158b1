"""Texts as category codes: what training rows lack, what is rare, and that numbers stay numbers."""

import json

import numpy as np
import pandas as pd
import pytest

from securevfl.data import VerticalDataset, load_dataset
from securevfl.data.preparation.party_preprocessor import PartyPreprocessor
from securevfl.errors import DataError


def frame(rows: int = 200) -> pd.DataFrame:
    draw = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "site": draw.choice(["a", "b", "c", "d"], rows, p=[0.5, 0.3, 0.15, 0.05]),
            "price": draw.normal(10, 3, rows),
            "slot": pd.Categorical(draw.choice([1005, 1002, 1010], rows)),
            "click": draw.integers(0, 2, rows),
        }
    )


def coded(table: pd.DataFrame, **options) -> VerticalDataset:
    return VerticalDataset.from_pandas(table, "click", parties=1, coding="codes", **options)


def test_codes_stand_for_the_training_rows_texts():
    table = frame()
    data = coded(table)
    assert data.cardinalities == ((5, 0, 4),)
    assert data.columns == (("site", "price", "slot"),)
    assert set(data.train[0][:, 0]) == {1.0, 2.0, 3.0, 4.0}
    assert 0 <= data.train[0][:, 1].min() <= data.train[0][:, 1].max() <= 1  # sizes are scaled
    new = pd.DataFrame({"site": ["a", "z", None, "d"], "price": [1.0] * 4, "slot": [1002] * 4})
    (rows,) = data.transform.apply(new)
    assert rows[:, 0].tolist() == [1.0, 0.0, 0.0, 4.0]
    assert rows[:, 2].tolist() == [1.0] * 4
    again = PartyPreprocessor.from_json(json.loads(json.dumps(data.transform.parties[0].to_json())))
    assert np.array_equal(again.apply(new), rows)


def test_every_row_has_the_code_of_its_text():
    table = frame()
    data = coded(table.assign(place=np.arange(200.0)), scaling="none")
    place = data.train[0][:, 3].astype(int)
    names = np.array([None, "a", "b", "c", "d"])
    assert (names[data.train[0][:, 0].astype(int)] == table["site"].to_numpy()[place]).all()


def test_the_rarer_of_too_many_texts_share_the_code_zero():
    data = coded(frame(), max_categories=2)
    assert data.cardinalities[0] == (3, 0, 3)
    assert set(data.train[0][:, 0]) == {0.0, 1.0, 2.0}
    assert any("0 is a missing, rare or unseen one" in note for note in data.about.notes)
    with pytest.raises(DataError, match="more than max_categories=2"):
        VerticalDataset.from_pandas(frame(), "click", parties=1, max_categories=2)


def test_cardinalities_follow_the_columns_to_other_parties():
    data = coded(frame()).with_parties(3)
    assert data.cardinalities == ((5,), (0,), (4,))
    assert load_dataset("digits", parties=2).cardinalities == ((0,) * 32, (0,) * 32)


def test_an_unknown_coding_is_refused():
    with pytest.raises(DataError, match="coding='hash' does not exist"):
        VerticalDataset.from_pandas(frame(), "click", coding="hash")
