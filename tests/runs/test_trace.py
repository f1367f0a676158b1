"""The trace of a run against its transcript, its faults, and the payloads that were really sent."""

from __future__ import annotations

import numpy as np
import pytest

import securevfl as svfl
from securevfl.cli import model
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.runs.assembly import schedule_of, sealing_of
from securevfl.runs.trace import FATES, describe

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
    assert [entry.number for entry in found] == list(range(len(found)))
    assert sum(entry.bytes for entry in found) == run.transcript.bytes
    for name in ("sender", "receiver", "kind", "round"):
        assert [getattr(entry, name) for entry in found] == columns[name].tolist()
    times = [entry.sent for entry in found]
    assert times == sorted(times)
    assert all(e.arrived >= e.sent for e in found if e.arrived is not None)


def test_fates_add_up_and_losses_are_those_that_were_recorded(run):
    found = run.trace()
    assert sum(entry.fate == "late" for entry in found) == run.transcript.late > 0
    lost = [
        (e["party"], e["to"], e["kind"], e["of_round"]) for e in run.events if e["event"] == "lost"
    ]
    traced = [(e.sender, e.receiver, e.kind, e.round) for e in found if e.fate == "lost"]
    assert lost
    assert sorted(traced) == sorted(lost)
    assert all((e.arrived is None) == (e.fate in ("lost", "under way")) for e in found)


def test_work_that_was_dropped_is_traced_as_such(data):
    late = {"pattern": "paper", "delay_mode": "abort"}
    made = svfl.run("fedvs", data, conditions=late, **SMALL)
    dropped = [entry for entry in made.trace() if entry.fate == "dropped"]
    assert dropped
    assert {(entry.kind, entry.bytes, entry.arrived) for entry in dropped} == {
        ("embedding", 0, None)
    }
    # Nobody waited for these: the history is that of a run whose delays are latency.
    other = svfl.run("fedvs", data, conditions="paper", **SMALL)
    assert [row["loss"] for row in made.history] == [row["loss"] for row in other.history]
    planned = made.summary()["planned"]
    assert (planned["bytes"], planned["measured_bytes"]) == (None, None)


def test_messages_are_chosen_by_any_of_their_marks(run):
    everything = list(run.trace())
    chosen = {"kind": "embedding", "round": 3, "receiver": -1}
    wanted = [e for e in everything if (e.kind, e.round, e.receiver) == ("embedding", 3, -1)]
    assert list(run.trace(**chosen)) == wanted
    assert list(run.trace(fate="late")) == [e for e in everything if e.fate == "late"]
    assert list(run.trace(sender=2, first=4)) == [e for e in everything if e.sender == 2][:4]
    some = run.trace()[10:20:3]
    assert list(some) == everything[10:20:3]
    assert some[-1] == everything[19]


def test_payloads_are_those_that_the_run_sends(data, run):
    """An independent simulation keeps the payloads themselves."""
    parties = run.protocol.parties()
    transcript = Transcript(payloads=True)
    Simulation(
        parties,
        seed=run.spec.seed,
        conditions=run.spec.conditions,
        transcript=transcript,
        sealing=sealing_of(run.spec, parties),
        faults=schedule_of(run.protocol, run.spec),
        make_party=run.protocol.party,
    ).run()
    found = run.trace(payloads=True)
    assert [entry.payload for entry in found] == [describe(p) for p in transcript.payloads]
    shapes = {entry.kind: entry.payload for entry in found}
    assert shapes["embedding"] == "uint64 (16, 5)"
    assert shapes["shared"] == "nothing"
    assert shapes["round"].startswith("Batch(part=str, rows=uint32 ") or shapes["round"] == "str"


def test_a_part_of_the_payloads_needs_a_part_of_the_run(run):
    found = run.trace(kind="embedding", round=1, payloads=True)
    assert {entry.payload for entry in found} == {"uint64 (16, 5)"}
    assert all(entry.payload is None for entry in run.trace(kind="embedding"))


def test_a_data_frame_has_the_same_messages(run):
    frame = run.trace(kind="gradient").to_pandas()
    entries = list(run.trace(kind="gradient"))
    assert frame["bytes"].tolist() == [entry.bytes for entry in entries]
    assert frame["fate"].tolist() == [entry.fate for entry in entries]
    assert frame["arrived"].isna().tolist() == [entry.arrived is None for entry in entries]
    assert "payload" in run.trace(first=2, payloads=True).to_pandas()


def test_an_entry_reads_as_a_line(run):
    line = str(run.trace(kind="embedding", sender=0)[0])
    for part in ("party 0 to the server", "'embedding' of round 1", "bytes", "arrived"):
        assert part in line


def test_what_was_never_sent_is_named(run):
    with pytest.raises(UnknownNameError, match="did you mean embedding"):
        run.trace(kind="embeding")
    with pytest.raises(UnknownNameError, match="did you mean late"):
        run.trace(fate="lat")
    with pytest.raises(ConfigurationError, match="there is no party 7"):
        run.trace(sender=7)


def test_measured_runs_have_no_payloads_to_show(data):
    run = svfl.run("split", data, conditions={"compute": "measured"}, **SMALL)
    with pytest.raises(ConfigurationError, match="leave out payloads"):
        run.trace(payloads=True)


def test_history_and_events_are_data_frames(run):
    frame = run.history.to_pandas()
    assert frame["loss"].tolist() == [row["loss"] for row in run.history]
    assert frame["step"].tolist() == [1, 2, 3, 4, 5]
    evaluated = [row["step"] for row in run.history if "accuracy" in row]
    assert frame.loc[frame["accuracy"].notna(), "step"].tolist() == evaluated
    assert isinstance(run.history, list)
    assert set(run.events.to_pandas()["event"]) == {event["event"] for event in run.events}


def test_shapes_of_nested_payloads():
    array = np.zeros((2, 3), np.uint32)
    assert describe((array, {"a": None, "b": (1, 2.0)})) == (
        "(uint32 (2, 3), {'a': nothing, 'b': (int, float)})"
    )
    assert describe(tuple(range(9))) == "(int, int, int, int, ... (9 in all))"


def test_the_command_line_completes_the_fates_that_there_are():
    assert tuple(model._FATES) == FATES
