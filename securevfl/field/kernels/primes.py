"""Facts about integers that a prime field rests on: primality and Montgomery constants."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

P31 = 2**31 - 1
P50 = 2**50 - 2**14 + 1
P61 = 2**61 - 1

# The usual moduli, smallest first: those with kernels of their own, which tests and benchmarks try.
# P50 has roots of unity of orders up to 2^14, and its products fit the units for doubles.
USUAL = (P31, P50, P61)

# These bases decide primality for every integer below 3.3e24, so for all below 2^62
# (Sorenson and Webster, "Strong pseudoprimes to twelve prime bases", 2015).
_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@lru_cache(maxsize=64)
def is_prime(n: int) -> bool:
    """Whether `n` is prime, by Miller-Rabin with bases that leave no doubt below 2^62."""
    if n < 2:
        return False
    if any(n % base == 0 for base in _BASES):
        return n in _BASES
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(n, base, odd, twos) for base in _BASES)


def _passes(n: int, base: int, odd: int, twos: int) -> bool:
    x = pow(base, odd, n)
    if x in (1, n - 1):
        return True
    for _ in range(twos - 1):
        x = x * x % n
        if x == n - 1:
            return True
    return False


class Montgomery(NamedTuple):
    """Constants for Montgomery reduction by `2^word`: p, -1/p mod 2^word, 2^(2 word) mod p."""

    p: int
    negative_inverse: int
    square: int


@lru_cache(maxsize=64)
def montgomery(p: int, word: int) -> Montgomery:
    """Montgomery constants for an odd `p` below 2^word."""
    r = 1 << word
    return Montgomery(p, (-pow(p, -1, r)) % r, r * r % p)
