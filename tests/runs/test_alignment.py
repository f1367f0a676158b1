"""Party files joined by private set intersection."""

import numpy as np
import pandas as pd
import pytest

from securevfl.data import load_dataset
from securevfl.data.alignment.join import match_plainly
from securevfl.errors import ConfigurationError, DataError
from securevfl.runs.alignment import data_source, intersection, match_privately


@pytest.mark.parametrize("members", [2, 3])
def test_private_and_plain_matching_find_the_same_rows(members):
    draw = np.random.default_rng(members)
    sets = [[f"u{i}" for i in draw.permutation(150)[:100]] for _ in range(members)]
    private, notes = match_privately(sets)
    plain, _ = match_plainly(sets)
    for one, two in ((private, plain),):
        order, other = np.argsort(one[0]), np.argsort(two[0])
        for n in range(members):
            assert np.array_equal(one[n][order], two[n][other])
    assert "private set intersection" in notes[0]


def test_messages_are_sealed_and_counted():
    rows, sent = intersection([["a", "b", "c"], ["c", "a"], ["a", "c", "d"]])
    assert [len(each) for each in rows] == [2, 2, 2]
    assert sent.bytes_by_kind()["psi matrix"] > 2 * 256 * 64  # 256 rows for each other member
    # Eleven messages between the last table and each other one; a hash of the rows to all others.
    assert sent.messages == 2 * 11 + 3 * 2


def test_party_files_end_to_end(tmp_path):
    draw = np.random.default_rng(0)
    ids = draw.permutation(200)
    frame = pd.DataFrame(draw.normal(size=(200, 4)), columns=list("abcd")).assign(k=ids)
    frame[["k", "a", "b"]].iloc[:150].to_csv(tmp_path / "one.csv", index=False)
    frame[["k", "c", "d"]].iloc[30:].sample(frac=1, random_state=1).to_csv(
        tmp_path / "two.csv", index=False
    )
    labels = frame[["k"]].assign(y=(frame["a"] + frame["c"] > 0).astype(int))
    labels.iloc[20:].to_csv(tmp_path / "y.csv", index=False)
    options = {
        "party_files": [str(tmp_path / "one.csv"), str(tmp_path / "two.csv")],
        "id_column": "k",
        "label": "y",
        "label_file": str(tmp_path / "y.csv"),
    }
    plain = load_dataset(**options)
    private = data_source("mine", options | {"align": "psi"}).load()
    assert private.rows + private.test_rows == 120
    assert np.array_equal(private.train_labels, plain.train_labels)
    for one, two in zip(private.train, plain.train, strict=True):
        assert np.array_equal(one, two)
    assert any("private set intersection" in note for note in private.about.notes)
    with pytest.raises(ConfigurationError, match="neither 'plain' nor 'psi'"):
        data_source("mine", options | {"align": "psy"}).load()


def test_nothing_in_common():
    with pytest.raises(DataError, match="no identifier in common"):
        intersection([["a"], ["b"]])
