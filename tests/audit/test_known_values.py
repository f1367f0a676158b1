"""Numbers of columns are recognised in any order and shape, and nothing else is."""

import numpy as np
import pytest

from securevfl.audit.known_values import KnownValues, numbers, rows_in

stream = np.random.default_rng(1)
COLUMNS = {n: stream.random((300, 6)).astype(np.float32) for n in range(3)}
PIXELS = {0: stream.integers(0, 17, (300, 6)).astype(np.float32) / 16}
ROWS = stream.permutation(300)[:24]


@pytest.mark.parametrize(
    "told",
    [
        COLUMNS[1][ROWS, 2],
        COLUMNS[1][ROWS],
        COLUMNS[1][ROWS].T,
        COLUMNS[1][ROWS][:, :5].astype(np.float64),
        np.hstack([stream.random((24, 3)), COLUMNS[1][ROWS, 2:3]]),
        np.stack([COLUMNS[1][ROWS], stream.random((24, 6)).astype(np.float32)], axis=2),
        np.concatenate([stream.random(50), COLUMNS[1][ROWS, 2], stream.random(50)]),
    ],
)
def test_numbers_of_one_client_are_found_without_its_rows(told):
    assert KnownValues(COLUMNS).within([told], []) == {1}


@pytest.mark.parametrize(
    "told",
    [
        stream.random((200, 64)).astype(np.float32),
        np.zeros((24, 6), np.float32),
        COLUMNS[1][ROWS] * np.float32(1.5),
        COLUMNS[1][ROWS[:4]],  # too few in a row along either axis, of 4 rows of 6 columns
        np.array(0.5),
        np.zeros((0, 6)),
    ],
    ids=["others", "zeros", "scaled", "few", "one", "none"],
)
def test_other_numbers_are_not(told):
    known = KnownValues({n: own[:, :2] for n, own in COLUMNS.items()})
    assert known.within([told], [ROWS]) == set()


def test_a_column_of_few_values_is_found_at_named_rows_alone():
    known, told = KnownValues(PIXELS), PIXELS[0][ROWS, 3]
    assert known.within([told], []) == set()
    assert known.within([told], [ROWS]) == {0}
    assert known.within([(told * 16).astype(np.int64)], [ROWS]) == set()
    assert known.within([told[::-1]], [ROWS]) == set()
    padded = np.where(np.arange(24) % 5, ROWS, -1)
    assert known.within([np.where(padded < 0, 9, told)], [padded]) == {0}


def test_constant_columns_tell_nothing():
    known = KnownValues({0: np.ones((300, 2), np.float32)})
    assert known.within([np.ones((24, 3))], [ROWS]) == set()


def test_a_column_that_numbers_the_rows_is_no_more_than_the_rows_that_are_named():
    known = KnownValues({0: np.arange(300.0, dtype=np.float32)[:, None]})
    assert known.within([ROWS], [ROWS]) == set()


def test_rows_are_those_that_a_table_of_so_many_can_have():
    named = {"part": "train", "rows": (np.arange(20, dtype=np.uint32), np.arange(3))}
    assert [len(one) for one in rows_in(named, 300)] == [20]
    assert not list(rows_in(named, 10))
    assert [one.dtype.kind for one in numbers([named, 1.5, "text"])] == ["u", "i"]
