"""Verdicts where a claim is no view's, and verifiers of installed packages."""

import sys
from pathlib import Path

import pytest

from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence, conclude
from securevfl.audit.verifiers.base import Verifier
from securevfl.audit.verifiers.registry import VERIFIERS
from securevfl.audit.verify import examine, verify
from securevfl.errors import ConfigurationError
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import make, tiny_data

PROOF = Evidence("v", "supports", "a condition", "proof")
TEST = Evidence("v", "supports", "not rejected", "test", 0.3, 1e-7)
GAP = Evidence("v", "silent", "not uniform", "gap")
AGAINST = Evidence("v", "accuses", "rejected", "test", 1e-9, 1e-7)
FAILURE = Evidence("v", "silent", "ended in KeyError", "failure")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("strength", "evidence", "verdict"),
    [
        ("undetermined", [PROOF, TEST], "PROVED"),
        ("undetermined", [PROOF, GAP], "NOT PROVED"),
        ("undetermined", [PROOF, AGAINST, GAP], "VIOLATED"),
        ("undetermined", [PROOF, FAILURE], "COULD NOT BE CHECKED"),
        ("perfect", [AGAINST, FAILURE], "VIOLATED"),
        ("perfect", [TEST], "NOT PROVED"),
        ("perfect", [GAP], "NOT PROVED"),
        ("perfect", [], "NOT TESTED"),
        ("none", [], "NOT PROTECTED"),
        ("none", [AGAINST], "NOT PROTECTED"),
        ("none", [FAILURE], "COULD NOT BE CHECKED"),
    ],
)
def test_the_verdict_is_the_strongest_that_is_true(strength, evidence, verdict):
    assert conclude(Claim("server", "features", strength, "why"), evidence).verdict == verdict


def test_an_accusation_has_the_probability_of_its_evidence():
    claim = Claim("server", "features", "perfect", "why")
    assert conclude(claim, [AGAINST, TEST]).failure_probability == 1e-9
    assert conclude(claim, [PROOF]).failure_probability is None


class Broken:
    """A verifier that ends in an exception."""

    name = "broken"

    def applies(self, claim, protocol):
        return True

    def examine(self, claim, subject, *, seed, level):
        raise ZeroDivisionError("no reason")


def test_a_verifier_that_raises_leaves_the_claim_unchecked():
    claim = Claim("server", "features", "undetermined", "why")
    found = conclude(claim, examine(claim, Subject(make("split")), (Broken(),)))
    assert found.verdict == "COULD NOT BE CHECKED"
    assert found.words.endswith("broken ended in ZeroDivisionError: no reason")


@pytest.mark.parametrize("name", ["claims", "card"])
def test_what_a_protocol_says_of_itself_may_raise(name):
    def raises(self):
        raise ValueError("not today")

    broken = type("Broken", (get_protocol("local"),), {name: property(raises)})
    report = verify(broken, tiny_data(), rounds=1)
    assert report.claims[0].verdict == "COULD NOT BE CHECKED"
    assert "ended in ValueError: not today" in report.claims[0].words


class Entry:
    """An installed package's verifier."""

    name, value = "always right", "somewhere:thing"

    def __init__(self, thing):
        self.thing = thing

    def load(self):
        return self.thing


class Skeptic:
    """Accuses every claim about features."""

    name = "skeptic"

    def applies(self, claim, protocol):
        return claim.asset == "features"

    def examine(self, claim, subject, *, seed, level):
        yield Evidence(self.name, "accuses", "I do not believe it", "test", 0.5, level)


@pytest.fixture
def installed(monkeypatch):
    def install(thing):
        def entry_points(group):
            return [Entry(thing)] if group == "securevfl.verifiers" else []

        monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
        VERIFIERS.forget()

    yield install
    monkeypatch.undo()
    VERIFIERS.forget()


@pytest.fixture
def additive(monkeypatch):
    """The example protocol, which is not written with protected values."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "own_protocol"))
    yield __import__("additive_split").AdditiveSplit
    sys.modules.pop("additive_split", None)


def test_a_protocol_without_protected_values_is_not_proved(additive):
    report = verify(additive, tiny_data(), rounds=1)
    words = {one.verdict for one in report.claims if one.notion != "none"}
    assert words == {"NOT PROVED"}
    assert "is not written with protected values" in report.claims[0].words
    assert "docs/own-protocol.md" in report.claims[0].words


def test_the_verifier_of_an_entry_point_is_used(installed, additive):
    assert isinstance(Skeptic(), Verifier)
    installed(Skeptic())
    report = verify(additive, tiny_data(), rounds=1)
    found = {one.notion: one.verdict for one in report.claims if one.about == "features"}
    assert found == {"perfect": "VIOLATED", "none": "NOT PROTECTED"}


@pytest.mark.usefixtures("nobody_late")
def test_a_verifier_can_accuse_a_proof(installed):
    installed(Skeptic())
    report = verify("secagg_split", tiny_data().with_parties(4), rounds=1)
    assert report.verdict("server", "features") == "VIOLATED"
    assert report.verdict("server", "model") == "PROVED"
    first = next(one for one in report.claims if one.about == "features")
    assert first.evidence[0].text == "I do not believe it"
    assert first.failure_probability == 0.5


def test_an_entry_point_that_is_no_verifier_is_refused(installed):
    installed(object())
    with pytest.raises(ConfigurationError, match="is no verifier"):
        verify("split", tiny_data(), rounds=1)
