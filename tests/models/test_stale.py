"""Last embeddings against a dictionary that is kept by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from securevfl.models.stale import LastEmbeddings

N, ROWS, H = 3, 5, 2
arrivals = st.lists(
    st.tuples(
        st.integers(0, N - 1),
        st.lists(st.integers(0, ROWS - 1), min_size=1, unique=True),
        st.integers(0, 9),
        st.integers(-5, 5),
    ),
    max_size=12,
)


@given(
    arrived=arrivals, asked=st.lists(st.integers(0, ROWS - 1), min_size=1), oldest=st.integers(0, 9)
)
def test_the_newest_of_each_row_is_kept_and_the_oldest_are_left_out(arrived, asked, oldest):
    kept, wanted = LastEmbeddings(N, ROWS, H), {}
    for party, rows, round, value in arrived:
        kept.keep(party, np.array(rows), np.full((len(rows), H), value, np.float32), round)
        for row in rows:
            if wanted.get((party, row), (-1, 0))[0] < round:
                wanted[party, row] = (round, value)
    stack, present = kept.at(np.array(asked), oldest=oldest)
    for party in range(N):
        for place, row in enumerate(asked):
            round, value = wanted.get((party, row), (-1, 0))
            there = round >= oldest
            assert present[party, place] == there
            assert stack[party, place].tolist() == [value * there] * H


def test_fresh_embeddings_stand_in_their_places_and_give_the_dtype():
    kept = LastEmbeddings(2, 3, H)
    kept.keep(1, np.array([2]), np.full((1, H), 7, np.float32), 5)
    fresh = {0: np.full((2, H), 1 / 3)}
    for oldest, there in ((5, True), (6, False)):
        stack, present = kept.complete(fresh, np.array([1, 2]), oldest=oldest)
        assert stack.dtype == np.float64
        assert (stack[0] == 1 / 3).all()
        assert present.tolist() == [[True, True], [False, there]]
        assert stack[1].tolist() == [[0, 0], [7.0 * there] * H]


def test_padding_does_not_touch_the_last_row():
    kept = LastEmbeddings(1, 3, H)
    kept.keep(0, np.array([0, -1, -1]), np.ones((3, H), np.float32), 1)
    assert kept.at(np.array([0, 1, 2]))[1].tolist() == [[True, False, False]]


def test_without_rows_nothing_is_kept():
    kept = LastEmbeddings(2, 0, H)
    kept.keep(0, np.array([4]), np.ones((1, H), np.float32), 1)
    stack, present = kept.complete({1: np.ones((1, H), np.float32)}, np.array([4]))
    assert stack[:, 0, 0].tolist() == [0, 1]
    assert present.tolist() == [[False], [True]]


def test_a_checkpoint_gives_all_back():
    kept, copy = LastEmbeddings(2, 3, H), LastEmbeddings(2, 3, H)
    kept.keep(1, np.array([2, 0]), np.ones((2, H), np.float32), 3)
    copy.load_state_dict(kept.state_dict())
    assert (copy.table == kept.table).all()
    assert (copy.version == kept.version).all()
    kept.keep(1, np.array([1]), np.ones((1, H), np.float32), 4)
    assert copy.version[1, 1] == -1
