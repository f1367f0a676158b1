"""The theorem at p = 7, counted."""

import pytest

from securevfl.audit.keyed import small_field


@pytest.mark.parametrize("holder", [None, 0])
def test_all_secrets_with_equal_sums_have_equal_histograms(holder):
    found = small_field.server_views(holder)
    assert (found.equal, found.apart) == (True, True)
    assert (found.secrets, found.tapes) == (2401, 2401)


def test_one_stream_fewer_tells_secrets_with_equal_sums_apart():
    assert not small_field.server_views(0, fewer=1).equal


@pytest.mark.parametrize("holder", range(4))
def test_a_holder_sees_one_distribution_whatever_the_secrets_are(holder):
    assert small_field.holder_views(holder).equal


@pytest.mark.parametrize(
    ("other", "equal"), [((3, 4, 1, 2), True), ((0, 5, 2, 0), True), ((0, 5, 2, 6), False)]
)
def test_all_masks_of_a_round_enumerated_as_well(other, equal):
    assert small_field.one_round(1, (1, 2, 3, 4), other) is equal
