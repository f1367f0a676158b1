"""Clients that pool their shares: exact recovery of whatever their number allows.

Up to T clients hold uniform shares. From T + 1 on the masks cancel in c - T combinations; K + T
clients know every segment of every client, and all models (FedVS, the limits of Theorem 5.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from securevfl.audit.proof.certificate import cancelling, decoders
from securevfl.audit.proof.linear_algebra import independent_rows, solve_left
from securevfl.field import LagrangeCode


@dataclass(frozen=True)
class Combinations:
    """Known combinations of one client's segments.

    Attributes
    ----------
    matrix : ndarray, (r, K)
        Independent rows D.
    values : ndarray, (r, rows, columns)
        D X, exactly.
    """

    matrix: np.ndarray
    values: np.ndarray


def known_combinations(code: LagrangeCode, shares: Mapping[int, np.ndarray]) -> Combinations:
    """All that clients learn of one client's data.

    Parameters
    ----------
    code : LagrangeCode
    shares : mapping
        By colluding client, the share of that client's data that it holds, (rows, columns).
    """
    clients = sorted(shares)
    stacked = np.stack([shares[c] for c in clients])
    null = cancelling(code, clients)
    matrix, _ = decoders(code, clients)
    kept = independent_rows(code.field, matrix)
    flat = code.field.matmul(null[kept], stacked.reshape(len(clients), -1))
    return Combinations(matrix[kept], flat.reshape(len(kept), *stacked.shape[1:]))


def recover_data(code: LagrangeCode, shares: Mapping[int, np.ndarray]) -> np.ndarray | None:
    """All K segments, (K, rows, columns), or None where the clients are too few.

    Fewer than K + T clients know fewer than K combinations, and every other value is possible.
    """
    known = known_combinations(code, shares)
    if len(known.matrix) < code.segments:
        return None
    flat = known.values.reshape(len(known.matrix), -1)
    solved = solve_left(code.field, known.matrix, flat)
    return None if solved is None else solved.reshape(code.segments, *known.values.shape[1:])


def recover_model(code: LagrangeCode, shares: Mapping[int, np.ndarray]) -> np.ndarray | None:
    """W of one client, or None where nothing of it is known.

    Parameters
    ----------
    shares : mapping
        By colluding client, the share of that client's model that it holds, (columns, h).
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
