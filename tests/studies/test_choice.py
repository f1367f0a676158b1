"""Options of a study are chosen on held-back training rows, with seeds that it has not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.errors import ConfigurationError, DataError
from securevfl.studies import choice
from securevfl.studies.run import run_study
from securevfl.studies.study import read_study

FILE = """
title = "choice"
dataset = "digits"
conditions = "none"
sealed = false
seeds = [0]
[data]
parties = 2
[options]
width = 4
hidden = 8
batch = 64
rounds = 25
eval_every = 100
[runs.split]
[runs.fixed]
protocol = "split"
lr = 0.03
[choose]
seeds = [100]
[choose.options]
lr = [1e-5, 0.05]
"""


def study(tmp_path, text=FILE):
    path = tmp_path / "study.toml"
    path.write_text(text.replace("eval_every = 100\n", ""))
    return read_study(path)


def test_rows_are_held_back_in_runs_and_no_test_row_is_left():
    whole = load_dataset("digits", parties=2, seed=3)
    held = load_dataset("digits", parties=2, seed=3, validation=0.2)
    assert held.rows + held.test_rows == whole.rows
    assert held.test_rows == pytest.approx(0.2 * whole.rows, abs=4)
    known = {row.tobytes(): place for place, row in enumerate(np.hstack(whole.train))}
    places = [known[row.tobytes()] for row in np.hstack(held.test)]
    assert set(places).isdisjoint(known[row.tobytes()] for row in np.hstack(held.train))
    groups = [place // 3 for place in places]
    full = [g for g in set(groups) if 3 * g + 2 < whole.rows]
    assert all(groups.count(group) == 3 for group in full)
    tested = {row.tobytes() for row in np.hstack(whole.test)}
    assert not tested & {row.tobytes() for row in np.hstack(held.test)}
    again = load_dataset("digits", parties=2, seed=3, validation=0.2)
    np.testing.assert_array_equal(held.test_labels, again.test_labels)
    some = load_dataset("digits", parties=2, seed=3, validation=0.2, aligned=100)
    assert (some.rows, some.test_rows) == (100, held.test_rows)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1e-9, float("nan")])
def test_a_fraction_that_leaves_a_side_empty_is_refused(fraction):
    with pytest.raises(DataError, match=r"choose a fraction in \(0, 1\)"):
        load_dataset("digits", parties=2, validation=fraction)


def test_the_best_value_on_validation_rows_is_taken(tmp_path, monkeypatch):
    content = run_study(study(tmp_path), tmp_path / "out")
    found = content["chosen"]
    assert (found["seeds"], found["validation"]) == ((100,), 0.2)
    assert set(found["runs"]) == {"split"}  # the other names its rate itself
    own = found["runs"]["split"]
    assert own["options"] == {"lr": 0.05}
    slow, fast = own["tried"]
    assert (slow["lr"], fast["lr"]) == (1e-5, 0.05)
    assert slow["mean"] < fast["mean"]
    assert {label: s["options"]["lr"] for label, s in content["settings"].items()} == {
        "split": 0.05, "fixed": 0.03,
    }  # fmt: skip
    jobs = [json.loads(path.read_text()) for path in (tmp_path / "out" / "jobs").iterdir()]
    tests = {(j["seed"], j["summary"]["rows"], j["summary"]["test_rows"]) for j in jobs}
    assert tests == {(0, 1348, 449), (100, 1078, 270)}
    monkeypatch.setattr(choice, "carry_out", lambda todo, *_, **__: iter(()) if not todo else 1 / 0)
    again = run_study(study(tmp_path), tmp_path / "out")
    assert again["chosen"]["runs"] == found["runs"]


def test_the_lowest_loss_on_validation_rows_is_taken(tmp_path):
    asked = FILE.replace("lr = [1e-5, 0.05]", "lr = [1e-5, 0.05, 30.0]").replace(
        "seeds = [100]", 'seeds = [100]\nmeasure = "loss"'
    )
    content = run_study(study(tmp_path, asked), tmp_path / "out")
    own = content["chosen"]["runs"]["split"]
    jobs = [json.loads(path.read_text()) for path in (tmp_path / "out" / "jobs").iterdir()]
    losses = {
        j["label"].split(" = ")[1]: j["curve"][-1]["test_loss"] for j in jobs if j["seed"] == 100
    }
    assert own["options"] == {"lr": 0.05}
    assert {str(one["lr"]): -one["mean"] for one in own["tried"]} == pytest.approx(losses)
    assert losses["0.05"] < min(losses["1e-05"], losses["30.0"])


def test_all_candidates_are_checked_before_anything_is_run(tmp_path):
    with pytest.raises(ConfigurationError, match="lr"):
        run_study(study(tmp_path, FILE.replace("1e-5", "-1.0")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seeds = [100]", "seeds = [0, 100]", r"seeds of the study, \[0\]"),
        ("seeds = [100]", "", "needs a list of seeds"),
        ("seeds = [100]", "seeds = [100]\nvalidation = 1.5", "validation = 1.5"),
        ("seeds = [100]", 'seeds = [100]\nmeasure = "gini"', "none of accuracy"),
        ("seeds = [100]", "seeds = [100]\ntested = 1", "unknown keys tested"),
        ("lr = [1e-5, 0.05]", "lr = 0.05", "a list of values"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(tmp_path, old, new, words):
    with pytest.raises(ConfigurationError, match=words):
        study(tmp_path, FILE.replace(old, new))


def test_a_run_of_which_nothing_can_be_measured_is_named(tmp_path):
    nothing = FILE.replace('conditions = "none"', "until = 0.5\neval_seconds = 0.5").replace(
        "[data]", "[conditions]\nupload_shift = 1.0\n[data]"
    )
    with pytest.raises(ConfigurationError, match="none of 2 combinations of 'split' has a measure"):
        run_study(study(tmp_path, nothing), tmp_path / "out")
