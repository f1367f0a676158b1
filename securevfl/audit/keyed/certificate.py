"""The proof's conditions on points, masks and keys, at the N, K, T and p of a configuration.

Hypotheses 1 to 5 of docs/coded-split-proof.md. What is checked are the matrices and sets that a run
computes with; each rank is computed by the library's field, by a closed form, and for some
coalitions by galois.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from securevfl.audit.proof.certificate import Check, galois_field, sets_of, vandermonde
from securevfl.audit.proof.linear_algebra import rank
from securevfl.field import LagrangeCode
from securevfl.field.designs import unspanned
from securevfl.field.prss import Prss
from securevfl.protocols.base.shared_models import KeyMasked

_SETS = 400  # coalitions of a size that are looked at, beyond which a random sample is taken
_GALOIS = 12  # of them by galois


def certificate(protocol: KeyMasked, *, seed: int = 0) -> tuple[Check, ...]:
    """Check the conditions on a protocol's code and keys.

    Parameters
    ----------
    protocol : KeyMasked
    seed : int
        Of the sample, where there are too many coalitions.
    """
    code, prss, degree = protocol.code, protocol.prss, protocol.result_degree
    points = _points(code)
    if not points.holds:  # nothing else can be computed
        return (points,)
    return (
        points,
        _shares(code, seed),
        _roots(code),
        *_streams(prss, degree, seed),
        _keys(prss),
    )


def _points(code: LagrangeCode) -> Check:
    """All points distinct modulo p."""
    p = code.field.modulus
    points = [x % p for x in (*code.betas, *code.alphas)]
    twice = sorted({x for x in points if points.count(x) > 1})
    zero = [j for j, alpha in enumerate(code.alphas) if alpha % p == 0]
    detail = f"the {len(points)} points of K, T and N are distinct modulo p = {p}, no alpha is 0"
    if twice or zero:
        detail = f"points {twice} occur twice, alphas of {zero} are 0"
    return Check("points", not twice and not zero, detail)


def _shares(code: LagrangeCode, seed: int) -> Check:
    """M_C is invertible for every C of T holders: shares of them hide all that is shared."""
    chosen, words = sets_of(code.parties, code.privacy, _SETS, seed)
    wrong = [
        C for C in chosen if not 0 != code.field.det(code.mask_matrix[list(C)]) == _minor(code, C)
    ]
    galois = galois_field(code)
    for C in chosen[:_GALOIS]:
        basis: list[Any] = [_lagrange(code, code.alphas[c])[code.segments :] for c in C]
        rows = galois(basis)
        if int(np.linalg.det(rows)) != _minor(code, C):
            wrong.append(C)
    detail = f"the mask columns of {words} are invertible, by the closed form and by elimination"
    return Check("shares", not wrong, detail if not wrong else f"not those of holders {wrong[0]}")


def _minor(code: LagrangeCode, C: Sequence[int]) -> int:
    """det M_C = prod P(alpha_c) Vdm(alpha_C) / (prod P(beta_{K+t}) Vdm(beta_masks))."""
    p, data, masks = code.field.modulus, code.betas[: code.segments], code.betas[code.segments :]
    alphas = [code.alphas[c] for c in C]
    above = vandermonde(alphas) * math.prod(a - b for a in alphas for b in data)
    below = vandermonde(masks) * math.prod(m - b for m in masks for b in data)
    return above * pow(below, -1, p) % p


def _lagrange(code: LagrangeCode, z: int) -> list[int]:
    """l_i(z) of all K + T points, in plain integers modulo p."""
    p, betas = code.field.modulus, code.betas
    values = []
    for i, own in enumerate(betas):
        others = [b for j, b in enumerate(betas) if j != i]
        above, below = math.prod(z - b for b in others), math.prod(own - b for b in others)
        values.append(above * pow(below, -1, p) % p)
    return values


def _roots(code: LagrangeCode) -> Check:
    """P is 0 at the data points, and at no holder's."""
    p, data = code.field.modulus, code.betas[: code.segments]
    own = [int(v) for v in code.vanishing]
    right = [math.prod(alpha - b for b in data) % p for alpha in code.alphas]
    basis = np.concatenate([code.data_matrix, code.mask_matrix], axis=1)
    same = all(
        _lagrange(code, a) == [int(v) for v in row]
        for a, row in zip(code.alphas, basis, strict=True)
    )
    detail = (
        f"P(z) = prod (z - beta_k) over the {len(data)} data points vanishes there and at no "
        "holder's point; masks are multiplied by it, and shares made by the Lagrange matrix"
    )
    holds = own == right and all(own) and same
    return Check("roots", holds, detail if holds else "holders use other values of P, or of l_i")


def _streams(prss: Prss, degree: int, seed: int) -> Iterator[Check]:
    """Streams of the keys that C lacks span all masks, and one coefficient fewer does not."""
    code = prss.code
    K, T, N = code.segments, code.privacy, code.parties
    u = degree * (code.size - 1) - code.size + 1
    needed = degree * (code.size - 1) + 1
    yield Check(
        "number of uploads",
        needed <= N,
        f"N = {N} holders are at least R = {degree}(K+T-1) + 1 = {needed}",
    )
    wrong, looked = [], 0
    values, closed = _stream_values(prss, u)
    for size in range(T + 1):
        for C in sets_of(N, size, _SETS, seed)[0]:
            looked += 1
            own = [values[key] for key, A in enumerate(prss.blocks) if set(C) <= set(A)]
            wanted = needed - K - size  # dim { q : deg q <= degree (K+T-1) - K, q(alpha_C) = 0 }
            matrix = np.concatenate([np.zeros((N, 0), code.field.dtype), *own], axis=1)
            short = np.concatenate([matrix[:, :0], *(one[:, :-1] for one in own)], axis=1)
            full = rank(code.field, matrix) == wanted
            if not full or (size == T and rank(code.field, short) >= wanted):
                wrong.append(C)
    wrong += [C for C in sets_of(N, T, _SETS, seed)[0][:_GALOIS] if not _by_galois(prss, C, u)]
    wrong += unspanned(prss.blocks, N, T, T + u)
    text = (
        f"with m = T + u coefficients of rho, u = {degree}(K+T-1) - K - T + 1 = {u}, the keys that "
        f"a coalition lacks span all masks of degree {degree}(K+T-1) that vanish at its points: "
        f"meetings of blocks lead to all {math.comb(N, T)} coalitions of T = {T} holders; ranks of "
        f"{looked} of up to T, {min(_GALOIS, math.comb(N, T))} of them by galois as well; one "
        "coefficient fewer never does"
    )
    yield Check("streams", not wrong, text if not wrong else f"not for coalition {wrong[0]}")
    text = "every coefficient of a stream is P(alpha) prod (alpha - alpha_a) alpha^e"
    yield Check("stream coefficients", closed, text if closed else f"not {text}")


def _stream_values(prss: Prss, u: int) -> tuple[list[np.ndarray], bool]:
    """Value that each stream adds at each holder's point, (N, streams) of each key, by the code.

    And whether it is P(alpha) prod_{a in A} (alpha - alpha_a) alpha^e, in plain integers.
    """
    code, field = prss.code, prss.code.field
    counts = [code.privacy + u - len(A) for A in prss.blocks]
    values = [np.zeros((code.parties, count), field.dtype) for count in counts]
    data, p, right = code.betas[: code.segments], field.modulus, True
    for j, alpha in enumerate(code.alphas):
        for key, row in zip(prss.held(j), prss.weights(j, u), strict=True):
            values[key][j] = field.multiply(code.vanishing[j], row)
        root = math.prod(alpha - b for b in data)
        for A, count, found in zip(prss.blocks, counts, values, strict=True):
            first = root * math.prod(alpha - code.alphas[a] for a in A) % p
            wanted = [first * pow(alpha, e, p) % p for e in range(count)]
            right &= [int(v) for v in found[j]] == wanted
    return values, right


def _by_galois(prss: Prss, C: Sequence[int], u: int) -> bool:
    """Whether streams of the keys that C lacks have rank u at the first u other holders."""
    code, rows = prss.code, list[Any]()
    for j in [j for j in range(code.parties) if j not in C][:u]:
        own = dict(zip(prss.held(j), prss.weights(j, u), strict=True))
        rows.append([])
        for key, A in enumerate(prss.blocks):
            if set(C) <= set(A):
                none = [0] * prss.streams(key, u)
                rows[-1] += [int(v) for v in own[key]] if key in own else none
    return len(rows) == u and int(np.linalg.matrix_rank(galois_field(code)(rows))) == u


def _keys(prss: Prss) -> Check:
    """k_A goes to exactly the holders outside A."""
    N = prss.code.parties
    drawn = [set(prss.dealt(n)) for n in range(N)]
    held = [set(prss.held(n)) for n in range(N)]
    sent = [[set(prss.sent(m, n)) for n in range(N)] for m in range(N)]
    wrong = []
    for key, A in enumerate(prss.blocks):
        outside = set(range(N)) - set(A)
        dealers = {n for n in range(N) if key in drawn[n]}
        told = {n for row in sent for n in range(N) if key in row[n]}
        keep = {n for n in range(N) if key in held[n]}
        if len(dealers) != 1 or dealers | told != outside or keep != outside:
            wrong.append(A)
    detail = (
        f"each of the {len(prss.blocks)} keys goes to exactly the holders outside its block, and "
        f"nobody in a coalition holds the key of a block that contains it"
    )
    return Check("keys", not wrong, detail if not wrong else f"not the key of {wrong[:1]}")
