"""The history of a run that goes back to an earlier round."""

import numpy as np
import pytest

from securevfl.engine.network import SERVER, Event
from securevfl.runs.history import HistoryRecorder
from securevfl.testing.runs import make, tiny_data
from tests.runs.folders import small


def historian(accuracy):
    made = make("split", tiny_data())
    found = HistoryRecorder(made, made.parties(), eval_every=2, progress=None)
    found.measured = lambda: {"accuracy": accuracy}
    return found


def step(history, round):
    history.record(Event(round * 10**9, SERVER, round, "round", {"step": round, "loss": 0.5}))


def accuracies(history):
    return {row["round"]: row.get("accuracy") for row in history.rows}


@pytest.fixture
def broken():
    """Rounds 1 to 4, the last of which is still to be evaluated."""
    history = historian(0.4)
    history.record(Event(0, 1, 3, "clipped", {"weights": 2, "bound": 16.0}))
    for round in range(1, 5):
        step(history, round)
    return history.state()


@pytest.mark.parametrize("round", [0, 1, 2, 3])
def test_rounds_that_are_made_again_leave_the_rows_before_as_they_were(broken, round):
    history = historian(0.9)
    history.restore(broken)
    history.go_back(round)
    for again in range(round + 1, 6):
        step(history, again)
    before = {2: 0.4} if round >= 2 else {2: 0.9}
    assert accuracies(history) == {1: None, 3: None, 5: None, 4: 0.9} | before
    assert len(history.events) == (1 if round == 3 else 0)


def test_going_back_to_the_newest_round_keeps_what_is_to_be_evaluated(broken):
    history = historian(0.9)
    history.restore(broken)
    history.go_back(4)
    step(history, 5)
    assert accuracies(history) == {1: None, 2: 0.4, 3: None, 4: 0.9, 5: None}


def test_steps_that_a_server_tells_of_again_are_rows_once():
    history = historian(0.9)
    for round in (1, 2, 3):
        step(history, round)
    for told in range(2, 6):
        fields = {"step": told, "loss": told / 10, "round": told, "time": told + 0.5}
        history.record(Event(9 * 10**9, SERVER, 5, "again", fields))
    step(history, 6)
    rows = [(row["event"], row["step"], row["round"], row["time"]) for row in history.rows]
    assert rows == [
        ("round", n, n, float(n) if n in (1, 2, 3, 6) else n + 0.5) for n in range(1, 7)
    ]
    assert [row["loss"] for row in history.rows] == [0.5, 0.5, 0.5, 0.4, 0.5, 0.5]
    assert accuracies(history) == {1: None, 2: 0.9, 3: None, 4: 0.9, 5: None, 6: None}
    assert not history.events


@pytest.mark.parametrize("rounds", [4, 5])
def test_progress_shows_the_accuracy_of_its_own_step(rounds):
    """Each step is told once; those that are evaluated, with what was found."""
    told = []
    made = make("split", tiny_data(), rounds=rounds)
    history = HistoryRecorder(made, made.parties(), eval_every=2, progress=told.append)
    history.measured = lambda: {"accuracy": history.rows[-1]["step"] / 10}
    for round in range(1, rounds + 1):
        step(history, round)
    history.finish()
    shown = [(now.round, now.accuracy) for now in told]
    assert shown == [(1, None), (2, 0.2), (3, 0.2), (4, 0.4), (5, 0.5)][:rounds]


def test_a_summary_is_of_the_models_with_which_the_run_predicts():
    """A round of VAFL ends before its gradient has arrived: 0.6 was said of models with 0.3."""
    made = small.run(protocol="vafl", lr=0.3, client_lr=1.0, rounds=5)
    found, data = made.summary(), made.protocol.data
    right = (made.protocol.scores(made.parties, data.test).reshape(-1) > 0) == data.test_labels
    assert made.history[-1]["accuracy"] != right.mean()
    assert found["test_accuracy"] == right.mean()
    assert np.trace(made.evaluation["confusion"]) == right.sum()
    assert f"accuracy {right.mean():.4f}" in repr(made)
