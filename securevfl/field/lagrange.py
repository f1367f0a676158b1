"""Interpolation matrices over a prime field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import FieldError

if TYPE_CHECKING:
    from securevfl.field.prime_field import PrimeField

Array = NDArray[Any]


def interpolation_matrix(
    field: PrimeField, points: Sequence[int] | Array, targets: Sequence[int] | Array
) -> Array:
    """Return L with L[j, i] = l_i(targets[j]), the Lagrange basis of `points`.

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
    from securevfl.field.kernels import scalar

    x, y = _points(field, points, "points"), _points(field, targets, "targets")
    if len({int(v) for v in x}) < x.size:
        raise FieldError(f"interpolation_matrix: the {x.size} points must be distinct.")
    out = np.empty((y.size, x.size), np.uint64)
    scalar.interpolate(x, y, *field._constants, out)
    return out.astype(field.dtype)


def vanishing(
    field: PrimeField, roots: Sequence[int] | Array, targets: Sequence[int] | Array
) -> Array:
    """Return P(y) = prod_k (y - roots[k]) at each target, shape (m,)."""
    from securevfl.field.kernels import scalar

    x, y = _points(field, roots, "roots"), _points(field, targets, "targets")
    out = np.empty(y.size, np.uint64)
    scalar.vanishing(x, y, *field._constants, out)
    return out.astype(field.dtype)


def _points(field: PrimeField, values: Sequence[int] | Array, name: str) -> Array:
    array = values if isinstance(values, np.ndarray) else [int(v) for v in values]
    return field.elements(array, f"interpolation {name}").astype(np.uint64).reshape(-1)
