"""Cohorts: fixed public groups of clients that enter a sum of embeddings all together or not.

If the clients in the sum change from round to round, differences of many sums reveal each client's
embedding, even in honest runs. If every sum is over whole cohorts, the sums reveal only sums of
cohorts, each of at least T + 2 clients. The idea is from J. So, R. Ali, B. Guler, J. Jiao, S.
Avestimehr, "Securing secure aggregation: mitigating multi-round privacy leakage in federated
learning" (Multi-RoundSecAgg), arXiv 2106.03328.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from securevfl.errors import PrivacyError

#: What a method with cohorts says, to whoever asks for none where the clients of sums may change.
TOLD_APART = (
    "with cohorts = 0 sums are over whichever clients were in time, and where these change from "
    "round to round single clients' embeddings follow from honest runs"
)


@dataclass(frozen=True)
class Cohorts:
    """Fixed groups of clients (cohorts); a decoded sum has all members of a cohort or none.

    Attributes
    ----------
    groups : tuple of tuple of int
        Client numbers of each cohort; each client is in exactly one. Without cohorts each client
        forms its own.
    """

    groups: tuple[tuple[int, ...], ...]

    def whole(self, there: Collection[int]) -> tuple[int, ...]:
        """Clients, in order, of the cohorts that are completely in `there`."""
        here = frozenset(there)
        return tuple(sorted(n for group in self.groups if here.issuperset(group) for n in group))

    def spare(self, wanted: int) -> int:
        """Largest number of absent clients that always leaves `wanted` clients in whole cohorts."""
        sizes = sorted(map(len, self.groups), reverse=True)
        return int((sum(sizes) - np.cumsum(sizes) >= wanted).sum())

    def likeliest(self, wanted: int) -> int:
        """Likeliest number of clients in the first cohorts that have `wanted`, in random order."""
        small, N, G = min(map(len, self.groups)), sum(map(len, self.groups)), len(self.groups)
        larger = N - small * G  # cohorts with one client more
        found: defaultdict[int, Fraction] = defaultdict(Fraction)
        chances = {(0, 0): Fraction(1)}  # by smaller and larger cohorts that are here
        while chances:
            following: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
            for (a, b), chance in chances.items():
                if (here := a * small + b * (small + 1)) >= wanted:
                    found[here] += chance
                else:
                    left = G - a - b
                    following[a + 1, b] += chance * (G - larger - a) / left
                    following[a, b + 1] += chance * (larger - b) / left
            chances = {each: chance for each, chance in following.items() if chance}
        return max(found, key=lambda here: (found[here], -here))

    def cut(self, named: Collection[int]) -> tuple[tuple[int, ...], ...]:
        """Cohorts with some clients in `named` and others not."""
        some = frozenset(named)
        return tuple(
            group for group in self.groups if 0 < len(some.intersection(group)) < len(group)
        )


def most_cohorts(parties: int, privacy: int) -> int:
    """Largest number of cohorts of T + 2 clients or more: floor(N / (T + 2)), at least 1."""
    return max(1, parties // (privacy + 2))


def cohorts_of(method: str, number: int, parties: int, privacy: int) -> Cohorts:
    """Clients divided into `number` cohorts of consecutive numbers, of nearly equal sizes.

    With `number` 0 each client is its own. `method` names the caller in errors. PrivacyError if a
    cohort would have fewer than T + 2 clients, T = `privacy`.
    """
    most = most_cohorts(parties, privacy)
    if number > most:
        raise PrivacyError(
            f"{method}: {number} cohorts of N = {parties} clients have {parties // number} in the "
            f"smallest, and T+2 = {privacy + 2} are needed, lest sums tell single clients apart. "
            f"Use cohorts = {most} or fewer, or lower privacy"
        )
    parts = np.array_split(np.arange(parties), number or parties)
    return Cohorts(tuple(tuple(part.tolist()) for part in parts))
