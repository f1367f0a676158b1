"""Messages, bytes, events and files of runs are those that were recorded, on any processor."""

from __future__ import annotations

import json

import pytest

from . import record

RECORD = json.loads(record.RECORD.read_text())
HELD = RECORD["cases"]
SAME = RECORD["machine"] == record.machine()
QUICK = (
    "fedvs",
    "fedvs/away,secure",
    "fedvs/given_up",
    "split",
    "split/conditions=slow uplinks",
    "split/faults=script",
    "vafl",
    "coded_split",
    "dvfl",
    "secagg_split",
    "vfb2",
    "multivfl",
    "wait_dp",
    "fedonce",
    "vflhlp",
)


@pytest.mark.quick
@pytest.mark.parametrize("name", QUICK)
def test_a_run_is_as_it_was(name):
    """If it should differ: python -m tests.golden.record --write."""
    now = record.recorded(record.everything()[name])
    assert record.differences(HELD[name], now, floats=SAME) == []


@pytest.mark.quick
def test_the_record_holds_every_case():
    assert set(HELD) == set(record.everything())


@pytest.mark.quick
def test_the_record_holds_every_protocol_with_its_defaults():
    assert set(record.names()) <= set(HELD)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("resumed", "unbroken"),
    [
        (f"{name}/resumed", name)
        for name in ("fedvs", "split", "dvfl", "wait_dp", "secagg_split", "coded_split")
    ]
    + [
        (f"{name}/faults=chains,resumed", f"{name}/faults=chains")
        for name in ("fedvs", "split", "coded_split")
    ],
)
def test_a_resumed_run_was_recorded_equal_to_the_unbroken_one(resumed, unbroken):
    for part in ("history", "models", "state", "messages", "counts"):
        assert HELD[resumed][part] == HELD[unbroken][part]


@pytest.mark.quick
@pytest.mark.parametrize("name", ["fedvs", "split", "vafl", "dvfl", "cvfl", "secagg_split", "vfb2"])
def test_sealing_was_recorded_with_more_bytes_and_the_same_messages(name):
    sealed = HELD[f"{name}/conditions=slow uplinks"]["counts"]["bytes"]
    plain = HELD[f"{name}/sealed=false"]["counts"]["bytes"]
    assert sum(sealed.values()) > sum(plain.values())


@pytest.mark.quick
def test_every_difference_is_listed_with_both_values():
    old = {"counts": {"steps": 6, "late": 0}, "files": ["a"], "history": "x"}
    new = {"counts": {"steps": 5, "more": 1}, "files": ["a", "b"], "history": "y"}
    lines = record.differences(old, new, floats=True)
    assert "counts.steps: 6 became 5" in lines
    assert "counts.late: 0 became null" in lines
    assert "counts.more: null became 1" in lines
    assert 'files: ["a"] became ["a", "b"]' in lines
    assert 'history: "x" became "y"' in lines
    assert len(record.differences(old, new, floats=False)) == 4


@pytest.mark.quick
def test_the_command_says_what_differs_and_ends_with_1(tmp_path, capsys):
    held = json.loads(record.RECORD.read_text())
    held["cases"] = {"split/centre=linear": HELD["split/centre=linear"]}
    path = tmp_path / "record.json"
    asked = ["--only", "split/centre=linear", "--file", str(path)]
    path.write_text(json.dumps(held))
    assert record.main(asked) == 0
    held["cases"]["split/centre=linear"]["counts"]["steps"] = 7
    path.write_text(json.dumps(held))
    assert record.main(asked) == 1
    assert "split/centre=linear: counts.steps: 7 became 6" in capsys.readouterr().err
    held["machine"]["processor"] = "another"
    held["cases"]["split/centre=linear"]["counts"]["steps"] = 6
    held["cases"]["split/centre=linear"]["history"] = "of another processor"
    path.write_text(json.dumps(held))
    assert record.main(asked) == 0
    assert "no floats" in capsys.readouterr().err
    assert record.main(["--only", "no such case"]) == 2
