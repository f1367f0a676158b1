"""Jobs that fail are told of, and leave nothing of their runs in memory."""

from __future__ import annotations

import weakref

import pytest

from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import RunError
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
    results = []
    with pytest.raises(RunError, match="diverged"):
        results.extend(carry_out(read_study(path).jobs, 1))
    assert [result["error"] for job, result in results if job.label == "cut"]
    assert len(counts) >= 4
    assert set(counts) == {0}
