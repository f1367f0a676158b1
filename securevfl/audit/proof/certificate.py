"""The certificate behind PROVED at real parameters: linear algebra over the code's own points.

The proof of docs/masking.md asks for conditions on matrices. Here they are checked on the matrices
that a run uses, by the closed form of their determinants and, independently, by galois.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.audit.proof.linear_algebra import left_null, rank
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode
from securevfl.field.designs import unspanned
from securevfl.field.prss import Prss, mask_streams

_SUBSETS = 300  # of clients, checked by linear algebra; the closed form covers all of them


@dataclass(frozen=True)
class Check:
    """One condition of a proof.

    Attributes
    ----------
    name : str
    holds : bool
    detail : str
        Numbers, or what is wrong.
    """

    name: str
    holds: bool
    detail: str


def certificate(
    code: LagrangeCode, prss: Prss | None = None, *, subsets: int = _SUBSETS, seed: int = 0
) -> tuple[Check, ...]:
    """Check the conditions of the proof on a code, and on the masks of its uploads.

    Parameters
    ----------
    code : LagrangeCode
    prss : Prss, optional
        Keys of the masks of uploads; None for plain evaluation, whose uploads are not covered.
    subsets : int
        Coalitions that are checked by linear algebra; all of them where there are no more.
    seed : int
        Of the sample, where there are more.
    """
    chosen, words = sets_of(code.parties, code.privacy, subsets, seed)
    checks = [
        _points(code),
        _minors(code, chosen, words),
        _rows(code, seed, subsets),
    ]
    if prss is not None:
        checks += [_holders(code, prss), _streams(code, prss), _quotient(code, prss, chosen, words)]
    return tuple(checks)


def mask_minor(code: LagrangeCode, clients: Sequence[int]) -> int:
    """Return det M_C in closed form.

    prod_{c in C} P(alpha_c) V(alpha_C) / (prod_t P(beta_{K+t}) V(beta_mask)), where
    P(z) = prod_{k<=K} (z - beta_k) and V is the Vandermonde product prod_{i<j} (x_j - x_i). None
    of its factors is 0 where the points are distinct: one formula for every T-subset.

    Examples
    --------
    >>> from securevfl.field import PrimeField
    >>> code = LagrangeCode(PrimeField(2**31 - 1), parties=9, segments=2, privacy=2)
    >>> mask_minor(code, (3, 7)) == code.field.det(code.mask_matrix[[3, 7]])
    True
    """
    p, K = code.field.modulus, code.segments
    data, masks = code.betas[:K], code.betas[K:]
    alphas = [code.alphas[c] for c in clients]
    above = vandermonde(alphas) * math.prod(a - b for a in alphas for b in data)
    below = vandermonde(masks) * math.prod(m - b for m in masks for b in data)
    return above * pow(below, -1, p) % p


def vandermonde(points: Sequence[int]) -> int:
    """Product of x_j - x_i over i < j: 0 only where two points are equal."""
    return math.prod(b - a for a, b in itertools.combinations(points, 2))


def _points(code: LagrangeCode) -> Check:
    """All points distinct modulo p: then no factor of any minor vanishes."""
    p = code.field.modulus
    points = [x % p for x in (*code.betas, *code.alphas)]
    distinct = len(set(points)) == len(points)
    twice = sorted({x for x in points if points.count(x) > 1})
    detail = f"the {len(points)} points are distinct modulo {p}, so det M_C != 0 for every one of "
    detail += f"the {math.comb(code.parties, code.privacy)} sets of T = {code.privacy} clients"
    return Check("points", distinct, detail if distinct else f"points {twice} occur twice")


def _minors(code: LagrangeCode, chosen: Sequence[tuple[int, ...]], words: str) -> Check:
    """Closed form, galois, and the matrix that the code encodes with give one determinant."""
    basis, wrong = _galois_basis(code), []
    for clients in chosen:
        by_galois = int(np.linalg.det(basis[list(clients), code.segments :]))
        own = code.field.det(code.mask_matrix[list(clients)])
        if not 0 != by_galois == own == mask_minor(code, clients):
            wrong.append(clients)
    detail = f"mask columns of {words} invertible, by the closed form and by galois"
    return Check("mask minors", not wrong, detail if not wrong else f"not for clients {wrong[0]}")


def _rows(code: LagrangeCode, seed: int, subsets: int) -> Check:
    """Any K + T clients' evaluation rows are independent, of the shares as of psi."""
    chosen, words = sets_of(code.parties, min(code.size, code.parties), subsets, seed + 1)
    basis = _galois_basis(code)
    own = galois_field(code)(_as_ints(np.concatenate([code.data_matrix, code.mask_matrix], 1)))
    wrong = [c for c in chosen if np.linalg.matrix_rank(basis[list(c)]) < len(c)]
    detail = f"the rows of {words} are independent (galois)"
    if not np.all(basis == own):
        return Check("evaluation rows", False, "the code encodes with other rows than galois'")
    return Check("evaluation rows", not wrong, detail if not wrong else f"not of {wrong[0]}")


def _holders(code: LagrangeCode, prss: Prss) -> Check:
    """Each block has a key, which exactly the clients outside it draw or are sent.

    And meetings of blocks lead to all sets of T clients, so that the keys that they lack span all
    that vanishes at them, at any points (`securevfl.field.designs`).
    """
    N, T = code.parties, code.privacy
    wrong = []
    for key, A in enumerate(prss.blocks):
        dealer = prss.dealer(key)
        got = {n for n in range(N) if key in prss.sent(dealer, n)} | {dealer}
        held = {n for n in range(N) if key in prss.held(n)}
        if not got == held == set(range(N)) - set(A) or key not in prss.dealt(dealer):
            wrong.append(A)
    left = unspanned(prss.blocks, N, T, code.size + T - 1)
    holds = not wrong and prss.code is code and not left
    detail = f"each of the {len(prss.blocks)} blocks A has a key, which exactly the clients "
    detail += f"outside A hold, and meetings of blocks lead to all {math.comb(N, T)} sets of T = "
    detail += f"{T} clients"
    problem = f"not that of {wrong[:1]}" if wrong else f"no meetings lead to {left[:1] or 'a set'}"
    return Check("mask keys", holds, detail if holds else problem)


def _streams(code: LagrangeCode, prss: Prss) -> Check:
    """A client's value of rho is that of prod_{a in A} (z - alpha_a) z^e, e < m - |A|."""
    m, p = code.size + code.privacy - 1, code.field.modulus
    wrong = []
    for n, alpha in enumerate(code.alphas):
        right = [
            [math.prod(alpha - code.alphas[a] for a in A) * pow(alpha, e, p) % p
             for e in range(m - len(A))]
            for A in prss.blocks if n not in A
        ]  # fmt: skip
        found = prss.weights(n, mask_streams(code, degree=2))
        if [_as_ints(one).tolist() for one in found] != right:
            wrong.append(n)
    detail = f"each key of a block A makes m - |A| coefficients of rho, m = K+2T-1 = {m}, zero at "
    detail += "the clients of A"
    return Check("mask streams", not wrong, detail if not wrong else f"not at client {wrong[0]}")


def _quotient(
    code: LagrangeCode, prss: Prss, chosen: Sequence[tuple[int, ...]], words: str
) -> Check:
    """Check that server and C can tell K + T values of psi without its masks, as they may.

    C lacks the keys of the blocks that contain it. Of the functionals of psi + P rho those that
    none of their streams moves have rank K + T on polynomials of degree 2(K+T-1); values at
    beta_1..K and alpha_C are K + T independent such ones.
    """
    GF = galois_field(code)
    N, degree, p = code.parties, 2 * (code.size - 1), code.field.modulus
    powers = [[pow(a, i, p) for i in range(degree + 1)] for a in code.alphas]
    monomials = GF(np.array(powers, object))
    u, wrong = mask_streams(code, degree=2), []
    weights = [dict(zip(prss.held(n), prss.weights(n, u), strict=True)) for n in range(N)]
    for clients in chosen:
        lacks = [key for key, A in enumerate(prss.blocks) if set(clients) <= set(A)]
        none = [[0] * len(weights[prss.dealer(key)][key]) for key in lacks]
        moved = [
            [v for key, no in zip(lacks, none, strict=True) for v in weights[n].get(key, no)]
            for n in range(N)
        ]
        hidden = GF(_as_ints(code.vanishing))[:, None] * GF(_as_ints(np.array(moved, object)))
        free = hidden.left_null_space()
        if np.linalg.matrix_rank(free @ monomials) != code.size:
            wrong.append(clients)
    detail = f"server and {words}: what no mask moves are the K wanted values and T that C's own "
    detail += "shares determine (galois)"
    return Check("masks cover the rest", not wrong, detail if not wrong else f"not for {wrong[0]}")


def sets_of(parties: int, size: int, limit: int, seed: int) -> tuple[list[tuple[int, ...]], str]:
    """All sets of clients of a size, or a random sample of them, and words for which they are."""
    total = math.comb(parties, size)
    if total <= limit:
        return list(itertools.combinations(range(parties), size)), f"all {total} sets of {size}"
    stream = np.random.Generator(np.random.Philox(seed))
    sample: set[tuple[int, ...]] = set()
    while len(sample) < limit:
        drawn = stream.choice(parties, size, replace=False)
        sample.add(tuple(sorted(int(n) for n in drawn)))
    return sorted(sample), f"{limit} random ones of the {total} sets of {size} (seed {seed})"


def galois_field(code: LagrangeCode) -> Any:
    """The same field by galois, whose arithmetic has nothing in common with this library's."""
    import galois

    return galois.GF(code.field.modulus)


def _galois_basis(code: LagrangeCode) -> Any:
    """Return l_j(alpha_n) for all K + T points, (N, K + T), from galois' own arithmetic."""
    GF = galois_field(code)
    betas, alphas = (GF(_as_ints(np.array(x, object))) for x in (code.betas, code.alphas))
    columns = []
    for j in range(code.size):
        others = [i for i in range(code.size) if i != j]
        values = GF.Ones(len(alphas))
        for i in others:
            values = values * (alphas - betas[i]) / (betas[j] - betas[i])
        columns.append(_as_ints(values))
    return GF(np.stack(columns, axis=1))


def _as_ints(array: np.ndarray) -> np.ndarray:
    ints = np.empty(array.size, object)
    ints[:] = [int(x) for x in np.asarray(array).reshape(-1)]
    return ints.reshape(array.shape)


@dataclass(frozen=True)
class Power:
    """Knowledge of one other client that clients get by pooling their shares.

    Attributes
    ----------
    clients : tuple of int
    combinations : int
        Independent linear combinations of the K segments that become known.
    model : bool
        Whether they learn W.
    """

    clients: tuple[int, ...]
    combinations: int
    model: bool

    def bits(self, rows: int, features: int, modulus: int) -> float:
        """I(shares; X) = combinations rows d log2 p for uniform data."""
        return self.combinations * rows * features * math.log2(modulus)


def coalition_power(code: LagrangeCode, clients: Sequence[int]) -> Power:
    """Knowledge that c clients get from their shares (the limits of Theorem 5.2).

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

    Returns
    -------
    data : ndarray, (c - rank M_C, K)
        What those combinations are of the segments.
    model : ndarray, (c - rank M_C,)
        What multiple of W they are, of model shares.
    """
    null = cancelling(code, clients)
    data = code.field.matmul(null, code.data_matrix[list(clients)])
    return data, code.field.matmul(data, np.ones(code.segments, code.field.dtype))


def cancelling(code: LagrangeCode, clients: Sequence[int]) -> np.ndarray:
    """Basis of all combinations of these clients' shares that hold no mask, (c - T, c)."""
    strangers = [n for n in clients if not 0 <= n < code.parties]
    if strangers or len(set(clients)) != len(clients):
        raise ConfigurationError(
            f"coalition {tuple(clients)}: clients must be different and from 0 to "
            f"{code.parties - 1}"
        )
    return left_null(code.field, code.mask_matrix[list(clients)])


def exceptional_pairs(code: LagrangeCode) -> Iterator[tuple[int, ...]]:
    """T + 1 clients that learn nothing of W from their shares, because 1/P has no difference."""
    for clients in itertools.combinations(range(code.parties), code.privacy + 1):
        if not decoders(code, clients)[1].any():
            yield clients
