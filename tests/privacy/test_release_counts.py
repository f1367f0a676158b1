import numpy as np
import pytest

from securevfl.errors import PrivacyError
from securevfl.privacy.accountant import Released
from securevfl.privacy.release_counts import (
    after_release,
    most_releases,
    refuse_exceeding,
    refuse_repeated,
)


def test_counts_of_rows_add_up_and_their_bytes_are_fixed():
    assert most_releases(b"") == 0
    counts = after_release(b"", np.array([2, 0]), 3)
    counts = after_release(counts, np.array([2]), 3)
    assert counts == b"\1\0\0\0" + b"\0\0\0\0" + b"\2\0\0\0"
    assert most_releases(counts) == 2


def test_a_row_is_named_once_in_a_request():
    refuse_repeated(np.array([3, 1, 2]), "client 4")
    refuse_repeated(np.empty(0, np.int64), "client 4")
    with pytest.raises(PrivacyError, match="client 4 was asked for row 7 3 times in one request"):
        refuse_repeated(np.array([7, 1, 7, 7]), "client 4")


def test_a_row_is_released_so_often_and_no_more():
    counts = b""
    for _ in range(2):
        refuse_exceeding(counts, np.array([1, 0]), 2, "client 4")
        counts = after_release(counts, np.array([1, 0]), 3)
    refuse_exceeding(counts, np.array([2]), 2, "client 4")
    with pytest.raises(PrivacyError, match=r"row 1 again, .* 2 times, and its epsilon allows 2"):
        refuse_exceeding(counts, np.array([2, 1]), 2, "client 4")


@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_the_releases_within_a_budget_are_the_most_that_it_pays(epsilon):
    privacy = Released(epsilon, 1e-5, 1.0)
    for budget in (epsilon, 1.01 * epsilon, 3 * epsilon, privacy.composed(9)):
        most = privacy.releases_within(budget)
        assert privacy.composed(most) <= budget < privacy.composed(most + 1)
    assert privacy.releases_within(0.9 * epsilon) == 0
    assert privacy.releases_within(privacy.composed(9)) == 9
