"""Boundaries of training: where the declaration puts them, found by bisection, and resumable."""

import csv
import math
from pathlib import Path

import pytest

from securevfl.bench import threshold
from securevfl.bench.threshold import (
    KINDS,
    Case,
    Sweep,
    bisect,
    boundaries,
    cases,
    map_boundaries,
    write_csv,
)
from securevfl.bench.threshold_picture import draw
from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError, UnknownNameError

N = 5


def sweep(folder, **more):
    options = {"batch": 32, "width": 8, "hidden": 8, "lr": 0.05}
    return Sweep(DataSource("digits", {}), N, folder, until=4.0, options=options, **more)


@pytest.mark.parametrize("most", [1, 2, 8, 15])
def test_bisection_finds_every_boundary_with_few_questions(most):
    for boundary in range(-1, most + 1):
        asked = []
        found = bisect(lambda s, b=boundary: asked.append(s) or s <= b, most)  # noqa: B023
        assert found == boundary
        assert len(asked) <= math.ceil(math.log2(most + 2))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """All cells of a coded method and of one without a threshold, with constant delays."""
    folder = tmp_path_factory.mktemp("threshold")
    made = sweep(folder)
    methods = made.methods(["fedvs", "split"], [1], [1], [0, 1])
    wanted = cases(methods, KINDS, ["constant"])
    return folder, wanted, list(map_boundaries(made, wanted))


def test_the_boundary_is_the_one_that_is_declared(found):
    _, _, cells = found
    coded = [row for row in boundaries(cells) if row["R"]]
    assert {(row["K"], row["A"]) for row in coded} == {(1, 0), (1, 1)}
    for row in coded:
        expected = row["A"] if row["kind"] == "lying" else N - row["R"] - 2 * row["A"]
        assert row["predicted"] == expected
        assert row["boundary"] == expected, row
    plain = [row for row in boundaries(cells) if not row["R"]]
    assert [row["predicted"] for row in plain] == [None] * 3
    assert {row["kind"]: row["boundary"] for row in plain}["slow"] == 0


def test_cells_say_what_a_user_asks(found):
    _, _, cells = found
    at = {(c.label, c.K, c.A, c.kind, c.troubled): c for c in cells}
    free, within, beyond = (at["fedvs", 1, 0, "slow", s] for s in (0, 2, 3))
    assert free.round_seconds == within.round_seconds == pytest.approx(0.2)
    assert beyond.round_seconds == 4.0  # its first round has not ended
    assert free.accuracy == within.accuracy > 0.15
    assert math.isnan(beyond.accuracy)  # nothing was trained
    assert free.sent > beyond.sent > 0
    dead = at["fedvs", 1, 0, "dead", 3]
    assert dead.outcome == "ended"
    assert "fedvs" in dead.error
    assert math.isnan(dead.accuracy)
    assert at["split", None, None, "dead", 1].outcome == "ended"
    assert at["fedvs", 1, 1, "lying", 1].accuracy == at["fedvs", 1, 1, "lying", 0].accuracy


def test_finished_runs_are_not_made_again_and_bisection_needs_fewer(found, monkeypatch, tmp_path):
    folder, wanted, cells = found
    monkeypatch.setattr(threshold, "run_job", lambda job: pytest.fail(f"{job.name} ran again"))
    again = sweep(folder)
    methods = again.methods(["fedvs", "split"], [1], [1], [0, 1])
    same = [Case(method, case.kind, case.law) for case in wanted for method in methods
            if _named(method) == _named(case.method)]  # fmt: skip
    assert list(map_boundaries(again, same)) == cells
    fewer = list(map_boundaries(sweep(folder), same, every=False))
    assert len(fewer) < len(cells)
    assert [(r["label"], r["boundary"]) for r in boundaries(fewer)] == [
        (r["label"], r["boundary"]) for r in boundaries(cells)
    ]


def _named(method):
    return method.label, method.K, method.T, method.A


def test_table_and_picture(found, tmp_path):
    _, _, cells = found
    write_csv(cells, tmp_path / "cells.csv")
    with (tmp_path / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(cells)
    assert rows[0]["label"] == "fedvs"
    assert all(value not in ("nan", "inf") for row in rows for value in row.values())
    draw(cells, tmp_path / "cells.png")
    assert Path(tmp_path / "cells.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_measured_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="5 parties are too few"):
        sweep(tmp_path).methods(["fedvs"], [5], [1], [0])
    with pytest.raises(UnknownNameError, match="did you mean width"):
        sweep(tmp_path).methods(["fedvs:widht=3"], [1], [1], [0])
    methods = sweep(tmp_path).methods(["split"], [1], [1], [0])
    with pytest.raises(UnknownNameError, match="did you mean pareto"):
        cases(methods, KINDS, ["paretto"])
