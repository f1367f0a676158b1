"""Server and T clients against plain FedVS: all data and models, by linear algebra.

Take beta_1..K and the coalition's points alpha_C as a basis. Then F_n = sum_k X_k a_k + sum_c s_c
b_c and G_n = W a + sum_c g_c b_c with a = sum_k a_k, where the shares s, g are known. In psi the
terms X_k W are the wanted sums and the products s g are known, so what is left is LINEAR in the
secrets: at each of K further points z

    X~ g~ + s~ W = C~   and   X~ W = U~,    X~ = sum_k a_k(z) X_k,

with X~ and W stacked over all honest clients. The right null space of g~ makes it exact linear
algebra. Masked uploads leave C~ uniform, and the same equations have no
solution. The paper does not treat this coalition; see docs/masking.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.audit.proof.linear_algebra import (
    independent_rows,
    left_null,
    solve_left,
    solve_right,
)
from securevfl.errors import ConfigurationError, FieldError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.lagrange import interpolation_matrix


@dataclass(frozen=True)
class Round:
    """The coalition's view of one attempt; all attempts use the same rows in the same order.

    Attributes
    ----------
    uploads : mapping of int to ndarray, (|B|, h)
        Uploads by client, at least R, minus the contribution of the coalition's own data and
        models.
    models : ndarray, (T, D, h)
        Honest clients' model shares at the coalition's points, side by side; D is the sum of their
        columns.
    """

    uploads: Mapping[int, np.ndarray]
    models: np.ndarray


@dataclass(frozen=True)
class Recovered:
    """All clients' data and models, as recovered.

    Attributes
    ----------
    data : ndarray, (K, |B|, D)
        X-bar of the honest clients, side by side.
    models : list of ndarray, (D, h)
        W-bar, round by round.
    """

    data: np.ndarray
    models: list[np.ndarray]


def recover(
    code: LagrangeCode, clients: Sequence[int], data: np.ndarray, rounds: Sequence[Round]
) -> Recovered | None:
    """Recover all honest clients' data and models, or find that the equations do not hold.

    Parameters
    ----------
    code : LagrangeCode
        Code of the shares, with K and T.
    clients : sequence of int
        T clients that collude with the server.
    data : ndarray, (T, |B|, D)
        Honest clients' data shares at the coalition's points, side by side.
    rounds : sequence of Round
        Views of the coalition, one for each attempt.

    Returns
    -------
    Recovered or None
        None where no secrets explain the uploads, as when these are masked.

    Raises
    ------
    ConfigurationError
        When there are too few equations: it needs rows of a segment >= D and rounds h >= 2 D.
    """
    if len(clients) != code.privacy:
        raise ConfigurationError(
            f"recovery: {len(clients)} clients collude, and the attack is written for T = "
            f"{code.privacy}"
        )
    rows, D = data.shape[1:]
    columns = sum(r.models.shape[2] for r in rounds)
    if rows < D or columns < 2 * D:
        raise ConfigurationError(
            f"recovery: {rows} rows and rounds x h = {columns} for D = {D} honest columns; it "
            f"needs {D} rows of each segment and rounds x h of {2 * D}. Watch more rounds"
        )
    # Each of K spare points z gives one mix sum_k a_k(z) X_k of the segments, and the same W twice:
    # K mixes are inverted to the segments, and W must come out alike.
    equations = [_equations(code, clients, data, rounds, j) for j in range(code.segments)]
    parts, model = [], None
    for s, g, C, U in equations:
        solved = _solve(code.field, s, g, C, U)
        if solved is None or (model is not None and not np.array_equal(model, solved[1])):
            return None
        parts.append(solved[0])
        model = solved[1]
    mix = _basis(code, clients, _spare_points(code, clients))[:, : code.segments]
    stacked = np.stack(parts).reshape(code.segments, -1)
    segments = solve_left(code.field, mix, stacked)
    if segments is None or model is None:
        return None
    widths = np.cumsum([r.models.shape[2] for r in rounds])[:-1]
    return Recovered(
        segments.reshape(code.segments, rows, D), list(np.split(model, widths, axis=1))
    )


def _spare_points(code: LagrangeCode, clients: Sequence[int]) -> list[int]:
    """K points outside data and coalition points at which sum_k a_k is not 0.

    FieldError if there are too few, which means a wrong `interpolation_matrix`: sum_k a_k has
    degree K + T - 1 and is 1 at data points, so it has at most K + T - 1 zeros.
    """
    taken = {*code.betas[: code.segments], *(code.alphas[c] for c in clients)}
    found: list[int] = []
    for z in range(len(taken) + code.segments + code.privacy - 1 + code.segments):
        a = _basis(code, clients, [z])[0, : code.segments]
        if z not in taken and int(a.sum(dtype=object)) % code.field.modulus:
            found.append(z)
        if len(found) == code.segments:
            return found
    raise FieldError(
        f"recovery: sum_k a_k has more than {code.segments + code.privacy - 1} zeros, where K = "
        f"{code.segments} and T = {code.privacy}: interpolation_matrix gives no interpolation"
    )


def _basis(code: LagrangeCode, clients: Sequence[int], points: Sequence[int]) -> np.ndarray:
    """Lagrange basis for nodes of K segments and of `clients`, at points, (points, K + T)."""
    nodes = [*code.betas[: code.segments], *(code.alphas[c] for c in clients)]
    return interpolation_matrix(code.field, nodes, points)


def _equations(
    code: LagrangeCode,
    clients: Sequence[int],
    data: np.ndarray,
    rounds: Sequence[Round],
    number: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(s~, g~, C~, U~), field elements, at spare point `number`, rounds side by side."""
    field, K = code.field, code.segments
    z = _spare_points(code, clients)[number]
    at = _basis(code, clients, [z])[0]
    a = field.elements([int(at[:K].sum(dtype=object)) % field.modulus])[0]
    b = at[K:]
    share = field.matmul(b[None], data.reshape(len(clients), -1)).reshape(data.shape[1:])
    s = field.multiply(a, share)
    models, left, wanted = [], [], []
    for one in rounds:
        parties = sorted(one.uploads)
        values = np.stack([one.uploads[n] for n in parties])
        shape = values.shape[1:]
        sums = code.decode(values, parties, degree=2)
        points = [code.alphas[n] for n in parties[: code.recovery_threshold(2)]]
        onto = interpolation_matrix(field, points, [z])
        psi = field.matmul(onto, values[: len(points)].reshape(len(points), -1)).reshape(shape)
        mixed = field.matmul(at[:K][None], sums.reshape(K, -1)).reshape(shape)  # sum_k a_k X_k W
        g = field.matmul(b[None], one.models.reshape(len(clients), -1))
        g = g.reshape(one.models.shape[1:])
        rest = field.subtract(psi, field.multiply(a, mixed))
        left.append(field.subtract(rest, field.matmul(share, g)))
        wanted.append(mixed)
        models.append(g)
    return s, np.concatenate(models, 1), np.concatenate(left, 1), np.concatenate(wanted, 1)


def _solve(
    field: PrimeField, s: np.ndarray, g: np.ndarray, C: np.ndarray, U: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """X and W with X g + s W = C and X W = U; None if there are no such matrices.

    With g M = 0: C M = s (W M) gives W M, U M = X (W M) gives X, and X gives W. The models of
    several rounds, rounded at random, make W M of full rank whatever the data are.
    """
    D = s.shape[1]
    chosen = independent_rows(field, s)
    if len(chosen) < D:
        return None
    inverse = field.inv(s[chosen])
    # Columns of M span the kernel of g, so C M = X g M + s W M = s W M has W M alone in it.
    M = np.ascontiguousarray(left_null(field, np.ascontiguousarray(g.T)).T)
    WM = field.matmul(inverse, field.matmul(C[chosen], M))
    X = solve_right(field, WM, field.matmul(U, M))
    if X is None:
        return None
    W = field.matmul(inverse, field.subtract(C[chosen], field.matmul(X[chosen], g)))
    # A solution must satisfy all equations, not only those that gave it: masked uploads do not.
    explained = field.add(field.matmul(X, g), field.matmul(s, W))
    if not np.array_equal(explained, C) or not np.array_equal(field.matmul(X, W), U):
        return None
    return X, W
