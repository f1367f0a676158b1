"""Verdicts follow from intervals: true of all differences, contradicted by one, or undecided."""

import csv
import importlib
import json
import math
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def verdicts(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("verdicts")


@pytest.mark.parametrize(
    ("means", "word"),
    [
        ((2.0, 3.0), "confirmed"),
        ((2.0, -3.0), "refuted"),
        ((2.0, 0.1), "undecided"),
        ((-0.1,), "undecided"),
    ],
)
def test_a_verdict_is_of_all_differences(verdicts, means, word):
    assert verdicts.judge([verdicts.Difference("", mean, 0.5, 5) for mean in means]).word == word


def test_one_pair_decides_nothing(verdicts):
    assert verdicts.judge([verdicts.Difference("", 9.0, math.nan, 1)]).word == "undecided"


def test_nothing_is_not_confirmed(verdicts):
    with pytest.raises(ValueError, match="no difference to judge"):
        verdicts.judge([])


def test_time_to_a_loss_is_compared_between_runs_of_the_same_settings(
    verdicts, tmp_path, monkeypatch
):
    monkeypatch.setattr(verdicts, "RESULTS", tmp_path)
    sgd, adam = {"optimizer": "sgd", "lr": 0.01}, {"optimizer": "adam", "lr": 0.001}
    settings = {"a": sgd, "b": adam | {"mode": "sync"}, "c": sgd | {"mode": "sync"}}
    content = {"settings": {label: {"options": own} for label, own in settings.items()}}
    study = "cvfl/figure-2-here"
    own = tmp_path / study
    own.mkdir(parents=True)
    (own / "results.json").write_text(json.dumps(content))
    best = (study, "async"), (study, "sync")
    in_step = ((study, "a"), (study, "c"))
    assert verdicts.ways("here") == {"sgd 0.01": in_step, "each its own best": best}
    beside = tmp_path / f"{study}-adam"
    beside.mkdir()
    (beside / "results.json").write_text(json.dumps({"settings": {"d": {"options": adam}}}))
    assert verdicts.ways("here")["adam 0.001"] == ((f"{study}-adam", "d"), (study, "b"))
    with (own / "curves.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["run", "seed", "step", "time", "test_loss"])
        for seed in (0, 1):
            out.writerows(("a", seed, 9 * time, time, 1 / time) for time in (1, 2, 3 + seed))
            out.writerows(("c", seed, 9 * time, 2 * time, 1 / time) for time in (1, 2, 3))
    saved = verdicts.time_saved(*in_step, 0.5, "")
    assert (saved.mean, saved.half, saved.pairs) == (50.0, 0.0, 2)
    assert verdicts.time_saved(*in_step, 0.3, "") is None
    again = verdicts.time_saved(*in_step, 0.5, "", pace=2.0)
    assert again.mean == pytest.approx(50.0)  # as many updates, at twice the pace
    even = verdicts.time_saved(*in_step, 0.5, "", pace=1.25)
    assert even.mean == pytest.approx(20.0)
