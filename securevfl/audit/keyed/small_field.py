"""The theorem at p = 7, by counting: every secret and every tape of a small instance.

N = 4 holders, K = T = 1, points 1, 2 and 3 to 6; two honest owners with one column, one row and one
unit each, two rounds with a step between them. All 7^4 secrets (x_1, w_1, x_2, w_2) and all tapes
are enumerated. Uploads enter a view linearly with their masks, so a view is uniform on a coset of
the masks that the coalition does not know, and its histogram is that of the coset, times a
constant; for one round the masks are enumerated as well. The matrices are those of the library's
code and keys.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np

from securevfl.audit.proof.linear_algebra import left_null
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.prss import Prss

P, N, DEGREE = 7, 4, 3
_SAMPLES = 60  # secrets whose histograms of one holder are compared
STREAMS = 2  # that each holder does not know: u


@dataclass(frozen=True)
class Counted:
    """Result of an enumeration.

    Attributes
    ----------
    equal : bool
        Whether all secrets with the same ideal output have the same integer histogram of views.
    apart : bool
        Whether secrets with different outputs have different ones.
    secrets, tapes : int
    """

    equal: bool
    apart: bool
    secrets: int
    tapes: int


@functools.cache
def small_prss() -> Prss:
    """The keys of the instance."""
    code = LagrangeCode(PrimeField(P), parties=N, segments=1, privacy=1, degree=DEGREE)
    return Prss(code, DEGREE)


def _step(sums: np.ndarray) -> np.ndarray:
    """Step that the server deals after the first sums: some public function of them."""
    dealt: np.ndarray = (3 * sums * sums + sums + 2) % P
    return dealt


def _grid(letters: int) -> np.ndarray:
    """All tuples of field elements, (letters, 7^letters)."""
    return np.indices((P,) * letters).reshape(letters, -1)


def _masks(holder: int | None) -> np.ndarray:
    """Masks that each stream that a holder does not know adds to the four uploads, (4, streams)."""
    prss = small_prss()
    unknown = [key for key, A in enumerate(prss.blocks) if holder is None or holder in A]
    values = np.zeros((N, len(unknown)), np.int64)
    for j in range(N):
        own = dict(zip(prss.held(j), prss.weights(j, STREAMS), strict=True))
        for place, key in enumerate(unknown):
            if key in own:  # a key of a pair of neighbours makes one stream
                values[j, place] = int(own[key][0]) * int(prss.code.vanishing[j]) % P
    return values


def server_views(holder: int | None, fewer: int = 0) -> Counted:
    """Server, alone or with one holder: equal sums in both rounds, equal histograms.

    Parameters
    ----------
    holder : int or None
    fewer : int
        Streams that are left out; with one fewer the histograms must not be equal for a holder.
    """
    code = small_prss().code
    hidden = _masks(holder)[:, fewer:].astype(code.field.dtype)
    checks = left_null(code.field, hidden).astype(np.int64)  # what no mask moves
    Z1, Z2, V1, V2 = _grid(4)
    l1, l2 = (np.array(m, np.int64)[:, :1] for m in (code.data_matrix, code.mask_matrix))
    deal = np.array([3])  # the mask of the step is the server's own
    found: dict[tuple[int, int], set[bytes]] = {}
    seen: dict[bytes, set[tuple[int, int]]] = {}
    for x1, w1, x2, w2 in itertools.product(range(P), repeat=4):
        first = (x1 * w1 + x2 * w2) % P
        step = int(_step(np.array(first)))
        second = (first + (x1 * x1 + x2 * x2) * step) % P
        F1, F2 = (l1 * x1 + l2 * Z1) % P, (l1 * x2 + l2 * Z2) % P
        W1, W2 = (l1 * w1 + l2 * V1) % P, (l1 * w2 + l2 * V2) % P
        gamma = (l1 * step + l2 * deal) % P
        one = (F1 * W1 + F2 * W2) % P
        two = (one + (F1 * F1 + F2 * F2) * gamma) % P
        view = [row for psi in (one, two) for row in checks @ psi % P]
        if holder is not None:
            view += [share[holder] for share in (F1, F2, W1, W2)]
        histogram = np.sort(_numbers(view)).tobytes()
        found.setdefault((first, second), set()).add(histogram)
        seen.setdefault(histogram, set()).add((first, second))
    equal = all(len(one) == 1 for one in found.values())
    apart = all(len(one) == 1 for one in seen.values())
    return Counted(equal, apart, P**4, P**4)


def holder_views(holder: int) -> Counted:
    """One holder: the same histogram for any data, models and steps, hence labels."""
    code = small_prss().code
    l1, l2 = (int(m[holder, 0]) for m in (code.data_matrix, code.mask_matrix))
    tapes = _grid(5)
    stream = np.random.Generator(np.random.Philox(0))
    found = set()
    for _ in range(_SAMPLES):
        secrets = stream.integers(0, P, 5)  # x_1, x_2, w_1, w_2 and the step
        shares = [(l1 * x + l2 * z) % P for x, z in zip(secrets, tapes, strict=True)]
        found.add(np.sort(_numbers(shares)).tobytes())
    return Counted(len(found) == 1, True, _SAMPLES, P**5)


def one_round(holder: int, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether the server with a holder has equal views of one round, masks enumerated as well."""
    return _one_round(holder, one) == _one_round(holder, other)


def _one_round(holder: int, secrets: tuple[int, ...]) -> bytes:
    code, (x1, w1, x2, w2) = small_prss().code, secrets
    Z1, Z2, V1, V2, s0, s1 = _grid(6)
    l1, l2 = (np.array(m, np.int64)[:, :1] for m in (code.data_matrix, code.mask_matrix))
    F1, F2 = (l1 * x1 + l2 * Z1) % P, (l1 * x2 + l2 * Z2) % P
    W1, W2 = (l1 * w1 + l2 * V1) % P, (l1 * w2 + l2 * V2) % P
    uploads = (F1 * W1 + F2 * W2 + _masks(holder) @ np.stack([s0, s1])) % P
    return np.sort(_numbers([*uploads, *(v[holder] for v in (F1, F2, W1, W2))])).tobytes()


def _numbers(digits: list[np.ndarray]) -> np.ndarray:
    """Views as numbers to the base p."""
    total = np.zeros(digits[0].shape, np.int64)
    for digit in digits:
        total = total * P + digit
    return total


@functools.cache
def all_equal() -> bool:
    """Whether every view is as the theorem says, and differs where it says nothing."""
    servers = [server_views(holder) for holder in (None, *range(N))]
    short = [server_views(1, fewer=1)]
    holders = [holder_views(holder) for holder in range(N)]
    theorem = all(one.equal and one.apart for one in servers) and all(h.equal for h in holders)
    return theorem and not any(one.equal for one in short)
