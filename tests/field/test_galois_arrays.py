"""Elements as arrays of galois and back; its arithmetic and ours give the same."""

from __future__ import annotations

import galois
import numpy as np
import pytest

from securevfl.errors import FieldError
from securevfl.field import LagrangeCode, PrimeField, SeededSource
from securevfl.field.kernels import primes

PRIMES = [5, 97, *primes.USUAL]
for order in (*PRIMES, 101, 5**2):  # few elements: compiling galois takes seconds for each field
    galois.GF(order, compile="python-calculate")


@pytest.mark.parametrize("p", PRIMES)
def test_there_and_back(p):
    F = PrimeField(p)
    x = F.random((4, 3), source=SeededSource(b"galois"))
    there = F.to_galois(x)
    assert type(there) is galois.GF(p)
    back = F.from_galois(there)
    assert back.dtype == F.dtype
    assert (back == x).all()
    assert F.from_galois(F.to_galois([p - 1])).tolist() == [p - 1]


@pytest.mark.parametrize("p", PRIMES)
def test_both_compute_the_same(p):
    F = PrimeField(p)
    x, y = (F.random((3, 3), source=SeededSource(word)) for word in (b"x", b"y"))
    X, Y = F.to_galois(x), F.to_galois(y)
    assert (F.from_galois(X * Y) == F.multiply(x, y)).all()
    assert (F.from_galois(X - Y) == F.subtract(x, y)).all()
    assert (F.from_galois(X @ Y) == F.matmul(x, y)).all()


def test_arrays_of_the_same_field_are_elements_everywhere():
    F = PrimeField(97)
    x = F.elements([3, 96])
    assert F.add(F.to_galois(x), x).tolist() == [6, 95]
    code = LagrangeCode(F, parties=5, segments=1, privacy=1)
    secret = F.elements([[7, 8]])
    assert (code.decode(F.to_galois(code.encode(secret))[:3], range(3), degree=2) == secret).all()


def test_other_fields_are_refused_and_not_renumbered():
    F = PrimeField(101)
    other = galois.GF(97)([1, 2])
    for use in (F.from_galois, F.elements, lambda x: F.add(x, x), lambda x: F.matmul([[1, 2]], x)):
        with pytest.raises(FieldError, match="elements of the field of 97"):
            use(other)
    with pytest.raises(FieldError, match="elements of the field of 25"):
        PrimeField(5).from_galois(galois.GF(5**2)([1, 2]))
    with pytest.raises(FieldError, match="no array of galois"):
        F.from_galois(np.array([1, 2], np.uint32))
    with pytest.raises(FieldError, match="unsigned"):
        F.to_galois(np.array([1.5]))


def test_segments_and_factors_of_another_field_are_refused_where_their_range_is_proved_later():
    field = PrimeField(97)
    other = galois.GF(101)(np.ones((1, 2), np.uint32))
    with pytest.raises(FieldError, match="elements of the field of 101"):
        LagrangeCode(field, parties=4, segments=1, privacy=1).encode(other)
    with pytest.raises(FieldError, match="elements of the field of 101"):
        field.matmul(field.elements([[1]]), other)
