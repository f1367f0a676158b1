"""Numbers and words that a plan shows besides messages: on helpers that a party runs."""

import pytest

from securevfl.protocols.base.schedule import HELPERS_COUNT, shares_of_one_operator


@pytest.mark.parametrize(
    ("segments", "privacy", "words"),
    [
        (1, 1, "one helper has K + T shares, which are all data"),
        (1, 2, "2 helpers has K + T shares"),
        (2, 1, "one helper has T + 1 shares, which tell labels; with 2 helpers it has everything"),
        (3, 2, "2 helpers has T + 1 shares, which tell labels; with 4 helpers it has everything"),
    ],
)
def test_an_owner_and_its_helpers_have_so_many_shares(segments, privacy, words):
    found = shares_of_one_operator(segments, privacy)
    assert found.startswith(f"{HELPERS_COUNT}: at K = {segments} and T = {privacy} ")
    assert words in found
