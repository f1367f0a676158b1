"""Adversaries and claims as values."""

import dataclasses

import pytest

from securevfl.errors import ConfigurationError
from securevfl.privacy.adversary import (
    OUTSIDER,
    Adversary,
)
from securevfl.privacy.claims import Claim, Guarantee, link_claims
from securevfl.protocols.base.registry import find_protocols
from securevfl.testing.runs import make

SERVER_AND_T_CLIENTS = Adversary(server=True, clients="T")
PHRASES = {
    "server": Adversary(server=True),
    "T clients": Adversary(clients="T"),
    "server + T clients": SERVER_AND_T_CLIENTS,
    "server + N - 1 clients": Adversary(server=True, clients="N - 1"),
    "2 clients": Adversary(clients=2),
    "1 client": Adversary(clients=1),
    "T uploads": Adversary(uploads="T"),
    "client": Adversary(role="client"),
    "outsider": OUTSIDER,
    "active parties": Adversary(role="active parties"),
    "server + key holder": Adversary(server=True, role="key holder"),
    "server + T clients without the key holder": Adversary(
        server=True, clients="T", without="key holder"
    ),
    "malicious server": Adversary(server=True, behaviour="malicious"),
}


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_is_a_value_and_back(phrase):
    assert Adversary.parse(phrase) == PHRASES[phrase]
    assert str(PHRASES[phrase]) == phrase


def test_a_claim_has_the_words_that_files_hold():
    claim = Claim("server + T clients", "model", "perfect", "a theorem")
    assert claim == Claim(SERVER_AND_T_CLIENTS, "model", "perfect", "a theorem")
    assert hash(claim) == hash(Claim(SERVER_AND_T_CLIENTS, "model", "perfect", "a theorem"))
    words = (claim.who, claim.about, claim.notion, claim.source)
    assert words == ("server + T clients", "model", "perfect", "a theorem")
    assert claim.to_dict() == dict(zip(("who", "about", "notion", "source"), words, strict=True))
    assert dataclasses.replace(claim, reason="another").source == "another"
    with pytest.raises(dataclasses.FrozenInstanceError):
        claim.asset = "labels"


def test_a_differential_claim_has_its_numbers_in_files():
    paid = Guarantee(1.5, 1e-5, 4.25)
    claim = Claim("server", "features", "differential", f"{paid}, by noise", guarantees=(paid,))
    numbers = {"epsilon": 1.5, "delta": 1e-5, "total_epsilon": 4.25}
    assert claim.to_dict()["guarantees"] == [numbers]
    assert claim.source.startswith("(1.5, 1e-05) for each release of a row and (4.25, 1e-05) for")


@pytest.mark.parametrize(
    ("epsilon", "words"),
    [(16.4352, "16.5"), (1024.82, "1.03e+03"), (20.75, "20.8"), (4.25, "4.25"), (9.991, "10")],
)
def test_the_epsilon_of_all_releases_is_rounded_up(epsilon, words):
    assert f"and ({words}, 1e-05) for all" in str(Guarantee(1.5, 1e-5, epsilon))


@pytest.mark.parametrize(
    "numbers", [(0.0, 1e-5, 1.0), (2.0, 1e-5, 1.0), (1.0, 1.0, 1.0), (1.0, 0.0, float("inf"))]
)
def test_numbers_of_a_guarantee_that_promise_nothing_are_refused(numbers):
    with pytest.raises(ConfigurationError, match="epsilon of all releases"):
        Guarantee(*numbers)


@pytest.mark.parametrize("name", sorted(find_protocols()))
def test_the_phrases_of_all_protocols_stay_as_they_are_written(name):
    for claim in (*make(name).claims, *link_claims(True)):
        assert Adversary.parse(claim.who) == claim.against
