"""The pseudo-random function of masks is what is specified, and a change of it is found."""

from __future__ import annotations

import hashlib
import re

import pytest

from securevfl.field import PrimeField, prss
from tests.oracles.pseudo_random import pseudo_random

PRIMES = (7, 2**31 - 1, 2**40 - 87, 2**50 - 2**14 + 1, 2**61 - 1)
TRUE = prss.derive


@pytest.mark.parametrize("p", PRIMES)
def test_the_function_is_what_is_specified(p):
    found = pseudo_random(PrimeField(p))
    assert found.holds, found.detail


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (lambda key, label: TRUE(key, b""), "4 have another stream.*, and 4"),
        (lambda key, label: TRUE(bytes(32), label), "6 have another stream.*, and 3"),
        (lambda key, label: TRUE(key, label[:-1]), "4 have another stream.*, and 0"),
        (lambda key, label: hashlib.sha256(key + label).digest(), "6 have another stream"),
    ],
)  # fmt: skip
def test_a_function_that_leaves_something_out_is_found(changed, told, monkeypatch):
    monkeypatch.setattr(prss, "derive", changed)
    found = pseudo_random(PrimeField(2**31 - 1))
    assert not found.holds
    assert re.search(told, found.detail)


def test_a_stream_with_reduced_words_is_found(monkeypatch):
    def reduced(p, out, stream):
        fill(p, out, stream)
        out %= p // 2

    fill = prss.fill_uniform
    monkeypatch.setattr(prss, "fill_uniform", reduced)
    assert not pseudo_random(PrimeField(2**31 - 1)).holds
