"""Finding the wrong rows among results of a polynomial computation.

A wrong result is a whole row. The rows are projected on random weights, drawn after the rows
arrived; the projections are a Reed-Solomon word, whose syndromes vanish for honest rows and
otherwise locate the wrong ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Never

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import CorruptResultsError

if TYPE_CHECKING:
    from securevfl.field.prime_field import PrimeField

Array = NDArray[Any]


def honest(field: PrimeField, points: Array, rows: Array, R: int) -> Array:
    """Mask, (n,) bool, of the rows that lie on one polynomial with R coefficients.

    `rows` (n, L) are its values at `points` (n,). CorruptResultsError if more than (n - R) / 2 rows
    are wrong.
    """
    # A wrong row is wrong in all projections but with probability 2/p, so that L columns need no
    # decoder each. The weights must be unknown to the author of a row when it is sent: else an
    # error orthogonal to them passes.
    words, good = project(field, rows)
    kept = np.flatnonzero(good)
    # n values of a polynomial with R coefficients are a Reed-Solomon word of distance n - R + 1,
    # from which floor((n - R) / 2) errors are corrected uniquely.
    most = (kept.size - R) // 2
    wrong = np.zeros(kept.size, np.bool_)
    for word in words if kept.size > R else ():
        syndrome, any_wrong = syndromes(field, points[kept], word[kept], R)
        found = locate(field, points[kept], syndrome) if any_wrong else wrong
        if found is None:
            _refuse(len(rows), R)
        wrong = wrong | found
    if not wrong.any():
        return good
    good[kept[wrong]] = False
    # The decoder may have been led to another word by errors beyond `most`. Fresh weights, drawn
    # after its choice, catch rows that agree with it in the first projections alone.
    if int(wrong.sum()) > most or not _consistent(field, points[good], rows[good], R):
        _refuse(len(rows), R)
    return good


def _consistent(field: PrimeField, points: Array, rows: Array, R: int) -> bool:
    """Whether fresh projections of the rows have zero syndromes."""
    words = project(field, rows)[0]
    return not any(syndromes(field, points, word, R)[1] for word in words)


def _refuse(received: int, R: int) -> Never:
    raise CorruptResultsError(
        f"LagrangeCode.decode_with_errors: more than {max(0, received - R) // 2} of {received} "
        f"results are wrong; with R = {R}, floor((R' - R) / 2) can be corrected. Wait for more "
        f"parties or lower K or T."
    )


def projections(field: PrimeField) -> int:
    """Number of projections for which a wrong row is missed with probability below 2^-58."""
    return math.ceil(58.1 / (math.log2(field.modulus) - 1))


def project(field: PrimeField, rows: Array) -> tuple[Array, Array]:
    """Random projections, uint64 (q, n), of rows (n, L), and the mask of rows below p, (n,).

    The weights are r[c B + j] = u_c v_j with uniform u and v, so that only their roots are drawn; a
    non-zero row has a zero projection with probability at most 2/p (Schwartz-Zippel, degree 2).
    """
    from securevfl.field.kernels import primes, projection
    from securevfl.field.kernels.fifty import check as fifty

    n, length = rows.shape
    q, block = projections(field), projection.BLOCK
    blocks = -(-length // block)
    v, u = field.random((q, min(block, length))), field.random((q, blocks, 1))
    sums, most = np.empty((q, n, blocks), field.dtype), np.zeros(n, np.uint64)
    p = np.uint64(field.modulus)
    if field.dtype == np.uint32:
        projection.project32(rows, v, p, np.uint64((1 << 32) % field.modulus), sums, most)
    elif field.modulus != primes.P50 or not fifty.project(rows, v, sums, most):
        c = primes.montgomery(field.modulus, 64)
        words = field.modulus, c.negative_inverse, c.square, (1 << 96) % field.modulus
        projection.project64(rows, v, tuple(np.uint64(w) for w in words), sums, most)
    good = most < p
    sums[:, ~good] = 0
    return field.matmul(sums, u, trusted=True)[:, :, 0].astype(np.uint64), good


def syndromes(field: PrimeField, points: Array, word: Array, terms: int) -> tuple[Array, bool]:
    """Syndromes, (n - terms,), of a received word (n,), and whether any of them is not 0."""
    from securevfl.field.kernels import scalar

    # S_j = sum_i w_i x_i^j s_i with 1/w_i = prod_{k != i} (x_i - x_k) is the coefficient of degree
    # n - 1 of the polynomial through x^j s. Of a word of degree R - 1 it is 0 for j < n - R, so
    # only the errors e_i of wrong rows are left in it: S_j = sum_wrong w_i e_i x_i^j.
    out = np.empty(word.size - terms, np.uint64)
    room = np.empty(3 * points.size + scalar.CHAINS, np.uint64)
    wrong = scalar.syndromes(points, word, *field._constants, out, room)
    return out, bool(wrong)


def locate(field: PrimeField, points: Array, syndrome: Array) -> Array | None:
    """Mask, (n,) bool, of the wrong rows; None if no set of rows explains the syndromes.

    The locator of t errors has degree t and t roots among the points. A recurrence with fewer
    roots, or longer than half of the syndromes, is that of no set of correctable errors.
    """
    from securevfl.field.kernels import scalar

    # A sum of t geometric series in j obeys the recurrence of C(z) = prod_wrong (1 - x_i z), and t
    # of them need 2 t syndromes to be told. Berlekamp-Massey finds the shortest one.
    found = np.zeros(points.size, np.bool_)
    room = np.empty((3, syndrome.size + 1), np.uint64)
    degree = scalar.locate(points, syndrome, *field._constants, found, room)
    if degree != int(found.sum()) or 2 * degree > syndrome.size:
        return None
    return found
