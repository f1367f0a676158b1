"""Thresholds of learning: of known times, of conditions with slow parties, and of a small sweep."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from securevfl.bench import threshold
from securevfl.bench.threshold import (
    KINDS,
    Case,
    Cell,
    Sweep,
    cases,
    latex,
    rows,
    thresholds,
    write_csv,
)
from securevfl.bench.threshold_picture import draw
from securevfl.bench.troubles import (
    conditions_setting,
    order_of,
    parse_law,
    trace_setting,
    with_slow,
)
from securevfl.data.source import DataSource
from securevfl.engine.conditions import Conditions, Delay, paper
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.studies import workers

N = 4
NEVER = math.inf


def sweep(folder, **more):
    options = {"batch": 32, "width": 4, "hidden": 4, "lr": 0.1, "privacy": 1, "segments": 1}
    more = {"until": 2.0, "target": 0.12, "counts": (0, 1, 2), "seeds": (0, 1)} | more
    return Sweep(DataSource("digits", {"test_fraction": 0.8}), N, folder, options=options, **more)


def means(conditions):
    return [delay.expectation for delay in conditions.uploads]


def cells(*times, rounds=None, until=10.0, error=""):
    """Cells of one case, of the times of each seed."""
    return [
        Cell("m", "law", "slow", s, until, own, own, rounds[s] if rounds else own,
             (0.9,) * len(own), (5.0,) * len(own), error if s else "")
        for s, own in enumerate(times)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("lognormal:0.5", {"upload_mean": 0.1, "upload_shape": 0.5, "upload_law": "lognormal"}),
        ("exponential", {"upload_mean": 0.1, "upload_law": "exponential"}),
        ("constant:2,share_factor=0", {"upload_shift": 2, "share_factor": 0}),
        (
            "pareto:mean=3,persistence=20",
            {"upload_mean": 3, "persistence": 20, "upload_law": "pareto"},
        ),
        ("uplinks:2e5", {"uplinks": 2e5}),
        ("paper:slow=0.25", {"pattern": "paper", "slow": 0.25}),
    ],
)
def test_laws_are_read(text, source):
    found = parse_law(text)
    assert (found.label, found.source) == (text, source)
    assert found.conditions(N, 8).name == text


def test_unknown_laws_and_conditions_without_anything_slow_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean pareto"):
        parse_law("paretto")
    with pytest.raises(ConfigurationError, match="not of the form key=value"):
        parse_law("pareto:2,mean")
    with pytest.raises(ConfigurationError, match="nothing of the parties can be slow"):
        with_slow(Conditions(uploads=(Delay(),) * 3), [0], 10.0, 0)


def test_slow_parties_are_slower_or_take_the_places_of_slow_ones():
    alike = parse_law("lognormal:1").conditions(N, 8)
    assert means(with_slow(alike, [2], 10.0, 0)) == [0.1, 0.1, 1.0, 0.1]
    pattern = paper(N, batch_rows=8)  # two fast, then 2.25 and 2.5 s
    assert means(with_slow(pattern, [], 10.0, 0)) == [0.1] * 4
    assert means(with_slow(pattern, [1, 0], 10.0, 0)) == [2.25, 2.5, 0.1, 0.1]
    assert means(with_slow(pattern, range(N), 10.0, 0)) == [2.25, 2.5, 2.25, 2.5]
    links = parse_law("uplinks:1000").conditions(N, 8)
    assert with_slow(links, [3], 10.0, 0).uplinks == (1e3, 1e3, 1e3, 100.0)


def test_a_trace_gives_its_fast_or_slow_workers_from_a_round_of_the_seed(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("step,a,b,c,d\n" + "".join(f"{k},{k},{k},{k},9{k}\n" for k in range(1, 6)))
    base = trace_setting(path).conditions(N, 8)
    made = with_slow(base, [1], 10.0, seed=3)
    assert [max(trace.recorded) for trace in made.uploads] == [5, 95, 5, 5]
    starts = {with_slow(base, [], 10.0, seed).uploads[0].recorded[0] for seed in range(20)}
    assert len(starts) > 2
    (tmp_path / "own.toml").write_text('trace = "mine.csv"\n')
    assert conditions_setting(str(tmp_path / "own.toml")).conditions(N, 8).uploads == base.uploads
    measured = with_slow(conditions_setting("ranks_st").conditions(8, 8), [0, 5], 10.0, 0)
    assert [mean > 1 for mean in means(measured)] == [n in (0, 5) for n in range(8)]


def test_each_seed_has_an_order_in_which_parties_become_slow():
    orders = [order_of(seed, 8) for seed in range(20)]
    assert all(sorted(order) == list(range(8)) for order in orders)
    assert len({order[0] for order in orders}) > 3
    assert order_of(3, 8) == order_of(3, 8)


def test_thresholds_of_known_times():
    own = cells((1.0,) * 5, (1.5,) * 5, (2.0, 2.0, 2.0, 9.0, NEVER), (1.0,) * 4 + (8.0,),
                (5.0,) * 5)  # fmt: skip
    (found,) = thresholds(own, 2.0, {"m": {"slow": 2}})
    assert (found.learning, found.clock, found.declared) == (3, 3, 2)
    assert (found.time, found.limit, found.open) == (1.0, 2.0, False)
    # At s = 2 two of five seeds are late: most resamples have it within, others have not.
    assert (found.low, found.high) == (1, 3)
    table = rows(own, 2.0)
    assert [row["censored"] for row in table] == [0, 0, 1, 0, 0]
    assert [row["within"] for row in table] == [1.0, 1.0, 0.6, 0.8, 0.0]
    assert table[2]["high"] is None
    assert table[2]["times"][-1] is None


def test_the_clock_is_told_apart_from_learning():
    slow = [(0.1,) * 3, (0.1,) * 3, (0.9,) * 3]
    (found,) = thresholds(cells((1.0,) * 3, (9.0,) * 3, (9.0,) * 3, rounds=slow), 2.0, {})
    assert (found.learning, found.clock, found.declared) == (0, 1, None)


@pytest.mark.parametrize(
    ("until", "error", "is_open"), [(10.0, "", False), (1.9, "", True), (1.9, "stalled", False)]
)
def test_a_run_that_ended_too_early_to_tell_leaves_the_threshold_open(until, error, is_open):
    made = cells((1.0, 1.0), (NEVER, NEVER), until=until, error=error)
    (found,) = thresholds(made, 2.0, {})
    assert (found.learning, found.open) == (0, is_open)
    assert (">=0 [0, 0]" in latex([found])) is is_open


def test_no_threshold_without_the_target():
    (found,) = thresholds(cells((NEVER, NEVER), (1.0, 1.0)), 2.0, {})
    assert (found.learning, found.low, found.high) == (-1, -1, -1)
    assert "m & - " in latex([found])


def test_jobs_say_their_trouble_in_values(tmp_path):
    made = sweep(tmp_path)
    law = parse_law("exponential:mean=0.2")
    (method,) = made.methods(["fedvs"])
    assert dict(method.declared) == {"slow": 1, "busy": 1, "dead": 1, "lying": 0}
    jobs = {kind: made.job(Case(method, law, kind), 1, seed=1) for kind in KINDS}
    (late,) = order_of(1, N)[:1]
    for kind in ("slow", "busy"):
        assert jobs[kind].conditions["upload_mean"][late] == 2.0
        assert jobs[kind].faults is None
    assert jobs["busy"].conditions["delay_mode"] == "occupies"
    assert jobs["dead"].faults == {"outage": [{"party": late, "rounds": [2]}]}
    assert jobs["dead"].options["share_timeout"] == pytest.approx(2.0)
    assert jobs["lying"].faults == {"lie": [{"party": late, "rounds": [2]}]}
    assert set(jobs["lying"].conditions["upload_mean"]) == {0.2}
    assert len({job.key() for job in jobs.values()}) == len(KINDS)
    assert sweep(tmp_path, until=None).job(Case(method, law, "slow"), 0, 0).until == 80.0


def test_a_sweep_has_tables_and_a_picture_and_makes_no_run_twice(tmp_path, monkeypatch):
    made = sweep(tmp_path, until=1.0, seeds=[0])
    wanted = cases(made.methods(["fedvs"]), [parse_law("constant:share_factor=0")], ["slow"])
    found = made.run(wanted)
    declared = {case.method.label: case.method.declared for case in wanted}
    (edge,) = thresholds(found, 2.0, declared)
    assert edge.clock == edge.declared == 1
    assert edge.learning >= 1
    monkeypatch.setattr(workers, "run_job", lambda job, **_: pytest.fail(f"{job.name} ran again"))
    assert made.run(wanted) == found
    table = rows(found, 2.0)
    write_csv(table, tmp_path / "cells.csv")
    with (tmp_path / "cells.csv").open() as file:
        read = list(csv.DictReader(file))
    assert len(read) == len(found) == 3
    assert all(value not in ("nan", "inf") for row in read for value in row.values())
    draw(table, [vars(edge)], tmp_path / "threshold.png")
    assert Path(tmp_path / "threshold.png").read_bytes().startswith(b"\x89PNG")
    assert "fedvs & " in latex([edge])
    json.dumps(table, allow_nan=False)


def test_what_cannot_be_measured_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean width"):
        sweep(tmp_path).methods(["fedvs:widht=3"])
    methods = sweep(tmp_path).methods(["split"])
    with pytest.raises(UnknownNameError, match="did you mean dead"):
        cases(methods, [parse_law("constant")], ["deed"])
    with pytest.raises(ConfigurationError, match="must lie in 0 to 4"):
        sweep(tmp_path, counts=(0, 5))
    with pytest.raises(ConfigurationError, match="must be finite and above 1"):
        sweep(tmp_path, factor=1.0)
    for target, until, why in ((90.0, 1.0, "a fraction"), (0.9, 0.0, "seconds above 0")):
        with pytest.raises(ConfigurationError, match=why):
            sweep(tmp_path, target=target, until=until)
    for seeds in ((0, 0), ()):
        with pytest.raises(ConfigurationError, match="must be different, at least one"):
            sweep(tmp_path, seeds=seeds)
    links = Case(methods[0], parse_law("uplinks"), "slow")
    with pytest.raises(ConfigurationError, match="give --until"):
        sweep(tmp_path, until=None).job(links, 0, 0)


def test_medians_are_compared_up_to_the_first_that_is_late():
    times = np.array([[1.0], [3.0], [1.0]])
    assert threshold._largest([0, 2, 4], times, 2.0) == 0
