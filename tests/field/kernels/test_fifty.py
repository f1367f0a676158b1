"""Products modulo 2^50 - 2^14 + 1 in each form against exact integers: edges, sums, places."""

import ctypes

import flint
import numpy as np
import pytest

from securevfl.field import PrimeField, SeededSource, dispatch
from securevfl.field.kernels import cpu
from securevfl.field.kernels.fifty import left as lefts
from securevfl.field.kernels.left_operands import AROUND
from securevfl.field.kernels.primes import P50

F = PrimeField(P50)
EXTREMES = (0, 1, P50 // 2, P50 // 2 + 1, P50 - 1)
TERMS = (0, 1, 13, 14, 15, 16, 17, 28, 29, 4095, 4096, 8192)
MANY = 8 * AROUND  # Columns from which few terms are written past the caches.


@pytest.fixture(params=["avx2", "avx512", "ifma"])
def prepare(request):
    if request.param not in cpu.available():
        pytest.skip(f"this machine has no {request.param}")

    def left(a):
        return lefts.prepared(a, request.param, lambda: dispatch.PortableLeft(P50, a))

    return left


def exact(a, b):
    if not a.shape[1]:
        return np.zeros((a.shape[0], b.shape[1]), np.uint64)
    left = flint.nmod_mat(*a.shape, a.astype(object).ravel().tolist(), P50)
    right = flint.nmod_mat(*b.shape, b.astype(object).ravel().tolist(), P50)
    entries = [int(v) for v in (left * right).entries()]
    return np.array(entries, np.uint64).reshape(a.shape[0], b.shape[1])


def product(left, a, b):
    out = np.full((a.shape[0], b.shape[1]), 7, np.uint64)
    assert left(a).multiply([b], out)
    return out


def with_extremes(k, source):
    """Random operands, some of whose rows and columns hold one extreme each."""
    a, b = F.random((8, k), source), F.random((k, 41), source)
    for i, x in enumerate(EXTREMES):
        a[i], b[:, 3 * i] = x, x
    return a, b


@pytest.mark.parametrize("k", TERMS)
def test_rows_and_columns_of_extremes(prepare, k):
    a, b = with_extremes(k, SeededSource(k))
    assert (product(prepare, a, b) == exact(a, b)).all()


@pytest.mark.parametrize("k", [14, 15, 4095])
def test_sums_whose_lower_parts_are_the_largest(prepare, k):
    # x y = -1 mod 2^52: every product adds 2^52 - 1 to the sum of lower parts. One in four of the
    # odd x has a y that is an element.
    pairs = ((x, -pow(x, -1, 2**52) % 2**52) for x in range(P50 - 2, 0, -2))
    x, y = next((x, y) for x, y in pairs if y < P50)
    a, b = np.full((4, k), x, np.uint64), np.full((k, 33), y, np.uint64)
    assert (product(prepare, a, b) == k * x * y % P50).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("k", [13, 14, 15, 28, 4095])
def test_sums_whose_rests_are_the_largest(prepare, k, sign):
    # 2^49 is half of the unit 2^50 of the upper parts, and 2^49 - 1 the next below.
    for x, y in ((2**24, sign * 2**25), (1, sign * (2**49 - 2**13)), (2**48 + 1, sign * 2**25)):
        a = np.full((4, k), x % P50, np.uint64)
        b = np.full((k, 33), y % P50, np.uint64)
        assert (product(prepare, a, b) == k * x * y % P50).all()


def test_tails_of_columns(prepare):
    source = SeededSource(1)
    a, b = F.random((5, 20), source), F.random((20, 64), source)
    whole = exact(a, b)
    for n in range(1, 65):
        assert (product(prepare, a, b[:, :n]) == whole[:, :n]).all(), n


def test_numbers_of_rows(prepare):
    source = SeededSource(2)
    a, b = F.random((25, 20), source), F.random((20, 70), source)
    whole = exact(a, b)
    for m in range(1, 26):
        assert (product(prepare, a[:m], b) == whole[:m]).all(), m


@pytest.mark.parametrize("k", [1, 5, 14, 16, 17, 64])
def test_few_terms_and_many_columns(prepare, k):
    source = SeededSource(3)
    for m in (1, 4, 10, 28):
        a, b = F.random((m, k), source), F.random((k, MANY + 8 * 67 + 5), source)
        a[0], b[:, 100:108] = P50 - 1, P50 - 1
        # Aligned, results pass the caches; else they do not.
        size = -(-b.shape[1] // 8) * 8
        room = np.zeros(m * size + 16, np.uint64)
        start = -room.ctypes.data // 8 % 8
        for offset in (start, start + 1):
            out = room[offset : offset + m * size].reshape(m, size)[:, : b.shape[1]]
            assert prepare(a).multiply([b], out)
            few = [0, 1, 100, 107, 8 * 64, MANY - 1, b.shape[1] - 6, b.shape[1] - 1]
            assert (out[:, few] == exact(a, b[:, few])).all()
            assert (out == product(prepare, np.concatenate([a, a]), b)[:m]).all()


def test_nothing_is_written_beside_the_result(prepare):
    source = SeededSource(4)
    a, b = F.random((9, 6), source), F.random((6, MANY + 13), source)
    room = np.zeros((11, MANY + 24), np.uint64)
    assert prepare(a).multiply([b], room[1:10, 8 : 8 + b.shape[1]])
    assert (room[1:10, 8 : 8 + b.shape[1]] == product(prepare, a, b)).all()
    room[1:10, 8 : 8 + b.shape[1]] = 0
    assert not room.any()


@pytest.mark.parametrize("n", [11, MANY + 3])
def test_numbers_beyond_p_are_seen(prepare, n):
    a, b = F.random((5, 6), SeededSource(5)), np.zeros((6, n), np.uint64)
    left, out = prepare(a), np.empty((5, n), np.uint64)
    assert left.multiply([b], out)
    for wrong in (P50, 2**50, 2**63, 2**64 - 1):
        for place in ((0, 0), (5, n - 1), (3, n // 2)):
            b[place] = wrong
            assert not left.multiply([b], out)
            b[place] = 0


def test_the_tier_chooses_the_form(monkeypatch):
    from securevfl.field.kernels.fifty import doubles

    a = F.random((64, 20), SeededSource(6))
    monkeypatch.setenv(cpu.VARIABLE, "portable")
    assert isinstance(dispatch.prepare(P50, a), dispatch.PortableLeft)
    for tier, form in (("avx2", doubles.KERNELS256), ("avx512", doubles.KERNELS512)):
        if tier in cpu.available():
            monkeypatch.setenv(cpu.VARIABLE, tier)
            assert dispatch.prepare(P50, a).kernels is form
    if "ifma" in cpu.available():
        monkeypatch.delenv(cpu.VARIABLE)
        assert not isinstance(dispatch.prepare(P50, a), lefts.DoubleLeft)


@pytest.mark.skipif("avx2" not in cpu.available(), reason="doubles are for AVX2 and above")
@pytest.mark.parametrize("mode", [0x400, 0x800, 0xC00])
def test_a_thread_that_rounds_otherwise_takes_other_kernels(mode):
    libm = ctypes.CDLL("libm.so.6")
    source = SeededSource(7)
    a, b = F.random((6, 9), source), F.random((9, 10), source)
    left = lefts.DoubleLeft(a, False, lambda: dispatch.PortableLeft(P50, a))
    assert lefts.rounds_to_nearest()
    out = np.empty((6, 10), np.uint64)
    try:
        assert libm.fesetround(mode) == 0
        rounded = lefts.rounds_to_nearest()
        good = left.multiply([b], out)
    finally:
        libm.fesetround(0)
    assert not rounded
    assert good
    assert (out == exact(a, b)).all()
