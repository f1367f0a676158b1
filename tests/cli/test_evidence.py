"""``securevfl evidence``: a lie is judged by the keys of a manifest, and by no others."""

import json

import pytest
from typer.testing import CliRunner

from securevfl.active.judge import TwoStories, write_evidence
from securevfl.active.statements import RUN, Subject
from securevfl.cli.app import app
from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
from tests.active.signing import Signer


def call(*words):
    return CliRunner().invoke(app, ["evidence", *map(str, words)])


@pytest.fixture
def session(tmp_path):
    """A manifest, the identities of its parties, and evidence by what a party signs."""
    own = {n: Identity.create(tmp_path / f"{n}.key") for n in (SERVER, 0, 1)}
    made = Manifest("monday", "coded_split", {n: ManifestEntry(own[n].public) for n in own})
    for n, identity in own.items():
        made = made.signed(n, identity)
    made.write(tmp_path / "session.toml")

    def evidence(key, *contents, run=None):
        signer = Signer(key._secret.private_bytes_raw())
        subject = Subject(run or made.digest, 0, bytes(32), SERVER, "step", 3)
        write_evidence(
            tmp_path / "evidence.json", TwoStories(*(signer.state(subject, c) for c in contents))
        )
        return tmp_path / "evidence.json", "--manifest", tmp_path / "session.toml"

    return own, evidence


def test_who_lied_is_named_and_why(session):
    own, evidence = session
    words = evidence(own[SERVER], b"one", b"other")
    shown = call(*words)
    assert shown.exit_code == 0, shown.output
    why = "'step' of step 3, life 0: two stories under one signature"
    assert shown.stdout == f"the server lied: {why}\n"
    assert json.loads(call(*words, "--json").stdout) == {"party": SERVER, "why": why}


def test_evidence_that_shows_nothing_names_nobody_and_exits_with_1(session):
    own, evidence = session
    for words in (evidence(own[SERVER], b"one", b"one"), evidence(own[0], b"one", b"other")):
        shown = call(*words)
        assert shown.exit_code == 1
        assert shown.stdout.startswith("nobody: ")
        assert json.loads(call(*words, "--json").stdout) == {"party": None, "why": None}


def test_evidence_of_a_run_with_its_own_keys_is_not_judged_by_a_manifest(session):
    own, evidence = session
    words = evidence(own[SERVER], b"one", b"other", run=RUN)
    assert json.loads(words[0].read_text())["signed_with"] == "key of this run"
    shown = call(*words)
    assert "key of this run" in shown.output
    assert shown.exit_code != 0


def test_a_manifest_that_not_all_have_signed_is_refused(session, tmp_path):
    own, evidence = session
    words = evidence(own[SERVER], b"one", b"other")
    entries = {n: ManifestEntry(one.public) for n, one in own.items()}
    Manifest("monday", "coded_split", entries).write(tmp_path / "unsigned.toml")
    assert call(words[0], "--manifest", tmp_path / "unsigned.toml").exit_code != 0
