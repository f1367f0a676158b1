"""Verdicts are those that were recorded; a sample at each run, all with ``pytest -m verdicts``."""

from __future__ import annotations

import pytest

from . import verdicts

HELD = verdicts.load()
SAMPLE = ("local", "masked_sum: a column as integers")


def check(name):
    if name.startswith("he_split"):
        pytest.importorskip("tenseal")
    assert list(verdicts.judged(name, HELD[name], verdicts.cases()[name]())) == []


def test_the_record_holds_every_case():
    assert set(HELD) == set(verdicts.cases())


def test_no_leak_of_the_record_is_endorsed():
    strong = {"PROVED", "HYPOTHESES HOLD"}
    assert [
        name for name, found in HELD.items() if ":" in name and strong & {*found.values()}
    ] == []


@pytest.mark.parametrize("name", SAMPLE)
def test_a_verdict_is_as_it_was(name):
    """If it should differ: python -m tests.golden.verdicts --write."""
    check(name)


@pytest.mark.verdicts
@pytest.mark.parametrize("name", sorted(set(HELD) - set(SAMPLE)))
def test_every_verdict_is_as_it_was(name):
    check(name)


@pytest.mark.parametrize(
    ("name", "now", "wrong"),
    [
        ("split", "PROVED", True),
        ("split", "VIOLATED", True),
        ("split: a leak", "VIOLATED", False),
        ("split: a leak", "NO VIOLATION FOUND", True),
        ("split", "NOT TESTED", False),
    ],
)
def test_what_a_change_must_not_do(name, now, wrong):
    found = list(verdicts.judged(name, {"server, labels": "NOT TESTED"}, {"server, labels": now}))
    assert bool(found) is wrong
