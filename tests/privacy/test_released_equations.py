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


@pytest.mark.parametrize(("share", "unknowns", "limit"), [(0.07, 100, 7), (0.28, 25, 7)])
def test_a_share_is_the_decimal_number_that_was_written(share, unknowns, limit):
    assert share * unknowns > limit  # as floats
    assert visits_allowed(unknowns, 1, share) == limit - 1
    with pytest.raises(ConfigurationError, match=f"stay below {limit}"):
        refuse_width("it", unknowns, limit, share)


def test_advice_on_a_width_keeps_to_the_share_that_was_written():
    """As floats 0.28 of 25 unknowns is above 7, and width 1 was said to do for 7 visits."""
    spent = {"visits": 3, "equations": 6, "unknowns": 25}
    told = replace(ODOMETER, width=2, budget=0.28, visits_planned=7)
    assert "width = 1, with which 60 rounds can be made" in told.ended(30, 70, spent)


def test_odometer_names_the_rounds_from_which_it_is_full():
    assert (ODOMETER.equations, ODOMETER.full_after, ODOMETER.spanned_from) == (8, 30, 61)
    # In round 60 each row has had 6 visits, 24 equations; the first of round 61 have 28 >= 27.
    assert replace(ODOMETER, width=27).spanned_from == 1


def test_what_would_keep_a_run_below_does():
    # 9 visits: h = 1 gives 9 < 13 equations, h = 2 would give 18.
    said = ODOMETER.ways_below()
    assert said == (
        "width <= 1, or rounds <= 30, or at least 37 independent columns of all parties together"
    )
    narrow = replace(ODOMETER, width=1, visits=9)
    assert narrow.state == "below"
    assert replace(ODOMETER, visits=3).state == "below"  # 30 rounds
    assert replace(ODOMETER, visits=9, unknowns=37).state == "below"
    assert replace(ODOMETER, visits=9, unknowns=36).state != "below"
    assert "rounds" not in ODOMETER.ways_below(shorter=False)
    # No width does for 90 rounds, no number of rounds for h = 4: both must change.
    assert replace(ODOMETER, unknowns=4).ways_below().startswith("width = 3 with rounds <= 10, or")
    assert replace(ODOMETER, unknowns=1).ways_below().startswith("at least 37")


@pytest.mark.parametrize(
    ("visits", "state"), [(3, "below"), (4, "beyond"), (6, "beyond"), (7, "spanned")]
)
def test_states(visits, state):
    assert replace(ODOMETER, visits=visits).state == state
    assert replace(ODOMETER, visits=visits).to_dict()["state"] == state


def test_words_have_all_numbers():
    assert ODOMETER.words == (
        "8 equations about 13 unknowns of a row (h = 4, 2 visits); as many from round 31 on, "
        "the space of all columns from round 61 on"
    )
    assert "space" not in replace(ODOMETER, rank=None).words


def test_columns_that_nobody_saw_promise_no_free_dimension():
    seen, unseen = ODOMETER, replace(ODOMETER, at_most=True)
    assert "5 stay free" in seen.sentence()
    assert "stay free" not in unseen.sentence()
    assert "its at most 13 unknowns, fewer if columns depend on each other" in unseen.sentence()
    assert "about at most 13 unknowns" in unseen.words


@pytest.mark.parametrize(
    ("unknowns", "width", "advice"),
    [
        (13, 4, "width = 1, with which all 90 rounds can be made"),
        (5, 4, "width = 1, with which 40 rounds can be made"),
        (5, 1, "parties with more columns"),
    ],
)
def test_a_run_that_its_budget_ended_says_how_to_go_further(unknowns, width, advice):
    spent = {"visits": 3, "equations": 12, "unknowns": unknowns}
    told = replace(ODOMETER, width=width).ended(30, 90, spent)
    assert told.startswith("the budget of sums ended the run after 30 of 90 rounds: 3 decoded sums")
    assert f"12 equations about its {unknowns} unknowns" in told
    assert f"To go further use {advice}, or sum_budget = 0" in told


@pytest.mark.parametrize(
    ("visits", "words"),
    [(3, "1 stay free"), (4, "nothing is promised"), (7, "Read it as no protection")],
)
def test_sentence_by_equations(visits, words):
    seen = replace(ODOMETER, visits=visits)
    assert words in seen.sentence()
    spanning = "From r = {}27 equations a row on, at this width from round 61 on, sums determine"
    assert seen.sentence().count(spanning.format("")) == 1
    assert spanning.format("at most ") in replace(seen, at_most=True).sentence()
    assert "space of all columns" not in replace(seen, rank=None).sentence()


def test_width_above_the_unknowns_is_refused():
    refuse_width("fedvs", 13, 12, 1.0)
    with pytest.raises(ConfigurationError, match=r"width = 7 .* 13 independent .* width < 7"):
        refuse_width("fedvs", 13, 7, 0.5)


@pytest.mark.parametrize(("share", "visits"), [(1.0, 60), (0.5, 30), (0.25, 15)])
def test_a_share_of_the_unknowns(share, visits):
    assert visits_allowed(61, 1, share) == visits
    assert visits_allowed(60, 1, 0.5) == 29
