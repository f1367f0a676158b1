"""LagrangeCode: every subset decodes, misuse is refused, shares are what the formula says."""

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securevfl.errors import (
    ConfigurationError,
    CorruptResultsError,
    FieldError,
    NotEnoughResultsError,
    PrivacyError,
)
from securevfl.field import LagrangeCode, PrimeField, SeededSource
from securevfl.field.kernels import primes
from securevfl.field.lagrange import interpolation_matrix

F31, F61 = PrimeField(2**31 - 1), PrimeField(2**61 - 1)
FIELDS = [F31, PrimeField(primes.P50), F61, PrimeField(2013265921)]


def products(F, code, seed, rows=5, inner=4, width=3):
    """Return full-range data and model, and each party's product of shares."""
    source = SeededSource(seed)
    X = F.random((code.segments, rows, inner), source)
    W = F.random((inner, width), source)
    shares = F.matmul(code.encode(X, source=source), code.encode_constant(W, source=source))
    return F.matmul(X, W), shares


@pytest.mark.parametrize("F", FIELDS, ids=str)
def test_every_subset_of_r_parties_decodes_the_product_bit_for_bit(F):
    code = LagrangeCode(F, parties=8, segments=2, privacy=1)
    expected, results = products(F, code, seed=1)
    R = code.recovery_threshold()
    assert R == 5
    for subset in itertools.combinations(range(8), R):
        assert (code.decode(results[list(subset)], subset) == expected).all()


@pytest.mark.parametrize("F", FIELDS, ids=str)
@pytest.mark.parametrize(
    ("N", "K", "T"), [(16, 4, 2), (28, 13, 1), (40, 9, 6), (64, 16, 16), (64, 1, 31)]
)
def test_random_subsets_of_large_codes_decode_the_product(F, N, K, T):
    code = LagrangeCode(F, parties=N, segments=K, privacy=T)
    expected, results = products(F, code, seed=N + K)
    R = code.recovery_threshold()
    rng = np.random.default_rng(N)
    for _ in range(8):
        subset = rng.permutation(N)[:R].tolist()
        assert (code.decode(results[subset], subset) == expected).all()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_configuration_decodes_from_any_subset(data):
    F = data.draw(st.sampled_from(FIELDS))
    K, T, degree = (data.draw(st.integers(1, 4)) for _ in range(3))
    R = degree * (K + T - 1) + 1
    N = data.draw(st.integers(max(R, T + 1), R + 6))
    points = st.integers(1, F.modulus - 1)
    distinct = data.draw(st.lists(points, min_size=N + K + T, max_size=N + K + T, unique=True))
    code = LagrangeCode(
        F, parties=N, segments=K, privacy=T, alphas=distinct[:N], betas=distinct[N:], degree=degree
    )
    X = F.random((K, 3))
    subset = data.draw(st.permutations(range(N)))[: data.draw(st.integers(R, N))]
    results = F.power(code.encode(X), degree)[subset]
    checked = code.decode(results, subset, check=len(subset) > R)
    assert (checked == F.power(X, degree)).all()


def test_below_the_threshold_decoding_raises_and_says_what_is_missing():
    code = LagrangeCode(F31, parties=8, segments=2, privacy=1)
    _, results = products(F31, code, seed=2)
    with pytest.raises(NotEnoughResultsError, match=r"2\(K\+T-1\)\+1 = 5 results, got 4"):
        code.decode(results[:4], range(4))
    assert code.decode(code.encode(results[:2, 0])[:3], range(3), degree=1).shape == (2, 3)


def interpolated(points, values, p):
    """The polynomial through points of F_p, by Lagrange's formula in integers of Python."""

    def at(x):
        total = 0
        for b, value in zip(points, values, strict=True):
            above = math.prod(x - other for other in points if other != b)
            below = math.prod(b - other for other in points if other != b)
            total += value * above * pow(below, -1, p)
        return total % p

    return at


def test_shares_are_the_values_of_the_interpolating_polynomial():
    code = LagrangeCode(F31, parties=6, segments=2, privacy=1, degree=1)
    X, Z = F31.random((2, 3), SeededSource(3)), F31.random((1, 3), SeededSource(4))
    shares = code.encode(X, masks=Z)
    for column in range(3):
        values = [int(v) for v in (*X[:, column], *Z[:, column])]
        polynomial = interpolated(code.betas, values, 2**31 - 1)
        assert shares[:, column].tolist() == [polynomial(a) for a in code.alphas]


def test_encode_constant_equals_encode_of_copies():
    code = LagrangeCode(F61, parties=9, segments=3, privacy=2)
    W, V = F61.random((4, 2), SeededSource(5)), F61.random((2, 4, 2), SeededSource(6))
    copies = np.stack([W, W, W])
    assert (code.encode_constant(W, masks=V) == code.encode(copies, masks=V)).all()


def test_out_is_written_and_shares_never_repeat():
    code = LagrangeCode(F31, parties=4, segments=1, privacy=1)
    X = F31.random((1, 50))
    out = np.empty((4, 50), np.uint32)
    assert code.encode(X, out=out) is out
    assert not (code.encode(X) == out).any()
    with pytest.raises(FieldError, match="share memory"):
        code.encode(out[:1], out=out)
    with pytest.raises(FieldError, match="out must have shape"):
        code.encode(X, out=np.empty((3, 50), np.uint32))


def test_scalars_per_segment_are_taken():
    code = LagrangeCode(F31, parties=4, segments=1, privacy=1)
    assert code.encode([5]).shape == (4,)
    assert code.encode_constant(5).shape == (4,)
    assert code.decode(code.encode([5])[:2], [0, 1], degree=1).tolist() == [5]


def test_check_counts_the_results_that_disagree():
    code = LagrangeCode(F31, parties=8, segments=2, privacy=1)
    expected, results = products(F31, code, seed=7)
    assert (code.decode(results, range(8), check=True) == expected).all()
    with pytest.raises(NotEnoughResultsError, match=r"beyond the first R = 5 .* one more party"):
        code.decode(results[:5], range(5), check=True)
    results[6, 0, 0] ^= 1
    with pytest.raises(CorruptResultsError, match="1 of the 3 results"):
        code.decode(results, range(8), check=True)
    results[0, 0, 0] ^= 1
    with pytest.raises(CorruptResultsError, match="3 of the 3 results"):
        code.decode(results, range(8), check=True)


def test_matrices_are_the_lagrange_coefficients_and_cannot_be_changed():
    code = LagrangeCode(F61, parties=7, segments=2, privacy=2, degree=1)
    p = F61.modulus
    for matrix in (code.data_matrix, code.mask_matrix, code.vanishing):
        with pytest.raises(ValueError, match="read-only"):
            matrix[0] = 0
    whole = np.concatenate([code.data_matrix, code.mask_matrix], axis=1)
    for n, alpha in enumerate(code.alphas):
        for k, beta in enumerate(code.betas):
            others = [b for b in code.betas if b != beta]
            top, bottom = (np.prod([v - b for b in others], dtype=object) for v in (alpha, beta))
            assert int(whole[n, k]) == top * pow(int(bottom), -1, p) % p
        product = np.prod([alpha - b for b in code.betas[:2]], dtype=object)
        assert int(code.vanishing[n]) == product % p != 0


def test_interpolation_reproduces_polynomials_and_points():
    F = PrimeField(101)
    points, targets = [3, 50, 100, 7], [0, 50, 9, 3]
    matrix = interpolation_matrix(F, points, targets)
    cubic = [(5 * x**3 + 2 * x + 1) % 101 for x in (*points, *targets)]
    assert F.matmul(matrix, cubic[:4]).tolist() == cubic[4:]
    assert matrix[1].tolist() == [0, 1, 0, 0]
    with pytest.raises(FieldError, match="distinct"):
        interpolation_matrix(F, [1, 1], [2])


def test_codes_are_values_and_travel_by_pickle():
    code = LagrangeCode(F31, parties=4, segments=1, privacy=1)
    code.decode_matrix([0, 1, 2])
    again = pickle.loads(pickle.dumps(code))  # noqa: S301
    assert again == code
    assert hash(again) == hash(code)
    assert code != LagrangeCode(F61, parties=4, segments=1, privacy=1)
    assert (again.decode_matrix([0, 1, 2]) == code.decode_matrix([0, 1, 2])).all()


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (PrivacyError, {"privacy": 0}),
        (PrivacyError, {"privacy": 6}),
        (PrivacyError, {"privacy": 9}),
        (ConfigurationError, {"segments": 3}),
        (ConfigurationError, {"segments": 0}),
        (ConfigurationError, {"parties": 2.0}),
        (ConfigurationError, {"degree": 0}),
        (PrivacyError, {"alphas": [1, 4, 5, 6, 7, 8]}),
        (PrivacyError, {"alphas": [3, 4, 5, 6, 7, 8]}),
        (FieldError, {"alphas": [0, 4, 5, 6, 7, 8]}),
        (FieldError, {"alphas": [4, 4, 5, 6, 7, 8]}),
        (FieldError, {"alphas": [4, 5, 6]}),
        (FieldError, {"betas": [1, 1, 2]}),
        (FieldError, {"betas": [1, 2, 2**31 - 1]}),
    ],
)
def test_unsafe_or_impossible_codes_are_refused(error, options):
    with pytest.raises(error):
        LagrangeCode(F31, **{"parties": 6, "segments": 2, "privacy": 1, **options})


@pytest.mark.parametrize(
    ("results", "parties"),
    [
        (np.zeros((3, 2), np.uint32), [0, 1, 1]),
        (np.zeros((3, 2), np.uint32), [0, 1, 4]),
        (np.zeros((3, 2), np.uint32), [-1, 1, 2]),
        (np.zeros((3, 2), np.uint32), [0, 1]),
        (np.zeros((3, 2), np.uint32), [0.0, 1, 2]),
        (np.zeros((3, 2), np.int64), [0, 1, 2]),
        (np.full((3, 2), 2**31 - 1, np.uint32), [0, 1, 2]),
        (np.uint32(3), []),
    ],
)
def test_results_that_do_not_fit_are_refused(results, parties):
    code = LagrangeCode(F31, parties=4, segments=1, privacy=1)
    with pytest.raises(ConfigurationError):
        code.decode(results, parties)
    with pytest.raises(FieldError):
        code.encode(np.zeros((2, 3), np.uint32))
    with pytest.raises(FieldError):
        code.encode(np.zeros((1, 3), np.uint32), masks=np.zeros((1, 2), np.uint32))


def test_the_threshold_is_that_of_the_codes_own_degree():
    for degree, R in ((1, 3), (2, 5), (3, 7)):
        code = LagrangeCode(F31, parties=8, segments=2, privacy=1, degree=degree)
        assert code.recovery_threshold() == R
        assert code.recovery_threshold(2) == 5


def test_masks_have_no_seed_in_the_place_of_a_source():
    code = LagrangeCode(F31, parties=4, segments=1, privacy=1)
    with pytest.raises(FieldError, match="SeededSource"):
        code.encode(F31.elements([[1]]), source=0)
