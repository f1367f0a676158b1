"""Coded predictions are run and held against their formulas, as training is."""

from dataclasses import replace

import numpy as np
import pytest

from securevfl.audit.settings import settings_of
from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.declaration import AS_DECLARED, DeclaredMessages
from securevfl.audit.verifiers.provenance import Provenance
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.registry import find_protocols
from securevfl.protocols.fedvs.prediction import PredictingClient
from securevfl.protocols.fedvs.protocol import FedVS
from securevfl.testing.runs import make

CODED = ("fedvs", "coded_split")
OPTIONS = {"fedvs": {}}
FEW = 60  # rows


def predictions_of(protocol):
    return [one for one in settings_of(protocol) if one.predicts]


def one_of_few_rows(protocol):
    return [replace(one, predicts=FEW) for one in predictions_of(protocol)[:1]]


def subject(name, cls=None, settings=one_of_few_rows):
    return Subject(make(cls or name, **OPTIONS[name]), settings=settings)


@pytest.mark.parametrize(("name", "more"), [("fedvs", {})])
def test_every_message_of_a_prediction_equals_its_formula(name, more):
    """With wrong uploads to correct, too: then holders ask again, and get the request again."""
    found = Subject(make(name, **OPTIONS[name], **more), settings=predictions_of).settings
    names = [one.setting.name for one in found]
    assert names == ["coded prediction", "coded prediction, results late"]
    punctual = found[0]
    assert punctual.comparison.computed == punctual.comparison.messages > 50
    for one in found:
        assert not one.comparison.deviations
        assert not any([one.strange, one.sums, one.mask_keys, one.strange_keys, one.thrown])
        assert one.draws
        assert one.keys
        assert not one.ended
    assert punctual.rounds >= 2  # more rows than a server asks for at once


def test_what_was_predicted_stands_in_what_was_run():
    one = subject("fedvs")
    _ = one.settings
    assert any(words.startswith("setting 'coded prediction': fedvs, 6 part") for words in one.ran)


def accusations(name):
    found = DeclaredMessages().examine(AS_DECLARED, subject(name), seed=0, level=0)
    return [one.text for one in found if one.effect == "accuses"]


PREDICTING = FedVS.predicting


def test_a_client_of_a_prediction_that_shares_its_model_unmasked_is_found(monkeypatch):
    def uniform(self, shape):
        drawn = super(PredictingClient, self).uniform(shape)
        return drawn if self.round == 0 else np.zeros_like(drawn)

    monkeypatch.setattr(PredictingClient, "uniform", uniform)
    one = subject("fedvs")
    claim = next(c for c in one.protocol.claims if c.strength == "perfect")
    found = list(Provenance().examine(claim, one, seed=0, level=0))
    assert any("coded prediction" in each.text for each in found if each.bearing == "gap")


@pytest.mark.parametrize("name", sorted(set(find_protocols()) - set(CODED)))
def test_without_coded_prediction_none_is_run(name):
    made = make(name)
    assert made.prediction_messages == ()
    with pytest.raises(ConfigurationError, match=f"{name} has none; predict without coded"):
        made.predicting(3)
    assert predictions_of(made) == []
