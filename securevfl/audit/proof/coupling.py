"""The bijection of the proof of masked evaluation, computed on the tapes of a real run.

Take secrets (X, W) and (X', W') with equal sums over the honest clients. The tapes that give the
second the view of the first are

    Z' = Z + M_A^-1 A_A (X - X'),    V' = V + M_A^-1 L_A (W - W'),
    rho' = rho + s prod_{a in A} (z - alpha_a)

for a set A of T clients with the coalition in it, M_A the mask columns and A_A the data columns of
the Lagrange matrix at A's points, L_A the row sums of A_A, and s the K + T - 1 coefficients of
(psi - psi') / (P prod_{a in A} (z - alpha_a)), of each attempt. The streams of the keys that nobody
in A holds make what is added to rho, for they span all that vanishes at A's points
(`securevfl.audit.proof.certificate`). docs/masking.md proves it; `securevfl.audit.recorded_runs`
runs it.
"""

from __future__ import annotations

import math
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


def enlarged(code: LagrangeCode, clients: Sequence[int]) -> tuple[int, ...]:
    """A: the first T clients, those of a coalition before all others.

    Raises
    ------
    ConfigurationError
        For more than T clients.
    """
    T = code.privacy
    if len(clients) > T:
        raise ConfigurationError(f"coupling: {len(clients)} clients collude and T = {T}")
    return (*clients, *(n for n in range(code.parties) if n not in clients))[:T]


def move(
    code: LagrangeCode,
    clients: Sequence[int],
    before: Secrets,
    data: np.ndarray,
    models: Mapping[int, np.ndarray],
) -> Secrets:
    """Give an honest client other secrets, and the masks with which A holds the same shares.

    Parameters
    ----------
    code : LagrangeCode
    clients : sequence of int
        C, at most T clients.
    before : Secrets
    data, models
        X-bar' and W-bar' by round.
    """
    field, C = code.field, list(enlarged(code, clients))
    inverse = field.inv(code.mask_matrix[C])
    onto_data = field.matmul(inverse, code.data_matrix[C])
    onto_model = field.matmul(onto_data, np.ones(code.segments, field.dtype))

    # A holds A_A X + M_A Z. That is A_A X' + M_A Z' for Z' = Z + M_A^-1 A_A (X - X').
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


def correction(
    code: LagrangeCode, clients: Sequence[int], one: np.ndarray, two: np.ndarray
) -> np.ndarray:
    """Coefficients of s = (psi - psi') / (P prod_{a in A} (z - alpha_a)), (K + T - 1, |B|, h).

    Raises
    ------
    ConfigurationError
        When there is no such polynomial: the secrets have different sums.
    """
    field, A, count = code.field, enlarged(code, clients), code.size - 1
    # psi - psi' has degree 2(K+T-1). It is 0 at beta_1..K, as the sums are equal, and at alpha_A,
    # as A's shares are: what remains after division by these K + T factors has K + T - 1
    # coefficients, as many as the streams of the key that A lacks.
    rest = [n for n in range(code.parties) if n not in A]
    difference = field.subtract(one, two).reshape(code.parties, -1)
    factors = field.multiply(code.vanishing[rest], _factors(code, A)[rest])
    values = field.multiply(field.reciprocal(factors)[:, None], difference[rest])
    coefficients = solve_left(field, _powers(code, count)[rest], values)
    if coefficients is None or difference[list(A)].any():
        raise ConfigurationError("coupling: the two secrets differ in the sums that are decoded")
    return coefficients.reshape(count, *one.shape[1:])


def mask_shift(code: LagrangeCode, A: Sequence[int], streams: np.ndarray) -> np.ndarray:
    """prod_{a in A} (z - alpha_a) s(z) at every client's point, from the coefficients of s."""
    field = code.field
    values = field.matmul(_powers(code, len(streams)), streams.reshape(len(streams), -1))
    shift: np.ndarray = field.multiply(_factors(code, A)[:, None], values)
    return shift.reshape(code.parties, *streams.shape[1:])


def _factors(code: LagrangeCode, A: Sequence[int]) -> np.ndarray:
    p = code.field.modulus
    return code.field.elements([math.prod(x - code.alphas[a] for a in A) % p for x in code.alphas])


def _powers(code: LagrangeCode, count: int) -> np.ndarray:
    alphas = code.field.elements(list(code.alphas))
    return code.field.power(alphas[:, None], np.arange(count))
