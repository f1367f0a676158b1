"""One named test for each fault found in published code of this line of work that belongs here.

The numbers are those of the list that the project keeps of such faults.
"""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from securevfl.errors import (
    ConfigurationError,
    FieldError,
    NotEnoughResultsError,
    PrivacyError,
    RangeError,
)
from securevfl.field import FixedPoint, LagrangeCode, PrimeField, SeededSource

F31, F61 = PrimeField(2**31 - 1), PrimeField(2**61 - 1)


def test_fault_1_a_modulus_written_with_exclusive_or_is_refused_or_too_small():
    wrong = 2 ^ 26 - 5
    assert wrong == 23
    with pytest.raises(FieldError, match="Use a larger prime"):
        LagrangeCode(PrimeField(wrong), parties=28, segments=13, privacy=1)
    with pytest.raises(FieldError, match="written \\*\\*"):
        PrimeField(2 ^ 61)


def test_fault_2_encoding_points_on_data_points_are_refused():
    with pytest.raises(PrivacyError, match="raw segment"):
        LagrangeCode(F31, parties=8, segments=2, privacy=1, alphas=range(1, 9), betas=range(1, 4))
    code = LagrangeCode(F31, parties=8, segments=2, privacy=1)
    X = F31.random((2, 64), SeededSource(1))
    assert not any((share == segment).any() for share in code.encode(X) for segment in X)


def test_fault_3_masks_differ_between_fresh_processes():
    program = (
        "from securevfl.field import PrimeField, LagrangeCode;"
        "code = LagrangeCode(PrimeField(2**61 - 1), parties=3, segments=1, privacy=1);"
        "print(code.encode([5]).tolist())"
    )
    command = [sys.executable, "-c", program]
    runs = [subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2)]
    assert runs[0] != runs[1]


@pytest.mark.parametrize("F", [F31, F61], ids=str)
@pytest.mark.parametrize("N", [8, 16, 40])
def test_fault_4_products_of_full_range_symbols_never_wrap(F, N):
    K = (N - 1) // 2
    code = LagrangeCode(F, parties=N, segments=K, privacy=1)
    X, W = F.random((K, 4, 9), SeededSource(N)), F.random((9, 5), SeededSource(N + 1))
    X[:, 0], W[:, 0] = F.modulus - 1, F.modulus - 1
    results = F.matmul(code.encode(X), code.encode_constant(W))
    expected = X.astype(object) @ W.astype(object) % F.modulus
    assert (code.decode(results, range(N)).astype(object) == expected).all()


def test_fault_5_too_few_shares_raise():
    code = LagrangeCode(F31, parties=16, segments=4, privacy=2)
    results = code.encode(F31.random((4, 3)))
    for received in range(code.recovery_threshold()):
        with pytest.raises(NotEnoughResultsError):
            code.decode(results[:received], range(received))


def test_fault_6_t_of_n_or_more_is_refused():
    for T in (4, 5, 100):
        with pytest.raises(PrivacyError, match="Lower T below N"):
            LagrangeCode(F31, parties=4, segments=1, privacy=T, degree=1)


def test_fault_7_a_field_no_larger_than_the_number_of_points_is_refused():
    for p in (5, 11):
        with pytest.raises(FieldError, match="larger prime"):
            LagrangeCode(PrimeField(p), parties=8, segments=2, privacy=1)
    LagrangeCode(PrimeField(13), parties=8, segments=2, privacy=1)
    # With 0 among the betas every element may be a point: the smallest exhaustive verifier.
    LagrangeCode(PrimeField(5), parties=3, segments=1, privacy=1, betas=[0, 1], alphas=[2, 3, 4])


def test_fault_8_fields_and_their_codes_compare_equal_only_to_themselves():
    assert PrimeField(5) != PrimeField(7)
    assert F31 != F61
    a, b = (LagrangeCode(F, parties=4, segments=1, privacy=1) for F in (F31, F61))
    assert a != b
    with pytest.raises(FieldError, match="outside"):
        F31.add(F61.elements([2**40]), 1)


def test_fault_9_no_operation_changes_its_input():
    code = LagrangeCode(F31, parties=8, segments=2, privacy=1)
    X, masks = F31.random((2, 40), SeededSource(2)), F31.random((1, 40), SeededSource(3))
    x = np.random.default_rng(0).normal(size=40)
    results = code.encode(X, masks=masks)
    inputs = (X, masks, results, x)
    before = [v.copy() for v in inputs]
    code.encode(X, masks=masks)
    code.encode_constant(X[0], masks=masks)
    code.decode(results, range(8), check=True)
    F31.solve(X[:, :2], X[:, 2])
    F31.convolve(X[0], X[1])
    FixedPoint(F31, 8).quantize(x, rng=np.random.default_rng(1))
    FixedPoint(F31, 8).dequantize(X)
    assert all((v == kept).all() for v, kept in zip(inputs, before, strict=True))


def test_fault_10_a_seed_is_not_folded_and_the_top_value_is_emitted():
    seeds = [1, 1 + 2**32, 1 + 2**64, 1 + 2**200, -1, b"1"]
    draws = [F61.random(4, SeededSource(seed)).tobytes() for seed in seeds]
    assert len(set(draws)) == len(seeds)
    for p in (5, 7, 251):
        assert set(PrimeField(p).random(20_000).tolist()) == set(range(p))


def test_fault_18_a_range_that_would_wrap_is_refused():
    # 0.98 at 6 places modulo 127 is 63 and still fits; one bit more would come back as -0.97.
    field = PrimeField(127)
    fits = FixedPoint(field, 6)
    assert fits.dequantize(fits.quantize(np.array([0.98]))).tolist() == [63 / 64]
    with pytest.raises(RangeError, match="Lower bits"):
        FixedPoint(field, 7).quantize(np.array([0.98]))


def test_every_pair_of_shares_of_the_smallest_code_is_uniform_and_independent_of_the_data():
    """T = 2 of N = 3 over F_7, all masks enumerated: no pair sees the secret."""
    field = PrimeField(7)
    code = LagrangeCode(field, parties=3, segments=1, privacy=2, degree=1)
    masks = np.array(list(itertools.product(range(7), repeat=2)), np.uint32).T
    for secret in range(7):
        shares = code.encode(np.full((1, 49), secret, np.uint32), masks=masks)
        for a, b in itertools.combinations(range(3), 2):
            assert len(set(zip(shares[a].tolist(), shares[b].tolist(), strict=True))) == 49


def test_configuration_faults_are_the_users_to_mend():
    assert issubclass(FieldError, ConfigurationError)
    assert issubclass(PrivacyError, ConfigurationError)
