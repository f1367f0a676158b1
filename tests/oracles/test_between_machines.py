"""The verifier of what is added where parties are on machines of their own."""

import pytest

from securevfl.audit.subject import Subject
from securevfl.engine.realtime.host import PartyHost
from securevfl.runs.organisations import parties
from securevfl.testing.runs import make
from tests.audit.few_settings import few
from tests.oracles.between_machines import BetweenMachines
from tests.oracles.test_hosted_runs import tell_weights


def evidence(name, **options):
    """Effect, bearing and words of the verifier on the claim about features against the server."""
    subject = Subject(make(name, rounds=4, **options), settings=few)
    verifier = BetweenMachines()
    claim = next(one for one in subject.protocol.claims
                 if one.asset == "features" and one.against.server)  # fmt: skip
    assert verifier.applies(claim, subject.protocol)
    found = verifier.examine(claim, subject, seed=0, level=0)
    return [(one.effect, one.bearing, one.text) for one in found]


@pytest.mark.parametrize("name", ["fedvs", "coded_split"])
def test_sound_methods_are_not_blamed(name):
    ((effect, _, text),) = evidence(name)
    assert effect == "supports"
    assert "frames are what parties sent, sealed as documented" in text


def test_organisations_that_measure_by_embeddings_are_said():
    """Masks hide the embeddings of training rows, and not those of test rows."""
    (effect, bearing, text), (other, *_) = evidence("secagg_split")
    assert (effect, bearing, other) == ("silent", "test", "supports")
    assert "each client sends the server its embeddings of test rows, in the clear" in text


def test_a_coded_evaluation_that_is_left_out_is_found(monkeypatch):
    monkeypatch.setattr(parties, "measuring", lambda made: "embeddings of test rows")
    (effect, bearing, text), (other, *_) = evidence("fedvs")
    assert (effect, bearing, other) == ("accuses", "demonstration", "supports")
    assert "'test embedding' from client 0 to the server: no such message is declared" in text


def test_frames_that_the_adversary_does_not_get_are_a_gap(monkeypatch):
    depart = PartyHost._depart

    def doubled(self, receiver, kind, round, body):
        for _ in range(1 + (kind == "model")):
            depart(self, receiver, kind, round, body)

    monkeypatch.setattr(PartyHost, "_depart", doubled)
    (effect, bearing, text) = evidence("fedvs")[0]
    assert (effect, bearing) == ("silent", "gap")
    assert "'model' from client" in text
    assert "its party sent no such message" in text


def test_events_with_weights_are_a_channel(monkeypatch):
    tell_weights(monkeypatch)
    found = evidence("fedvs")
    assert [(effect, bearing) for effect, bearing, _ in found] == [("silent", "channel")]
