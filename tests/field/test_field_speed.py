"""pytest-benchmark groups of the kernels.

``pytest -n 0 --benchmark-enable tests/field/test_field_speed.py`` measures them. Without the option
each runs once, so that no group can rot. Ratios are those within a group of one run.
"""

import numpy as np
import pytest

from securevfl.field import FixedPoint, LagrangeCode, PrimeField, error_correction
from securevfl.field.kernels import cpu, primes

FIELDS = [PrimeField(p) for p in primes.USUAL]


@pytest.fixture(params=FIELDS, ids=lambda F: f"{F.modulus.bit_length()} bits")
def F(request):
    return request.param


@pytest.mark.benchmark(group="matmul 256x784x64")
@pytest.mark.parametrize("tier", cpu.TIERS)
def test_matmul(benchmark, F, tier, monkeypatch):
    if tier not in cpu.available():
        pytest.skip(f"this machine has no {tier}")
    monkeypatch.setenv(cpu.VARIABLE, tier)
    a, b = F.random((256, 784)), F.random((784, 64))
    product = benchmark(F.matmul, a, b, trusted=True)
    assert int(product[3, 5]) == int(a[3].astype(object) @ b[:, 5].astype(object)) % F.modulus


@pytest.mark.benchmark(group="matmul 256x784x64")
def test_dgemm(benchmark):
    assert benchmark(np.matmul, np.ones((256, 784)), np.ones((784, 64)))[0, 0] == 784


@pytest.mark.benchmark(group="encode N=28, K+T=14")
def test_encode(benchmark, F):
    code = LagrangeCode(F, parties=28, segments=13, privacy=1)
    X, out = F.random((13, 1 << 16)), np.empty((28, 1 << 16), F.dtype)
    benchmark(code.encode, X, out=out)
    assert (code.decode(out[:14], range(14), degree=1) == X).all()


@pytest.mark.benchmark(group="decode R=27, K=13")
def test_decode(benchmark, F):
    code = LagrangeCode(F, parties=28, segments=13, privacy=1)
    X = F.random((13, 1 << 14))
    results = F.power(code.encode(X), 2)[:27]
    assert (benchmark(code.decode, results, range(27)) == F.power(X, 2)).all()


@pytest.mark.benchmark(group="random, 2^20 elements")
def test_random(benchmark, F):
    assert benchmark(F.random, 1 << 20).max() < F.modulus


@pytest.mark.benchmark(group="fixed point, 2^20 elements")
@pytest.mark.parametrize("operation", ["quantize", "stochastic", "dequantize"])
def test_fixed_point(benchmark, F, operation):
    q, x = FixedPoint(F, 12), np.linspace(-1, 1, 1 << 20)
    if operation == "dequantize":
        assert abs(benchmark(q.dequantize, q.quantize(x)) - x).max() <= 2**-13
    else:
        rng = np.random.default_rng(0) if operation == "stochastic" else None
        z = benchmark(q.quantize, x, rng=rng)
        assert abs(q.dequantize(z) - x).max() <= 2**-12


@pytest.mark.benchmark(group="check of 28 rows, 2^20 elements in all")
def test_check(benchmark, F):
    words, good = benchmark(error_correction.project, F, F.random((28, (1 << 20) // 28)))
    assert good.all()
    assert words.shape[1] == 28
