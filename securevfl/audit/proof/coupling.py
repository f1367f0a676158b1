"""The bijection of the proof of masked evaluation, computed on the tapes of a real run.

Take secrets (X, W) and (X', W') with equal sums over the honest clients. The tapes that give the
second the view of the first are

    Z' = Z + M_C^-1 A_C (X - X'),    V' = V + M_C^-1 L_C (W - W'),    rho' = rho + q

with M_C the mask columns and A_C the data columns of the Lagrange matrix at C's points, L_C the
row sums of A_C, and q = (psi - psi') / P, of degree K + 2T - 2 and zero at C's points, added to
the mask of one honest dealer in each attempt. docs/masking.md proves it;
`securevfl.audit.recorded_runs` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.audit.proof.linear_algebra import solve_left
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode


@dataclass(frozen=True)
class Secrets:
    """Secrets and share masks of one client.

    Attributes
    ----------
    data : ndarray, (K, rows, columns)
        X-bar.
    models : mapping of int to ndarray, (columns, h)
        W-bar by round.
    data_masks : ndarray, (T, rows, columns)
        Z.
    model_masks : mapping of int to ndarray, (T, columns, h)
        V by round.
    """

    data: np.ndarray
    models: Mapping[int, np.ndarray]
    data_masks: np.ndarray
    model_masks: Mapping[int, np.ndarray]


def move(
    code: LagrangeCode,
    clients: Sequence[int],
    before: Secrets,
    data: np.ndarray,
    models: Mapping[int, np.ndarray],
) -> Secrets:
    """Give an honest client other secrets, and the masks with which C holds the same shares.

    Parameters
    ----------
    code : LagrangeCode
    clients : sequence of int
        C, at most T clients.
    before : Secrets
    data, models
        X-bar' and W-bar' by round.
    """
    field, T = code.field, code.privacy
    if len(clients) > T:
        raise ConfigurationError(f"coupling: {len(clients)} clients collude and T = {T}")
    C = [*clients, *(n for n in range(code.parties) if n not in clients)][:T]
    inverse = field.inv(code.mask_matrix[C])
    onto_data = field.matmul(inverse, code.data_matrix[C])
    onto_model = field.matmul(onto_data, np.ones(code.segments, field.dtype))

    change = field.subtract(before.data, data)
    moved = field.matmul(onto_data, change.reshape(code.segments, -1))
    Z = field.add(before.data_masks, moved.reshape(before.data_masks.shape))
    V = {}
    for round, model in models.items():
        difference = field.subtract(before.models[round], model)
        shift = field.multiply(onto_model[:, None, None], difference[None])
        V[round] = field.add(before.model_masks[round], shift)
    return Secrets(data, models, Z, V)


def psi(
    code: LagrangeCode, sharers: Mapping[int, Secrets], round: int, rows: np.ndarray
) -> np.ndarray:
    """psi at every client's point: sum over S of F^(B)(alpha) G(alpha), (N, |B|, h)."""
    field = code.field
    total: np.ndarray | None = None
    for one in sharers.values():
        F = code.encode(one.data, masks=one.data_masks)[:, rows]
        G = code.encode_constant(one.models[round], masks=one.model_masks[round])
        part = field.matmul(F, G)
        total = part if total is None else field.add(total, part)
    assert total is not None
    return total


def correction(code: LagrangeCode, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Coefficients of q = (psi - psi') / P, (K + 2T - 1, |B|, h).

    Raises
    ------
    ConfigurationError
        When there is no such polynomial: the secrets have different sums.
    """
    field, count = code.field, code.segments + 2 * code.privacy - 1
    alphas = field.elements(list(code.alphas))
    powers = field.power(alphas[:, None], np.arange(count))
    difference = field.subtract(one, two).reshape(code.parties, -1)
    values = field.multiply(field.reciprocal(code.vanishing)[:, None], difference)
    coefficients = solve_left(field, powers, values)
    if coefficients is None:
        raise ConfigurationError("coupling: the two secrets differ in the sums that are decoded")
    return coefficients.reshape(count, *one.shape[1:])
