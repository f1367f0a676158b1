"""Mask polynomials for the results of a Lagrange-coded computation of degree 2.

Ours, and no part of FedVS: results are values of one polynomial psi of degree 2(K+T-1), and the
receiver is to learn psi at the K data points beta_k only. Dealers draw uniform polynomials rho_j of
degree K + 2T - 2, and the party at alpha sends

    psi(alpha) + P(alpha) sum_j rho_j(alpha),    P(z) = prod_{k<=K} (z - beta_k).

P vanishes at the data points, and P rho has the degree of psi, so the values at the data points,
the recovery threshold and error correction do not change (docs/masking.md has the proof).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np

from securevfl.field.lagrange_code import LagrangeCode


def coefficient_count(code: LagrangeCode) -> int:
    """K + 2T - 1, coefficients of a mask polynomial.

    One fewer leaks to the receiver with T parties, one more raises the recovery threshold.
    """
    return code.segments + 2 * code.privacy - 1


def point_powers(code: LagrangeCode) -> np.ndarray:
    """alpha_n^i, (N, K + 2T - 1): values at the parties' points from coefficients of a rho."""
    alphas = code.field.elements(list(code.alphas))
    return code.field.power(alphas[:, None], np.arange(coefficient_count(code)))


def deal(code: LagrangeCode, powers: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """rho at every party's point.

    Parameters
    ----------
    code : LagrangeCode
    powers : ndarray, (N, K + 2T - 1)
        As `point_powers` returns them.
    coefficients : ndarray, (K + 2T - 1, ...), field elements
        Uniform and used once.

    Returns
    -------
    ndarray, (N, ...)
    """
    values = code.field.matmul(powers, coefficients.reshape(len(coefficients), -1))
    return values.reshape(-1, *coefficients.shape[1:])


def hide(
    code: LagrangeCode, party: int, result: np.ndarray, values: Iterable[np.ndarray]
) -> np.ndarray:
    """psi(alpha) + P(alpha) sum_j rho_j(alpha), from the dealers' `values` at the party's point.

    Dealers are believed: values of another polynomial E / P, with E of degree 2(K+T-1), move what
    is decoded by E(beta_k), and the results still agree with each other.
    """
    field = code.field
    total = functools.reduce(field.add, values)
    return field.add(result, field.multiply(code.vanishing[party], total))


def admit(privacy: int, sharers: Sequence[int], dealers: Sequence[int]) -> bool:
    """Whether masks keep their promise: at least T + 1 dealers, and T + 2 terms in the sum.

    With fewer dealers T parties could know every mask; with fewer terms they could isolate one.
    """
    return len(dealers) > privacy and len(sharers) > privacy + 1
