"""Cost of cohorts in stragglers: one late client leaves its whole cohort out of a sum."""

from __future__ import annotations

import functools

import numpy as np

from securevfl.engine.conditions import Conditions
from securevfl.field.cohorts import Cohorts

_DRAWN = 5000  # delays of all clients together, in 20 rounds at least
_SHARE = 0.9  # of the clients, in the mean over rounds


def cost_of_cohorts(cohorts: Cohorts, conditions: Conditions, *, seed: int = 0) -> str:
    """Sentence on the `share_timeout` that keeps nearly all clients in sums, with cohorts.

    Empty if the conditions have no delays.

    Parameters
    ----------
    cohorts : Cohorts
        Groups of clients of which a sum has all members or none.
    conditions : Conditions
        Only the delays of sharing a model are used; transfer times are left out.
    seed : int
        Seed of the delays.
    """
    parties = sum(map(len, cohorts.groups))
    delays = _delays(conditions, seed, parties)
    if not delays.any():
        return ""
    slowest = delays.copy()  # of a client's cohort
    for group in cohorts.groups:
        slowest[:, group] = delays[:, group].max(axis=1, keepdims=True)
    late, alone = (float(np.quantile(found, _SHARE)) for found in (slowest, delays))
    sizes = " and ".join(str(len(group)) for group in cohorts.groups)
    return (
        f"with a share_timeout, sums are over whole cohorts (cohorts = {len(cohorts.groups)}, of "
        f"{sizes} clients): one late client leaves out its cohort. By the delays of sharing, "
        f"{_SHARE:.0%} of the clients are in the sums with share_timeout = {late:.2g} s, and "
        f"without cohorts with {alone:.2g} s"
    )


@functools.lru_cache(maxsize=8)
def _delays(conditions: Conditions, seed: int, parties: int) -> np.ndarray:
    """Delays of sharing of N parties in seconds, (rounds, N); cached, as plans ask repeatedly."""
    rounds = range(1, max(20, _DRAWN // parties) + 1)
    every = [[conditions.delay(seed, n, k, "share") / 1e9 for n in range(parties)] for k in rounds]
    return np.array(every)
