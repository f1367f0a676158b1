"""Coded predictions are run and held against their formulas, as training is."""

from dataclasses import replace
from types import MethodType

import numpy as np
import pytest

from securevfl.audit.settings import settings_of
from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.declaration import AS_DECLARED, DeclaredMessages
from securevfl.audit.verifiers.provenance import Provenance
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.mask_keys import fresh_bytes
from securevfl.protocols.base.registry import find_protocols
from securevfl.protocols.coded_split.algorithm import Owner
from securevfl.protocols.coded_split.protocol import CodedSplit
from securevfl.protocols.fedvs.prediction import PredictingClient
from securevfl.protocols.fedvs.protocol import FedVS
from securevfl.testing.runs import make

CODED = ("fedvs", "coded_split")
OPTIONS = {"fedvs": {}, "coded_split": {"helpers": 4}}
FEW = 60  # rows


def predictions_of(protocol):
    return [one for one in settings_of(protocol) if one.predicts]


def one_of_few_rows(protocol):
    return [replace(one, predicts=FEW) for one in predictions_of(protocol)[:1]]


def subject(name, cls=None, settings=one_of_few_rows):
    return Subject(make(cls or name, **OPTIONS[name]), settings=settings)


@pytest.mark.parametrize(
    ("name", "more"), [("fedvs", {}), ("coded_split", {}), ("coded_split", {"tolerate_corrupt": 1})]
)
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


def test_a_prediction_that_cannot_be_made_is_said():
    """Sums of rows that were never decoded could wrap."""

    class Wrapping(CodedSplit):
        """Refuses."""

        def predictors(self, parties, features):
            raise ConfigurationError("its sums could wrap")

    one = subject("coded_split", Wrapping)
    assert one.settings == ()
    assert "its sums could wrap" in " ".join(one.ran)


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


def test_an_owner_that_shares_new_rows_unmasked_is_found(monkeypatch):
    predictors = CodedSplit.predictors

    def changed(self, parties, features):
        made = predictors(self, parties, features)
        for party in made.values():
            if isinstance(party, Owner):
                own = party.uniform
                party.uniform = MethodType(lambda p, shape, own=own: own(shape) * 0, party)
        return made

    monkeypatch.setattr(CodedSplit, "predictors", changed)
    assert subject("coded_split").settings[0].strange


@pytest.mark.parametrize("name", sorted(set(find_protocols()) - set(CODED)))
def test_without_coded_prediction_none_is_run(name):
    made = make(name)
    assert made.prediction_messages == ()
    with pytest.raises(ConfigurationError, match=f"{name} has none; predict without coded"):
        made.predicting(3)
    assert predictions_of(made) == []


def test_keys_of_an_earlier_prediction_are_not_fresh(monkeypatch):
    """Two predictions under the same masks tell the server the difference of two uploads."""
    drawn = {}

    def secret_bytes(self, count):
        return drawn.setdefault((self.index, count), fresh_bytes(count))

    monkeypatch.setattr(Owner, "secret_bytes", secret_bytes)
    (found,) = subject("coded_split").settings
    assert found.strange_keys
