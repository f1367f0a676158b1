"""Protocols of the engine with protected values: trained, traced, proved, checked and broken."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from securevfl.errors import ConfigurationError, SecureVFLError
from securevfl.testing.runs import simulate
from securevfl.verified import SERVER, FlowError
from securevfl.verified.proofs import Traced, check_certificate, lines, prove_protocol

SOURCE = Path(__file__).parents[2] / "examples" / "proved_protocol" / "proved_split.py"
QUICK = {"rounds": 1, "batch": 3, "width": 1}


@pytest.fixture
def proved(install):
    return install("proved_protocol")


@pytest.fixture
def variant(install, monkeypatch):
    """The example with lines replaced, installed in its place."""

    def put(*changes):
        name = install("proved_protocol")
        module = importlib.import_module(name)
        text = SOURCE.read_text()
        for old, new in changes:
            assert text.count(old) >= 1, old
            text = text.replace(old, new)
        path = Path(module.__file__)
        path.write_text(text)
        importlib.invalidate_caches()
        path.with_suffix(".pyc").unlink(missing_ok=True)
        exec(compile(text, str(path), "exec"), module.__dict__)
        import securevfl.verified.proofs as proofs

        monkeypatch.setattr(proofs, "get_protocol", lambda _: module.ProvedSplit)
        return "proved_split"

    return put


def verdicts(proof):
    return {v.claim: v.verdict for v in proof.verdicts}


def test_the_example_is_proved_in_a_process_of_its_own_and_its_certificate_is_read(
    proved, tmp_path
):
    proof = prove_protocol(Traced(proved, QUICK, parties=3))
    assert set(verdicts(proof).values()) == {"PROVED"}
    assert set(verdicts(proof)) >= {"server", "server + client 0", "client 2"}
    text = "\n".join(lines(proof))
    assert "PROVED for these batches, shapes and schedule" in text
    assert "server: PROVED\n" not in text
    assert "does not bound what these outputs tell" in text
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(proof.certificate(), indent=1))
    assert set(check_certificate(path).values()) == {None}


def test_a_damaged_certificate_is_refused(proved, tmp_path):
    proof = prove_protocol(Traced(proved, QUICK, parties=3), fresh=False)
    whole = json.dumps(proof.certificate())
    path = tmp_path / "certificate.json"

    def refused(change):
        read = json.loads(whole)
        change(read)
        path.write_text(json.dumps(read))
        return all(check_certificate(path).values())

    def without_a_step(read):
        for claim in read["claims"]:
            claim["steps"].pop()

    def another_place(read):
        for claim in read["claims"]:
            claim["steps"][0]["places"].reverse()

    def another_trace(read):
        read["trace"] = "0" * 64

    def other_outputs(read):
        for claim in read["claims"]:
            claim["outputs"] = claim["outputs"][:-1]

    def other_sizes(read):
        read["rows"] += 1

    for change in (without_a_step, another_trace, other_outputs, other_sizes):
        assert refused(change), change.__name__
    path.write_text(whole.replace('"version": 1', '"version": 2'))
    with pytest.raises(ConfigurationError, match="version"):
        check_certificate(path)


def test_a_protocol_without_protected_values_is_refused():
    with pytest.raises(ConfigurationError, match="Participant"):
        Traced("split", {}).run()


def test_the_same_file_trains(proved):
    done = simulate(proved)
    assert len(done.losses) == 4
    assert np.isfinite(done.losses).all()


def test_it_trains_as_the_same_protocol_without_protected_values_does(proved, install):
    plain = install("own_protocol")
    assert simulate(proved).losses == simulate(plain).losses


LEAKS = {
    "masks below 2^24": (
        "self.uniform(secret.shape) for j",
        "self.uniform(secret.shape).map(small) for j",
        "def step(\n",
        "def small(x: np.ndarray) -> np.ndarray:\n    return x % 2**24\n\n\ndef step(\n",
    ),
    "one mask for all": (
        "        shares = {j: self.uniform(secret.shape) for j in self.peers if j != self.index}\n",
        "        mask = self.uniform(secret.shape)\n"
        "        shares = {j: mask for j in self.peers if j != self.index}\n",
    ),
    "the embedding, too": (
        '                self.share("share", self.cut(H))\n',
        '                self.share("share", self.cut(H))\n'
        '                self.send(SERVER, "embedding", H)\n',
    ),
    "no loss declared": ('            world.output(f"loss {r}", loss)\n', ""),
    "an output of one": (
        'world.output(f"sum {r}", total, to=[SERVER])',
        'world.output(f"sum {r}", total, to=[SERVER]); world.output("one", networks[0].call('
        "embedding, columns[0], samples, self.point, shape=shape, field=FIELD))",
    ),
    "a number of the columns is public": (
        '                self.share("share", self.cut(H))\n',
        '                self.share("share", self.cut(H))\n'
        "                self.send(SERVER, ANNOUNCE, int(self.raw[0, 0] > 0))\n",
        'self.features = self.own("columns", features)',
        'self.features = self.own("columns", features)\n        self.raw = features',
    ),
    "another's columns": (
        "features, network = self.data.train[index]",
        "features, network = self.data.train[0]",
    ),
    "a branch": (
        '                self.share("share", self.cut(H))\n',
        '                if H:\n                    self.share("share", self.cut(H))\n',
    ),
    "the shares of a dictionary that all share": (
        "    def cut(self",
        "    seen: dict[int, Any] = {}\n\n    def cut(self",
    ),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_in_the_example_is_not_proved(variant, name):
    changes = LEAKS[name]
    made = variant(*zip(changes[::2], changes[1::2], strict=True))
    try:
        proof = prove_protocol(Traced(made, QUICK, parties=3), fresh=False)
    except (SecureVFLError, NameError):
        return
    found = verdicts(proof)
    against = {"no loss declared": "client 1", "an output of one": "server"}
    against = against.get(name, "server + client 0")
    assert found[against] != "PROVED", name
    if name in ("the embedding, too",):
        assert found["server"] == "VIOLATED"


def test_the_server_alone_against_one_mask_for_all(variant):
    changes = LEAKS["one mask for all"]
    made = variant(*zip(changes[::2], changes[1::2], strict=True))
    found = verdicts(prove_protocol(Traced(made, QUICK, parties=3), fresh=False))
    assert found["server"] == "PROVED"  # three uploads of which the masks cancel
    assert found["server + client 0"] == "VIOLATED"


def test_a_party_that_sends_around_the_wrapper_is_found(variant):
    made = variant(
        (
            'self.send(SERVER, "embedding", sum(shares.values()))',
            'Party.send(self, SERVER, "embedding", sum(shares.values())._value)',
        )
    )
    try:
        proof = prove_protocol(Traced(made, QUICK, parties=3), fresh=False)
    except FlowError:
        return
    assert "PROVED" not in verdicts(proof).values()


def test_the_server_is_minus_one():
    assert SERVER == -1
