"""Jobs that fail are told of, and leave nothing of their runs in memory."""

from __future__ import annotations

import weakref

from securevfl.engine.simulation.simulator import Simulation
from securevfl.studies.run import run_study
from securevfl.studies.study import read_study
from securevfl.studies.workers import carry_out

FILE = """
title = "runs that fail"
dataset = "digits"
conditions = "none"
sealed = false
seeds = [0, 1]
[data]
parties = 4
[options]
width = 4
hidden = 8
batch = 64
rounds = 60
[runs.diverges]
protocol = "cvfl"
optimizer = "sgd"
lr = 1e20
[runs.cut]
protocol = "fedvs"
share_timeout = 1.0
result_timeout = 1.0
faults = { outage = [{ party = 0, rounds = [3] }, { party = 1, rounds = [3] }] }
"""


def test_a_run_that_failed_is_forgotten_before_the_next_one_begins(tmp_path, monkeypatch):
    path = tmp_path / "study.toml"
    path.write_text(FILE)
    alive: weakref.WeakSet[Simulation] = weakref.WeakSet()
    counts = []
    build = Simulation.__init__

    def counted(self, *given, **named):
        counts.append(len(alive))
        alive.add(self)
        build(self, *given, **named)

    monkeypatch.setattr(Simulation, "__init__", counted)
    results = list(carry_out(read_study(path).jobs, 1))
    assert [job.label for job, _ in results] == ["diverges", "cut"] * 2
    assert all("error" in result for _, result in results)
    assert len(counts) >= 4
    assert set(counts) == {0}


def test_a_run_that_diverges_is_a_result_of_its_study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(FILE.partition("[runs.cut]")[0] + '[runs.learns]\nprotocol = "cvfl"\n')
    content = run_study(read_study(path), tmp_path / "out")
    errors = content["runs"]["diverges"]["errors"]
    assert set(errors) == {"0", "1"}
    assert all("the model has diverged" in error for error in errors.values())
    assert len(content["runs"]["learns"]["test_accuracy"]["values"]) == 2
    assert (tmp_path / "out" / "results.json").exists()
