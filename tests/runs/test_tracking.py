"""Histories in TensorBoard and MLflow, read back by these tools themselves; and the log."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

import securevfl as svfl
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.runs import tracking

SMALL = {"rounds": 6, "batch": 16, "width": 5, "hidden": 6, "seed": 2}


@pytest.fixture(scope="module")
def data():
    return svfl.load_dataset("digits", parties=4).subset(60, 20)


def accumulated(folder):
    """Curves of event files by TensorBoard's own reader: name to [(step, value)]."""
    pytest.importorskip("tensorboard", reason="the extra track is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder))
    reader.Reload()
    names = reader.Tags()["scalars"]
    return {name: [(e.step, e.value) for e in reader.Scalars(name)] for name in names}


def curve(run, name):
    return [(row["step"], pytest.approx(row[name])) for row in run.history if name in row]


def test_tensorboard_has_every_row(data, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra track is not installed")
    run = svfl.run("split", data, track=f"tensorboard:{tmp_path}", eval_every=4, **SMALL)
    found = accumulated(tmp_path)
    assert found["train/loss"] == curve(run, "loss")
    assert found["test/accuracy"] == curve(run, "accuracy")
    assert [step for step, _ in found["test/accuracy"]] == [4, 6]
    assert found["run/virtual_seconds"] == curve(run, "time")
    assert found["run/bytes"] == curve(run, "bytes")


def test_a_resumed_run_goes_on_in_the_same_curves(data, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra track is not installed")
    steps = []
    options = {**SMALL, "rounds": 12}
    with pytest.raises(svfl.Interrupted):
        svfl.run(
            "split",
            data,
            out=tmp_path / "run",
            track="tensorboard",
            progress=lambda progress: steps.append(progress.round),
            interrupted=lambda: len(steps) > 4,
            **options,
        )
    run = svfl.resume(tmp_path / "run", data=data, track="tensorboard")
    found = accumulated(tmp_path / "run" / "tensorboard")
    assert found["train/loss"] == curve(run, "loss")
    assert len(found["train/loss"]) == 12


def test_mlflow_has_every_row(data, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="the extra track is not installed")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 wants a server or a database
    uri = (tmp_path / "store").as_uri()
    run = svfl.run("split", data, track=f"mlflow:{uri}", eval_every=4, **SMALL)
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("securevfl")
    (tracked,) = client.search_runs([experiment.experiment_id])
    assert tracked.info.status == "FINISHED"
    assert tracked.data.params["width"] == "5"
    losses = client.get_metric_history(tracked.info.run_id, "train/loss")
    assert [(m.step, m.value) for m in losses] == curve(run, "loss")


def test_a_callable_is_told_each_row_once_and_whole(data):
    told = []
    run = svfl.run("fedvs", data, track=lambda row: told.append(dict(row)), eval_every=2, **SMALL)
    assert told == run.history
    assert [row["step"] for row in told if "accuracy" in row] == [2, 4, 6]


def test_several_trackers_are_told_the_same(data, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra track is not installed")
    one, other = [], []
    folder = tmp_path / "boards"
    track = [one.append, None, f"tensorboard:{folder}", other.append]
    run = svfl.run("split", data, rounds=3, width=4, hidden=4, batch=16, track=track)
    assert one == other == list(run.history)
    assert accumulated(folder)["train/loss"] == curve(run, "loss")


def test_what_cannot_be_used_is_said_before_the_run(data, monkeypatch, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean tensorboard"):
        svfl.run("split", data, track="tensorbord", **SMALL)
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"needs the package mlflow; pip install 'secure"):
        svfl.run("split", data, track="mlflow", **SMALL)


# -- the log -----------------------------------------------------------------------------------


def test_the_log_says_what_happens(data, caplog, tmp_path):
    with caplog.at_level(logging.INFO, logger="securevfl"):
        svfl.run("split", data, eval_every=3, **SMALL)
    said = [(record.name, record.levelno, record.getMessage()) for record in caplog.records]
    assert {name for name, _, _ in said} == {"securevfl.runs.engines.run", "securevfl.runs.history"}
    texts = [text for _, _, text in said]
    assert texts[0].startswith("run of split on 'digits'")
    assert [text.partition(":")[0] for text in texts[1:-1]] == ["step 3", "step 6"]
    assert texts[-1].startswith("run of split ended at")


def test_a_library_says_nothing_by_itself():
    code = (
        "import securevfl as s; d = s.load_dataset('digits', parties=4).subset(30, 9);"
        "s.run('split', d, rounds=2, width=3, hidden=3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    handlers = logging.getLogger("securevfl").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)
