"""Relations that uploads of a group show of a sum, where T parties tell the server their keys."""

from __future__ import annotations

import numpy as np

from securevfl.field import LagrangeCode
from securevfl.field.prss import Prss, mask_streams


def relations(code: LagrangeCode, degree: int, group: tuple[int, ...]) -> int:
    """Uploads of the group less the rank of their masks in the streams that nobody else knows.

    Parameters
    ----------
    code : LagrangeCode
    degree : int
        In the shares, of an upload.
    group : tuple of int
        Honest parties; the first T parties help the server.
    """
    field, prss, u = code.field, Prss(code, degree), mask_streams(code, degree)
    known = {n for j in range(code.privacy) for n in prss.held(j)}
    streams = [n for n in range(len(prss.blocks)) if n not in known]
    none = [np.zeros(prss.streams(n, u), field.dtype) for n in streams]
    rows = []
    for j in group:
        own = dict(zip(prss.held(j), prss.weights(j, u), strict=True))
        parts = [own.get(n, zero) for n, zero in zip(streams, none, strict=True)]
        rows.append(np.concatenate(parts))
    matrix, rank = np.stack(rows).astype(object), 0
    for column in range(matrix.shape[1]):
        pivot = next((i for i in range(rank, len(matrix)) if matrix[i, column]), None)
        if pivot is None:
            continue
        matrix[[rank, pivot]] = matrix[[pivot, rank]]
        scale = pow(int(matrix[rank, column]), -1, field.modulus)
        for i in range(rank + 1, len(matrix)):
            factor = int(matrix[i, column]) * scale
            matrix[i] = (matrix[i] - factor * matrix[rank]) % field.modulus
        rank += 1
    return len(group) - rank
