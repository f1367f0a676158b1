"""Attacks by clients that pool their shares: exact recovery of what their number allows.

Up to T clients hold uniform shares. From T + 1 on the masks cancel in c - T combinations; K + T
clients know every segment of every client, and all models (FedVS, the limits of Theorem 5.2).
T + 1 are enough where K values together have fewer bits than the field: shared values are short,
and the lattice of all that a combination allows has one short point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.audit.proof.linear_algebra import (
    echelon,
    independent_rows,
    left_null,
    rank,
    solve_left,
)
from securevfl.errors import ConfigurationError, needs
from securevfl.field import LagrangeCode, PrimeField


@dataclass(frozen=True)
class Combinations:
    """Known linear combinations of one client's segments.

    Attributes
    ----------
    matrix : ndarray, (r, K)
        Independent rows D.
    values : ndarray, (r, rows, columns)
        Values D X, exact.
    """

    matrix: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Power:
    """Knowledge of another client that clients gain by pooling their shares.

    Attributes
    ----------
    clients : tuple of int
        Numbers of the clients.
    combinations : int
        Independent linear combinations of the K segments that become known.
    model : bool
        Whether they learn W.
    """

    clients: tuple[int, ...]
    combinations: int
    model: bool

    def bits(self, rows: int, features: int, modulus: int) -> float:
        """Bits of information for uniform data: combinations * rows * features * log2(modulus)."""
        return self.combinations * rows * features * math.log2(modulus)


def coalition_power(code: LagrangeCode, clients: Sequence[int]) -> Power:
    """Knowledge that c clients gain from their shares (limits of Theorem 5.2).

    Up to T learn nothing, T < c <= K + T learn c - T combinations of each client's segments, and
    K + T learn everything. T + 1 learn W too unless the divided difference of 1/P over their
    points vanishes: for K = 2, T = 1 that is alpha_i + alpha_j = beta_1 + beta_2.

    Examples
    --------
    >>> from securevfl.field import PrimeField
    >>> code = LagrangeCode(PrimeField(2**31 - 1), parties=9, segments=3, privacy=2)
    >>> coalition_power(code, (0, 4, 5, 8))
    Power(clients=(0, 4, 5, 8), combinations=2, model=True)
    """
    data, model = decoders(code, clients)
    return Power(tuple(clients), rank(code.field, data), bool(model.any()))


def decoders(code: LagrangeCode, clients: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Combinations of shares in which the masks cancel.

    ConfigurationError for a client number that the code does not have.

    Returns
    -------
    data : ndarray, (c - rank M_C, K)
        Coefficients of the segments in those combinations.
    model : ndarray, (c - rank M_C,)
        Coefficient of W in the same combinations of model shares.
    """
    null = cancelling(code, clients)
    data = code.field.matmul(null, code.data_matrix[list(clients)])
    return data, code.field.matmul(data, np.ones(code.segments, code.field.dtype))


def cancelling(code: LagrangeCode, clients: Sequence[int]) -> np.ndarray:
    """Basis, (c - T, c), of all combinations of these c clients' shares free of masks.

    ConfigurationError for client numbers that repeat or are not in [0, N).
    """
    strangers = [n for n in clients if not 0 <= n < code.parties]
    if strangers or len(set(clients)) != len(clients):
        raise ConfigurationError(
            f"coalition {tuple(clients)}: clients must be different and from 0 to "
            f"{code.parties - 1}"
        )
    return left_null(code.field, code.mask_matrix[list(clients)])


def known_combinations(code: LagrangeCode, shares: Mapping[int, np.ndarray]) -> Combinations:
    """All combinations that clients learn of one client's data.

    Parameters
    ----------
    code : LagrangeCode
        Code of the shares, with K and T.
    shares : mapping
        Share of that client's data, (rows, columns), by colluding client.
    """
    clients = sorted(shares)
    stacked = np.stack([shares[c] for c in clients])
    null = cancelling(code, clients)
    matrix, _ = decoders(code, clients)
    kept = independent_rows(code.field, matrix)
    # Rows N that cancel the masks: of shares F = L X + M Z with N M = 0 they give N F = (N L) X.
    flat = code.field.matmul(null[kept], stacked.reshape(len(clients), -1))
    return Combinations(matrix[kept], flat.reshape(len(kept), *stacked.shape[1:]))


def recover_data(code: LagrangeCode, shares: Mapping[int, np.ndarray]) -> np.ndarray | None:
    """All K segments of one client's data, (K, rows, columns); None from fewer than K + T shares.

    `shares` has a share, field elements (rows, columns), by colluding client. Fewer than K + T
    clients know fewer than K combinations, and every other value is possible.
    """
    known = known_combinations(code, shares)
    if len(known.matrix) < code.segments:
        return None
    flat = known.values.reshape(len(known.matrix), -1)
    solved = solve_left(code.field, known.matrix, flat)
    return None if solved is None else solved.reshape(code.segments, *known.values.shape[1:])


def short_segments(known: Combinations, field: PrimeField, low: int, high: int) -> np.ndarray:
    """All K segments, (K, rows, columns) signed, from fewer combinations, if values are short.

    All x with D x = v form a shifted lattice; the point nearest to the middle of [low, high]^K is
    returned (Babai, in a reduced basis). It is the truth where `freedom` exceeds the range. If the
    evaluation points are small integers, D is close to small fractions, and the point may be wrong.

    Parameters
    ----------
    known : Combinations
        Combinations that are known.
    field : PrimeField
        Field of the shares.
    low, high : int
        Range of the shared values.

    Raises
    ------
    ConfigurationError
        Where K > 1 and python-flint is not installed.
    """
    K, shape = known.matrix.shape[1], known.values.shape[1:]
    work = np.concatenate([known.matrix, known.values.reshape(len(known.matrix), -1)], axis=1)
    pivots = echelon(field, work, K)
    # D = [I | F] in echelon form: with free entries 0 the pivots' entries are the values
    # themselves.
    point = np.zeros((K, work.shape[1] - K), object)
    point[pivots] = work[: len(pivots), K:].astype(object)
    middle = (low + high) // 2
    nearest = _nearest(_lattice(field, work[:, :K], pivots), point - middle)
    return (nearest + middle).astype(np.int64).reshape(K, *shape)


def freedom(code: LagrangeCode, clients: Sequence[int]) -> int:
    """Largest entry of the smallest change of segments that leaves pooled shares unchanged."""
    matrix = np.array(decoders(code, clients)[0])
    pivots = echelon(code.field, matrix)
    sizes = np.abs(_lattice(code.field, matrix, pivots)).max(axis=1)
    return int(sizes.min())


def _lattice(field: PrimeField, matrix: np.ndarray, pivots: Sequence[int]) -> np.ndarray:
    """Reduced basis (rows, Python integers) of integer x with D x = 0 mod p, D reduced, (r, K)."""
    p, K, r = field.modulus, matrix.shape[1], len(pivots)
    # D x = 0 mod p: free entries are any integers, and each pivot's is fixed by them modulo p. So p
    # at each pivot, and each free unit vector with its pivots' entries, generate all such x.
    free = [k for k in range(K) if k not in pivots]
    basis = np.zeros((K, K), object)
    for row, k in enumerate(pivots):
        basis[row, k] = p
    for row, k in enumerate(free, r):
        basis[row, k] = 1
        basis[row, pivots] = [-int(x) for x in matrix[:r, k]]
    if K == 1:
        return basis
    needs("shares: lattice reduction", "attacks", "flint")
    import flint

    reduced = flint.fmpz_mat([[int(x) for x in row] for row in basis]).lll()
    return np.array([[int(x) for x in row] for row in reduced.tolist()], dtype=object)


def _nearest(basis: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Each point, a column, minus the nearby lattice point found by rounding coordinates."""
    # Twice, as the first time floating point may be off by the size of p.
    inverse = np.linalg.inv(basis.T.astype(np.float64))
    for _ in range(2):
        places = np.rint(inverse @ points.astype(np.float64)).astype(np.int64).astype(object)
        points = points - basis.T @ places
    return points


def recover_model(code: LagrangeCode, shares: Mapping[int, np.ndarray]) -> np.ndarray | None:
    """Model W of one client from shares of it; None if nothing is known.

    T shares or fewer reveal nothing of W. T + 1 suffice, except for special points
    (`coalition_power`).

    Parameters
    ----------
    code : LagrangeCode
        Code by which the model was shared (`LagrangeCode.encode_constant`).
    shares : mapping
        Share of that client's model, (columns, h), by colluding client.

    Returns
    -------
    ndarray, (columns, h), or None
        W, the weights of the client's bottom model, as elements of F_p.

    Raises
    ------
    ConfigurationError
        For a client number that the code does not have.
    """
    clients = sorted(shares)
    _, multiples = decoders(code, clients)
    useful = np.flatnonzero(multiples)
    if not useful.size:
        return None
    stacked = np.stack([shares[c] for c in clients])
    row = cancelling(code, clients)[useful[0]]
    total = code.field.matmul(row[None], stacked.reshape(len(clients), -1))
    recovered: np.ndarray = code.field.divide(total, multiples[useful[0]])
    return recovered.reshape(stacked.shape[1:])
