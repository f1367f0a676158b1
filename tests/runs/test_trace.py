"""The trace of a run against its transcript and its faults."""

from __future__ import annotations

import pytest

import securevfl as svfl
from securevfl.cli import model
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.runs.trace import FATES

SMALL = {"rounds": 5, "batch": 16, "width": 5, "hidden": 6, "seed": 2}
FAULTS = {"outage": [{"party": 2, "rounds": [2, 4]}]}
PATIENT = {"share_timeout": 5.0, "result_timeout": 5.0}


@pytest.fixture(scope="module")
def data():
    return svfl.load_dataset("digits", parties=5).subset(60, 20)


@pytest.fixture(scope="module")
def run(data):
    return svfl.run("fedvs", data, faults=FAULTS, **PATIENT, **SMALL)


def test_every_message_is_there_once_and_in_order(run):
    columns, found = run.transcript.columns(), run.trace()
    assert len(found) == run.transcript.messages
    assert found["number"].tolist() == list(range(len(found)))
    assert found["bytes"].sum() == run.transcript.bytes
    for name in ("sender", "receiver", "kind", "round"):
        assert found[name].tolist() == columns[name].tolist()
    assert found["sent"].is_monotonic_increasing
    there = found.dropna()
    assert (there["arrived"] >= there["sent"]).all()


def test_fates_add_up_and_losses_are_those_that_were_recorded(run):
    found = run.trace()
    assert (found["fate"] == "late").sum() == run.transcript.late > 0
    lost = [
        (e["party"], e["to"], e["kind"], e["of_round"]) for e in run.events if e["event"] == "lost"
    ]
    marks = found.loc[found["fate"] == "lost", ["sender", "receiver", "kind", "round"]]
    assert lost
    assert sorted(marks.itertuples(index=False, name=None)) == sorted(lost)
    assert (found["arrived"].isna() == found["fate"].isin(["lost", "under way"])).all()


def test_work_that_was_dropped_is_traced_as_such(data):
    late = {"pattern": "paper", "delay_mode": "abort"}
    made = svfl.run("fedvs", data, conditions=late, **SMALL)
    dropped = made.trace(fate="dropped")
    assert len(dropped)
    assert set(dropped["kind"]) == {"embedding"}
    assert set(dropped["bytes"]) == {0}
    assert dropped["arrived"].isna().all()
    # Nobody waited for these: the history is that of a run whose delays are latency.
    other = svfl.run("fedvs", data, conditions="paper", **SMALL)
    assert [row["loss"] for row in made.history] == [row["loss"] for row in other.history]
    planned = made.summary()["planned"]
    assert (planned["bytes"], planned["measured_bytes"]) == (None, None)


def test_messages_are_chosen_by_any_of_their_marks(run):
    whole = run.trace()
    chosen = run.trace(kind="embedding", round=3, receiver=-1)
    wanted = whole.query("kind == 'embedding' and round == 3 and receiver == -1")
    assert 0 < len(chosen) < len(whole)
    assert chosen["number"].tolist() == wanted["number"].tolist()
    late = whole[whole["fate"] == "late"]
    assert run.trace(fate="late")["number"].tolist() == late["number"].tolist()


def test_what_was_never_sent_is_named(run):
    with pytest.raises(UnknownNameError, match="did you mean embedding"):
        run.trace(kind="embeding")
    with pytest.raises(UnknownNameError, match="did you mean late"):
        run.trace(fate="lat")
    with pytest.raises(ConfigurationError, match="there is no party 7"):
        run.trace(sender=7)
    for other in ({"round": 1.5}, {"round": "1"}, {"receiver": 0.5}):
        with pytest.raises(ConfigurationError, match="whole numbers"):
            run.trace(**other)


def test_history_and_events_are_data_frames(run):
    frame = run.history.to_pandas()
    assert frame["loss"].tolist() == [row["loss"] for row in run.history]
    assert frame["step"].tolist() == [1, 2, 3, 4, 5]
    evaluated = [row["step"] for row in run.history if "accuracy" in row]
    assert frame.loc[frame["accuracy"].notna(), "step"].tolist() == evaluated
    assert isinstance(run.history, list)
    assert run.history[1:3].to_pandas()["step"].tolist() == [2, 3]
    assert run.history[-1]["step"] == 5
    assert set(run.events.to_pandas()["event"]) == {event["event"] for event in run.events}


def test_the_command_line_completes_the_fates_that_there_are():
    assert tuple(model._FATES) == FATES
