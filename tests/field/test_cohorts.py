"""Clients stand in a sum by whole cohorts, of at least T + 2 clients each."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securevfl.errors import PrivacyError
from securevfl.field.cohorts import cohorts_of, most_cohorts


@given(st.integers(1, 40), st.integers(1, 5))
def test_cohorts_part_the_clients_and_none_is_too_small(parties, privacy):
    most = most_cohorts(parties, privacy)
    made = cohorts_of("x", most, parties, privacy)
    assert [n for group in made.groups for n in group] == list(range(parties))
    assert min(map(len, made.groups)) >= min(parties, privacy + 2)
    with pytest.raises(PrivacyError, match=rf"T\+2 = {privacy + 2}.*cohorts = {most} or fewer"):
        cohorts_of("x", most + 1, parties, privacy)


@given(st.data())
def test_what_is_whole_cuts_no_cohort_and_leaves_out_cohorts_that_are_cut(data):
    made = cohorts_of("x", data.draw(st.integers(0, 4)), 12, 1)
    there = data.draw(st.sets(st.integers(0, 11)))
    whole = made.whole(there)
    assert made.cut(whole) == ()
    left = {n for group in made.cut(there) for n in group}
    assert set(whole) == there - left


def test_without_cohorts_anybody_may_be_in_a_sum():
    made = cohorts_of("x", 0, 4, 1)
    assert made.whole((3, 1)) == (1, 3)
    assert made.cut((3, 1)) == ()


@pytest.mark.parametrize(("parties", "number"), [(10, 3), (11, 3), (14, 4), (9, 3), (5, 0)])
def test_the_likeliest_number_that_is_whole_is_that_of_most_orders(parties, number):
    made = cohorts_of("x", number, parties, 1)
    sizes = tuple(map(len, made.groups))
    for wanted in range(1, parties + 1):
        found, spare = Counter(), parties
        for order in itertools.permutations(sizes):
            sums = list(itertools.accumulate(order))
            found[next(one for one in sums if one >= wanted)] += 1
            spare = min(spare, sum(parties - one >= wanted for one in sums))
        assert found[made.likeliest(wanted)] == max(found.values())
        assert made.spare(wanted) == spare
