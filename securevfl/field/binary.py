"""Linear algebra over F_2: banded systems, sums of rows, transposition, and a code.

Rows of bits are arrays of uint64, bit k of a row in word k // 64.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from securevfl.field.kernels.binary import rows as kernels

BAND = kernels.BAND
CODE_BITS, CODE_LENGTH, CODE_DISTANCE = 76, 512, 172
_DEGREE, _MODULUS = 9, 0b1000010001  # F_512 = F_2[x] / (x^9 + x^4 + 1), in which x is primitive
_ROOTS = 170  # consecutive powers of x that are zeros of the code


def solve_bands(
    starts: np.ndarray, bands: np.ndarray, values: np.ndarray, unknowns: int
) -> np.ndarray | None:
    """Solution z over GF(2) of sum_j bands[i, j] z[starts[i] + j] = values[i]; None without one.

    z is uint64 (unknowns, 2), its free unknowns 0. Gauss elimination of Dietzfelbinger and Walzer
    ("Efficient Gauss elimination for near-quadratic matrices with one short random block per row",
    ESA 2019).

    Parameters
    ----------
    starts : int64 (n,), in [0, unknowns - 128]
        First unknown of each equation.
    bands, values : uint64 (n, 2)
        128 coefficients of each equation, as bits of two words; right-hand sides of 128 bits.
    unknowns : int
        Number of unknowns, each of 128 bits.
    """
    order = np.argsort(starts, kind="stable")
    found, pivots = np.zeros((unknowns, 2), np.uint64), np.zeros((unknowns, 2), np.uint64)
    solved = kernels.solve(starts[order], bands[order], values[order], pivots, found)
    return found if solved else None


def combine_rows(starts: np.ndarray, bands: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums sum_j bands[i, j] rows[starts[i] + j], uint64 (n, w), of rows (m, w)."""
    out = np.empty((len(starts), rows.shape[1]), np.uint64)
    kernels.combine(starts, bands, rows, out)
    return out


def add_selected(masks: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums (64, w) over F_2 of rows, uint64 (n, w): sum l has row i if masks[i] has bit l."""
    out = np.zeros((64, rows.shape[1]), np.uint64)
    kernels.add_selected(masks, rows, out)
    return out


def transpose_bits(rows: np.ndarray) -> np.ndarray:
    """The transpose, uint64 (64 w, r), of a matrix of bits, (64 r, w)."""
    out = np.empty((64 * rows.shape[1], len(rows) // 64), np.uint64)
    kernels.transpose(rows, out, np.empty(64, np.uint64))
    return out


def encode(messages: np.ndarray) -> np.ndarray:
    """Words, uint64 (n, 8), of the extended BCH code [512, 76, 172] for messages, uint64 (n, 2).

    A message is a polynomial m of degree below 76 and its word m g, with a bit of parity at place
    511. g has the zeros x^1 to x^170 in F_512, so words of the code differ in 171 places at least
    (Bose, Ray-Chaudhuri 1960; Hocquenghem 1959), and with the parity in 172. Bits of a message
    beyond the 76th count for nothing.
    """
    out = np.empty((len(messages), CODE_LENGTH // 64), np.uint64)
    octets = np.ascontiguousarray(messages).view(np.uint8)
    kernels.encode(octets[:, : (CODE_BITS + 7) // 8], _table(), out)
    return out


@lru_cache(maxsize=1)
def _table() -> np.ndarray:
    """Codeword for each value of each message byte, uint64 (10, 256, 8)."""
    g = generator()
    words = np.zeros((-(-CODE_BITS // 8) * 8, CODE_LENGTH // 64), np.uint64)
    for k in range(CODE_BITS):
        word = g << k
        word |= (word.bit_count() & 1) << CODE_LENGTH - 1
        words[k] = np.frombuffer(word.to_bytes(CODE_LENGTH // 8, "little"), np.uint64)
    table = np.zeros((len(words) // 8, 256, words.shape[1]), np.uint64)
    for bit in range(8):
        table[:, 1 << bit : 2 << bit] = table[:, : 1 << bit] ^ words[bit::8, None]
    return table


def generator() -> int:
    """Generator polynomial g(z), bit k for z^k, with zeros x to x^170, x primitive in F_512."""
    power = [1]
    for _ in range((1 << _DEGREE) - 2):
        twice = power[-1] << 1
        power.append(twice ^ _MODULUS if twice >> _DEGREE else twice)
    log = {value: k for k, value in enumerate(power)}
    order, g, seen = len(power), 1, set[int]()
    for root in range(1, _ROOTS + 1):
        if root in seen:
            continue
        factor = [1]  # product of z - x^k over the conjugates x^k of x^root, lowest degree first
        while root not in seen:
            seen.add(root)
            scaled = [power[(log[c] + root) % order] if c else 0 for c in factor]
            factor = [a ^ b for a, b in zip([0, *factor], [*scaled, 0], strict=True)]
            root = 2 * root % order
        product = 0
        for k, c in enumerate(factor):  # c is 0 or 1: conjugates are zeros of one polynomial
            product ^= (g << k) * c
        g = product
    return g
