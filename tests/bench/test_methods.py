"""The table of methods: runs of a small one, and tables of cells that are known."""

import csv
import json
import math

import pytest

from securevfl.bench import methods
from securevfl.bench.methods import (
    CHOICE,
    MethodTable,
    flat,
    front,
    fronts,
    latex,
    on_fronts,
    slug,
    write_csv,
)
from securevfl.bench.methods_picture import draw
from securevfl.errors import ConfigurationError, DivergedError, UnknownNameError
from securevfl.runs.engines.run import Interrupted
from securevfl.studies import workers
from securevfl.studies.jobs import stored

DATA = "digits:parties=2,test_fraction=0.8"
SMALL = {"batch": 64, "width": 4, "hidden": 4}


def made(folder, **more):
    more = {"variants": ["split", "local"], "data": [DATA], "seeds": (0, 1)} | more
    return MethodTable(folder=folder, until=6.0, rates=(0.01, 0.1), options=SMALL, **more)


def cell(data, method, seeds, *curve, **more):
    """A cell that ended at the last point of its curve."""
    rows = [list(point) for point in curve]
    return {
        "data": data, "method": method, "seeds": seeds, "accuracy": rows[-1][2],
        "half_width": 0.01 if seeds > 1 else None, "bytes": rows[-1][1], "rounds": 3.0,
        "seconds": rows[-1][0], "curve": rows, "lr": 0.01, "error": "", "parties": 4,
        "features": [["server", "undetermined", "given sums"], ["outsider", "computational"]],
        "labels": [["client", "none"], ["client", "none"]], "sums": [12, 13, 27, "below"],
        "attacks": {"columns": {"attack": "a", "success": 0.5, "chance": 0.0, "of": "x"}}, **more,
    }  # fmt: skip


EMPTY = {"data": "one", "method": "gone", "seeds": 0, "empty": "not run"}
CELLS = [
    cell("one", "cheap", 5, (1.0, 10, 0.3), (2.0, 20, 0.6)),
    cell("one", "good", 5, (1.0, 30, 0.5), (2.0, 90, 0.9)),
    cell("one", "bad", 5, (1.0, 40, 0.2), (2.0, 95, 0.5), attacks=None, sums=None),
    cell("one", "early", 1, (1.0, 1, 1.0)),
    EMPTY,
]


@pytest.fixture
def table(tmp_path):
    found = made(tmp_path)
    found.run()
    return found


def test_all_cells_are_run_on_the_same_seeds_and_are_not_run_again(table, monkeypatch):
    split, local = table.content()["cells"]
    assert (split["method"], local["method"]) == ("split", "local")
    for row in (split, local):
        assert row["seeds"] == 2
        assert row["seconds"] <= 6
        assert row["accuracy"] == pytest.approx(sum(row["accuracy_values"]) / 2)
        assert math.isfinite(row["half_width"])
        times, sent, _ = zip(*row["curve"], strict=True)
        assert times[-1] == pytest.approx(6)
        assert list(sent) == sorted(sent)
        best = max(row["tried"], key=lambda one: one[1])
        assert row["lr"] == best[0]
        assert {rate for rate, _ in row["tried"]} == {0.01, 0.1}
    assert split["features"][0] == ["server", "none"]
    assert split["bytes"] > local["bytes"]
    monkeypatch.setattr(workers, "run_job", None)  # a run that is made again would fail
    again = made(table.folder)
    again.run()
    assert again.content()["cells"] == [split, local]
    more = made(table.folder, variants=["local", "split:lr=0.1"]).content()["cells"]
    assert more == [local, {**EMPTY, "data": DATA, "method": "split:lr=0.1"}]


def test_rates_are_chosen_on_rows_and_a_seed_that_the_table_has_not(table):
    jobs = table._jobs[DATA, "split"]
    (tried,) = table._choice((DATA, "split")).candidates(jobs).values()
    chosen_on = [job for _, own in tried for job in own]
    assert [job.options["lr"] for job in chosen_on] == [0.01, 0.1]
    for job in chosen_on:
        assert (job.seed, job.data["seed"], job.data["validation"]) == (CHOICE, CHOICE, 0.2)
        assert (job.until, job.conditions) == (jobs[0].until, jobs[0].conditions)
        assert stored(table.folder / slug(DATA), job)["summary"]["test_rows"] < jobs[0].seed + 200
    assert all("validation" not in job.data for job in jobs)


def test_what_cannot_run_is_said_before_and_left_out(tmp_path, monkeypatch):
    table = made(tmp_path, variants=["fedvs", "local"], seeds=(0,))
    (one,) = table.check().items()
    assert one[0] == (DATA, "fedvs")
    assert "2 parties are too few" in one[1]
    monkeypatch.setattr(workers, "run_job", diverging)
    table.run()
    fedvs, local = table.content()["cells"]
    assert fedvs["empty"].startswith("cannot run: fedvs: 2 parties are too few")
    assert "none of 2 combinations" in local["empty"]
    with pytest.raises(ConfigurationError, match="no cell can be run; the first: fedvs: 2"):
        made(tmp_path, variants=["fedvs"]).check()


def diverging(job, **_):
    raise DivergedError("the loss is too large")


def test_a_table_that_was_stopped_keeps_its_runs(tmp_path):
    asked = []
    table = made(tmp_path, seeds=(0,))
    with pytest.raises(Interrupted):
        table.run(interrupted=lambda: asked.append(1) or len(list(tmp_path.rglob("*.json"))) > 2)
    first, second = table.content()["cells"]
    assert (first["seeds"], second["empty"]) == (1, "not run")


def test_attacks_see_the_first_seed_of_each_cell_once(table):
    seen = []

    def attack(job):
        seen.append(job)
        return {"columns": None}

    for _ in range(2):
        again = made(table.folder, attack=attack)
        again.run()
    assert [(job.label, job.seed) for job in seen] == [("split", 0), ("local", 0)]
    split, _ = again.content()["cells"]
    assert seen[0].options["lr"] == split["lr"]
    assert split["attacks"] == {"columns": None}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"until": 0.0}, "above 0"),
        ({"rates": ()}, "one rate at least"),
        ({"seeds": range(CHOICE + 1)}, "fewer than 1000 seeds"),
        ({"variants": ["split", "split"]}, "methods must be named once each"),
        ({"data": []}, "data sets must be named"),
    ],
)
def test_tables_that_mean_nothing_are_refused(tmp_path, given, words):
    asked = {"variants": ["split"], "data": ["digits"], "folder": tmp_path} | given
    with pytest.raises(ConfigurationError, match=words):
        MethodTable(**asked)
    with pytest.raises(UnknownNameError, match="did you mean split"):
        MethodTable(**asked | {"variants": ["spilt"], "until": 1.0, "rates": (1.0,)} | {
            "data": ["digits"], "seeds": (0,)})  # fmt: skip


def test_nobody_on_a_front_is_beaten():
    points = [(3.0, 0.7), (1.0, 0.5), (2.0, 0.9), (2.0, 0.8), (4.0, 0.9)]
    assert front(points) == [1, 2]
    assert fronts(CELLS, "one", "bytes") == [
        ("cheap", 10, 0.3), ("cheap", 20, 0.6), ("good", 90, 0.9),
    ]  # fmt: skip
    assert fronts(CELLS, "one", "time") == [("good", 1.0, 0.5), ("good", 2.0, 0.9)]
    # A cell of fewer seeds than the others is on no front.
    assert on_fronts(CELLS, "one") == {"cheap": ["bytes"], "good": ["bytes", "time"]}


def test_tables_have_a_line_for_each_cell(tmp_path):
    path = tmp_path / "methods.csv"
    write_csv(CELLS, path)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["method"] for row in rows] == ["cheap", "good", "bad", "early", "gone"]
    assert rows[0]["features"] == "server: undetermined given sums; outsider: computational"
    assert rows[0]["labels"] == "client: none"
    assert (rows[0]["sums"], rows[0]["columns"], rows[0]["front"]) == (
        "12/13 below",
        "0.5",
        "bytes",
    )
    assert (rows[2]["sums"], rows[2]["columns"]) == ("", "")
    assert (rows[4]["accuracy"], rows[4]["empty"]) == ("", "not run")
    assert flat(CELLS)[1]["front"] == "bytes time"
    text = latex([{**CELLS[0], "method": "a_b"}, {**EMPTY, "method": "c"}])
    assert "a\\_b & 60.0 $\\pm$ 1.0 & 2e-05 \\\\" in text
    assert "c & - & - \\\\" in text


def test_the_picture_has_the_cells_that_were_run(tmp_path):
    path = tmp_path / "methods.png"
    draw(CELLS, path)
    assert path.stat().st_size > 10_000
    draw([EMPTY], path)
    assert not path.exists()


def test_data_sets_with_options_have_folders_of_their_own():
    assert slug("digits") == "digits"
    assert slug("a:b=1") != slug("a-b-1")
    assert json.dumps(methods._plain("0.2")) == "0.2"
    assert methods._plain("published") == "published"
