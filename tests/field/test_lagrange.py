"""Interpolation matrices: small ones by Python's integers, large ones by compiled loops."""

import numpy as np
import pytest

from securevfl.errors import FieldError
from securevfl.field import PrimeField, lagrange


@pytest.fixture(params=["python", "compiled"])
def form(request, monkeypatch):
    monkeypatch.setattr(lagrange, "_SMALL", {"python": 10**9, "compiled": -1}[request.param])


def naive(p, points, targets):
    """Return l_i(y) by its definition."""
    rows = []
    for y in targets:
        row = []
        for i, x in enumerate(points):
            value = 1
            for j, other in enumerate(points):
                if j != i:
                    value = value * (y - other) * pow(x - other, -1, p) % p
            row.append(value)
        rows.append(row)
    return rows


@pytest.mark.parametrize("p", [11, 2**31 - 1, 2**61 - 1])
def test_both_forms_follow_the_definition(form, p):
    F = PrimeField(p)
    for points, targets in (
        ([1, 2, 3], [4, 5, 6, 7]),
        ([p - 1, 0, p // 2, 1], [2, p - 2]),
        ([5], [5, 6]),
        ([3, 1, 2], [2, 9, 3, 1]),
        ([1, 2], []),
    ):
        matrix = lagrange.interpolation_matrix(F, points, targets)
        assert matrix.dtype == F.dtype
        assert matrix.shape == (len(targets), len(points))
        assert matrix.tolist() == naive(p, points, targets)


@pytest.mark.parametrize("p", [11, 2**31 - 1, 2**61 - 1])
def test_both_forms_of_the_vanishing_polynomial(form, p):
    F = PrimeField(p)
    values = lagrange.vanishing(F, [1, p - 1, 4], [0, 1, 2, p - 2])
    assert values.dtype == F.dtype
    assert values.tolist() == [(y - 1) * (y - p + 1) * (y - 4) % p for y in (0, 1, 2, p - 2)]


def test_both_forms_agree_on_either_side_of_their_border(monkeypatch):
    F = PrimeField(2**61 - 1)
    points, targets = F.random(20), np.unique(F.random(12))
    results = []
    for border in (0, 20 * 32):
        monkeypatch.setattr(lagrange, "_SMALL", border)
        results.append(lagrange.interpolation_matrix(F, points, targets))
    assert (results[0] == results[1]).all()


def test_equal_points_are_refused(form):
    with pytest.raises(FieldError, match="distinct"):
        lagrange.interpolation_matrix(PrimeField(11), [1, 1], [2])


def test_points_that_are_no_integers_are_refused():
    with pytest.raises(FieldError, match="must be integers"):
        lagrange.interpolation_matrix(PrimeField(11), [1.5, 2], [3])
