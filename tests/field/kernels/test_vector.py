"""The vector kernels at the bounds that their docstring proves, against Python integers."""

import numpy as np
import pytest

from securevfl.field import PrimeField, SeededSource
from securevfl.field.kernels import cpu, left_operands, vector

TIERS = [tier for tier in ("avx2", "avx512") if tier in cpu.available()]
MODULI = [4099, 65537, 2013265921, 2**31 - 19, 2**31 - 1, 2**61 - 1]

pytestmark = pytest.mark.skipif(not TIERS, reason="this machine has no vectors of 256 bits")


@pytest.fixture(params=TIERS)
def tier(request):
    return request.param


def product(p, a, b, tier, out=None):
    out = np.empty((a.shape[0], b.shape[1]), a.dtype) if out is None else out
    assert left_operands.VectorLeft(p, a, tier == "avx512").multiply([b], out)
    return out


def exact(p, a, b):
    return (a.astype(object) @ b.astype(object)) % p


@pytest.mark.parametrize("k", [0, 1, 6, 7, 8, 9, 13, 15, 27, 28, 29, 56, 57, 4095, 4096, 4097])
@pytest.mark.parametrize("p", MODULI)
def test_the_longest_sums_of_extreme_constants(p, k, tier):
    values = [0, 1, p // 2, p // 2 + 1, p - 1]
    values += [x % p for x in (2**30, 2**30 - 1, 2**31 * (2**29 - 1) + 2**30, 2**60, 2**59)]
    dtype = np.uint32 if p < 2**32 else np.uint64
    # Row r and column c are constant, so that each entry is k x y.
    a = np.repeat(np.array(values, dtype)[:, None], k, axis=1)
    b = np.repeat(np.array(values, dtype)[None, :], k, axis=0).reshape(k, len(values))
    expected = [[k * x * y % p for y in values] for x in values]
    assert product(p, a, b, tier).tolist() == expected


@pytest.mark.parametrize("p", [2013265921, 2**31 - 1, 2**61 - 1])
def test_tails_of_1_to_63_columns(p, tier):
    F = PrimeField(p)
    a, big = F.random((7, 19), SeededSource(1)), F.random((19, 63), SeededSource(2))
    whole = exact(p, a, big)
    for n in range(1, 64):
        assert (product(p, a, big[:, :n].copy(), tier) == whole[:, :n]).all(), n
        assert (product(p, a, big[:, 63 - n :], tier) == whole[:, 63 - n :]).all(), n


@pytest.mark.parametrize("p", [2013265921, 2**31 - 1, 2**61 - 1])
def test_results_may_stand_anywhere_and_nothing_beside_them_is_written(p, tier):
    F = PrimeField(p)
    for m, n in ((1, 5), (6, 32), (7, 33), (12, 64), (4, 16), (13, 47)):
        a, b = F.random((m, 9), SeededSource(m)), F.random((9, n), SeededSource(n))
        for left in (1, 3, 7):
            room = np.full((m + 2, left + n + 5), 7, F.dtype)
            product(p, a, b, tier, room[1:-1, left : left + n])
            assert (room[1:-1, left : left + n] == exact(p, a, b)).all()
            room[1:-1, left : left + n] = 7
            assert (room == 7).all()


@pytest.mark.parametrize("p", [2013265921, 2**31 - 1, 2**61 - 1])
def test_more_columns_than_one_panel_holds(p, tier):
    F = PrimeField(p)
    a, b = F.random((9, 1200), SeededSource(1)), F.random((1200, 413), SeededSource(2))
    assert (product(p, a, b, tier)[[0, 5, 8]] == exact(p, a[[0, 5, 8]], b)).all()


@pytest.mark.parametrize("p", [2013265921, 2**31 - 1, 2**61 - 1])
def test_a_number_beyond_p_is_seen_in_every_column(p, tier):
    F = PrimeField(p)
    a, b = F.random((3, 4), SeededSource(1)), F.random((4, 37), SeededSource(2))
    left, out = left_operands.VectorLeft(p, a, tier == "avx512"), np.empty((3, 37), F.dtype)
    for column in range(37):
        for wrong in (p, np.iinfo(F.dtype).max):
            bad = b.copy()
            bad[column % 4, column] = wrong
            assert not left.multiply([bad], out)
        b[column % 4, column] = p - 1
    assert left.multiply([b], out)


def test_folds_come_before_a_sum_can_overflow():
    for p in MODULI[:-2]:
        _, terms, radix = left_operands._vector_form(p, 4, True)
        assert (2**32 - radix) % p == 0
        rest = 2**32 + 2**31 * abs(radix)
        assert (
            terms == 2**20
            or rest + terms * (p // 2) ** 2 < 2**63 <= rest + (terms + 1) * (p // 2) ** 2
        )
    assert 8 * (2**30 - 1) ** 2 + 2**32 + 2**31 < 2**63
    assert 7 * 2**60 + 2**34 < 2**63
    assert 28 * 2**58 + (2**60 - 1) < 2**63
    assert {form.terms for (ring, _), form in vector.FORMS.items() if ring != "short"} == {7, 8}
