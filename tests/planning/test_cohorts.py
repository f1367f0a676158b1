"""What cohorts cost in stragglers, as a plan says it."""

import re

from securevfl.engine.conditions import Conditions, Delay, paper
from securevfl.field.cohorts import cohorts_of
from securevfl.planning.cohorts import cost_of_cohorts
from securevfl.planning.forecast import plan

TWO = cohorts_of("x", 2, 6, 1)


def timeouts(text):
    return [float(found) for found in re.findall(r"([0-9.]+) s\b", text)]


def test_a_late_client_costs_its_cohort():
    delays = [0.0] * 5 + [3.0]
    conditions = Conditions(uploads=tuple(Delay(shift=s) for s in delays), share_factor=1.0)
    text = cost_of_cohorts(TWO, conditions)
    assert "cohorts = 2, of 3 and 3 clients" in text
    assert timeouts(text) == [3.0, 3.0]  # one client in six is late, and a half with its cohort
    assert (
        timeouts(cost_of_cohorts(TWO, paper(6, batch_rows=128)))[0]
        > 1.2 * timeouts(cost_of_cohorts(TWO, paper(6, batch_rows=128)))[1]
    )


def test_nothing_is_said_where_nobody_is_late():
    assert cost_of_cohorts(TWO, Conditions()) == ""
    sizes = {"parties": 6, "rows": 500, "features": 65}
    assert plan(**sizes, masked=False).warnings == ()
    assert "cohorts = 2" in plan(**sizes).warnings[0]
