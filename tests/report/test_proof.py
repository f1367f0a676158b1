"""The page of a proof."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from securevfl.cli.app import app
from securevfl.report.proof import WAYS, proof_page
from securevfl.verified.traced.proofs import Proof, Traced, prove_protocol
from securevfl.verified.verdicts import Judge
from tests.audit.conftest import undisturbed

SIZES = {"rounds": 1, "batch": 3, "width": 1}


@pytest.fixture
def traced(install):
    return Traced(install("proved_protocol"), SIZES, parties=3)


def test_the_page_draws_each_coalitions_view_and_says_what_explains_it(traced):
    proof, world = prove_protocol(traced, fresh=False), traced.run()
    page = proof_page(proof, world)
    for one in proof.verdicts:
        assert f"<h2>{one.claim}</h2>" in page
    of_client = page.split("<h2>client 0</h2>")[1].split("<h2>")[0]
    assert of_client.count('class="arrow uniform"><title>') == 2  # shares of two others
    assert of_client.count('class="arrow follows"><title>') == 2  # dL/dH and the loss
    assert "share of round 1 from party 1 to party 0 is uniform by r1@1" in of_client
    assert page.count("does not bound what these outputs tell") == 1
    given = re.findall(r"</span></td><td>(.*)</td></tr>", page)
    assert len(given) == len(proof.verdicts)
    assert all(len(set(row.split(", "))) == len(row.split(", ")) for row in given)
    assert not re.search(r'(src|href)="(?!#|data:)', page)


def test_what_is_not_explained_stands_out(traced):
    world = traced.run()
    every = Judge(world).decide(set(range(2)) | {-1})  # the last client's embedding is left
    digest = world.digest()
    proof = Proof(traced, {"nobody is late": digest}, {}, {digest: (every,)}, (every,))
    page = proof_page(proof, world)
    assert f"v-{every.verdict.lower().replace(' ', '-')}" in page
    assert every.verdict != "PROVED"
    assert every.text in page.replace("&#39;", "'")


def test_the_command_line_writes_the_page(traced, tmp_path):
    file = tmp_path / "proof.html"
    sizes = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
    asked = ["verify", traced.protocol, "--parties", "3", *sizes, "--page", str(file), "--json"]
    with undisturbed():
        done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["claims"]
    assert all(words in file.read_text() for words in list(WAYS.values())[:2])


def test_a_folder_that_is_not_there_is_named_before_anything_is_proved(traced, tmp_path):
    for option in ("--page", "--certificate"):
        asked = ["verify", traced.protocol, option, str(tmp_path / "none" / "file")]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code != 0
        assert "make it first" in f"{done.output} {done.exception}"
