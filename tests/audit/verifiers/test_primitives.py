"""Hypotheses of reductions: edits that protocol and hypothesis have in common withhold verdicts."""

from types import SimpleNamespace

import pytest

from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.primitives import Hypotheses
from securevfl.audit.verify import judge
from securevfl.engine.party import SERVER
from securevfl.field import LagrangeCode
from securevfl.protocols.secagg_split import parameters
from securevfl.testing.runs import make

WHO = ("server + T clients", "features")


def verdict(made, who=WHO, verifier=Hypotheses):
    subject = Subject(made)
    subject.shared("settings", tuple)  # no runs besides the recorded one
    claims = {(one.who, one.asset): one for one in made.claims}
    return judge(claims[who], subject, [verifier()])


@pytest.mark.parametrize("options", [{}, {"privacy": 2}, {"consistency": True}])
def test_the_hypotheses_of_masked_sums_hold(options):
    found = verdict(make("secagg_split", **options))
    assert found.verdict == "HYPOTHESES HOLD"
    assert "without those of" in found.words


@pytest.mark.parametrize("options", [{}, {"scheme": "paillier", "rounds": 2, "width": 2}])
@pytest.mark.parametrize("who", ["server", "server + T clients without the key holder",
                                 "key holder"])  # fmt: skip
def test_the_hypotheses_of_encrypted_sums_hold(options, who):
    pytest.importorskip("tenseal")
    pytest.importorskip("phe")
    found = verdict(make("he_split", **options), (who, "features"))
    assert found.verdict == "HYPOTHESES HOLD"
    assert "no message carries an embedding" in found.words


def test_sums_of_one_survivor_more_than_collude_are_seen(monkeypatch):
    """The edit of a review: the check of the constructor, the clients' and the hypothesis's."""
    needed = property(lambda self: max(self.threshold, self.privacy + 1))
    monkeypatch.setattr(parameters.Parameters, "needed", needed)
    monkeypatch.setattr(parameters, "max", lambda t, *least: t, raising=False)
    options = {"quorum": 3, "privacy": 2, "threshold": 3, "cohorts": 0}
    found = verdict(make("secagg_split", **options))
    assert found.verdict == "NO VIOLATION FOUND"
    assert "4 sums have 3 terms or more, and 4 are needed that two are left" in found.words
    assert verdict(make("secagg_split", **options), ("server", "features")).verdict == (
        "HYPOTHESES HOLD"
    )


def test_a_sum_of_few_in_a_setting_is_seen():
    """As where clients crashed, and the server sent the gradient of a sum of two."""
    made = make("secagg_split")
    envelopes = tuple(("gradient", 3, SERVER, n, 100, 0, 0) for n in range(2))
    setting = SimpleNamespace(traffic=SimpleNamespace(envelopes=envelopes), keys=0, strange_keys=0)
    subject = Subject(made)
    subject.shared("settings", lambda: (setting,))
    claims = {(one.who, one.asset): one for one in made.claims}
    found = judge(claims[WHO], subject, [Hypotheses()])
    assert found.verdict == "NO VIOLATION FOUND"
    assert "sums have 2 terms or more, and 3 are needed that two are left" in found.words


def test_fewer_masks_of_shares_than_clients_collude_are_seen(monkeypatch):
    made = make("secagg_split", privacy=2)
    field, N = made.sharing.field, made.sharing.parties
    short = LagrangeCode(field, parties=N, segments=1, privacy=1, degree=1)
    monkeypatch.setattr(type(made), "sharing", short)
    found = verdict(made, ("T clients", "features"))
    assert found.verdict == "NO VIOLATION FOUND"
    assert "it does not hold: polynomials that share seeds have 1 masks" in found.words
