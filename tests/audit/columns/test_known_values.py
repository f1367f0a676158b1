"""Numbers of columns are recognised in any order and shape, and nothing else is."""

import numpy as np
import pytest

from securevfl.audit.columns.known_values import KnownValues, rows_in
from securevfl.audit.columns.told_columns import ToldColumns, numbers
from securevfl.protocols.base.messages import MessageKey
from securevfl.testing.runs import make

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
        COLUMNS[1][ROWS, 2:] * np.float32(1.5),
        COLUMNS[1][ROWS[:2]],  # four known numbers
        COLUMNS[1][ROWS, 0] + stream.random(24) * 0.1,
        np.array(0.5),
        np.zeros((0, 6)),
    ],
    ids=["others", "zeros", "scaled, of another column", "few", "noisy", "one", "none"],
)
def test_other_numbers_are_not(told):
    known = KnownValues({n: own[:, :2] for n, own in COLUMNS.items()})
    assert known.within([told], [ROWS]) == set()


@pytest.mark.parametrize(
    "told",
    [
        COLUMNS[1][ROWS, 0] * np.float32(1.5) - 7,
        COLUMNS[1][ROWS, 0].astype(np.float16),
        np.rint(COLUMNS[1][ROWS, 0] * 2**8),
        np.stack([stream.random(24), 1e9 * COLUMNS[1][ROWS[::-1], 1]]),
        COLUMNS[1][ROWS[:8], 0],
        np.stack([COLUMNS[1][ROWS, 0], stream.random(24).astype(np.float32)], axis=1).ravel(),
        np.sort(COLUMNS[1][ROWS[3:12], 1]),
    ],
    ids=["scaled", "16 bits", "fixed point", "backwards", "some rows", "between", "sorted"],
)
def test_columns_are_found_at_named_rows_in_other_forms(told):
    assert KnownValues(COLUMNS).within([told], [ROWS]) == {1}


def test_a_column_of_few_values_is_found_at_named_rows_alone():
    known, told = KnownValues(PIXELS), PIXELS[0][ROWS, 3]
    assert known.within([told], []) == set()
    assert known.within([told], [ROWS]) == {0}
    assert known.within([np.linspace(0, 1, 24), np.arange(24) / 16], [ROWS]) == set()
    assert known.within([(told * 16).astype(np.int64)], [ROWS]) == {0}
    assert known.within([told[::-1]], [ROWS]) == {0}
    assert known.within([np.roll(told, 1)], [ROWS]) == {0}  # in another order
    assert known.within([np.append(told[1:], 0.5)], [ROWS]) == set()
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
    assert [len(one) for one in rows_in(numbers(named), 300)] == [20]
    assert not list(rows_in(numbers(named), 10))


def test_numbers_are_read_from_all_that_may_hold_them():
    column = np.linspace(0.1, 0.9, 12).astype(np.float32)
    forms = [
        ("ready", column),
        {"sum": {"of": column.astype(np.float64)}},
        column.tolist(),
        tuple(column.tolist()),
        column.tobytes(),
        column.astype(np.float64).tobytes(),
        column.view(np.uint32),
        " ".join(map(str, column.tolist())),
    ]
    for form in forms:
        assert any(np.array_equal(one, column) for one in numbers(form))
    assert [one.tolist() for one in numbers(np.float32(0.5))] == [[0.5]]
    assert any(set(one) == {1, 2} for one in numbers(frozenset((1, 2))))
    field = np.array([5, 2**61 - 1 - 5], np.uint64)
    assert [-5 in one for one in numbers(field, 2**61 - 1)].count(True) == 1
    assert next(iter(numbers([None, object()]))).size == 0


def told(protocol="split", modulus=None):
    made = make(protocol)
    return ToldColumns(made, dict(enumerate(COLUMNS.values())))


def test_one_number_in_each_of_many_messages_is_found_by_all_of_them():
    columns, batch = told(), ROWS.astype(np.uint32)
    found = []
    for round in range(1, 9):
        key = MessageKey("pace", round, 1, -1)
        columns._named[round] = {b"": np.roll(ROWS, round)}
        found.append(columns.within(key, float(COLUMNS[1][ROWS[round], 0])))
    assert found[:5] == [set()] * 5
    assert found[-1] == {1}
    other = told()
    for round in range(1, 99):
        other._named[round] = {b"": batch.astype(np.int64)}
        key = MessageKey("loss", round, 1, -1)
        assert other.within(key, float(COLUMNS[1][ROWS[0], 0])) == set()  # always the same
        assert other.within(key._replace(kind="measure"), stream.random()) == set()


def test_rows_are_the_samples_that_an_announcement_means():
    made = make("split")
    columns = ToldColumns(made, {0: made.data.train[0]})
    batch = made.batches(1).draw(1)
    columns.note(1, batch)
    rows = made.batches(1).samples(batch)
    column = made.data.train[0][np.maximum(rows, 0)]
    telling = max(column.T, key=lambda one: len(np.unique(one)))
    key = MessageKey("note", 1, 0, -1)
    assert columns.within(key, telling) == {0}
    assert columns.within(key._replace(round=3), telling) == {0}  # of a batch before
    assert columns.within(key._replace(round=4), telling) == set()
