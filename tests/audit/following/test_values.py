"""Whether names stand for what they stand for in a second interpreter."""

import os
import subprocess
import sys

import pytest

from securevfl.audit import verify as verifying
from securevfl.audit.attack_matrix.registry import Attack
from securevfl.audit.following import sources, values
from securevfl.audit.following.values import unlike
from securevfl.field import PrimeField, sampling
from securevfl.protocols.fedvs import algorithm
from securevfl.testing.leaks import all_leaks
from securevfl.testing.runs import tiny_data

LEAKS = {one.name: one for one in all_leaks()}
FIELD = "securevfl.field"


def seeded():
    return sampling.SeededSource(1)


@pytest.mark.parametrize(
    ("owner", "name", "value", "found"),
    [
        (PrimeField.random, "__defaults__", (seeded(),), "prime_field.PrimeField.random"),
        (sampling.uniform, "__defaults__", (seeded(),), "sampling.uniform"),
        (sampling.uniform, "__kwdefaults__", {"source": None}, "sampling.uniform"),
        (sampling, "SYSTEM", seeded(), "sampling.SYSTEM"),
        (sampling, "_REKEY", 1, "sampling._REKEY"),
        (sampling, "len", max, "sampling.len"),
        (sampling.SystemSource, "__eq__", lambda *two: True, "sampling.SystemSource.__eq__"),
    ],
)
def test_what_stands_under_a_name_is_compared(monkeypatch, owner, name, value, found):
    names = (f"{FIELD}.prime_field", f"{FIELD}.sampling")
    assert unlike(names) == []
    monkeypatch.setattr(owner, name, value, raising=False)
    assert unlike(names) == [f"{FIELD}.{found}"]


def test_what_a_function_encloses_is_compared():
    def made(by):
        def times(value):
            return value * by

        return times

    one, other = made(2), made(3)
    assert values._words(one, 4) == values._words(made(2), 4)
    assert values._words(one, 4) != values._words(other, 4)


def test_names_that_were_taken_from_another_module_are_compared(monkeypatch):
    module = algorithm.__name__
    assert unlike((module,)) == []
    monkeypatch.setattr(algorithm, "decode_uploads", algorithm.mean_of_sums)
    assert unlike((module,)) == [f"{module}.decode_uploads"]


def test_annotations_that_documentation_resolves_are_no_change(monkeypatch):
    module = "securevfl.audit.attack_matrix.registry"
    assert unlike((module,)) == []
    monkeypatch.setattr(Attack, "__annotations__", {"name": str})
    monkeypatch.setattr(Attack, "__doc__", "Another text.")
    assert unlike((module,)) == []


def test_the_system_is_asked_for_bytes(monkeypatch):
    assert unlike(()) == []
    monkeypatch.setattr(os, "urandom", bytes)
    assert unlike(()) == ["os.urandom"]


def test_without_a_second_interpreter_nothing_is_confirmed(monkeypatch):
    monkeypatch.setattr(values, "_known", {})
    monkeypatch.setattr(sys, "executable", "")
    assert any("no second interpreter" in one for one in sources.altered())


def test_an_interpreter_that_fails_confirms_nothing(monkeypatch):
    def failing(*given, **options):
        raise subprocess.CalledProcessError(1, "python")

    monkeypatch.setattr(values, "_known", {})
    monkeypatch.setattr(subprocess, "run", failing)
    assert any("no second interpreter" in one for one in sources.altered())


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("fedvs: a judge that was replaced", "securevfl.audit.verify.conclude"),
        (
            "secagg_split: a second interpreter that was asked already",
            "securevfl.field.sampling.os",
        ),
    ],
)
def test_a_verifier_that_was_changed_gives_no_verdict(name, found):
    """On whatever protocol: a judge says PROVED of all, or a table says what it compares with."""
    leak = LEAKS[name]
    with leak.around():
        data = tiny_data().with_parties(3)
        report = verifying.verify("split", data, tests=(), whole=False, rounds=1)
    assert len(report.claims) > 3
    assert {one.verdict for one in report.claims} == {"COULD NOT BE CHECKED"}
    assert found in report.claims[0].evidence[0].text
