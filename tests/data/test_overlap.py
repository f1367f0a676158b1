"""Rows that only one party holds."""

from dataclasses import replace

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.data.overlap import limit_overlap
from securevfl.errors import DataError


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", parties=4)


def places(data, part, party):
    """Numbers of the rows of `data` that a party's part consists of, told by its columns."""
    known = {row.tobytes(): number for number, row in enumerate(data.train[party])}
    return [known[row.tobytes()] for row in part]


def test_dealt_rows_are_everyone_s_or_one_party_s(digits):
    data = limit_overlap(digits, 100, seed=3)
    assert (data.rows, data.test_rows) == (100, digits.test_rows)
    assert [len(part) for part in data.alone] == [312] * 4
    whole = np.concatenate(data.train, axis=1)
    known = {row.tobytes(): n for n, row in enumerate(np.concatenate(digits.train, axis=1))}
    aligned = [known[row.tobytes()] for row in whole]
    assert aligned == sorted(aligned)
    assert (digits.train_labels[aligned] == data.train_labels).all()
    total = sum(len(np.unique(part, axis=0)) for part in data.alone)
    assert total > 1100  # some strips of digits are equal


def test_kept_rows_are_in_every_party_in_its_own_order(digits):
    data = limit_overlap(digits, 100, rest="kept", seed=3)
    assert [len(part) for part in data.alone] == [1248] * 4
    for n in range(4):
        both = np.concatenate([data.train[n], data.alone[n]])
        wanted = digits.train[n]
        assert (both[np.lexsort(both.T)] == wanted[np.lexsort(wanted.T)]).all()
    joined = np.concatenate(data.alone, axis=1)
    known = {row.tobytes() for row in np.concatenate(digits.train, axis=1)}
    assert sum(row.tobytes() in known for row in joined) < 10  # orders of their own


def test_labels_of_party_0_belong_to_its_rows(digits):
    data = limit_overlap(digits, 100, rest="kept", local=200)
    assert [len(part) for part in data.alone] == [200] * 4
    numbers = places(digits, data.alone[0], 0)
    same = digits.train_labels[numbers] == data.alone_labels
    assert same.mean() > 0.9  # the dictionary keeps the last of equal rows


def test_the_seed_decides(digits):
    one, two, other = (limit_overlap(digits, 50, seed=s).fingerprint() for s in (1, 1, 2))
    assert one == two != other
    assert digits.fingerprint() != one
    assert limit_overlap(digits, digits.rows).rows == digits.rows


def test_loading_by_name_limits_the_overlap(digits):
    data = load_dataset("digits", parties=4, aligned=60, rest="kept", local=30)
    assert data.fingerprint() == limit_overlap(digits, 60, rest="kept", local=30).fingerprint()
    assert "alone (30, 30, 30, 30)" in repr(data)
    assert "60 of 1348 training rows are aligned" in data.about.notes[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aligned": 0}, "1 to 1348"),
        ({"aligned": 2000}, "1 to 1348"),
        ({"aligned": 5, "rest": "lost"}, "rest='lost'"),
        ({"aligned": 2.5}, "1 to 1348"),
        ({"aligned": 5, "local": -1}, "below 0"),
        ({"aligned": 5, "local": 2.5}, "not whole"),
        ({"validation": "0.1"}, "validation = '0.1'"),
        ({"local": 5}, "give aligned="),
    ],
)
def test_nonsense_is_refused(options, message):
    with pytest.raises(DataError, match=message):
        load_dataset("digits", parties=4, **options)


def test_what_cannot_be_done_twice_is_refused(digits):
    data = limit_overlap(digits, 100)
    with pytest.raises(DataError, match="hold rows alone already"):
        limit_overlap(data, 50)
    with pytest.raises(DataError, match="choose the parties first"):
        data.with_parties(2)


def test_rows_alone_are_checked(digits):
    data = limit_overlap(digits, 100)
    with pytest.raises(DataError, match="3 parties hold rows alone and there are 4"):
        replace(data, alone=data.alone[:3])
    with pytest.raises(DataError, match=r"party 1, rows held alone: the shape is \(312, 3\)"):
        replace(data, alone=(data.alone[0], data.alone[1][:, :3], *data.alone[2:]))
    broken = data.alone[2].copy()
    broken[7, 1] = np.nan
    with pytest.raises(DataError, match="party 2, rows held alone: row 7, column 1 is nan"):
        replace(data, alone=(*data.alone[:2], broken, data.alone[3]))
    with pytest.raises(DataError, match="5 labels for 312 rows"):
        replace(data, alone_labels=data.alone_labels[:5])
    with pytest.raises(DataError, match="party 0 alone"):
        replace(data, alone_labels=data.alone_labels + 10)
