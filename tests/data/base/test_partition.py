import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securevfl.data.base.partition import (
    divide_columns,
    divide_images,
    partition_columns,
    shuffled,
    split_groups,
    split_random,
    split_stratified,
    strip_columns,
    strip_shapes,
)
from securevfl.errors import DataError


@given(st.integers(1, 40), st.integers(1, 40))
def test_columns_are_divided_as_array_split_does(count, parties):
    if parties > count:
        with pytest.raises(DataError, match=f"{count} columns cannot be divided among {parties}"):
            partition_columns(count, parties)
        return
    expected = [part.tolist() for part in np.array_split(np.arange(count), parties)]
    assert [list(part) for part in partition_columns(count, parties)] == expected


@given(st.integers(1, 3), st.integers(1, 7), st.integers(1, 7), st.data())
def test_strips_are_whole_lines_and_lose_no_pixel(channels, height, width, data):
    shape = (channels, height, width)
    strips = data.draw(st.sampled_from(["rows", "columns"]))
    lines = height if strips == "rows" else width
    parties = data.draw(st.integers(1, lines))
    positions = strip_columns(shape, parties, strips)
    assert sorted(k for part in positions for k in part) == list(range(channels * height * width))
    image = np.arange(channels * height * width).reshape(shape)
    parts = np.array_split(image, parties, axis=1 if strips == "rows" else 2)
    assert [list(p) for p in positions] == [part.ravel().tolist() for part in parts]
    assert strip_shapes(shape, positions) == tuple(part.shape for part in parts)


def test_pixels_that_make_no_rectangle_have_no_shape():
    assert strip_shapes((1, 28, 28), partition_columns(784, 16)) is None
    assert strip_shapes((1, 28, 28), partition_columns(784, 28)) == ((1, 1, 28),) * 28


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=200),
    st.floats(0.05, 0.95),
    st.integers(0, 2**40),
)
def test_stratified_splits_share_every_class(labels, fraction, seed):
    labels = np.array(labels)
    try:
        train, test = split_stratified(labels, fraction, seed)
    except DataError:
        counts = np.bincount(labels)
        assert counts.max() == 1 or round(len(labels) * fraction) == 0
        return
    assert sorted([*train, *test]) == list(range(len(labels)))
    counts, held = np.bincount(labels, minlength=5), np.bincount(labels[test], minlength=5)
    assert np.all(held <= np.maximum(0, counts - 1))
    enough = counts * (1 - fraction) >= 1
    assert np.all(np.abs(held - counts * fraction)[enough] <= 1.0)


def test_a_split_is_the_same_on_every_machine():
    train, test = split_random(12, 0.25, seed=7)
    assert (train.tolist(), test.tolist()) == PINNED_SPLIT


# Once computed from Philox's raw stream, which NumPy guarantees.
PINNED_SPLIT = ([11, 7, 5, 8, 0, 4, 1, 2, 3], [10, 9, 6])


@given(st.integers(1, 30), st.integers(0, 1000))
def test_groups_stay_whole(groups, seed):
    who = np.repeat(np.arange(groups), 3)
    if groups < 2:
        with pytest.raises(DataError, match="one side would be empty"):
            split_groups(who, np.zeros(3 * groups), 0.3, seed)
        return
    try:
        train, test = split_groups(who, np.zeros(3 * groups), 0.3, seed)
    except DataError:
        assert round(groups * 0.3) == 0
        return
    assert sorted([*train, *test]) == list(range(3 * groups))
    assert not set(who[train]) & set(who[test])


def test_shuffles_of_different_use_differ():
    assert shuffled(50, 1, "split").tolist() != shuffled(50, 1, "other").tolist()
    assert sorted(shuffled(50, 1, "split")) == list(range(50))


@pytest.mark.parametrize("seed", [-1, 1.5, True, None])
def test_seeds_that_are_no_whole_numbers_are_refused(seed):
    with pytest.raises(DataError, match="0 or more"):
        shuffled(5, seed, "split")


def test_columns_are_divided_among_eight_parties_by_default_or_one_for_each():
    positions, rule = divide_columns([f"x{k}" for k in range(20)])
    assert positions == partition_columns(20, 8)
    assert rule == "source columns divided among 8 parties by numpy.array_split"
    assert divide_columns(["a", "b"])[0] == ((0,), (1,))
    assert divide_columns(["a", "b", "c"], 2)[0] == ((0, 1), (2,))


def test_named_owners_decide_and_must_be_as_many_as_the_parties():
    positions, rule = divide_columns(["a", "b", "c"], owners=[["c"], ["a", "b"]])
    assert (positions, rule) == (((2,), (0, 1)), "owners named by the user")
    assert divide_columns(["a", "b"], 2, [["b"], ["a"]])[0] == ((1,), (0,))
    with pytest.raises(DataError, match="parties=3 and owners= for 2 parties; give one of them"):
        divide_columns(["a", "b"], 3, [["b"], ["a"]])


def test_images_are_divided_among_no_more_parties_than_they_have_pixels():
    positions, rule = divide_images((1, 1, 6), None, "columns")
    assert positions == tuple((k,) for k in range(6))
    assert rule == "6 image strips of pixel columns, numpy.array_split"
    assert divide_images((1, 16, 2), None, "rows")[0] == strip_columns((1, 16, 2), 8, "rows")
