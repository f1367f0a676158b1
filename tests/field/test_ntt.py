"""Encoding by transforms equals encoding by the matrix."""

import numpy as np
import pytest

from securevfl.errors import FieldError
from securevfl.field import LagrangeCode, PrimeField, SeededSource, dispatch, ntt
from securevfl.field.kernels import cpu

F = PrimeField(2013265921)
SMALL = PrimeField(998244353)


def code_of(field, N, K, T):
    alphas, betas = ntt.coset_points(field, N, K + T)
    return LagrangeCode(
        field, parties=N, segments=K, privacy=T, degree=1, alphas=alphas, betas=betas
    )


@pytest.mark.parametrize("field", [F, SMALL, PrimeField(12289)], ids=str)
@pytest.mark.parametrize(
    ("N", "K", "T"), [(2, 1, 1), (5, 1, 1), (4, 3, 1), (10, 3, 1), (64, 30, 2), (200, 120, 8)]
)
@pytest.mark.parametrize("columns", [1, 16, 50, 1100])
def test_transforms_equal_the_matrix(field, N, K, T, columns):
    code = code_of(field, N, K, T)
    left = ntt.NttLeft(ntt.recognise(field.modulus, code.alphas, code.betas), N)
    rows = field.random((K + T, columns), SeededSource(N))
    rows[0], rows[:, 0] = field.modulus - 1, field.modulus - 1
    out = np.zeros((N, columns), field.dtype)
    assert left.multiply([rows[:K], rows[K:]], out)
    matrix = np.concatenate([code.data_matrix, code.mask_matrix], axis=1)
    assert (out == field.matmul(matrix, rows)).all()
    rows[-1, -1] = field.modulus
    assert not left.multiply([rows], out)


def test_the_code_chooses_the_transform_only_beyond_the_crossover(monkeypatch):
    code = code_of(F, 64, 30, 2)
    X = F.random((30, 100), SeededSource(1))
    masks = F.random((2, 100), SeededSource(2))
    shares = code.encode(X, masks=masks)
    for limit, kind in ((10, ntt.NttLeft), (10_000, object)):
        monkeypatch.setattr(ntt, "CROSSOVER", dict.fromkeys(cpu.TIERS, limit))
        fresh = code_of(F, 64, 30, 2)
        assert isinstance(fresh._left, kind)
        assert isinstance(fresh._left, ntt.NttLeft) == (limit == 10)
        assert (fresh.encode(X, masks=masks) == shares).all()
    assert (code.decode(shares[20:52], range(20, 52), degree=1) == X).all()


def test_other_points_are_not_taken_for_cosets():
    alphas, betas = ntt.coset_points(F, 8, 4)
    p = F.modulus
    assert ntt.recognise(p, alphas, betas) is not None
    assert ntt.recognise(p, alphas, betas[:3]) is None
    assert ntt.recognise(p, alphas, [betas[1], betas[0], *betas[2:]]) is None
    assert ntt.recognise(p, [*alphas[:-1], alphas[0] + 1], betas) is None
    assert ntt.recognise(p, range(5, 13), range(1, 5)) is None
    assert ntt.recognise(p, alphas, [0, 1, 2, 3]) is None
    assert ntt.recognise(2**61 - 1, alphas, betas) is None


def test_sizes_and_fields_without_roots_are_refused():
    with pytest.raises(FieldError, match="K \\+ T = 6 must be a power of two"):
        ntt.coset_points(F, 10, 6)
    with pytest.raises(FieldError, match="not divisible by 32"):
        ntt.coset_points(PrimeField(2**31 - 1), 16, 4)


def test_every_encoder_has_the_interface_of_left_operands():
    left = ntt.NttLeft(ntt.recognise(F.modulus, *ntt.coset_points(F, 4, 2)), 4)
    assert callable(left.multiply)
    assert callable(dispatch.prepare(F.modulus, np.ones((2, 2), np.uint32)).multiply)
