"""Models that blow up: told when it begins, ended in one line, and the last good one is kept."""

import numpy as np
import pytest

from securevfl.errors import ConfigurationError, DivergedError, RangeError
from securevfl.models.split import measure
from tests.runs.folders import small


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_no_measures(task, value):
    """The AUC of NaN ended in scikit-learn's traceback, and argmax took NaN for a class."""
    scores = np.zeros((4, 3 if task == "multiclass" else 1), np.float32)
    scores[2] = value
    with pytest.raises(DivergedError, match=r"1 of 4 test rows .* Lower lr, client_lr"):
        measure(task, scores, np.array([0, 1, 1, 0]))


@pytest.mark.parametrize("lr", [1e2, 1e4, 1e6, 1e10])
@pytest.mark.parametrize("protocol", ["split", "vafl"])
def test_a_run_that_blows_up_ends_in_one_line_of_ours_or_goes_on(protocol, lr):
    try:
        run = small.run(protocol=protocol, optimizer="sgd", lr=lr, rounds=12, eval_every=1)
    except (DivergedError, RangeError) as error:
        said = str(error).lower()
    else:
        assert all(np.isfinite(row["accuracy"]) for row in run.history)
        return
    assert "lower lr" in said


def test_growth_is_told_once_when_it_begins_and_the_last_good_models_are_kept(tmp_path, caplog):
    told = []
    with pytest.raises(DivergedError, match=r"step \d+, the last good ones .*model\.npz"):
        small.run(
            tmp_path, optimizer="sgd", lr=1e4, rounds=400, eval_every=1,
            progress=lambda now: told.append((now.round, len(caplog.records))),
        )  # fmt: skip
    warnings = [record for record in caplog.records if "diverges" in record.message]
    assert len(warnings) == 1
    with np.load(tmp_path / "model.npz") as kept:
        assert all(np.isfinite(kept[name]).all() for name in kept.files)
    assert (tmp_path / "model.npz").stat().st_mode & 0o777 == 0o600
    before = (tmp_path / "model.npz").read_bytes()
    with pytest.raises(ConfigurationError, match="is not empty"):
        small.run(tmp_path)
    assert (tmp_path / "model.npz").read_bytes() == before
    last = told[-1][0]
    assert next(round for round, count in told if count) < last  # before the end


def test_a_run_that_learns_is_not_called_diverging(caplog):
    run = small.run(rounds=30)
    assert not [event for event in run.events if event["event"] == "diverging"]
    assert not caplog.records


def test_growth_is_an_event_of_a_run_that_goes_on():
    """FedVS clips, which hid a loss of 1e24 in a run that ended well."""
    run = small.run(optimizer="adam", lr=1e4, rounds=40)
    (event,) = [event for event in run.events if event["event"] == "diverging"]
    assert event["loss"] > 1000 * event["first"]
    assert run.history[event["round"] - 1]["loss"] == event["loss"]
