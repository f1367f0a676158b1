"""Mask polynomials: values at all points, what they leave alone, and who may deal."""

import numpy as np
import pytest

from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.lagrange import interpolation_matrix
from securevfl.field.masking import admit, coefficient_count, deal, hide, point_powers

P = 2**31 - 1
SHAPES = [(1, 1, 5), (2, 1, 7), (3, 2, 11)]


def case(K, T, N):
    return LagrangeCode(PrimeField(P), parties=N, segments=K, privacy=T)


@pytest.mark.parametrize(("K", "T", "N"), SHAPES)
def test_dealt_values_are_those_of_the_polynomial(K, T, N):
    code = case(K, T, N)
    coefficients = code.field.random((coefficient_count(code), 2, 3))
    dealt = deal(code, point_powers(code), coefficients)
    for n, alpha in enumerate(code.alphas):
        wanted = sum(c.astype(object) * int(alpha) ** i for i, c in enumerate(coefficients)) % P
        assert dealt[n].tolist() == wanted.tolist()


@pytest.mark.parametrize(("K", "T", "N"), SHAPES)
def test_masks_hide_results_and_leave_threshold_and_values_at_data_points(K, T, N):
    code = case(K, T, N)
    field, R = code.field, code.recovery_threshold(degree=2)
    psi = field.random((R, 2, 3))  # coefficients, of degree 2(K+T-1)
    powers = np.stack([field.power(field.elements(list(code.alphas)), i) for i in range(R)], axis=1)
    results = field.matmul(powers, psi.reshape(R, -1)).reshape(N, 2, 3)
    rhos = [deal(code, point_powers(code), field.random((K + 2 * T - 1, 2, 3))) for _ in range(2)]
    hidden = np.stack([hide(code, n, results[n], [rho[n] for rho in rhos]) for n in range(N)])
    assert (hidden != results).all()
    last = tuple(range(N - R, N))
    for chosen in (tuple(range(R)), last):
        decoded = code.decode(hidden[list(chosen)], chosen, degree=2)
        assert decoded.tolist() == code.decode(results[:R], tuple(range(R)), degree=2).tolist()


@pytest.mark.parametrize(("K", "T", "N"), SHAPES)
def test_a_dealer_of_another_polynomial_moves_what_is_decoded_and_nobody_sees_it(K, T, N):
    code = case(K, T, N)
    field, R = code.field, code.recovery_threshold(degree=2)
    results = field.reduce(np.zeros((N, 1, 1), np.int64))
    inverse = [pow(int(v), -1, P) for v in code.vanishing]
    lie = [field.elements([[5 * one % P]]) for one in inverse]  # E / P with E = 5
    hidden = np.stack([hide(code, n, results[n], [lie[n]]) for n in range(N)])
    decoded = code.decode(hidden[:R], tuple(range(R)), degree=2)
    assert decoded.reshape(-1).tolist() == [5] * K
    check = interpolation_matrix(field, list(code.alphas[:R]), list(code.alphas[R:]))
    rest = field.matmul(check, hidden[:R].reshape(R, -1))
    assert rest.tolist() == hidden[R:].reshape(N - R, -1).tolist()


@pytest.mark.parametrize(
    ("sharers", "dealers", "admitted"),
    [(3, 2, True), (2, 2, False), (3, 1, False), (9, 1, False), (2, 9, False)],
)
def test_masks_need_enough_sharers_and_dealers(sharers, dealers, admitted):
    assert admit(1, tuple(range(sharers)), tuple(range(dealers))) is admitted
