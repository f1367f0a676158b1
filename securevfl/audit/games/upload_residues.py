"""Residues of uploads: the coefficients that remain after the sums are subtracted.

An upload of client n is Y(alpha_n), where Y has degree 2(K+T-1) and the sums as its values at
beta_1 .. beta_K. With w the polynomial of degree K - 1 through the sums and P the product of all
z - beta_k, Y = w + P q. A correct run hides everything but w, so q has to be uniform.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from securevfl.audit.proof.linear_algebra import solve_left
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode
from securevfl.field.lagrange import interpolation_matrix


def unwanted(code: LagrangeCode, uploads: Mapping[int, np.ndarray]) -> np.ndarray:
    """Coefficients of (Y - w) / P, (K + 2T - 1, |B|, h); P vanishes on the data points.

    Y is the polynomial through `uploads`, arrays (|B|, h) by client, w the polynomial of degree
    K - 1 through the sums. NotEnoughResultsError for fewer than R uploads.
    """
    field = code.field
    parties = sorted(uploads)
    values = np.stack([uploads[n] for n in parties])
    # Y - w vanishes at the K data points, so P divides it; the quotient has degree 2(K+T-1) - K.
    sums = code.decode(values, parties, degree=2)
    return _divided(code, parties, field.subtract(values, spread(code, sums, parties)))


def at_data_points(code: LagrangeCode, coefficients: np.ndarray) -> np.ndarray:
    """Values at beta_1 to beta_K of a matrix polynomial given by coefficients."""
    field = code.field
    betas = field.elements(list(code.betas[: code.segments]))
    powers = field.power(betas[:, None], np.arange(len(coefficients)))
    values = field.matmul(powers, coefficients.reshape(len(coefficients), -1))
    return values.reshape(-1, *coefficients.shape[1:])


def spread(code: LagrangeCode, sums: np.ndarray, parties: Sequence[int]) -> np.ndarray:
    """Values at parties' points, (n, |B|, h), of the polynomial through the sums, (K, |B|, h)."""
    points = [code.alphas[n] for n in parties]
    onto = interpolation_matrix(code.field, code.betas[: code.segments], points)
    flat = code.field.matmul(onto, sums.reshape(code.segments, -1))
    return flat.reshape(len(points), *sums.shape[1:])


def _divided(code: LagrangeCode, parties: Sequence[int], values: np.ndarray) -> np.ndarray:
    """Coefficients, (K + 2T - 1, |B|, h), of a polynomial divided by P.

    It has degree 2(K+T-1), vanishes on the data points, and is given by its `values` at the
    parties' points, (R', |B|, h). ConfigurationError for too few points.
    """
    field = code.field
    count = code.segments + 2 * code.privacy - 1
    divisors = [int(code.vanishing[n]) for n in parties]
    # Where the divisor is 0 the value of the quotient is not determined by that party's value.
    kept = [i for i, divisor in enumerate(divisors) if divisor][:count]
    inverse = field.reciprocal(field.elements([divisors[i] for i in kept]))
    quotients = field.multiply(inverse[:, None], values[kept].reshape(len(kept), -1))
    alphas = field.elements([code.alphas[parties[i]] for i in kept])
    powers = field.power(alphas[:, None], np.arange(count))
    solved = solve_left(field, powers, quotients)
    if solved is None:
        raise ConfigurationError(
            f"uploads less sums: {len(kept)} uploads do not determine {count} blocks"
        )
    return solved.reshape(count, *values.shape[1:])
