"""Interpolation matrices over a prime field."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import FieldError

if TYPE_CHECKING:
    from securevfl.field.prime_field import PrimeField

Array = NDArray[Any]

# Factors up to which Python's integers serve: at most 0.3 ms, where the first call of a compiled
# loop takes 0.04 s with a cache and one second without.
_SMALL = 640


def interpolation_matrix(
    field: PrimeField, points: Sequence[int] | Array, targets: Sequence[int] | Array
) -> Array:
    """Matrix L with L[j, i] = l_i(targets[j]), the Lagrange basis of `points`.

    A polynomial of degree below len(points) with values v at `points` has values L v at `targets`:
    l_i(y) = prod_{j != i} (y - x_j) / (x_i - x_j), computed in barycentric form with one inversion.

    Parameters
    ----------
    field : PrimeField
        The field.
    points : sequence of int
        Distinct elements, n of them.
    targets : sequence of int
        Elements, m of them; one that equals a point yields a row of the identity.

    Returns
    -------
    ndarray
        Shape (m, n) of the field's dtype.

    Raises
    ------
    FieldError
        If two points are equal or a number is not an element.
    """
    x, y = _points(field, points, "points"), _points(field, targets, "targets")
    if len({int(v) for v in x}) < x.size:
        raise FieldError(f"interpolation_matrix: the {x.size} points must be distinct.")
    if x.size * (x.size + y.size) <= _SMALL:
        small = _interpolate(field.modulus, x.tolist(), y.tolist())
        return np.array(small, field.dtype).reshape(y.size, x.size)
    from securevfl.field.kernels import scalar

    out = np.empty((y.size, x.size), np.uint64)
    n, m = x.size, y.size
    room = np.empty(2 * (n + n * m) + n + 3 * m + scalar.CHAINS, np.uint64)
    scalar.interpolate(x, y, *field._constants, out, room)
    return out.astype(field.dtype)


def vanishing(
    field: PrimeField, roots: Sequence[int] | Array, targets: Sequence[int] | Array
) -> Array:
    """Values P(y) = prod_k (y - roots[k]) at the targets, shape (m,)."""
    x, y = _points(field, roots, "roots"), _points(field, targets, "targets")
    p = field.modulus
    if x.size * y.size <= _SMALL:
        return np.array([_product((b - a for a in x.tolist()), p) for b in y.tolist()], field.dtype)
    from securevfl.field.kernels import scalar

    out = np.empty(y.size, np.uint64)
    scalar.vanishing(x, y, *field._constants, out)
    return out.astype(field.dtype)


def _product(factors: Iterable[int], p: int) -> int:
    result = 1
    for factor in factors:
        result = result * factor % p
    return result


def _interpolate(p: int, x: list[int], y: list[int]) -> list[list[int]]:
    """Return the matrix of `interpolation_matrix`: l_i(b) = l(b) / (l'(x_i) (b - x_i)).

    l(b) = prod_j (b - x_j) and l'(x_i) = prod_{j != i} (x_i - x_j).
    """
    slopes = [_product((a - b for b in x if b != a), p) for a in x]
    factors = [slope * (b - a) % p for b in y for slope, a in zip(slopes, x, strict=True)]
    inverses = iter(_inverses(factors, p))
    rows = []
    for b in y:
        level = _product((b - a for a in x), p)
        row = [level * next(inverses) % p for _ in x]
        # l(b) = 0 exactly where b is one of the points; the basis is then 0 and 1, and 1/(b - x_i)
        # does not exist.
        rows.append([int(a == b) for a in x] if level == 0 else row)
    return rows


def _inverses(values: list[int], p: int) -> list[int]:
    """Return the inverses, from one exponentiation; zeros stay zero."""
    # Montgomery's trick: with P_i = v_1 .. v_i, one inverse of P_n gives all, 1/v_i = P_(i-1) / P_i
    # and 1/P_(i-1) = v_i / P_i.
    products = list(accumulate((v or 1 for v in values), lambda a, b: a * b % p, initial=1))
    rest, inverses = pow(products.pop(), -1, p), []
    for value, before in zip(reversed(values), reversed(products), strict=True):
        inverses.append(rest * before % p if value else 0)
        rest = rest * (value or 1) % p
    return inverses[::-1]


def _points(field: PrimeField, values: Sequence[int] | Array, name: str) -> Array:
    array = values if isinstance(values, np.ndarray) else list(values)
    return field.elements(array, f"interpolation {name}").astype(np.uint64).reshape(-1)
