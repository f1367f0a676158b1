"""The protocol of docs/own-protocol.md is proved as it stands there, and mistakes print that."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import securevfl
from securevfl.engine.party import SERVER
from securevfl.testing.conformance import CHECKS
from securevfl.testing.runs import simulate
from securevfl.verified import FlowError
from securevfl.verified.traced import proofs
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.docs.pages import DOCS, files_of

TEXT = (DOCS / "own-protocol.md").read_text()
FILE = files_of(TEXT)["shared_sum.py"]
SHARE, UNIFORM = '        self.share("share", self.cut(x))', "self.uniform(*x.shape) for j"
#: What is changed, and of whom the verdict is; None where the trace ends in an error.
MISTAKES: dict[str, tuple[str, str, str | None]] = {
    "kind": ('    protected = {**SummedClient.protected, "share": "field"}\n', "", None),
    "branch": (SHARE, f"        if x.sum() > 0:\n    {SHARE}", None),
    "generator": (UNIFORM, "np.random.randint(0, 2**60, x.shape) for j", None),
    "one mask": (
        "        shares = {j: self.uniform(*x.shape) for j",
        "        mask = self.uniform(*x.shape)\n        shares = {j: mask for j",
        "server + client 0",
    ),
    "colluders": ("len(self.peers()) - 2", "len(self.peers()) - 1", "server + clients 0, 1"),
}


def mistaken(name: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    """What is said of the page's protocol with a mistake, for 3 clients."""
    old, new, claim = MISTAKES[name]
    assert FILE.count(old) == 1, old
    path = folder / "shared_sum.py"
    path.write_text(FILE.replace(old, new))
    module = ModuleType("shared_sum")
    module.__file__ = str(path)
    patch.setitem(sys.modules, "shared_sum", module)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    patch.setattr(proofs, "get_protocol", lambda _: module.SharedSum)
    try:
        proof = prove_protocol(Traced("shared_sum", {}, parties=3), fresh=False)
    except FlowError as error:
        assert claim is None
        return f"FlowError: {error}"
    (found,) = (v for v in proof.verdicts if v.claim == claim)
    return f"{found.claim}: {found.scope}\n  {found.text}"


@pytest.mark.parametrize("name", MISTAKES)
def test_the_page_shows_what_a_mistake_prints(name, tmp_path, monkeypatch):
    (shown,) = re.findall(rf"<!-- mistake: {name} -->\n```text\n(.*?)\n```", TEXT, re.DOTALL)
    assert mistaken(name, tmp_path, monkeypatch) == shown


def test_every_mistake_of_the_page_is_made():
    assert re.findall(r"<!-- mistake: (.*?) -->", TEXT) == list(MISTAKES)


@pytest.fixture
def shown(own_page) -> str:
    """Name of the page's protocol, which is on the path as pip would install it."""
    return own_page


def test_the_file_is_below_100_lines_and_its_length_is_the_pages():
    assert f"in {len(FILE.splitlines())} lines" in TEXT
    assert len(FILE.splitlines()) < 100


def test_it_is_proved_and_the_page_says_so(shown):
    proof = prove_protocol(Traced(shown, {}))
    assert {v.verdict for v in proof.verdicts} == {"PROVED"}
    assert (len(proof.traces), len(proof.ended)) == (4, 3)  # as the page says
    assert all(name.startswith("client 3 goes down") for name in proof.ended)
    assert "seven for `SharedSum`.\nIn four of them the protocol goes on" in TEXT
    assert f"each of {len(proof.verdicts)} coalitions" in TEXT
    (line,) = re.findall(r"<!-- printed by verify -->\n```text\n(.*)\n```", TEXT)
    assert line in proofs.lines(proof)


def test_it_trains_as_split_learning_does(shown):
    shared, plain = (simulate(name, rounds=5).losses for name in (shown, "split"))
    np.testing.assert_allclose(shared, plain, rtol=1e-5)  # 2^-24 a value, no more


@pytest.mark.parametrize("check", CHECKS)
def test_it_conforms(shown, check):
    CHECKS[check](shown)


def test_a_client_that_sends_no_elements_ends_the_run(shown, monkeypatch):
    module = importlib.import_module(shown)

    async def lie(self: Any, samples: np.ndarray) -> None:
        x = self.quantised(samples)
        self.share("share", self.cut(x))
        await self.collect("share", senders=self.peers)
        beyond = np.full(x.shape, 2**64 - 1, np.uint64)
        super(module.SummedClient, self).send(SERVER, "embedding", beyond)
        self.update(samples, await self.receive("gradient"))

    monkeypatch.setattr(module.Client, "train", lie)
    with pytest.raises(securevfl.RunError, match=r"'embedding' from .* must hold 'field' values"):
        simulate(shown)
