"""Speed of the field as shares of this machine's limits: what is measured, not how fast it is."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from securevfl.bench import field
from securevfl.bench.field import bench_field
from securevfl.errors import ConfigurationError
from securevfl.field.kernels import cpu, limits, primes

SMALL = {"repeats": 3, "largest": 64, "elements": 4096}


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("tier", ["avx2", "avx512"])
def test_the_limit_is_that_of_products_that_are_made(tier, kind):
    if tier not in cpu.available():
        pytest.skip(f"this machine has no {tier}")
    size = {"avx2": 4, "avx512": 8}[tier]
    name = ("words" if kind is np.int64 else "reals") + str(64 * size)
    sums = np.zeros((limits.LEFT * limits.RIGHT, size), kind)
    getattr(limits, name)(10, sums)
    assert ([10 * a * b for a in (2, 3) for b in (3, 4, 5, 6)] == sums.T).all()


@pytest.fixture(scope="module")
def found():
    return bench_field(**SMALL)


def test_a_peer_that_is_not_installed_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    assert field._flint() is None


def test_each_prime_has_its_products_and_passes(found):
    assert {row["prime"] for row in found["products"]} == set(primes.USUAL)
    assert [row["shape"] for row in found["products"][:2]] == [[64, 64, 64], [256, 784, 64]]
    assert len(found["passes"]) == 5 * len(primes.USUAL)
    for row in found["products"]:
        assert row["gmacs"] > 0
        assert row["dgemm"] > 0
    for row in found["passes"]:
        assert row["share"] > 0


def test_flint_is_a_peer_of_products_and_encoding(found):
    pytest.importorskip("flint")
    assert [row["flint"] is None for row in found["products"][:2]] == [True, False]
    for row in found["passes"]:
        assert (row["flint"] is None) == (not row["operation"].startswith("encode"))


def test_a_share_is_given_where_the_unit_is_measured(found):
    for row in found["products"]:
        measured = found["tier"] in ("avx2", "avx512") or (
            found["tier"] == "ifma" and row["prime"] != primes.P50
        )
        assert (row["share"] is not None) == measured
        if measured:
            per = {primes.P31: 1, primes.P61: 3}.get(row["prime"], 2)
            kind = "doubles" if row["prime"] == primes.P50 else "words"
            assert row["share"] == pytest.approx(row["gmacs"] * per / found["limits"][kind])


def test_portable_kernels_have_no_limit_of_a_kind(monkeypatch):
    monkeypatch.setenv(cpu.VARIABLE, "portable")
    found = bench_field(**SMALL)
    assert {row["share"] for row in found["products"]} == {None}
    assert set(found["limits"]) == {"copy", "read", "keystream"}


@pytest.mark.parametrize("sizes", [{"repeats": 2}, {"largest": 63}, {"elements": 4095}])
def test_too_few_turns_and_too_small_products_are_refused(sizes):
    with pytest.raises(ConfigurationError, match="at least 3, 64 and 4096 are needed"):
        bench_field(**sizes)
