"""Verdicts are those that were recorded; a sample at each run, all with ``pytest -m verdicts``."""

from __future__ import annotations

import pytest

from tests.protocols.faulty import schedules_of_each_kind

from . import verdicts

HELD = verdicts.load()
SAMPLE = ("local", "fedvs")


def test_the_record_holds_every_method():
    assert set(HELD) == set(verdicts.cases())


@pytest.mark.parametrize("name", SAMPLE)
def test_a_verdict_is_as_it_was(name):
    """If it should differ: python -m tests.golden.verdicts --write.

    Of schedules that differ in which client is late the first stands for all.
    """
    with schedules_of_each_kind(name) as number:
        proof = verdicts.proof_of(name)
    some, every = len(proof.traces), sum(number[one] for one in proof.traces)
    counted = {
        claim: scope.replace(f"schedules ({some})", f"schedules ({every})")
        for claim, scope in verdicts.scopes(proof).items()
    }
    assert list(verdicts.judged(name, HELD[name], counted)) == []


@pytest.mark.verdicts
@pytest.mark.parametrize("name", sorted(set(HELD) - set(SAMPLE)))
def test_every_verdict_is_as_it_was(name):
    if name == "he_split":
        pytest.importorskip("tenseal")
    assert list(verdicts.judged(name, HELD[name], verdicts.cases()[name]())) == []


def test_a_verdict_that_differs_is_named():
    held, now = {"server": "PROVED", "client 0": "PROVED"}, {"server": "PROVED"}
    assert list(verdicts.judged("mine", held, now)) == [
        "mine, client 0: no claim, and it was PROVED"
    ]
