"""Equations of sums against unknowns of a row: counts, ranks, and sentences."""

from dataclasses import replace

import numpy as np
import pytest

from securevfl.errors import ConfigurationError
from securevfl.privacy.released_equations import (
    Odometer,
    independent_columns,
    refuse_width,
    visits_allowed,
)

ODOMETER = Odometer(
    width=4, unknowns=13, rank=27, visits=2, visits_planned=9, per_epoch=10, budget=0.0
)


def test_constant_and_repeated_columns_are_no_unknowns():
    rng = np.random.default_rng(0)
    x = rng.random((50, 3))
    columns = np.c_[x, np.ones(50), x[:, 0], 1 - x[:, 1], x.sum(1)]
    assert independent_columns(columns, 2.0**-16) == 3
    assert independent_columns(np.ones((50, 4)), 2.0**-16) == 0


def test_differences_below_the_unit_are_no_unknowns():
    rng = np.random.default_rng(0)
    x = rng.random((50, 2))
    near = x[:, :1] + 1e-4 * rng.random((50, 1))
    assert independent_columns(np.c_[x, near], 2.0**-8) == 2
    assert independent_columns(np.c_[x, near], 2.0**-20) == 3


def test_more_columns_than_rows():
    x = np.random.default_rng(0).random((6, 40)).astype(np.float32)
    assert independent_columns(x, 2.0**-16) == 5


def test_one_row_that_differs_is_an_unknown():
    x = np.zeros((1437, 1))
    x[3] = 1
    assert independent_columns(x, 2.0**-16) == 1


@pytest.mark.parametrize(
    ("unknowns", "width", "visits"), [(13, 4, 3), (12, 4, 2), (4, 4, 0), (0, 1, 0)]
)
def test_visits_stay_below_the_unknowns(unknowns, width, visits):
    assert visits_allowed(unknowns, width) == visits


def test_odometer_names_the_rounds_from_which_it_is_full():
    assert (ODOMETER.equations, ODOMETER.full_after, ODOMETER.spanned_from) == (8, 30, 61)
    # In round 60 each row has had 6 visits, 24 equations; the first of round 61 have 28 >= 27.
    assert replace(ODOMETER, width=27).spanned_from == 1


@pytest.mark.parametrize(
    ("visits", "words"),
    [(3, "1 stay free"), (4, "nothing is promised"), (7, "determine the space")],
)
def test_sentence_by_equations(visits, words):
    assert words in replace(ODOMETER, visits=visits).sentence()


def test_width_above_the_unknowns_is_refused():
    refuse_width("fedvs", 13, 12, 1.0)
    with pytest.raises(ConfigurationError, match=r"width = 7 .* 13 independent .* width < 7"):
        refuse_width("fedvs", 13, 7, 0.5)


@pytest.mark.parametrize(("share", "visits"), [(1.0, 60), (0.5, 30), (0.25, 15)])
def test_a_share_of_the_unknowns(share, visits):
    assert visits_allowed(61, 1, share) == visits
    assert visits_allowed(60, 1, 0.5) == 29
