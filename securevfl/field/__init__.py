"""Exact arithmetic over a prime field, Lagrange coding, fixed point, secure sampling.

The names load on first use; nothing here imports numba until the first kernel runs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if __name__ != "securevfl.field":
    # The repository's root shows this folder as a link; a second copy of its classes would never
    # compare equal to the first.
    raise ImportError("import securevfl.field, not field")

if TYPE_CHECKING:
    from securevfl.field.fixed_point import FixedPoint
    from securevfl.field.lagrange_code import LagrangeCode
    from securevfl.field.prime_field import PrimeField
    from securevfl.field.sampling import SeededSource, SystemSource

__all__ = [
    "FixedPoint",
    "LagrangeCode",
    "PrimeField",
    "SeededSource",
    "SystemSource",
]

_EXPORTS = {
    "FixedPoint": "fixed_point",
    "LagrangeCode": "lagrange_code",
    "PrimeField": "prime_field",
    "SeededSource": "sampling",
    "SystemSource": "sampling",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
