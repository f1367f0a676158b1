"""Blocks of parties, each with a mask key, such that no T parties know a mask.

Masks come from a polynomial rho of degree below m = T + u. For a set S of parties let V_S be the
polynomials of degree below m that vanish at the points of S. The key of a block A makes a uniform
element of V_A, and exactly the parties outside A hold it. So T parties C lack the keys of the
blocks that contain them, and what these make is uniform on all of V_C if and only if

    the sum of V_A over the blocks A with C in A is V_C.                                    (span)

Two sets with at most m parties in their union may be met: V_A + V_B = V_{A and B}. For V_S has
dimension m - |S|, V_A and V_B meet in V_{A or B}, and (m - |A|) + (m - |B|) - (m - |A or B|) is
m - |A and B|. A design in which such meetings lead from blocks to every C fulfils (span), whatever
the points and the field are. Three are used:

- T = 1: windows of u neighbours on a circle of all N > u parties, N keys of m - u = 1 stream. The u
  windows around c meet in pairs: neighbouring ones of a length w have w + 1 parties together and
  meet in a window of length w - 1, and the last one is c alone. There can be no fewer streams than
  N: a block of a parties makes m - a dimensions for each of its members, a party needs u of them,
  so that sum_A a (m - a) >= N u, and no block has more than m - 1 = u members.
- T >= 2 and u >= 2: blocks of about T + u/2 parties, chosen greedily, so that each C lies in two
  that meet in exactly it and have at most m parties together.
- all sets of T parties, u streams each, where these are no more.

F. Benhamouda, E. Boyle, N. Gilboa, S. Halevi, Y. Ishai, A. Nof, "Generalized pseudorandom secret
sharing and efficient straggler-resilient secure computation", TCC 2021, have keys of such covering
designs. A design is a function of N, T and u alone: all parties find the same blocks.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence

from securevfl.errors import ConfigurationError

Blocks = tuple[tuple[int, ...], ...]

MOST_STREAMS = 4096  # that a party computes for a label
MOST_KEYS = 4096
_MOST_SETS = 40_000  # of T parties, that are looked at one by one


@functools.lru_cache(maxsize=64)
def blocks_of(parties: int, privacy: int, unknown: int) -> Blocks:
    """Blocks of parties for mask keys, in order.

    Parameters
    ----------
    parties : int
        Number N of parties.
    privacy : int
        Number T of colluding parties, at least 1.
    unknown : int
        u >= 0, the number of dimensions of a mask that T parties must not know.

    Raises
    ------
    ConfigurationError
        If a party would compute more than 4,096 streams, or there would be more than 4,096 keys.

    Examples
    --------
    >>> blocks_of(5, 1, 2)
    ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))
    """
    N, T, u = parties, privacy, unknown
    sets = math.comb(N, T)
    if u <= 1 or u + T > N:  # fewer than m parties cannot decode what rho is added to
        _refuse(N, T, sets, math.comb(N - 1, T) * u)
        return tuple(itertools.combinations(range(N), T))
    if T == 1:
        _refuse(N, T, N, N - u)
        windows = ([(start + i) % N for i in range(u)] for start in range(N))
        return tuple(sorted(tuple(sorted(window)) for window in windows))
    half = T + (u + 1) // 2
    # Each block makes m - |A| dimensions for C(|A|, T) sets, and each set needs u.
    least = sets * u // math.comb(half, T) * (N - half) // N
    if least > MOST_STREAMS or sets > _MOST_SETS:
        _refuse(N, T, sets, least, "at least ")
    greedy = _Greedy(N, T, u).blocks()
    if stream_count(greedy, N, T, u) >= math.comb(N - 1, T) * u:
        greedy = tuple(itertools.combinations(range(N), T))
    _refuse(N, T, len(greedy), stream_count(greedy, N, T, u))
    return greedy


def stream_count(blocks: Iterable[Sequence[int]], parties: int, privacy: int, unknown: int) -> int:
    """Most streams that any party computes: m - |A| for each block A without it."""
    total, own = 0, [0] * parties
    for A in blocks:
        streams = privacy + unknown - len(A)
        total += streams
        for a in A:
            own[a] += streams
    return total - min(own)


def _refuse(N: int, T: int, keys: int, streams: int, least: str = "") -> None:
    if not least and keys <= MOST_KEYS and streams <= MOST_STREAMS:
        return
    raise ConfigurationError(
        f"prss: N = {N} parties and T = {T} need {least}{streams} streams of each party for every "
        f"label, each as large as what it masks, and {keys} "
        f"{'sets of T parties' if least else 'keys'}, and at most {MOST_STREAMS} streams, "
        f"{MOST_KEYS} keys and {_MOST_SETS} sets are allowed. Lower privacy or the number of "
        "parties"
    )


class _Greedy:
    """Greedy design: every set of T parties is the exact intersection of two sets of its blocks.

    Sets of parties are numbers here, one bit for each party. The first blocks have
    T + ceil(u/2) parties, and second ones what is left of m, so that both have at most m together.
    """

    def __init__(self, parties: int, privacy: int, unknown: int) -> None:
        self.N, self.T, self.m = parties, privacy, privacy + unknown
        self.bits = [1 << n for n in range(parties)]
        self.sets = [sum(C) for C in itertools.combinations(self.bits, privacy)]
        self.within: dict[int, list[int]] = {C: [] for C in self.sets}  # blocks with C, until done
        self.chosen: list[int] = []

    def blocks(self) -> Blocks:
        """All blocks."""
        for C in self.sets:
            if self.within.get(C) == []:
                self._choose(C, self.T + (self.m - self.T + 1) // 2, 0)
        for C in self.sets:
            if C in self.within:
                other = self.within[C][0]
                self._choose(C, self.m + self.T - other.bit_count(), other & ~C)
        found = [tuple(n for n in range(self.N) if A >> n & 1) for A in self.chosen]
        return tuple(sorted(found))

    def _choose(self, C: int, size: int, without: int) -> None:
        """Add a block of `size` parties: C, then those that help most sets; none of `without`."""
        A, free = C, [x for x in self.bits if not x & (C | without)]
        while A.bit_count() < size:
            members = [x for x in self.bits if x & A]
            parts = [sum(E) for E in itertools.combinations(members, self.T - 1)]
            best = max(free, key=lambda x: self._helped(A | x, [E | x for E in parts]))
            free.remove(best)
            A |= best
        self.chosen.append(A)
        for each in itertools.combinations([x for x in self.bits if x & A], self.T):
            D = sum(each)
            if D in self.within:
                if any(self._done(D, A, B) for B in self.within[D]):
                    del self.within[D]
                else:
                    self.within[D].append(A)

    def _helped(self, A: int, sets: Sequence[int]) -> int:
        """Number of `sets`, each of T parties of A, that need one more block and that A serves."""
        within, found = self.within, 0
        for D in sets:
            blocks = within.get(D)
            if blocks is not None and (not blocks or A & blocks[0] == D):
                found += 1
        return found

    def _done(self, D: int, A: int, B: int) -> bool:
        return A & B == D and (A | B).bit_count() <= self.m
