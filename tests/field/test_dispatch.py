"""Every tier of the matrix product against exact integers: edges, tails, longest sums."""

import functools

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securevfl.errors import ConfigurationError
from securevfl.field import PrimeField, SeededSource, dispatch
from securevfl.field.kernels import cpu, left_operands, primes

MODULI = [3, 4099, 2013265921, 2**31 - 1, 2**32 - 5, 2**50 - 27, primes.P50, 2**61 - 1, 2**62 - 57]


@pytest.fixture(params=cpu.TIERS)
def tier(request, monkeypatch):
    if request.param not in cpu.available():
        pytest.skip(f"this machine has no {request.param}")
    monkeypatch.setenv(cpu.VARIABLE, request.param)
    return request.param


def exact(a, b, p):
    left = flint.nmod_mat(*a.shape, a.astype(object).ravel().tolist(), p)
    right = flint.nmod_mat(*b.shape, b.astype(object).ravel().tolist(), p)
    return [int(v) for v in (left * right).entries()]


def product(p, a, b):
    """Return the product, after all forms of the left operand in this tier agreed on it."""
    forms = {dispatch.prepare(p, a, columns) for columns in (None, 1, 1 << 20)}
    if cpu.tier() == "amx" and (p < 1 << 31 or a.dtype == np.uint64):
        forms.add(left_operands.TiledLeft(p, a))
    results = []
    for left in forms:
        out = np.empty((a.shape[0], b.shape[1]), a.dtype)
        assert left.multiply([b], out)
        results.append(out.ravel().tolist())
    assert all(result == results[0] for result in results)
    return results[0]


@pytest.mark.parametrize("p", MODULI)
def test_edges_meet_each_other(tier, p):
    F = PrimeField(p)
    values = sorted({0, 1, (p - 1) // 2, (p + 1) // 2, p - 2, p - 1})
    a = F.elements([[x, y] for x in values for y in values])
    assert product(p, a, a.T.copy()) == exact(a, a.T, p)
    for x in values:
        for y in values:
            left, right = np.full((3, 17), x, F.dtype), np.full((17, 9), y, F.dtype)
            assert product(p, left, right) == [17 * x * y % p] * 27


@functools.cache
def tails(p):
    """Operands of every size and their exact products, which all tiers share."""
    big = PrimeField(p).random((67, 67), SeededSource(1))
    found = []
    for size in range(1, 68):
        for m, k, n in ((size, 5, 3), (3, size, 5), (5, 3, size), (size, size, size % 9 + 1)):
            a, b = big[:m, :k].copy(), big[-k:, -n:].copy()
            found.append((a, b, exact(a, b, p)))
    return found


@pytest.mark.parametrize("p", [2**31 - 1, 2013265921, primes.P50, 2**61 - 1, 2**62 - 57])
def test_tails_of_every_size(tier, p):
    for a, b, expected in tails(p):
        assert product(p, a, b) == expected, (a.shape, b.shape)


@pytest.mark.parametrize("p", [*primes.USUAL, 2013265921, 2**32 - 5, 2**62 - 57])
@pytest.mark.parametrize("k", [4096, 4097, 16384, 16385, 40000])
def test_the_longest_sums_of_the_largest_elements(tier, p, k):
    F = PrimeField(p)
    for x, y in ((p - 1, p - 1), ((p - 1) // 2, (p + 1) // 2), (p - 1, 1), (255 * 0x01010101, 1)):
        a = np.full((2, k), x % p, F.dtype)
        b = np.full((k, 17), y, F.dtype)
        assert product(p, a, b) == [k * (x % p) * y % p] * 34


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_products_are_bilinear(data):
    p = data.draw(st.sampled_from(MODULI))
    F = PrimeField(p)
    m, k, n = (data.draw(st.integers(1, 70)) for _ in range(3))
    source = SeededSource(data.draw(st.integers(0, 1000)))
    a, b, c = F.random((m, k), source), F.random((k, n), source), F.random((k, n), source)
    together = F.matmul(a, F.add(b, c))
    assert (together == F.add(F.matmul(a, b), F.matmul(a, c))).all()
    assert (F.matmul(b.T, a.T) == F.matmul(a, b).T).all()


@pytest.mark.parametrize("p", primes.USUAL)
def test_blocks_stand_in_different_places_and_numbers_beyond_p_are_seen(tier, p):
    F, source = PrimeField(p), SeededSource(2)
    a = F.random((9, 30), source)
    blocks = [F.random((7, 90), source), F.random((23, 200), source)[:, 5:95]]
    left = dispatch.prepare(p, a)
    out = np.zeros((9, 300), F.dtype)
    assert left.multiply(blocks, out[:, 7:97])
    assert out[:, 7:97].ravel().tolist() == exact(a, np.concatenate(blocks), p)
    assert not out[:, :7].any()
    assert not out[:, 97:].any()
    for block, column in ((0, 3), (1, 89)):
        blocks[block][2, column] = p
        assert not left.multiply(blocks, out[:, 7:97])
        blocks[block][2, column] = 0


def test_blocks_with_any_strides_are_taken(tier):
    F, source = PrimeField(2**31 - 1), SeededSource(4)
    a, b = F.random((9, 5), source), F.random((64, 10), source)
    out = np.empty((9, 64), F.dtype)
    assert dispatch.prepare(F.modulus, a).multiply([b.T[:2], b.T[2:8:2]], out)
    assert out.ravel().tolist() == exact(a, b.T[[0, 1, 2, 4, 6]], F.modulus)


def test_threads_share_the_rows(tier):
    F = PrimeField(2**31 - 1)
    a = F.random((70, 40), SeededSource(3))
    assert (F.matmul(a, a.T, threads=3) == F.matmul(a, a.T)).all()
    with pytest.raises(ConfigurationError, match="threads"):
        F.matmul(a, a.T, threads=0)


def test_a_tier_that_cannot_run_is_refused(monkeypatch):
    monkeypatch.setenv(cpu.VARIABLE, "abacus")
    with pytest.raises(ConfigurationError, match="abacus cannot run here"):
        cpu.tier()


def test_an_edit_in_any_file_of_kernels_makes_cached_ones_stale():
    from securevfl.field.kernels import objects

    names = [name for name, _, _ in objects.folder_stamp()]
    assert {"ir.py", "ifma.py"} <= set(names)
