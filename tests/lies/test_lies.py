"""Each lie gains what the table says, is refused where it says so, and the table is of all."""

import importlib
import json
from pathlib import Path

import pytest

from securevfl.protocols.base.registry import find_protocols
from tests.lies import SMALL, Finding, all_lies, coded_split_stage
from tests.lies.stage import play

ROOT = Path(__file__).parents[2]
LIES = {one.name: one for one in all_lies()}
ROWS = {
    row["name"]: row
    for row in json.loads((ROOT / "benchmarks/results/privacy/lies.json").read_text())["rows"]
}
# Bounds on what is gained in a small run, by quantity.
AT_MOST = {
    "fedvs: tiny gradient": 1e-3,
    "fedvs: stepped, crashed": 1e-5,
    "fedvs: stepped, outside": 1e-5,
    "fedvs: two sets of sharers": 1e-5,
    "fedvs: two sets of sharers, helped": 1e-5,
    "fedvs: second sum, plain": 1e-5,
    "fedvs: chosen gradient": 1e-5,
    "fedvs: one client is moved": 1e-4,
    "fedvs: one client is moved, Adam": 0.05,
}
EXACTLY = {
    "coded_split: off the polynomial": 1.0,
    "coded_split: off the polynomial, helped": 1.0,
    "coded_split: chosen step": 0.0,
    "coded_split: skipped step, heard": 1.0,
    "coded_split: another step, same digest": 1.0,
    "coded_split: another step after a restore": 0.0,
    "coded_split: known keys": 0.0,
    "coded_split: known keys of all": 1.0,
    "coded_split: never uploads": 0.0,
    "fedvs: two batches": 0.0,
    "fedvs: a label twice": 0.0,
    "fedvs: upload of another shape": 1.0,
    "fedvs: keeps its keys": 1.0,
    "fedvs: keys told": 0.0,
    "fedvs: keys told, T+1": 1.0,
    "secagg_split: two sets, any survivors": 1.0,
    "secagg_split: less one, any survivors": 1.0,
    "he_split: one ciphertext": 1.0,
    "psi: guessed identifiers": 1.0,
}
NOTICED = {
    "coded_split: off the polynomial, helped": "nobody",
    "coded_split: label used again": "the run ends (ProtocolError)",
    "coded_split: other rows for half": "the run ends (ProtocolError)",
    "coded_split: no such row": "the run ends (ProtocolError)",
    "coded_split: share of another shape": "the run ends (ProtocolError)",
    "coded_split: upload of another shape": "the run ends (ProtocolError)",
    "coded_split: wrong upload": "the run ends (RangeError)",
    "coded_split: wrong keys": "the run ends (RangeError)",
    "coded_split: asks for nonsense": "server refuses",
    "coded_split: wrong keys, A = 1": "server corrects client 1",  # who is honest
    "coded_split: inconsistent data, A = 1": "server corrects client 1",
    "coded_split: A+1 wrong uploads": "server corrects client 5",  # who is honest, too
    "coded_split: wrong upload, A = 1": "server corrects client 0",  # the liar
    "fedvs: stepped": "10 clients refuse",
    "fedvs: zero gradient": "10 clients refuse",
    "fedvs: stepped, outside": "5 clients refuse",  # of which none are needed
    "fedvs: inconsistent data, A = 1": "server corrects client 1",  # who is honest
    "fedvs: inconsistent model, A = 1": "server corrects client 1",
    "fedvs: inconsistent key, A = 1": "server corrects client 1",
    "fedvs: A+1 wrong uploads": "server corrects client 8",
    "fedvs: wrong upload, A = 1": "server corrects client 0",  # the liar
    "fedvs: a model that wraps, A = 1": "nobody",
    "fedvs: tiny gradient, cohorts": "the run ends (ProtocolError)",
    "fedvs: two sets of sharers, cohorts": "the run ends (ProtocolError)",
    "fedvs: negative rows": "the run ends (ProtocolError)",
    "fedvs: a sharer many times": "the run ends (ProtocolError)",
    "wait_dp: same rows": "the run ends (PrivacyError)",
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_gains_what_is_documented(name):
    if name.startswith("he_split"):
        pytest.importorskip("tenseal")
    found = LIES[name].measure(SMALL)
    assert found.outcome == LIES[name].expected
    if found.outcome == "refused":
        assert not found.value  # nothing, or none of it
    if name in AT_MOST:
        assert found.value < AT_MOST[name] < found.control
    if name in EXACTLY:
        assert found.value == EXACTLY[name]
    if name in NOTICED:
        assert found.noticed == NOTICED[name]


def test_the_lies_of_this_page_exist_and_are_told_in_protocols_that_exist():
    assert len(LIES) == len(all_lies()) >= 50
    assert {*AT_MOST, *EXACTLY, *NOTICED} <= set(LIES)
    told_in = {one.protocol.partition(" ")[0] for one in all_lies()}
    assert told_in - {"psi"} <= set(find_protocols())


@pytest.mark.parametrize("play", [play, coded_split_stage.play])
def test_nobody_notices_anything_in_an_honest_run(play):
    one, two = play(SMALL), play(SMALL)
    assert one.noticed() == "nobody"
    assert (one.judge.means[0] == two.judge.means[0]).all()


@pytest.mark.parametrize(
    ("value", "control", "sign", "noticed", "corrected", "outcome"),
    [
        (1e-7, 1.0, -1, "nobody", False, "gains"),
        (0.9, 1.0, -1, "nobody", False, "nothing"),
        (None, 1.0, -1, "10 clients refuse", False, "refused"),
        (0.5, 0.0, 1, "server corrects client 1", False, "gains"),
        (0.0, 0.0, 1, "server corrects client 1", True, "corrected"),
        (0.0, 0.0, 1, "nobody", False, "nothing"),
    ],
)
def test_what_counts_as_a_gain(value, control, sign, noticed, corrected, outcome):
    found = Finding("x", value, control, noticed, sign=sign, corrected=corrected)
    assert found.outcome == outcome


def test_the_table_in_the_page_is_of_the_committed_results(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    script = importlib.import_module("lies")
    page = script.PAGE.read_text()
    monkeypatch.setattr(script, "PAGE", tmp_path / "page.md")
    script.PAGE.write_text(page)
    script.write_page(script.load())
    assert script.PAGE.read_text() == page, "python benchmarks/lies.py --page"


def test_committed_results_are_of_all_lies_and_are_what_is_expected():
    assert {name: row["outcome"] for name, row in ROWS.items()} == {
        name: one.expected for name, one in LIES.items()
    }
