"""Compilation of the kernels before their first use."""

from __future__ import annotations

import numpy as np

from securevfl.field.kernels import primes
from securevfl.field.prime_field import PrimeField

_MANY = 1 << 14


def warmup(*fields: PrimeField) -> None:
    """Compile every kernel for the given fields, or load it from the cache.

    Without arguments the usual fields, those of `primes.USUAL`, are warmed up.
    """
    from securevfl.field.fixed_point import FixedPoint
    from securevfl.field.kernels.scratch import aligned
    from securevfl.field.lagrange_code import LagrangeCode

    for field in fields or map(PrimeField, primes.USUAL):
        a = field.random((3, 3))
        field.multiply(field.add(a, a), field.subtract(a, a))
        field.power(field.reciprocal(field.elements([1, 2] * 32)), 3)
        field.det(field.matmul(a, a))
        field.convolve([1], [2])
        for dtype in (np.float32, np.float64):
            q = FixedPoint(field, bits=0)
            q.dequantize(q.quantize(np.zeros(2, dtype), rng=np.random.default_rng(0)))
            q.quantize(np.zeros(2, dtype))
        if field.modulus >= 11:
            code = LagrangeCode(field, parties=4, segments=1, privacy=1)
            code.decode(code.encode(a[:1, :1])[:3], range(3))
            # So many columns are written past the caches, by other kernels.
            code.encode(field.random((1, _MANY)), out=aligned((4, _MANY), field.dtype))
