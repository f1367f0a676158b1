"""Time and bytes to a target, and the mean measure over time."""

import pytest

from securevfl.studies.speed import speeds


def job(label, seed, points, until=0.0, measure="accuracy"):
    curve = [{"time": t, "bytes": 10 * t, measure: value} for t, value in points]
    return {"label": label, "seed": seed, "curve": curve, "summary": {"until": until}}


def test_a_target_is_reached_between_two_evaluations():
    jobs = [job("a", 0, [(0, 0.5), (10, 0.7), (20, 0.9)]), job("a", 1, [(0, 0.5), (10, 0.9)])]
    found = speeds(jobs, ["a"], 0.8)["runs"]["a"]
    assert found["reached"] == 2
    assert found["seconds"]["values"] == pytest.approx([15.0, 7.5])
    assert found["bytes"]["values"] == pytest.approx([150.0, 75.0])
    assert found["seconds"]["mean"] == pytest.approx(11.25)


def test_where_a_seed_does_not_reach_it_there_is_no_mean():
    jobs = [job("a", 0, [(0, 0.5), (10, 0.9)]), job("a", 1, [(0, 0.5), (10, 0.7)])]
    found = speeds(jobs, ["a"], 0.8)["runs"]["a"]
    assert found["reached"] == 1
    assert "seconds" not in found
    assert "bytes" not in found


def test_a_run_stands_still_after_its_end():
    jobs = [job("a", 0, [(0, 0.0), (10, 1.0)], until=40.0), job("b", 0, [(10, 0.5), (20, 0.5)])]
    found = speeds(jobs, ["a", "b"], None)
    assert found["horizon"] == 40.0
    # From 10 s on, when both have been evaluated.
    assert found["runs"]["a"]["area"]["mean"] == pytest.approx(1.0)
    assert found["runs"]["b"]["area"]["mean"] == pytest.approx(0.5)
    assert "reached" not in found["runs"]["a"]


def test_an_error_is_to_fall():
    jobs = [job("a", 0, [(0, 4.0), (10, 2.0)], measure="rmse")]
    found = speeds(jobs, ["a"], 3.0)
    assert found["measure"] == "rmse"
    assert found["runs"]["a"]["seconds"]["mean"] == pytest.approx(5.0)
    assert speeds(jobs, ["a"], 5.0)["runs"]["a"]["seconds"]["mean"] == 0


def test_without_evaluations_there_is_nothing():
    assert speeds([job("a", 0, [])], ["a"], 0.5) == {}


def test_a_seed_that_was_never_evaluated_has_not_reached_it():
    found = speeds([job("a", 0, [(0, 0.5), (10, 0.9)]), job("a", 1, [])], ["a"], 0.8)["runs"]["a"]
    assert found == {"seeds": 2, "reached": 1}
