"""The claim of a budget of sums: proved where parties count, refuted where they do not."""

import pytest

from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import conclude
from securevfl.audit.verifiers.released_sums import ReleasedSums
from securevfl.audit.verify import examine
from securevfl.data import load_dataset
from securevfl.testing.runs import make

OPTIONS = {"width": 16, "sum_budget": 1.0}


@pytest.fixture(scope="module")
def data():
    return load_dataset("digits", parties=5, seed=0)


def verdict(method, data):
    made = make(method, data, defaults={}, **OPTIONS)
    (claim,) = [c for c in made.claims if c.strength == "undetermined"]
    return conclude(claim, examine(claim, Subject(made, seed=0), [ReleasedSums()]))


@pytest.mark.parametrize("method", ["fedvs", "coded_split"])
def test_a_budget_that_is_kept_is_proved(method, data):
    found = verdict(method, data)
    assert found.verdict == "PROVED", found.words
    assert "no row is in more than 3 sums, 48 equations" in found.words


def test_clients_that_do_not_count_are_accused(data, monkeypatch):
    from securevfl.protocols.fedvs.algorithm import Client, Server

    monkeypatch.setattr(Server, "affordable", lambda self, batch: True)
    monkeypatch.setattr(Client, "count_release", lambda self, batch: None)
    found = verdict("fedvs", data)
    assert found.verdict == "VIOLATED"
    assert "6 sums, 96 equations" in found.words


def test_without_a_budget_nothing_is_claimed(data):
    made = make("fedvs", data, defaults={}, width=16, sum_budget=0.0)
    assert not [c for c in made.claims if c.strength == "undetermined"]
