"""Encoding by number-theoretic transforms, if the points are cosets of roots of unity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import FieldError
from securevfl.field.kernels import cpu
from securevfl.field.kernels.left_operands import PiecewiseLeft
from securevfl.field.kernels.scratch import scratch

if TYPE_CHECKING:
    from securevfl.field.prime_field import PrimeField

Array = NDArray[Any]

# The smallest N + K + T from which the transform beat the matrix, by the kernels that the matrix
# would use (docs/performance.md).
CROSSOVER = {"amx": 320, "ifma": 96, "avx512": 96, "avx2": 24, "portable": 24}

# Bytes of a panel of n rows: long rows save page walks, and panels stay in the L2 cache.
PANEL_BYTES = 1 << 20
MOST_PIECES = 32


@dataclass(frozen=True)
class Cosets:
    """Points `start` root_m^i, i < m, to interpolate, and `target` root_n^j, j < n, to evaluate."""

    p: int
    m: int
    n: int
    start: int
    target: int
    root_m: int
    root_n: int


def coset_points(field: PrimeField, N: int, size: int) -> tuple[list[int], list[int]]:
    """Return (alphas, betas) with which encoding may use transforms.

    Parameters
    ----------
    field : PrimeField
        A field whose p - 1 is divisible by 2n, n the least power of two that is at least
        max(N, K + T): 2013265921 = 15 * 2^27 + 1 serves up to n = 2^26.
    N : int
        The number of parties.
    size : int
        K + T, a power of two. Rounding it up would raise the recovery threshold, so it never is.

    Raises
    ------
    FieldError
        If K + T is no power of two, or the field lacks these roots of unity.
    """
    if size < 1 or size & (size - 1):
        raise FieldError(
            f"coset_points: K + T = {size} must be a power of two. Change K or T, or use the "
            f"default points."
        )
    n = 1 << (max(N, size) - 1).bit_length()
    p = field.modulus
    if (p - 1) % (2 * n):
        raise FieldError(
            f"coset_points: {p} - 1 is not divisible by {2 * n}, so there are no cosets of {n} "
            f"roots of unity. 2013265921 serves up to 2^26 points."
        )
    root = _root_of_unity(p, 2 * n)
    # The betas lie in the subgroup of order n, the alphas on its coset by an element of order 2n.
    root_n = root * root % p
    root_m = pow(root_n, n // size, p)
    return (
        [root * pow(root_n, j, p) % p for j in range(N)],
        [pow(root_m, i, p) for i in range(size)],
    )


def _root_of_unity(p: int, order: int) -> int:
    """Return an element of `order`, a power of two; FieldError unless it divides p - 1."""
    for base in range(2, p):
        root = pow(base, (p - 1) // order, p)
        if pow(root, order // 2, p) == p - 1:
            return root
    raise FieldError(f"coset_points: no root of unity of order {order} modulo {p}.")


def recognise(p: int, alphas: Sequence[int], betas: Sequence[int]) -> Cosets | None:
    """Cosets that the points form, in order; None if they form none."""
    m, N = len(betas), len(alphas)
    if m < 2 or m & (m - 1) or N < 2 or p >= 1 << 31:
        return None
    # Points of a coset in order are a geometric series: its ratio must have order m (its power m/2
    # is -1), and every point must be the one before times the ratio.
    n = 1 << (max(N, m) - 1).bit_length()
    root_m = betas[1] * pow(betas[0], -1, p) % p if betas[0] else 0
    root_n = alphas[1] * pow(alphas[0], -1, p) % p
    if pow(root_m, m // 2, p) != p - 1 or pow(root_n, n // 2, p) != p - 1:
        return None
    for points, root in ((betas, root_m), (alphas, root_n)):
        if any(b != a * root % p for a, b in pairwise(points)):
            return None
    return Cosets(p, m, n, betas[0], alphas[0], root_m, root_n)


def left(p: int, alphas: Sequence[int], betas: Sequence[int]) -> NttLeft | None:
    """Encoder by transforms if the points permit it and it is faster; else None."""
    if len(alphas) + len(betas) < CROSSOVER[cpu.tier()]:
        return None
    cosets = recognise(p, alphas, betas)
    return NttLeft(cosets, len(alphas)) if cosets else None


class NttLeft(PiecewiseLeft):
    """Encoding matrix N x (K + T) as two transforms; see dispatch.PreparedMatrix.

    The coefficients at g w_m^i are c_j g^j = 1/m sum_i v_i w_m^-ij, and the values at h w_n^j are
    sum_j c_j h^j w_n^ij, so each coefficient is multiplied by (h/g)^j / m in between.
    """

    def __init__(self, cosets: Cosets, N: int) -> None:
        from securevfl.field.kernels import ntt

        p, m, n = cosets.p, cosets.m, cosets.n
        self.cosets = cosets
        inverse = pow(cosets.root_m, -1, p)
        ratio = cosets.target * pow(cosets.start, -1, p) % p
        bits = m.bit_length() - 1
        # The inverse transform leaves coefficient j at the place with j's bits reversed, and the
        # forward transform takes it there: neither needs a permutation.
        reversed_order = [int(f"{j:0{bits}b}"[::-1], 2) for j in range(m)]
        scale = pow(m, -1, p)
        self.tables = tuple(
            ntt.companions(values, p)
            for values in (
                [pow(inverse, i, p) for i in range(m // 2)],
                [pow(ratio, j, p) * scale % p for j in reversed_order],
                [pow(cosets.root_n, i, p) for i in range(max(1, n // 2))],
            )
        )
        super().__init__(p, np.empty((N, m), np.uint32), m)

    def _part(self, a: Array) -> None:
        """Return nothing: tables take the matrix's place."""

    def _tiles(self, part: Any, rows: Array, out: Array, seen: Array) -> None:
        from securevfl.field.kernels import ntt

        ours = np.zeros(128, np.uint8)
        width = 64 * max(2, min(MOST_PIECES, PANEL_BYTES // (64 * self.cosets.n)))
        work = (
            scratch("low", (self.cosets.m, width), np.uint8),
            scratch("high", (self.cosets.n, width), np.uint8),
            ours,
        )
        ntt.encode(rows, out.shape[1] // 16, out, np.uint32(self.p), self.tables, work)
        np.maximum(seen.view(np.uint32), ours[:64].view(np.uint32), out=seen.view(np.uint32))
