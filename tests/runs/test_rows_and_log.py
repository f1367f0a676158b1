"""Rows of the history as they come, and the log."""

from __future__ import annotations

import logging

import pytest

import securevfl as svfl
from securevfl.errors import ConfigurationError

SMALL = {"rounds": 6, "batch": 16, "width": 5, "hidden": 6, "seed": 2}


@pytest.fixture(scope="module")
def data():
    return svfl.load_dataset("digits", parties=4).subset(60, 20)


def test_a_callable_is_told_each_row_once_and_whole(data):
    told = []
    run = svfl.run("fedvs", data, track=lambda row: told.append(dict(row)), eval_every=2, **SMALL)
    assert told == run.history
    assert [row["step"] for row in told if "accuracy" in row] == [2, 4, 6]


def test_what_cannot_be_called_is_refused_before_the_run(data):
    with pytest.raises(ConfigurationError, match="'tensorboard' is no function"):
        svfl.run("split", data, track="tensorboard", **SMALL)


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


def test_a_library_has_a_handler_that_says_nothing():
    """What a process of its own prints is looked at by tests/models/test_optimizers.py."""
    handlers = logging.getLogger("securevfl").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)
