"""Sums over rounds: the span, completion and binary columns; noise gives nothing away."""

import sys

import numpy as np
import pytest

from securevfl.audit.attacks import sums
from securevfl.errors import ConfigurationError

M, D, C = 120, 15, 40


def stream(seed: int = 3) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def columns(binary: int = 0, seed: int = 1) -> np.ndarray:
    X = stream(seed).random((M, D))
    X[:, :binary] = stream(seed + 50).random((M, binary)) < 0.4
    return X


def summed(X: np.ndarray, dtype: type = np.float64, noise: float = 0.0, c: int = C) -> np.ndarray:
    draw = stream(9)
    U = np.concatenate([X, np.ones((len(X), 1))], axis=1) @ draw.normal(size=(X.shape[1] + 1, c))
    return (U + noise * draw.normal(size=U.shape)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_span_is_that_of_the_columns(dtype):
    X = columns()
    found = sums.span_exactness(summed(X, dtype), X, stream())
    assert (found.success, found.chance, found.samples) == (1.0, 0.0, D)
    assert found.controls == {"shuffled rows": 0.0}
    assert "rank 16 of 40 sums of 120 rows" in found.note


def test_the_rank_is_that_of_the_columns_and_no_more():
    X = columns()
    X[:, 3] = X[:, 2] + X[:, 1]
    assert sums.basis(summed(X), D + 1).shape == (M, D)


def test_too_few_sums_span_less():
    X = columns()
    assert sums.span_exactness(summed(X, c=10), X, stream()).success == 0


@pytest.mark.parametrize("attack", ["span", "completion", "binary"])
def test_noisy_sums_give_nothing(attack):
    X = columns(2)
    U = summed(X, noise=5.0)
    known = np.arange(60)
    if attack == "span":
        found = sums.span_exactness(U, X, stream())
    elif attack == "completion":
        found = sums.completion(U, known, X, stream())
    else:
        found = sums.binary_recovery(U, X, stream())
        assert found is not None
    assert found.success <= max(found.chance, 0.05)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_known_rows_complete_the_others(dtype):
    X = columns()
    known = stream().permutation(M)[: D + 2]
    found = sums.completion(summed(X, dtype), known, X, stream())
    assert found.success > 0.99
    assert found.chance < 0.1
    assert max(found.controls.values()) < 0.15
    assert found.samples == M - D - 2


def test_fewer_known_rows_than_the_rank_do_not():
    X = columns()
    assert sums.completion(summed(X), stream().permutation(M)[:8], X, stream()).success < 0.1


def test_only_known_rows_are_looked_at():
    X = columns()
    known = np.arange(D + 2)
    hidden = X.copy()
    hidden[D + 2 :] = np.nan
    span = sums.basis(summed(X), D + 1)
    assert np.allclose(sums.complete(span, known, hidden), X, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("binary", [1, 3, 7])
def test_binary_columns_are_found_by_lattice_reduction(binary, dtype):
    pytest.importorskip("flint")
    X = columns(binary)
    found = sums.binary_recovery(summed(X, dtype), X, stream())
    assert found is not None
    assert (found.success, found.chance, found.samples) == (1.0, 0.0, binary)


def test_no_binary_column_is_found_where_there_is_none():
    pytest.importorskip("flint")
    X = columns()
    assert sums.binary_columns(sums.basis(summed(X), D + 1)).shape == (M, 0)
    assert sums.binary_recovery(summed(X), X, stream()) is None


def test_two_values_are_as_good_as_zero_and_one():
    pytest.importorskip("flint")
    X = columns(1)
    X[:, 0] = np.where(X[:, 0] > 0, 0.7, 0.2)
    found = sums.binary_recovery(summed(X), X, stream())
    assert found is not None
    assert found.success == 1


def test_a_lattice_that_is_too_large_is_refused():
    span = np.linalg.qr(stream().normal(size=(400, 150)))[0]
    with pytest.raises(ConfigurationError, match="lattice of 162 rows"):
        sums.binary_columns(span)
    with pytest.raises(ConfigurationError, match="more than 22 rows"):
        sums.binary_columns(span[:20, :10])


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(ConfigurationError, match=r"flint must .*'securevfl\[attacks\]'"):
        sums.binary_columns(sums.basis(summed(columns(1)), D + 1))
