"""Verdicts: the strongest word that the evidence allows, and no stronger one."""

import pytest

from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence, conclude
from securevfl.audit.verifiers.base import Verifier
from securevfl.audit.verifiers.declaration import AS_DECLARED
from securevfl.audit.verifiers.registry import VERIFIERS
from securevfl.audit.verify import judge, verify
from securevfl.engine.network import RoundOverError
from securevfl.errors import ConfigurationError
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import make, tiny_data
from tests.audit import few_settings

PROOF = Evidence("v", "supports", "a condition", "proof")
HYPOTHESIS = Evidence("v", "supports", "keys are fresh", "hypothesis")
TEST = Evidence("v", "supports", "not rejected", "test", 0.3, 1e-7)
GAP = Evidence("v", "silent", "not uniform", "gap")
UNREAD = Evidence("v", "silent", "code of others", "unread")
CHANNEL = Evidence("v", "silent", "an event", "channel")
AGAINST = Evidence("v", "accuses", "rejected", "test", 1e-9, 1e-7)
SHOWN = Evidence("v", "supports", "the embedding", "demonstration", 0.0)
FAILURE = Evidence("v", "silent", "ended in KeyError", "failure")
CARD = Evidence("card", "silent", "nothing is claimed")


@pytest.mark.parametrize(
    ("strength", "evidence", "verdict"),
    [
        ("perfect", [PROOF, TEST], "PROVED"),
        ("perfect", [PROOF, TEST, GAP], "NO VIOLATION FOUND"),  # what forbids PROVED does
        ("perfect", [PROOF, TEST, UNREAD], "TESTED BUT NOT READ"),
        ("perfect", [TEST, GAP, UNREAD], "TESTED BUT NOT READ"),
        ("perfect", [UNREAD], "NOT TESTED"),  # nothing was tested
        ("perfect", [TEST, CHANNEL, UNREAD], "NOT TESTED"),
        ("perfect", [AGAINST, UNREAD], "VIOLATED"),
        ("computational", [HYPOTHESIS, UNREAD], "TESTED BUT NOT READ"),
        ("perfect", [PROOF, AGAINST, GAP], "VIOLATED"),
        ("perfect", [PROOF, FAILURE], "COULD NOT BE CHECKED"),
        ("perfect", [AGAINST, FAILURE], "VIOLATED"),
        ("perfect", [TEST], "NO VIOLATION FOUND"),
        ("perfect", [HYPOTHESIS], "NO VIOLATION FOUND"),
        ("perfect", [GAP], "NOT TESTED"),
        ("perfect", [], "NOT TESTED"),
        ("computational", [HYPOTHESIS, TEST], "HYPOTHESES HOLD"),
        ("computational", [HYPOTHESIS, GAP], "NO VIOLATION FOUND"),
        ("computational", [PROOF], "NO VIOLATION FOUND"),
        ("computational", [FAILURE, HYPOTHESIS], "COULD NOT BE CHECKED"),
        ("none", [SHOWN, CARD], "CONFIRMED OPEN"),
        ("none", [CARD], "NOT TESTED"),
        ("none", [FAILURE, CARD], "COULD NOT BE CHECKED"),
    ],
)
def test_the_verdict_is_the_strongest_that_is_true(strength, evidence, verdict):
    assert conclude(Claim("server", "features", strength, "why"), evidence).verdict == verdict


def test_probabilities_are_those_of_the_evidence():
    claim = Claim("server", "features", "perfect", "why")
    assert conclude(claim, [AGAINST, TEST]).failure_probability == 1e-9
    assert conclude(claim, [TEST, TEST]).failure_probability == pytest.approx(2e-7)
    assert conclude(claim, [PROOF]).failure_probability is None


class Broken:
    """A verifier that ends in an exception."""

    name = "broken"

    def applies(self, claim, protocol):
        return True

    def examine(self, claim, subject, *, seed, level):
        yield PROOF
        raise ZeroDivisionError("no reason")


def test_a_verifier_that_raises_leaves_the_claim_unchecked():
    subject = Subject(make("split"))
    claim = Claim("server", "features", "perfect", "why")
    found = judge(claim, subject, (Broken(),))
    assert found.verdict == "COULD NOT BE CHECKED"
    assert found.words.endswith("broken ended in ZeroDivisionError: no reason")


def test_a_protocol_that_cannot_run_small_is_no_traceback(monkeypatch):
    def parties(self):
        raise RuntimeError("no parties today")

    broken = type("Broken", (get_protocol("cvfl"),), {"parties": parties})
    report = verify(broken, tiny_data(), whole=False, rounds=1)
    own = {f.verdict for f in report.claims}
    assert own == {"COULD NOT BE CHECKED"}
    assert all("no parties today" in f.words for f in report.claims)


class NoTextError(Exception):
    def __str__(self):
        raise RuntimeError("nor a text")


@pytest.mark.parametrize("error", [SystemExit(0), RoundOverError(), NoTextError()])
def test_no_way_to_end_a_protocol_ends_the_verifier(error):
    def parties(self):
        raise error

    broken = type("Broken", (get_protocol("cvfl"),), {"parties": parties})
    report = verify(broken, tiny_data(), whole=False, rounds=1)
    own = {f.verdict for f in report.claims}
    assert own == {"COULD NOT BE CHECKED"}


@pytest.mark.parametrize("name", ["claims", "describe", "messages", "card"])
def test_what_a_protocol_says_of_itself_may_raise(name):
    def raises(self):
        raise ValueError("not today")

    what = raises if name == "describe" else property(raises)
    broken = type("Broken", (get_protocol("cvfl"),), {name: what})
    report = verify(broken, tiny_data(), whole=False, rounds=1)
    if name == "claims":
        assert report.claims[0].words.endswith("reading the claims ended in ValueError: not today")
    if name in ("claims", "messages"):
        assert "COULD NOT BE CHECKED" in {f.verdict for f in report.claims}


def test_an_interrupt_ends_the_verifier():
    class Interrupted(Broken):
        def examine(self, claim, subject, *, seed, level):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(Claim("server", "labels", "perfect", "why"), Subject(make("split")), (Interrupted(),))


class Entry:
    """An installed package's verifier."""

    name, value = "always right", "somewhere:thing"

    def __init__(self, thing):
        self.thing = thing

    def load(self):
        return self.thing


class Skeptic:
    """Accuses every declaration."""

    name = "skeptic"

    def applies(self, claim, protocol):
        return claim.asset == "messages"

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


def test_the_verifier_of_an_entry_point_is_used(installed):
    assert isinstance(Skeptic(), Verifier)
    installed(Skeptic())
    report = verify("cvfl", tiny_data(), whole=False, rounds=1)
    assert report.verdict("any party", "messages") == "VIOLATED"
    assert report.verdict("server", "features") == "CONFIRMED OPEN"


def test_an_entry_point_that_is_no_verifier_is_refused(installed):
    installed(object())
    with pytest.raises(ConfigurationError, match="is no verifier"):
        verify("cvfl", tiny_data(), whole=False, rounds=1)


@pytest.mark.verdicts
def test_verdicts_on_the_methods_without_a_code():
    """Each claim that can be computed is; what is said is what was computed."""
    expected = {
        "split": {"CONFIRMED OPEN"},
        "cvfl": {"CONFIRMED OPEN"},
        "dvfl": {"NO VIOLATION FOUND", "CONFIRMED OPEN"},
    }
    for name, words in expected.items():
        made = make(name, tiny_data().with_parties(3))
        *own, messages = few_settings.verdicts(made, (*made.claims, AS_DECLARED))
        assert set(own) == words, name
        assert messages == "NO VIOLATION FOUND"


def test_labels_that_reach_a_guest_are_found():
    """A method whose owner tells guests a bit of the labels with the request for codes."""
    from securevfl.engine.party import SERVER
    from securevfl.protocols.base.registry import get_protocol

    base = get_protocol("dvfl")

    def parties(self):
        made = base.parties(self)
        owner, announce = made[SERVER], made[SERVER].announce

        def telling(round, payload=None, to=None):
            announce(round, int(owner.labels[0]) if to else payload, to)

        owner.announce = telling
        return made

    telling = type("Telling", (base,), {"parties": parties})
    made = make(telling, tiny_data().with_parties(3), guest_epochs=2, host_epochs=2)
    claims = [one for one in made.claims if (one.who, one.asset) == ("guest", "labels")]
    assert few_settings.verdicts(made, (*claims, AS_DECLARED)) == ["VIOLATED", "VIOLATED"]
