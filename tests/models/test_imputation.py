"""What stands for absent embeddings, and what is said of it."""

import numpy as np
import pytest

from securevfl.errors import UnknownNameError
from securevfl.models.imputation import IMPUTATIONS, make_imputation

N, ROWS, H = 3, 6, 2


def fill(rule, fresh, places, round):
    """Embeddings of a batch, who is present, and how many are unknown."""
    rule.take(fresh, places, round)
    return *rule.complete(fresh, places), rule.unknown(places)


def of(*values):
    """One row for each value."""
    return np.repeat(np.array(values, np.float32)[:, None], H, axis=1)


def test_nothing_leaves_the_absent_out_and_says_nothing():
    rule = make_imputation("nothing", N, ROWS, H)
    stack, present, told = fill(rule, {1: of(4, 5)}, np.array([0, 1]), 1)
    assert stack[:, :, 0].tolist() == [[0, 0], [4, 5], [0, 0]]
    assert present.tolist() == [[False] * 2, [True] * 2, [False] * 2]
    assert told == 0


def test_zeros_count_as_present():
    rule = make_imputation("zeros", N, ROWS, H)
    stack, present, told = fill(rule, {1: of(4, 5)}, np.array([0, 1]), 1)
    assert stack[:, :, 0].tolist() == [[0, 0], [4, 5], [0, 0]]
    assert present.all()
    assert told == 0


def test_the_buffer_has_the_last_of_each_row_and_counts_what_it_lacks():
    rule = make_imputation("buffer", N, ROWS, H)
    everybody = {n: of(10 * n, 10 * n + 1) for n in range(N)}
    assert fill(rule, everybody, np.array([0, 1]), 1)[2] == 0
    stack, present, told = fill(rule, {2: of(7, 8, 0)}, np.array([1, 3, -1]), 2)
    assert stack[:, :2, 0].tolist() == [[1, 0], [11, 0], [7, 8]]
    assert present.all()
    assert told == 2  # row 3 of two clients; no padding
    stack, _, told = fill(rule, {0: of(9, 9)}, np.array([1, 3]), 3)
    assert stack[2, :, 0].tolist() == [7, 8]
    assert told == 1


def test_a_message_is_the_last_one_of_whatever_rows():
    rule = make_imputation("message", N, ROWS, H)
    fill(rule, {0: of(1, 2), 1: of(3, 4)}, np.array([0, 1]), 1)
    stack, present, told = fill(rule, {2: of(7, 8, 0)}, np.array([1, 3, -1]), 2)
    assert stack[:, :, 0].tolist() == [[1, 2, 0], [3, 4, 0], [7, 8, 0]]
    assert present.all()
    assert told == 0
    stack, _, told = fill(rule, {0: of(9)}, np.array([5]), 3)
    assert stack[:, :, 0].tolist() == [[9], [3], [7]]
    stack, _, told = fill(rule, {1: of(5, 6)}, np.array([0, 1]), 4)
    assert stack[0, :, 0].tolist() == [9, 0]  # the message of round 3 had one row


def test_before_the_first_message_there_are_zeros_which_are_counted():
    rule = make_imputation("message", N, ROWS, H)
    stack, _, told = fill(rule, {1: of(4, 5, 0)}, np.array([0, 1, -1]), 1)
    assert stack[:, :, 0].tolist() == [[0, 0, 0], [4, 5, 0], [0, 0, 0]]
    assert told == 4


def test_the_mean_runs_and_begins_with_the_first_batch():
    rule = make_imputation("mean", N, ROWS, H)
    places = np.array([0, 1, -1])
    stack, present, told = fill(rule, {0: of(1, 3, 99)}, places, 1)
    assert stack[1:].tolist() == np.zeros((2, 3, H)).tolist()
    assert told == 4
    fill(rule, {0: of(11, 13, 99), 1: of(5, 5, 5)}, places, 2)
    stack, present, told = fill(rule, {2: of(0, 0, 0)}, places, 3)
    assert present.all()
    np.testing.assert_allclose(stack[0], 0.9 * 2 + 0.1 * 12, rtol=1e-6)  # padding is left out
    np.testing.assert_allclose(stack[1], 5)
    assert told == 0


@pytest.mark.parametrize("name", IMPUTATIONS)
def test_nobody_absent_nothing_changed(name):
    rule = make_imputation(name, N, ROWS, H)
    fresh = {n: np.full((2, H), 1 / (n + 3)) for n in range(N)}  # float64, as FedVS's rounding has
    stack, present, told = fill(rule, fresh, np.array([2, 4]), 1)
    assert present.all()
    assert stack.dtype == np.float64
    assert all((stack[n] == fresh[n]).all() for n in range(N))
    assert told == 0


@pytest.mark.parametrize("name", IMPUTATIONS)
def test_a_checkpoint_gives_all_back(name):
    rule, copy = make_imputation(name, N, ROWS, H), make_imputation(name, N, ROWS, H)
    places = np.array([0, 1])
    fill(rule, {0: of(1, 2), 1: of(3, 4)}, places, 1)
    copy.load_state_dict(rule.state_dict())
    one, two = (fill(r, {2: of(5, 6)}, places, 2) for r in (rule, copy))
    assert (one[0] == two[0]).all()
    assert one[2] == two[2]


def test_no_other_rule():
    with pytest.raises(UnknownNameError, match="zeros"):
        make_imputation("zero", N, ROWS, H)
