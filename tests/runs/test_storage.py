"""The history of a finished run in its folder: its order is that in which it was recorded."""

import json

import pytest

import securevfl as svfl
from securevfl.errors import CheckpointError, DataError
from securevfl.report.loading import read_records
from securevfl.runs.folders.checksums import write_summary
from securevfl.runs.storage import HISTORY, SUMMARY, parse_history
from tests.runs.folders import small


def lines(folder):
    return [json.loads(line) for line in (folder / HISTORY).read_text().splitlines()]


def test_a_history_is_saved_in_its_order_whatever_the_clock_said(tmp_path):
    """A clock that was set back while a run was away put its newest rows first."""
    run = small.run()
    for number, entry in enumerate([*run.history, *run.events]):
        entry["time"] = -float(number)
    run.save(tmp_path)
    found = svfl.load_run(tmp_path, data=small.dataset())
    assert (found.history, found.events) == (run.history, run.events)
    assert [row["step"] for row in found.history] == [1, 2, 3, 4]
    told = json.loads((tmp_path / SUMMARY).read_text())
    for name in ("train_loss", "test_accuracy"):
        assert found.summary()[name] == told[name] is not None


def test_events_stand_after_the_rows_of_their_rounds(tmp_path):
    run = small.run()
    event = {"event": "inference", "party": 1, "time": 0.0}
    run.events[:] = [{**event, "round": 0}, {**event, "round": 2}, {**event, "round": 1}]
    run.save(tmp_path)
    found = [(entry["event"] == "round", entry["round"]) for entry in lines(tmp_path)]
    assert found == [
        (False, 0), (True, 1), (True, 2), (False, 2), (False, 1), (True, 3), (True, 4)
    ]  # fmt: skip


def test_a_history_whose_steps_do_not_ascend_is_refused(tmp_path):
    small.run(tmp_path)
    entries = lines(tmp_path)
    entries.insert(0, entries.pop())
    (tmp_path / HISTORY).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    summary = json.loads((tmp_path / SUMMARY).read_text())
    (tmp_path / SUMMARY).unlink()
    write_summary(tmp_path / SUMMARY, {k: v for k, v in summary.items() if k != "checksum"})
    said = r"line 2 is of step 1, and stands after step 4.*run it again"
    with pytest.raises(CheckpointError, match=said):
        svfl.load_run(tmp_path, data=small.dataset())
    with pytest.raises(DataError, match=said):
        read_records([tmp_path])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[]", "'event'"),
        ('{"event": "round", "party": -1, "round": 1, "time": 0}', "'step'"),
        ('{"event": "left", "party": 1, "round": 1, "time": "0"}', "'time'"),
        ("{", "not valid JSON"),
    ],
)
def test_a_line_that_is_no_event_is_named(line, said):
    with pytest.raises(ValueError, match=f"line 2 is .*{said}"):
        parse_history(f"\n{line}\n")
