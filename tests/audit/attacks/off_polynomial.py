"""All rows, learnt by a server that deals shares off the polynomial and one colluding holder.

If the server adds Delta to what it deals to one holder j, that holder's upload is off by F(alpha_j)
F_B(alpha_j)^T Delta, and the uploads of others tell by how much. So the server reads all inner
products F(alpha_j) F(alpha_j)^T of rows of that holder's data shares. With K = T = 1 and the shares
F_c of a holder that helps it, F(z) = a(z) X + b(z) F_c, and those of two more holders give X X^T
and S = X F_c^T + F_c X^T. With F_I some independent rows of F_c, S alone leaves X open by F_c A, A
antisymmetric; what is left of X outside the columns of F_c is no longer open, and X X^T gives the
rest:

    X_0 = S_I^T F_I^-T - F_c Y / 2,   Y = F_I^-1 S_II F_I^-T,   P F_c = 0,   (P X_0) X^T = P X X^T.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from securevfl.audit.proof.linear_algebra import independent_rows, left_null, solve_left
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.lagrange import interpolation_matrix


def rows_from_products(
    code: LagrangeCode,
    colluder: int,
    own: np.ndarray,
    products: Mapping[int, np.ndarray],
    known: Mapping[int, np.ndarray],
) -> np.ndarray | None:
    """All owners' rows X, (M, d) elements, side by side; None if they are not determined.

    The columns must be independent, apart from those that are known.

    Parameters
    ----------
    code : LagrangeCode
        With K = T = 1.
    colluder : int
    own : ndarray, (M, d)
        F(alpha_c) of all owners, side by side; M at least 2 d.
    products : mapping of int to ndarray, (M, M)
        F(alpha_j) F(alpha_j)^T of two other holders.
    known : mapping of int to ndarray, (M,)
        Columns of X that the coalition knows by their places, such as columns of ones.

    Raises
    ------
    ConfigurationError
    """
    if (code.segments, code.privacy, len(products)) != (1, 1, 2):
        raise ConfigurationError(
            f"shares off the polynomial: K = {code.segments}, T = {code.privacy} and products of "
            f"{len(products)} holders; this is written for K = T = 1 and two holders"
        )
    field = code.field
    gram, mixed = _separated(code, colluder, own, products)
    places, rest = sorted(known), [c for c in range(own.shape[1]) if c not in known]
    found = np.zeros_like(own)
    if known:
        found[:, places] = np.stack([known[c] for c in places], axis=1)
        X, F = found[:, places], np.ascontiguousarray(own[:, places])
        cross = field.matmul(X, np.ascontiguousarray(F.T))
        gram = field.subtract(gram, field.matmul(X, np.ascontiguousarray(X.T)))
        mixed = field.subtract(mixed, field.add(cross, cross.T))
    solved = _solved(field, np.ascontiguousarray(own[:, rest]), gram, mixed)
    if solved is None:
        return None
    found[:, rest] = solved
    return found


def _solved(
    field: PrimeField, own: np.ndarray, gram: np.ndarray, mixed: np.ndarray
) -> np.ndarray | None:
    """Rows X from the colluder's share F_c and the products X X^T and S; None if undetermined."""
    chosen = independent_rows(field, own)
    if len(chosen) < own.shape[1]:
        return None
    inverse = field.inv(np.ascontiguousarray(own[chosen]))
    transposed = np.ascontiguousarray(inverse.T)
    through = field.matmul(np.ascontiguousarray(mixed[:, chosen]), transposed)
    half = field.elements([pow(2, -1, field.modulus)])[0]
    symmetric = field.multiply(half, field.matmul(inverse, through[chosen]))
    open_part = field.subtract(through, field.matmul(own, symmetric))
    outside = left_null(field, own)
    left = field.matmul(outside, open_part)
    found = solve_left(field, left, field.matmul(outside, gram))
    return None if found is None else np.ascontiguousarray(found.T)


def _separated(
    code: LagrangeCode, colluder: int, own: np.ndarray, products: Mapping[int, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The matrices X X^T and X F_c^T + F_c X^T, from the products."""
    field, nodes = code.field, [code.betas[0], code.alphas[colluder]]
    both = sorted(products)
    at = interpolation_matrix(field, nodes, [code.alphas[j] for j in both])
    a, b = at[:, 0], at[:, 1]
    squares = np.stack([field.multiply(a, a), field.multiply(a, b)], axis=1)
    known = field.matmul(own, np.ascontiguousarray(own.T))
    rest = [
        field.subtract(products[j], field.multiply(field.multiply(y, y), known)).reshape(-1)
        for j, y in zip(both, b, strict=True)
    ]
    solved = field.solve(squares, np.stack(rest)).reshape(2, *known.shape)
    return solved[0], solved[1]
