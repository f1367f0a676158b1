"""Ways in which runs of users begin, resume and predict are held against what is verified."""

import hashlib
from functools import partial

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from securevfl.audit.subject import Subject
from securevfl.engine.party import Party
from securevfl.engine.security.identity import Identity
from securevfl.engine.streams import keyed_stream
from securevfl.field.sampling import SeededSource
from securevfl.protocols.base.registry import find_protocols
from securevfl.protocols.fedvs.protocol import FedVS
from securevfl.runs import prediction
from securevfl.runs.engines import simulation
from securevfl.runs.engines.own_tables import LocalTableFactory
from securevfl.runs.engines.ray import PartyFactory
from securevfl.runs.organisations.organisation import Organisation
from securevfl.testing.runs import make
from securevfl.verified import Element
from tests.oracles.beginnings import beginning_faults
from tests.oracles.hosted_runs import weak_keys
from tests.protocols.joint import three_hands


def faults(name="fedvs"):
    return list(beginning_faults(Subject(make(name, three_hands(name))).instance))


@pytest.mark.parametrize("name", sorted(find_protocols()))
def test_the_library_begins_runs_of_every_protocol_as_they_are_verified(name):
    assert faults(name) == []


def test_a_life_that_says_whether_and_not_how_often_is_found(monkeypatch):
    life = property(lambda party: (int(party.resumptions > 0) << 32) + party.epoch)
    monkeypatch.setattr(Party, "life", life)
    found = faults()
    assert "one life in two of its resumptions" in found[0]
    assert "in a life that they had before" in found[1]


def test_an_engine_that_does_not_count_resumptions_is_found(monkeypatch):
    monkeypatch.setattr(simulation, "begin_resumption", lambda folder: 0)
    (found,) = faults()
    assert "resumed has parties in a life that they had before: [-1, 0, 1" in found


@pytest.mark.parametrize(
    ("owner", "name", "change", "where"),
    [
        (
            *(PartyFactory, "__call__"),
            lambda maker, index, secrets: make("fedvs").party(index),
            "a cluster makes",
        ),
        (
            *(LocalTableFactory, "__call__"),
            lambda maker, index, secrets: maker.made(index).party(index),
            "tables of the parties' own makes",
        ),
        (
            *(Organisation, "training_party"),
            lambda maker, index, secrets: maker.make().party(index),
            "an organisation makes",
        ),
    ],
)
def test_parties_that_are_made_of_the_public_seed_are_found(
    monkeypatch, owner, name, change, where
):
    monkeypatch.setattr(owner, name, change)
    found = faults()
    assert len(found) == 2  # the server and the clients
    assert all(where in one for one in found)


def test_a_prediction_that_draws_from_the_seed_is_found(monkeypatch):
    infer = prediction.infer

    def drawn(party, source, *shape, name):
        value, field = party.field.random(shape, source), party.field
        return Element(value, None, party.index, None, field)

    def seeded(protocol, parties, spec, *rest):
        predictors = protocol.predictors

        def made(*given):
            found = predictors(*given)
            for n, party in found.items():
                source = SeededSource(keyed_stream(spec.seed, n, "prediction").bytes(32))
                party.uniform = partial(drawn, party, source)
            return found

        protocol.predictors = made
        return infer(protocol, parties, spec, *rest)

    monkeypatch.setattr(prediction, "infer", seeded)
    found = faults()
    assert "of a coded prediction are not those" in found[0]
    assert "draws from another source" in found[1]


def test_classes_that_no_engine_knows_are_asked_for_their_lives_alone(monkeypatch):
    class Other(FedVS):
        pass

    monkeypatch.setattr(PartyFactory, "__call__", None)
    assert list(beginning_faults(Subject(make(Other)).instance)) == []


@pytest.mark.parametrize("name", ["fedvs", "split", "dvfl"])
def test_hosts_begin_with_fresh_private_keys(name):
    assert weak_keys(make(name)) == []


def test_a_private_key_of_public_values_is_found(monkeypatch):
    def temporary(cls):
        return cls(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"run").digest()))

    monkeypatch.setattr(Identity, "temporary", classmethod(temporary))
    found = weak_keys(make("fedvs"))
    assert len(found) == len(make("fedvs").parties())
    assert "the private key of the server on a cluster is not of 32 fresh bytes" in found[0]
