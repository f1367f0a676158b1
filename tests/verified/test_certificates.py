"""Certificates in Python: what a file says, and whether it holds."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

import securevfl
from securevfl.errors import ConfigurationError
from securevfl.verified import SERVER, Verdict
from securevfl.verified.traced import proofs
from securevfl.verified.traced.proofs import Traced, prove_protocol

SIZES = {"rounds": 1, "batch": 3, "width": 1}


@functools.cache
def written(name: str) -> str:
    proof = prove_protocol(Traced(name, SIZES, parties=3), fresh=False)
    return json.dumps(proof.certificate())


@pytest.fixture
def file(install, tmp_path) -> Path:
    path = tmp_path / "proof.json"
    path.write_text(written(install("proved_protocol")))
    return path


def test_a_certificate_lists_coalitions_outputs_moves_and_assumptions(file):
    found = securevfl.Certificate.load(file)
    assert (found.protocol, found.sizes) == ("proved_split", Traced("proved_split", SIZES, 3).sizes)
    assert found.schedules[0] == "nobody is late"
    assert frozenset({SERVER, 0}) in found.coalitions
    one = found.of({0, SERVER})
    assert isinstance(one, Verdict)
    assert (one.claim, one.verdict) == ("server + client 0", "PROVED")
    assert one.outputs[:3] == ("sum 1", "loss 1", "gradient 1")
    assert one.scope.startswith(
        f"PROVED for these batches, shapes and schedules ({len(found.schedules)})"
    )
    assert "no run ends in an error: that it does may tell of data" in one.assumptions
    moves = [step.text for step in found.moves({0, SERVER})]
    assert "share of round 1 from party 1 to party 0 is uniform by r1@1" in moves
    for name in found.schedules:
        assert found.moves({SERVER}, name)


def test_it_is_checked_and_says_why_it_is_refused(file):
    found = securevfl.Certificate.load(file)
    assert set(found.check()) == {one.claim for one in found.verdicts}
    assert set(found.check().values()) == {None}
    read = json.loads(file.read_text())
    for some in read["proofs"].values():
        for claim in some:
            claim["steps"].clear()
    file.write_text(json.dumps(read))
    assert all(securevfl.Certificate.load(file).check().values())


def test_what_is_not_in_it_is_named(file):
    with pytest.raises(ConfigurationError, match="nothing is proved of server \\+ clients 0, 1, 2"):
        securevfl.Certificate.load(file).of({SERVER, 0, 1, 2})
    file.write_text("{}")
    with pytest.raises(ConfigurationError, match="is no certificate"):
        securevfl.Certificate.load(file)


def test_the_checking_process_looks_for_no_module_in_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "securevfl").mkdir()  # a folder named as the package, as a method's own may be
    monkeypatch.chdir(tmp_path)
    found, ended = proofs._elsewhere(tmp_path / "none.json")
    assert found == {}
    assert "none.json cannot be read" in ended
