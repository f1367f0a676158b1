"""decode_with_errors: wrong results are named and left out, or refused."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securevfl.errors import CorruptResultsError, NotEnoughResultsError
from securevfl.field import LagrangeCode, PrimeField, SeededSource, error_correction
from securevfl.field.kernels import cpu, primes

F31, F61 = PrimeField(2**31 - 1), PrimeField(2**61 - 1)
FIELDS = [PrimeField(p) for p in (*primes.USUAL, 2013265921, 2**50 - 27, 2**32 - 5)]


def squares(F, code, seed, columns):
    X = F.random((code.segments, columns), SeededSource(seed))
    shares = code.encode(X, source=SeededSource(seed + 1))
    return F.multiply(X, X), F.multiply(shares, shares)


def corrupt(F, rng, results, rows):
    """Change a random number of entries of each row, at least one."""
    for row in rows:
        places = rng.permutation(results.shape[1])[: rng.integers(1, results.shape[1] + 1)]
        offsets = rng.integers(1, F.modulus, places.size, dtype=np.uint64)
        results[row, places] = F.add(results[row, places], offsets.astype(F.dtype))


@pytest.mark.parametrize("F", FIELDS, ids=str)
@pytest.mark.parametrize(("N", "K", "T"), [(9, 1, 1), (16, 2, 2), (28, 4, 2)])
def test_up_to_a_wrong_results_are_named_and_left_out(F, N, K, T):
    # 200 trials for each of 18 configurations: 3,600 in all.
    code = LagrangeCode(F, parties=N, segments=K, privacy=T)
    rng = np.random.default_rng(N)
    expected, honest = squares(F, code, seed=N, columns=6)
    most = (N - code.recovery_threshold()) // 2
    for trial in range(200):
        order = rng.permutation(N)
        rows = rng.permutation(N)[: trial % (most + 1)]
        results = honest[order]
        corrupt(F, rng, results, rows)
        values, named = code.decode_with_errors(results, order.tolist())
        assert named == tuple(sorted(order[rows].tolist())), (N, trial)
        assert (values == expected).all(), (N, trial)


@pytest.mark.parametrize("F", FIELDS, ids=str)
def test_one_more_random_wrong_result_raises(F):
    code = LagrangeCode(F, parties=14, segments=2, privacy=1)
    rng = np.random.default_rng(5)
    _, honest = squares(F, code, seed=3, columns=5)
    most = (14 - code.recovery_threshold()) // 2
    for extra in (1, 2, 14 - most):
        for _ in range(100):
            results = honest.copy()
            corrupt(F, rng, results, rng.permutation(14)[: most + extra])
            with pytest.raises(CorruptResultsError, match="more than 4 of 14"):
                code.decode_with_errors(results, range(14))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_configuration_is_corrected(data):
    F = data.draw(st.sampled_from(FIELDS))
    K, T, degree, most = (data.draw(st.integers(1, 3)) for _ in range(4))
    R = degree * (K + T - 1) + 1
    N = R + 2 * most + data.draw(st.integers(0, 1)) + T
    code = LagrangeCode(F, parties=N, segments=K, privacy=T, degree=degree)
    parties = data.draw(st.permutations(range(N)))[: R + 2 * most]
    X = F.random((K, 4))
    results = F.power(code.encode(X), degree)[parties]
    rows = data.draw(st.sets(st.integers(0, len(parties) - 1), max_size=most))
    corrupt(F, np.random.default_rng(len(rows)), results, rows)
    values, named = code.decode_with_errors(results, parties)
    assert named == tuple(sorted(parties[row] for row in rows))
    assert (values == F.power(X, degree)).all()


def test_every_pair_of_wrong_parties_of_a_small_code():
    code = LagrangeCode(F31, parties=7, segments=1, privacy=1)
    expected, honest = squares(F31, code, seed=8, columns=3)
    for pair in itertools.combinations(range(7), 2):
        results = honest.copy()
        results[list(pair), 1] ^= 1
        values, named = code.decode_with_errors(results, range(7))
        assert (named, (values == expected).all()) == (pair, True)


def test_numbers_outside_the_field_are_losses_and_leave_more_to_correct():
    code = LagrangeCode(F31, parties=7, segments=1, privacy=1)
    expected, results = squares(F31, code, seed=9, columns=20_000)
    results[2, 19_999] = 2**31 - 1
    results[5, 0] = 2**32 - 1
    results[0, 7] ^= 1
    values, named = code.decode_with_errors(results, range(7))
    assert named == (0, 2, 5)
    assert (values == expected).all()
    results[[1, 3, 4], 5] = 2**32 - 1
    with pytest.raises(NotEnoughResultsError, match="5 of 7 results are wrong"):
        code.decode_with_errors(results, range(7))


def test_without_spare_results_nothing_is_checked_and_too_few_raise():
    code = LagrangeCode(F61, parties=5, segments=1, privacy=1)
    expected, results = squares(F61, code, seed=10, columns=4)
    values, named = code.decode_with_errors(results[:3], range(3))
    assert (values == expected).all()
    assert named == ()
    with pytest.raises(NotEnoughResultsError):
        code.decode_with_errors(results[:2], range(2))


@pytest.mark.parametrize("F", FIELDS, ids=str)
@pytest.mark.parametrize("length", [1, 5, 2047, 2048, 2049, 3 * 2048 + 5])
@pytest.mark.parametrize("tier", cpu.TIERS)
def test_projections_are_weighted_sums(F, length, tier, monkeypatch):
    if tier not in cpu.available():
        pytest.skip(f"this machine has no {tier}")
    monkeypatch.setenv(cpu.VARIABLE, tier)
    rows = F.random((3, length), SeededSource(11))
    rows[0, :] = F.modulus - 1
    seen = []
    draw = PrimeField.random
    monkeypatch.setattr(PrimeField, "random", lambda *a: seen.append(draw(*a)) or seen[-1])
    words, good = error_correction.project(F, rows)
    v, u = seen
    assert good.all()
    for q, word in enumerate(words):
        weights = (u[q].astype(object) * v[q].astype(object)).ravel()[:length]
        # One short of a block, the last weights are not used.
        assert word.tolist() == (rows.astype(object) @ weights % F.modulus).tolist()


@pytest.mark.parametrize("tier", cpu.TIERS)
@pytest.mark.parametrize("length", [15, 16, 17, 2048 + 31, 3 * 2048])
def test_extremes_are_projected_and_rows_beyond_p_are_seen(tier, length, monkeypatch):
    if tier not in cpu.available():
        pytest.skip(f"this machine has no {tier}")
    monkeypatch.setenv(cpu.VARIABLE, tier)
    p = primes.P50
    values = np.array([0, 1, p // 2, p // 2 + 1, p - 1, p - 1, p - 1], np.uint64)
    monkeypatch.setattr(PrimeField, "random", lambda F, shape: np.full(shape, p - 1, F.dtype))
    rows = np.repeat(values[:, None], length, axis=1)
    rows[5, -1], rows[6, length // 2] = p, 2**64 - 1
    words, good = error_correction.project(PrimeField(p), rows)
    assert good.tolist() == [True] * 5 + [False] * 2
    # All weights are (p - 1)^2 = 1.
    expected = [int(value) * length % p for value in values[:5]]
    assert words[:, :5].tolist() == [expected] * 2


def test_a_missed_row_is_less_likely_than_promised():
    for p in (3, 5, 2**26 - 5, 2**31 - 1, 2**50 - 27, primes.P50, 2**60 - 93, 2**61 - 1):
        assert (2 / p) ** error_correction.projections(PrimeField(p)) < 2**-58
