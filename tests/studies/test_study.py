"""Studies: reading, jobs in this process and in workers, resuming, results."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import securevfl as svfl
from securevfl.cli.tables import print_study
from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError, RunError, UnknownNameError
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.plots import draw_grid, draw_sizes, draw_study
from securevfl.studies import workers
from securevfl.studies.compare import comparison
from securevfl.studies.equal_times import at_times
from securevfl.studies.intervals import differing, mean_interval, paired_difference
from securevfl.studies.jobs import Job, RefusedRunsError, history_digest, run_job, store, stored
from securevfl.studies.run import run_study
from securevfl.studies.study import read_study
from securevfl.studies.summary import draw, write_results
from securevfl.studies.workers import carry_out

TINY = {"rounds": 6, "width": 3, "hidden": 3, "batch": 16}
TOML = """
title = "two of them"
dataset = "digits"
conditions = "none"
seeds = 2
baseline = "plain"
eval_every = 2
times = [1.0, 2.5]
[data]
parties = 4
[options]
rounds = 6
width = 3
hidden = 3
batch = 16
[runs.coded]
protocol = "fedvs"
segments = 1
[runs.plain]
protocol = "split"
conditions = "paper"
eval_every = 3
[paper]
accuracy = 90.0
[quick]
seeds = [7]
until = 3.0
[quick.options]
rounds = 4
[quick.data]
aligned = 60
"""


def write(tmp_path: Path, text: str = TOML) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(text)
    return path


def result(label: str, seed: int, curve: list[tuple[float, float]], **summary: Any) -> Any:
    rows = [{"step": k + 1, "time": t, "accuracy": a} for k, (t, a) in enumerate(curve)]
    last = {"test_accuracy": curve[-1][1], "virtual_seconds": curve[-1][0], "seed": seed}
    return {"label": label, "seed": seed, "summary": last | summary, "curve": rows}


# -- reading -----------------------------------------------------------------------------------


def test_a_study_file_gives_one_job_for_each_run_and_seed(tmp_path):
    study = read_study(write(tmp_path))
    assert [(job.label, job.seed) for job in study.jobs] == [
        ("coded", 0), ("plain", 0), ("coded", 1), ("plain", 1),
    ]  # fmt: skip
    coded, plain = study.jobs[:2]
    assert (coded.protocol, coded.conditions, coded.eval_every) == ("fedvs", "none", 2)
    assert (plain.protocol, plain.conditions, plain.eval_every) == ("split", "paper", 3)
    assert coded.options == {"rounds": 6, "width": 3, "hidden": 3, "batch": 16, "segments": 1}
    assert coded.data == {"parties": 4, "seed": 0}
    assert study.times == (1.0, 2.5)


def test_quick_changes_what_its_table_says(tmp_path):
    study = read_study(write(tmp_path), quick=True, data_dir="here")
    assert [job.seed for job in study.jobs] == [7, 7]
    assert all(job.options["rounds"] == 4 and job.options["width"] == 3 for job in study.jobs)
    assert all(job.until == 3.0 for job in study.jobs)
    assert study.jobs[0].data == {"parties": 4, "aligned": 60, "data_dir": "here", "seed": 7}


def test_every_run_is_done_with_each_number_of_aligned_rows(tmp_path):
    text = TOML.replace("seeds = 2", "seeds = 2\naligned = [50, 90]").replace(
        'protocol = "split"', 'protocol = "split"\naligned = [70]'
    )
    study = read_study(write(tmp_path, text.replace('baseline = "plain"', "")))
    assert study.labels == ("coded, 50 aligned", "coded, 90 aligned", "plain, 70 aligned")
    assert [job.data["aligned"] for job in study.jobs] == [50, 90, 70] * 2
    assert [job.protocol for job in study.jobs[:3]] == ["fedvs", "fedvs", "split"]


@pytest.mark.parametrize("sizes", ["[]", "50", "[0]", "[50, 50]", "[true]"])
def test_numbers_of_aligned_rows_that_make_no_sense_are_refused(tmp_path, sizes):
    path = write(tmp_path, TOML.replace("seeds = 2", f"seeds = 2\naligned = {sizes}"))
    with pytest.raises(ConfigurationError, match="aligned must be a list of different"):
        read_study(path)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("title =", "titel =", "titel"),
        ("[quick]", "[quick]\nbaseline = 'x'", "baseline"),
        ('dataset = "digits"', "", "needs 'dataset'"),
        ('baseline = "plain"', 'baseline = "plane"', "'plane' is none of its runs"),
        ("seeds = 2", "seeds = []", "seeds"),
        ("seeds = 2", "seeds = [1, 1]", "seeds"),
        ("seeds = 2", "seeds = 2 2", "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, old, new, part):
    with pytest.raises(ConfigurationError, match=part):
        read_study(write(tmp_path, TOML.replace(old, new, 1)))


def test_a_file_that_nests_too_deep_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="study"):
        read_study(write(tmp_path, "a = " + "[" * 5000))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.toml cannot be read"):
        read_study(tmp_path / "none.toml")


# -- jobs --------------------------------------------------------------------------------------


def job(**given: Any) -> Job:
    settings: dict[str, Any] = {
        "label": "a", "protocol": "split", "options": TINY, "dataset": "digits",
        "data": {"parties": 3, "seed": 4}, "conditions": "paper", "seed": 4, "eval_every": 2,
    }  # fmt: skip
    return Job(**settings | given)


def test_a_result_is_found_only_under_the_same_settings(tmp_path):
    (tmp_path / "jobs").mkdir()
    store(tmp_path, job(), {"curve": [1]})
    assert stored(tmp_path, job()) == {"curve": [1]}
    assert stored(tmp_path, job(data={"parties": 3, "seed": 4, "data_dir": "x"})) == {"curve": [1]}
    for other in ({"options": {**TINY, "rounds": 7}}, {"until": 9.0}, {"conditions": "none"}):
        assert stored(tmp_path, job(**other)) is None
    assert stored(tmp_path, job(seed=5)) is None


def test_labels_that_look_alike_have_files_of_their_own(tmp_path):
    names = ["split:a=1", "split-a-1", "split:a-1", "split/a=1"]
    paths = {job(label=name).path(tmp_path).name for name in names}
    assert len(paths) == 4
    assert not any(set(path) & set(':/="') for path in paths)


def test_until_ends_a_job_that_names_no_rounds():
    options = {k: v for k, v in TINY.items() if k != "rounds"}
    found = run_job(job(options=options, until=60.0, eval_every=None, conditions="paper"))
    assert 45 < found["summary"]["virtual_seconds"] <= 60
    assert found["summary"]["until"] == 60
    assert found["summary"]["rounds"] > 3
    assert len(found["curve"]) > 2


def test_conditions_may_be_a_table():
    slow = run_job(job(conditions={"upload_mean": 0.0, "upload_shift": 2.0}))
    assert slow["summary"]["virtual_seconds"] == pytest.approx(12.0, abs=0.1)


def test_the_history_is_the_same_alone_and_in_a_study_with_two_workers(tmp_path):
    study = read_study(write(tmp_path))
    run_study(study, tmp_path / "out", workers=2)
    for one in study.jobs:
        alone = svfl.run(
            one.protocol, svfl.load_dataset("digits", parties=4, seed=one.seed), seed=one.seed,
            conditions=one.conditions, eval_every=one.eval_every, **one.options,
        )  # fmt: skip
        kept = stored(tmp_path / "out", one)
        assert kept is not None
        assert kept["history"] == history_digest(alone.history)
        assert kept["summary"]["test_accuracy"] == alone.summary()["test_accuracy"]
    assert len({stored(tmp_path / "out", one)["history"] for one in study.jobs}) == 4


def test_a_digest_tells_histories_apart():
    rows = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]
    changed = [rows[0], {"step": 2, "loss": 0.25000000000000006}]
    assert history_digest(rows) == history_digest([dict(row) for row in rows])
    assert len({history_digest(r) for r in (rows, rows[:1], changed, rows[::-1])}) == 4


# -- resuming and failing ----------------------------------------------------------------------


def test_finished_jobs_are_not_done_again_and_changed_ones_are(tmp_path, monkeypatch):
    done: list[str] = []

    def record(one: Job, **_: Any) -> Any:
        done.append(one.name)
        return result(one.label, one.seed, [(1.0, 0.5)])

    monkeypatch.setattr(workers, "run_job", record)
    study, told = read_study(write(tmp_path)), []
    run_study(study, tmp_path / "out", progress=lambda *what: told.append(what))
    assert len(done) == 4
    assert told[0] == (0, 4, "0 were there")
    assert told[-1] == (4, 4, "plain, seed 1")
    run_study(study, tmp_path / "out")
    assert len(done) == 4
    (tmp_path / "out" / "jobs" / "plain-1.json").unlink()
    changed = read_study(write(tmp_path, TOML.replace("segments = 1", "segments = 1\nlr = 0.02")))
    run_study(changed, tmp_path / "out")
    assert done[4:] == ["coded, seed 0", "coded, seed 1", "plain, seed 1"]


def test_ctrl_c_keeps_what_is_finished(tmp_path):
    study, told = read_study(write(tmp_path)), []
    with pytest.raises(svfl.Interrupted):
        run_study(
            study, tmp_path / "out", progress=lambda *what: told.append(what),
            interrupted=lambda: len(told) > 2,
        )  # fmt: skip
    kept = [one for one in study.jobs if stored(tmp_path / "out", one) is not None]
    assert [one.name for one in kept] == ["coded, seed 0", "plain, seed 0"]
    assert not (tmp_path / "out" / "results.json").exists()
    content = run_study(study, tmp_path / "out")
    assert content["runs"]["coded"]["seeds"] == [0, 1]


def test_ctrl_c_stops_a_job_that_is_under_way():
    long = job(options={**TINY, "rounds": 100_000}, conditions="none")
    asked = 0

    def interrupted() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    assert list(carry_out([long, replace(long, seed=9)], 1, interrupted=interrupted)) == []


def test_ctrl_c_reaches_the_workers():
    long = [job(options={**TINY, "rounds": 10**6}, conditions="none", seed=s) for s in range(6)]
    seen: set[str] = set()

    def watch(one: Job, part: float) -> None:
        assert 0 <= part < 1
        seen.add(one.name)

    found = list(carry_out(long, 2, watch=watch, interrupted=lambda: len(seen) == 2))
    assert found == []
    assert seen == {"a, seed 0", "a, seed 1"}


def test_a_job_that_fails_leaves_the_others():
    impatient = {**TINY, "share_timeout": 0.1, "max_attempts": 2}
    slow = {"upload_shift": 5.0}
    good, bad = job(), job(label="b", protocol="fedvs", options=impatient, conditions=slow)
    outcomes = carry_out([bad, good], 1)
    assert next(outcomes)[0] == good
    with pytest.raises(RunError, match="2 attempts in a row were given up"):
        next(outcomes)


GRID = (
    TOML.replace('baseline = "plain"', "")
    + """
[grid.calm]
[grid."dead link"]
outage = [{ link = [1, "server"], rounds = [3] }]
"""
)


def test_the_quick_form_changes_single_runs(tmp_path):
    text = TOML + "[quick.runs.plain]\nrounds = 2\n"
    study = read_study(write(tmp_path, text), quick=True)
    assert [job.options["rounds"] for job in study.jobs] == [4, 2]
    with pytest.raises(ConfigurationError, match="no run 'plane' to be made quick"):
        read_study(write(tmp_path, text.replace("runs.plain]\nr", "runs.plane]\nr")), quick=True)


def test_all_runs_are_done_under_each_of_the_faults_of_a_grid(tmp_path):
    study = read_study(write(tmp_path, GRID), quick=True)
    assert study.labels == ("coded, calm", "plain, calm", "coded, dead link", "plain, dead link")
    assert [job.protocol for job in study.jobs] == ["fedvs", "split"] * 2
    assert [bool(job.faults) for job in study.jobs] == [False, False, True, True]
    with pytest.raises(ConfigurationError, match="'plain' is none of its runs"):
        read_study(write(tmp_path, 'baseline = "plain"' + GRID))


def test_curves_of_a_grid_are_drawn_under_their_conditions(tmp_path, monkeypatch):
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(
        "securevfl.runs.plots.draw_grid", lambda cells, path, **_more: drawn.update(cells)
    )
    study = read_study(write(tmp_path, GRID), quick=True)
    jobs = [{"label": one.label, "curve": [one.label]} for one in study.jobs]
    draw(study, jobs, tmp_path / "curves.png")
    assert drawn == {
        under: {name: [[f"{name}, {under}"]] for name in ("coded", "plain")}
        for under in ("calm", "dead link")
    }


def test_a_picture_of_a_grid_shows_points_where_runs_are_evaluated_once(tmp_path):
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    once = [[{"time": 0.0, "accuracy": 0.5}], [{"time": 0.0, "accuracy": 0.7}]]
    late = [[{"time": 900.0, "accuracy": 0.9}]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, *_a, **_o: figures.append(figure))
        draw_grid({"calm": {"a": once, "b": late}, "busy": {"a": late}}, tmp_path / "x", title="")
    first = figures[0].axes[0]
    assert first.get_xscale() == "symlog"  # 0 is on the axis
    assert [line.get_xydata()[0].tolist() for line in first.lines[:1]] == [[0.0, 0.6]]
    assert first.get_ylim()[0] <= 0.5 < 0.9 <= first.get_ylim()[1]


def test_a_picture_has_no_panel_of_an_axis_on_which_nothing_moves(tmp_path):
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    rows = [{"step": n, "time": 0.0, "bytes": 10 * n, "accuracy": 0.5} for n in (1, 2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, *_a, **_o: figures.append(figure))
        draw_study({"a": [rows]}, tmp_path / "x", title="")
    assert [panel.get_xlabel() for panel in figures[0].axes] == ["round", "sent (MB)"]


@pytest.mark.parametrize("curves", [{}, {"a": []}, {"a": [[]]}])
def test_a_picture_is_drawn_where_no_run_was_evaluated(curves, tmp_path):
    draw_study(curves, tmp_path / "x.png", title="")
    assert (tmp_path / "x.png").stat().st_size > 0
    draw_sizes({name: {10: own, 20: own} for name, own in curves.items()}, tmp_path / "y.png",
               title="")  # fmt: skip
    assert (tmp_path / "y.png").stat().st_size > 0


def test_a_picture_is_drawn_where_all_seeds_end_alike(tmp_path):
    # 0.1 + 0.1 + 0.1 is more than 0.3, and the mean so above the largest of the three.
    draw_study({"a": [[{"step": 1, "accuracy": 0.1}]] * 3}, tmp_path / "x.png", title="")
    assert (tmp_path / "x.png").stat().st_size > 0


def test_ends_are_drawn_against_the_numbers_of_aligned_rows(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    text = TOML.replace("times = [1.0, 2.5]", "aligned = [300, 60]")
    text = text.replace('baseline = "plain"\n', "")
    study = read_study(write(tmp_path, text), quick=True)
    jobs = [
        {"label": job.label, "curve": [{"accuracy": 0.1}, {"accuracy": place / 10}]}
        for place, job in enumerate(study.jobs)
    ]
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_a, **_o: figures.append(figure))
    draw(study, jobs, tmp_path / "curves.png")
    (panel,) = figures[0].axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("aligned rows", "test accuracy")
    assert [line.get_label() for line in panel.lines] == ["coded", "plain"]
    for line in panel.lines:
        assert line.get_xdata().tolist() == [60, 300]
        for size, mean in line.get_xydata():
            own = [
                job["curve"][-1]["accuracy"]
                for job in jobs
                if job["label"] == f"{line.get_label()}, {size:g} aligned"
            ]
            assert own
            assert mean == pytest.approx(sum(own) / len(own))


def test_a_grid_may_change_the_conditions(tmp_path, capsys):
    text = TOML.replace('baseline = "plain"', "") + (
        '[grid.waiting.conditions]\npattern = "paper"\n'
        '[grid.busy.conditions]\npattern = "paper"\ndelay_mode = "occupies"\n'
    )
    study = read_study(write(tmp_path, text), quick=True)
    assert study.labels == ("coded, waiting", "plain, waiting", "coded, busy", "plain, busy")
    assert [job.faults for job in study.jobs] == [None] * 4
    content = run_study(study, tmp_path / "out")
    runs = content["runs"]
    assert {label: run["delay_mode"] for label, run in runs.items()} == {
        "coded, waiting": "latency", "plain, waiting": "latency",
        "coded, busy": "occupies", "plain, busy": "occupies",
    }  # fmt: skip
    print_study(content)
    assert "delay mode: latency, occupies" in " ".join(capsys.readouterr().out.split())


def test_a_run_with_faults_that_cannot_go_on_is_a_result(tmp_path, capsys):
    # FedVS is made to go on without the party; split learning waits for it.
    text = GRID.replace(
        "segments = 1", "segments = 1\nshare_timeout = 1.0\nresult_timeout = 1.0\ncohorts = 0"
    )
    study = read_study(write(tmp_path, text))
    content = run_study(study, tmp_path / "out")
    failed = content["runs"]["plain, dead link"]
    assert failed["seeds"] == []
    assert set(failed["errors"]) == {"0", "1"}
    assert "round 3" in failed["errors"]["0"]
    assert "party 1" in failed["errors"]["0"]
    for label in ("coded, calm", "plain, calm", "coded, dead link"):
        assert content["runs"][label]["seeds"] == [0, 1]
        assert "errors" not in content["runs"][label]
    assert run_study(study, tmp_path / "out", progress=lambda *told: told[0] == 8 or 1 / 0)
    print_study(content)
    shown = capsys.readouterr().out
    assert "failed" in shown
    assert "plain, dead link, seed 1, could not go on: the run stalled" in " ".join(shown.split())


def test_a_folder_with_something_else_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="something else"):
        run_study(read_study(write(tmp_path)), tmp_path)


# -- results -----------------------------------------------------------------------------------


def test_values_at_equal_times_lie_between_the_evaluations_around_them():
    jobs = [
        result("a", 0, [(1.0, 0.1), (2.0, 0.2), (4.0, 0.4)]),
        result("b", 0, [(3.0, 0.3)], until=6.0),
    ]
    rows = at_times(jobs, (0.5, 2.0, 3.5, 5.0))
    assert [(r["run"], r["time"], pytest.approx(r["accuracy"]), r["ended"]) for r in rows] == [
        ("a", 2.0, 0.2, False), ("a", 3.5, 0.35, False), ("a", 5.0, 0.4, True),
        ("b", 3.5, 0.3, False), ("b", 5.0, 0.3, False),
    ]  # fmt: skip


def test_a_value_is_not_that_of_the_evaluation_before():
    """Evaluations come just after multiples of a step, and those multiples are asked for."""
    curve = [(25.56, 0.4253), (50.45, 0.5615), (75.3, 0.64)]
    (row,) = at_times([result("a", 0, curve, until=100.0)], (50.0,))
    assert row["accuracy"] == pytest.approx(0.5615 - (50.45 - 50.0) / 24.89 * 0.1362, abs=1e-6)


def test_a_run_that_is_not_evaluated_any_more_has_no_value():
    """It goes on until 100 s; its evaluations were at most 2 s apart, and the last is 50 s old."""
    found = result("a", 0, [(1.0, 0.1), (3.0, 0.3)], until=100.0)
    assert [row["time"] for row in at_times([found], (3.0, 4.9, 5.1, 53.0))] == [3.0, 4.9]


def test_the_table_of_a_study_has_the_times_that_it_asks_for(tmp_path):
    study = replace(read_study(write(tmp_path)), times=(1.5, 2.0))
    (tmp_path / "jobs").mkdir()
    for one in study.jobs:
        store(tmp_path, one, result(one.label, one.seed, [(1.0, 0.25), (2.0, 0.5)]))
    write_results(study, tmp_path)
    rows = [line.split(",") for line in (tmp_path / "times.csv").read_text().splitlines()]
    assert {row[2] for row in rows[1:]} == {"1.5", "2.0"}
    assert {row[4] for row in rows[1:]} == {"0.375", "0.5"}


def test_without_times_the_table_ends_with_the_longest_run():
    rows = at_times([result("a", 0, [(1.0, 0.1), (8.0, 0.2)]), result("b", 0, [(2.0, 0.5)])], ())
    times = [row["time"] for row in rows if row["run"] == "b"]
    assert times == pytest.approx([0.2 * k for k in range(10, 41)])
    assert max(row["time"] for row in rows) == 8.0


def test_no_table_of_times_is_written_where_no_time_passes(tmp_path):
    study = read_study(write(tmp_path))
    (tmp_path / "jobs").mkdir()
    (tmp_path / "times.csv").write_text("of an older study")
    for one in study.jobs:
        store(tmp_path, one, result(one.label, one.seed, [(0.0, 0.25), (0.0, 0.5)]))
    content = write_results(study, tmp_path)
    assert content["times"] == {}
    assert not (tmp_path / "times.csv").exists()


def test_results_are_means_intervals_and_paired_differences(tmp_path):
    study = replace(read_study(write(tmp_path)), times=(2.0,))
    values = {("coded", 0): 0.5, ("coded", 1): 0.7, ("plain", 0): 0.4, ("plain", 1): 0.5}
    (tmp_path / "jobs").mkdir()
    for one in study.jobs:
        curve = [(1.0, 0.1), (2.0, values[one.label, one.seed])]
        store(tmp_path, one, result(one.label, one.seed, curve))
    content = write_results(study, tmp_path)
    assert content == json.loads((tmp_path / "results.json").read_text())
    coded = content["runs"]["coded"]["test_accuracy"]
    t = 12.706204736  # 0.975 quantile of Student's t with one degree of freedom
    assert coded["mean"] == pytest.approx(0.6)
    assert coded["half_width_95"] == pytest.approx(t * 0.1, rel=1e-6)
    difference = content["differences"]["coded"]["test_accuracy"]
    assert difference["mean"] == pytest.approx(0.15)
    assert difference["half_width_95"] == pytest.approx(t * 0.05, rel=1e-6)
    assert content["times"]["runs"]["plain"][0]["mean"] == pytest.approx(0.45)
    names = ("results.csv", "curves.csv", "times.csv")
    tables = {n: list(csv.DictReader((tmp_path / n).read_text().splitlines())) for n in names}
    assert [len(table) for table in tables.values()] == [4, 8, 4]
    assert {"run", "seed", "time", "accuracy"} <= set(tables["times.csv"][0])
    assert (tmp_path / "curves.png").stat().st_size > 5000


def test_one_pair_of_seeds_has_no_interval_and_no_verdict(tmp_path, capsys):
    study = read_study(write(tmp_path))
    study = replace(study, jobs=tuple(job for job in study.jobs if job.seed == 0))
    (tmp_path / "jobs").mkdir()
    for one in study.jobs:
        store(tmp_path, one, result(one.label, one.seed, [(1.0, 0.5)]))
    print_study(write_results(study, tmp_path))
    shown = " ".join(capsys.readouterr().out.split())
    assert "one pair of seeds has no interval" in shown
    assert re.search(r"plain.* accuracy.* 1 .*-", shown)
    assert not re.search(r" 1 (│ )?(yes|no)", shown)


def test_runs_that_learned_nothing_are_named(tmp_path, capsys):
    study = read_study(write(tmp_path))
    (tmp_path / "jobs").mkdir()
    for one in study.jobs:
        found = result(one.label, one.seed, [(1.0, 0.5)])
        found["summary"] |= {
            "test_accuracy": 0.5,
            "majority_accuracy": 0.5 - (one.label != "plain") / 9,
        }
        store(tmp_path, one, found)
    print_study(write_results(study, tmp_path))
    shown = " ".join(capsys.readouterr().out.split())
    assert "most frequent class of the training rows (50.00 %): plain. Train longer" in shown


def test_differences_are_told_from_0_after_holm():
    """p values .01, .02, .03, .04 and .3: Holm's levels are .01, .0125, .0167, .025, .05."""
    from scipy.stats import t

    def entry(p, pairs=6):
        half = t.ppf(0.975, pairs - 1) / t.ppf(1 - p / 2, pairs - 1)
        return {"mean": -1.0, "half_width_95": half, "pairs": pairs}

    assert differing([entry(0.04)]) == [True]
    assert differing([entry(p) for p in (0.3, 0.0099, 0.012, 0.03, 0.04)]) == [
        False, True, True, False, False,
    ]  # fmt: skip
    alone = {"mean": 9.0, "half_width_95": None, "pairs": 1}
    assert differing([alone, entry(0.04)]) == [None, True]
    unknown = {"mean": 9.0, "half_width_95": math.nan, "pairs": 5}
    assert differing([unknown, entry(0.04)]) == [None, True]


def test_equal_differences_of_a_few_seeds_say_no_more_than_their_signs():
    """Two seeds of one more right row each: that is chance, and the t test would be certain."""
    alike = {"mean": 0.1, "half_width_95": 1e-17, "pairs": 2}
    assert differing([alike]) == [False]
    assert differing([alike | {"pairs": 5}]) == [False]
    assert differing([alike | {"pairs": 6}]) == [True]  # 2^-5 = 3 %
    assert differing([alike | {"mean": 0.0, "half_width_95": 0.0, "pairs": 9}]) == [False]


def test_a_run_that_ended_before_its_first_step_is_in_no_difference(tmp_path):
    study = read_study(write(tmp_path))
    (tmp_path / "jobs").mkdir()
    for one in study.jobs:
        found = result(one.label, one.seed, [(1.0, 0.5)])
        if (one.label, one.seed) == ("coded", 0):
            del found["summary"]["test_accuracy"]
        store(tmp_path, one, found)
    content = write_results(study, tmp_path)
    assert content["differences"]["coded"]["test_accuracy"]["pairs"] == 1
    assert "test_accuracy" not in content["runs"]["coded"]


def test_one_seed_has_a_mean_and_no_interval(tmp_path):
    study = read_study(write(tmp_path, TOML.replace("seeds = 2", "seeds = 1")))
    (tmp_path / "jobs").mkdir()
    for one in study.jobs:
        store(tmp_path, one, result(one.label, one.seed, [(1.0, 0.25)]))
    text = json.dumps(write_results(study, tmp_path), allow_nan=False)
    assert json.loads(text)["runs"]["coded"]["test_accuracy"]["half_width_95"] is None


def test_one_value_is_no_pair_of_three():
    with pytest.raises(ValueError, match="1 and 3 values are no pairs"):
        paired_difference([0.77], [0.71, 0.72, 0.73])


def test_intervals():
    assert mean_interval([2.0])[0] == 2.0
    assert math.isnan(mean_interval([2.0])[1])
    mean, half = paired_difference([1.0, 2.0, 3.0], [0.5, 1.5, 2.5])
    assert (mean, half) == (0.5, 0.0)


# -- comparisons -------------------------------------------------------------------------------

DIGITS = DataSource("digits", {"parties": 4, "seed": 3})


def test_a_comparison_gives_each_option_to_those_that_have_it():
    study = comparison(
        ["fedvs", "split:segments=2"], DIGITS, options={"privacy": 1, "width": "5", "segments": 1},
        seeds=[3, 4], until=7.0,
    )  # fmt: skip
    assert study.labels == ("fedvs", "split:segments=2")
    assert study.baseline == "fedvs"
    fedvs, split = study.jobs[:2]
    assert fedvs.options == {"privacy": 1, "width": "5", "segments": 1}
    assert split.options == {"width": "5", "segments": "2"}
    assert [one.data["seed"] for one in study.jobs] == [3, 3, 4, 4]
    assert {one.until for one in study.jobs} == {7.0}


@pytest.mark.parametrize(
    ("variants", "options", "error", "part"),
    [
        (["fedvs", "splitt"], {}, UnknownNameError, "did you mean split"),
        (["fedvs", "fedvs"], {}, ConfigurationError, "twice"),
        (["fedvs", "split"], {"privcy": 1}, UnknownNameError, "did you mean privacy"),
        (["fedvs", "split:privacy=1"], {}, UnknownNameError, "option of split"),
        (["fedvs", "split"], {"lr": "fast"}, ConfigurationError, "lr = 'fast'"),
    ],
)
def test_mistakes_of_a_comparison_come_before_any_run(variants, options, error, part):
    with pytest.raises(error, match=part):
        comparison(variants, DIGITS, options=options, seeds=[0])


def test_all_protocols_of_a_comparison_meet_the_same_delays():
    """With one round and no other difference, the wait is for the same slowest upload."""
    study = comparison(["split", "split:width=7"], DIGITS, options={**TINY, "rounds": 1}, seeds=[2])
    times = [run_job(one)["summary"]["virtual_seconds"] for one in study.jobs]
    assert times[0] > 1
    assert times[0] == pytest.approx(times[1], abs=0.01)


PAPERS = sorted(Path(__file__).parents[2].glob("benchmarks/papers/**/*.toml"))


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_studies_of_the_papers_name_protocols_and_options_that_exist(path):
    for quick in (False, True):
        for job in read_study(path, quick=quick).jobs:
            make_config(get_protocol(job.protocol), job.options)


def test_an_unknown_protocol_is_told_before_anything_is_run(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('title = "t"\ndataset = "digits"\n[runs.split]\n[runs.a.b]\nrounds = 3\n')
    with pytest.raises(RefusedRunsError, match=r"unknown protocol 'a'.* split can run: leave out"):
        run_study(read_study(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('protocol = "fedvs"\nsegments = 3', r"run 'bad': .*4 clients|run 'bad': .*4 parties"),
        ("conditions = { upload_mean = [1.0, 2.0] }", "run 'bad': .*2 entries for 4 clients"),
        (
            "faults = { outage = [{ party = 9, rounds = [2] }] }",
            "run 'bad': .*party 9 does not exist",
        ),
    ],
)
def test_a_run_that_cannot_be_made_on_its_data_is_told_before_anything_is_run(
    tmp_path, table, words
):
    path = tmp_path / "study.toml"
    path.write_text(
        'title = "t"\ndataset = "digits"\nseeds = 1\n[data]\nparties = 4\n[options]\nrounds = 2\n'
        f'[runs.split]\n[runs.bad]\nprotocol = "split"\n{table}\n'.replace(
            'protocol = "split"\nprotocol', "protocol"
        )
    )
    with pytest.raises(ConfigurationError, match=words):
        run_study(read_study(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_that_made_all_its_rounds_has_ended(tmp_path):
    """Its last value stands in the table at equal times, and is marked."""
    text = TOML.replace('baseline = "plain"', "until = 1e6\ntarget = 0.5")
    study = read_study(write(tmp_path, text.replace("[1.0, 2.5]", "[1e5]")))
    content = run_study(study, tmp_path / "out")
    for label, entries in content["times"]["runs"].items():
        assert [entry["ended"] for entry in entries] == [True], label
    assert content["speed"]["target"] == 0.5
    assert all(run["majority_accuracy"]["mean"] > 0 for run in content["runs"].values())
    with pytest.raises(ConfigurationError, match="target must be a number"):
        read_study(write(tmp_path, TOML.replace("seeds = ", "target = 'x'\nseeds = ")))


def test_a_seed_without_an_evaluation_is_not_left_out_of_means_over_time(tmp_path):
    study = replace(read_study(write(tmp_path)), times=(2.0,))
    (tmp_path / "jobs").mkdir()
    for one in study.jobs:
        found = result(one.label, one.seed, [(1.0, 0.25), (2.0, 0.5)])
        if (one.label, one.seed) == ("coded", 0):
            found["curve"] = []
        store(tmp_path, one, found)
    runs = write_results(study, tmp_path)["times"]["runs"]
    assert (runs["coded"], len(runs["plain"])) == ([], 1)
