"""Hypotheses of reductions: edits that protocol and hypothesis have in common withhold verdicts."""

from types import SimpleNamespace

import pytest

from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.primitives import Hypotheses
from securevfl.audit.verify import judge
from securevfl.engine.party import SERVER
from securevfl.testing.runs import make

WHO = ("server + T clients without the key holder", "features")


def verdict(made, who=WHO, verifier=Hypotheses):
    subject = Subject(made)
    subject.shared("settings", tuple)  # no runs besides the recorded one
    claims = {(one.who, one.asset): one for one in made.claims}
    return judge(claims[who], subject, [verifier()])


@pytest.mark.parametrize("options", [{}, {"scheme": "paillier", "rounds": 2, "width": 2}])
@pytest.mark.parametrize("who", ["server", "server + T clients without the key holder",
                                 "key holder"])  # fmt: skip
def test_the_hypotheses_of_encrypted_sums_hold(options, who):
    pytest.importorskip("tenseal")
    pytest.importorskip("phe")
    found = verdict(make("he_split", **options), (who, "features"))
    assert found.verdict == "HYPOTHESES HOLD"
    assert "no message carries an embedding" in found.words


def test_a_sum_of_few_in_a_setting_is_seen():
    """As where clients crashed, and the server sent the gradient of a sum of two."""
    made = make("he_split")
    envelopes = tuple(("gradient", 3, SERVER, n, 100, 0, 0) for n in range(2))
    setting = SimpleNamespace(traffic=SimpleNamespace(envelopes=envelopes), keys=0, strange_keys=0)
    subject = Subject(made)
    subject.shared("settings", lambda: (setting,))
    claims = {(one.who, one.asset): one for one in made.claims}
    found = judge(claims[WHO], subject, [Hypotheses()])
    assert found.verdict == "NO VIOLATION FOUND"
    assert "sums have 2 terms or more, and 3 are needed that two are left" in found.words
