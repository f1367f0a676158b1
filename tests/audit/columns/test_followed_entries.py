"""Entries that follow those of the named rows are found over rounds, and nothing else is."""

import numpy as np
import pytest

from securevfl.audit.columns.followed_entries import FollowedEntries

stream = np.random.default_rng(2)
PIXELS = {n: stream.integers(0, 17, (300, 6)).astype(np.float32) / 16 for n in range(3)}
RARE = (stream.random((300, 4)) < 0.01).astype(np.float32)


def rounds(form, columns=PIXELS, count=8, rows=15):
    """What is found in each of some rounds, of batches drawn anew."""
    followed, batches = FollowedEntries(columns), np.random.default_rng(3)
    found = []
    for round in range(count):
        named = batches.permutation(len(next(iter(columns.values()))))[:rows]
        found.append(followed.take("note", form(round, named), [named]))
    return found


@pytest.mark.parametrize(
    "form",
    [
        lambda round, rows: PIXELS[1][rows, 2][::2],
        lambda round, rows: PIXELS[1][rows, 2][[9, 1, 7, 3, 2, 11]],
        lambda round, rows: np.stack([PIXELS[1][rows[3]], np.full(6, round)]),
        lambda round, rows: PIXELS[1][rows[::-1]].ravel()[5:40:7],
    ],
    ids=["every other row", "some rows", "one row", "some entries"],
)
def test_any_choice_of_entries_is_found_over_rounds(form):
    found = rounds(form)
    assert found[:2] == [set(), set()]
    assert found[-1] == {1}


def test_one_entry_takes_many_rounds():
    found = rounds(lambda round, rows: PIXELS[1][rows[0], :1], count=40)
    assert found[7] == set()
    assert found[-1] == {1}


@pytest.mark.parametrize(
    "form",
    [
        lambda round, rows: stream.integers(0, 17, 15) / 16,
        lambda round, rows: np.zeros(15),
        lambda round, rows: np.linspace(0, 1, 17),
        lambda round, rows: rows,
        lambda round, rows: np.full(8, round / 16),
        lambda round, rows: PIXELS[1][stream.permutation(rows)[:8], 2],  # of other rows each time
    ],
    ids=["others", "zeros", "a scale", "the rows", "one number", "another choice each time"],
)
def test_other_numbers_are_not(form):
    numbering = {**PIXELS, 3: np.arange(300.0)[:, None]}
    assert not any(rounds(form, numbering, count=40))


def test_columns_that_hardly_vary_tell_nothing():
    constant = {0: np.hstack([RARE, np.zeros((300, 2)), np.ones((300, 1))])}
    for value in (0.0, 1.0):
        assert not any(rounds(lambda round, rows, value=value: np.full(9, value), constant, 200))


def test_the_same_rows_tell_nothing_new():
    """Attempts on the same rows, in which the numbers of the parties are told each time."""
    followed, parties = FollowedEntries(PIXELS), np.arange(8)
    rows = np.flatnonzero(PIXELS[1][:, 2] == 1)[:15]
    for round in range(30):
        named = [parties + round, rows]
        assert not followed.take("sharers", parties, named)


def test_padding_is_no_row_and_messages_of_another_size_end_the_search():
    followed = FollowedEntries(PIXELS)
    for round in range(9):
        drawn = np.random.default_rng(round).permutation(300)[:15]
        rows = np.where(np.arange(15) % 4 == 3, -1, drawn)
        told = PIXELS[0][np.maximum(rows, 0), 1]
        found = followed.take("padded", np.where(rows < 0, 9, told), [rows])
        assert not followed.take("changing", told[: 8 + round % 2], [rows])
    assert found == {0}
