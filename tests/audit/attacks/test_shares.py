"""Values that are short, from fewer combinations than there are segments."""

import numpy as np
import pytest

from securevfl.audit.attacks.shares import Combinations, freedom, known_combinations, short_segments
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode, PrimeField
from tests.audit.attacks.off_polynomial import rows_from_products

P31, P61 = PrimeField(2**31 - 1), PrimeField(2**61 - 1)


def stream(seed=0):
    return np.random.Generator(np.random.Philox(seed))


@pytest.mark.parametrize(("field", "segments"), [(P31, 1), (P31, 2), (P61, 2), (P61, 4)])
def test_one_combination_gives_all_segments_whose_bits_together_are_fewer_than_the_fields(
    field, segments
):
    pytest.importorskip("flint")
    matrix = field.random((1, segments))
    X = stream().integers(-100, 101, (segments, 30, 4))
    mixed = field.matmul(matrix, field.reduce(X).reshape(segments, -1)).reshape(1, 30, 4)
    found = short_segments(Combinations(matrix, mixed), field, -128, 128)
    assert (found == X).all()


def test_values_that_are_not_short_do_not_come_out():
    pytest.importorskip("flint")
    matrix = P31.random((1, 2))
    X = stream().integers(0, 2**25, (2, 50, 1))
    mixed = P31.matmul(matrix, P31.reduce(X).reshape(2, -1)).reshape(1, 50, 1)
    found = short_segments(Combinations(matrix, mixed), P31, 0, 2**25)
    assert (found == X).mean() < 0.1


def test_small_evaluation_points_leave_short_values_some_freedom():
    """Holders 1 and 6 of 8 know 3 X_2 - 2 X_1, say: (X_1, X_2) + (3, 2) is as good."""
    pytest.importorskip("flint")
    code = LagrangeCode(P61, parties=8, segments=2, privacy=1, degree=3)
    assert freedom(code, (1, 6)) == 3
    assert freedom(code, (5, 7)) == 80
    single = LagrangeCode(P61, parties=8, segments=1, privacy=1, degree=3)
    assert freedom(single, (1, 6)) == P61.modulus
    shares = {j: P61.random((3, 2)) for j in (1,)}
    assert len(known_combinations(code, shares).matrix) == 0


def off_polynomial(rows, columns):
    """A code, X, F_c and the products that a deviating server reads of two more holders."""
    code = LagrangeCode(P61, parties=6, segments=1, privacy=1, degree=3)
    X = P61.reduce(stream().integers(0, 257, (rows, columns)))
    shares = code.encode(X[None])
    products = {j: P61.matmul(shares[j], np.ascontiguousarray(shares[j].T)) for j in (3, 5)}
    return code, X, shares[2], products


def test_products_of_two_holders_shares_and_one_holders_own_give_everybodys_rows():
    code, X, own, products = off_polynomial(20, 6)
    assert (rows_from_products(code, 2, own, products, {}) == X).all()


def test_equal_columns_are_determined_where_they_are_known():
    code, X, _, products = off_polynomial(20, 6)
    twice = X.copy()
    twice[:, 5] = twice[:, 4]
    shares = code.encode(twice[None])
    both = {j: P61.matmul(shares[j], np.ascontiguousarray(shares[j].T)) for j in products}
    assert rows_from_products(code, 2, shares[2], both, {}) is None
    found = rows_from_products(code, 2, shares[2], both, {5: twice[:, 5], 4: twice[:, 4]})
    assert (found == twice).all()


def test_too_few_rows_or_other_thresholds_are_said():
    code, _, own, products = off_polynomial(7, 6)  # at least 12 rows are needed
    assert rows_from_products(code, 2, own, products, {}) is None
    wider = LagrangeCode(P61, parties=8, segments=2, privacy=1, degree=3)
    with pytest.raises(ConfigurationError, match="K = 2, T = 1 and products of 2 holders"):
        rows_from_products(wider, 2, own, products, {})
