"""Unknowns of a row, and the odometer of a configuration: of runs and of plans."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from securevfl.models.polynomial_network import expand
from securevfl.privacy.released_equations import Odometer, independent_columns, visits_allowed

_EXACT_BITS = 20  # of float32 columns in [0, 1]


def unknowns_of(
    columns: Sequence[np.ndarray], config: Any, unseen: Collection[int] = ()
) -> tuple[int, int | None]:
    """Independent columns of all parties, and the rank of their powers and ones.

    Parameters
    ----------
    columns : sequence of ndarray, (M, d_n)
        Of each party.
    config : protocol options
        ``degree`` of the powers, and ``data_bits`` of their fixed-point numbers, if any.
    unseen : collection of int
        Parties whose columns are placeholders here. Each of their columns counts as independent.

    Returns
    -------
    int, int or None
        No rank of embeddings that are no polynomials.
    """
    unit = 2.0 ** -getattr(config, "data_bits", _EXACT_BITS)

    def count(n: int, degree: int) -> int:
        if n in unseen:
            return degree * columns[n].shape[1]
        return independent_columns(expand(columns[n], degree)[:, :-1], unit)

    own = sum(count(n, 1) for n in range(len(columns)))
    if getattr(config, "client_kind", "pn") != "pn":
        return own, None
    return own, sum(count(n, config.degree) for n in range(len(columns))) + 1


def odometer(
    config: Any,
    unknowns: int,
    rank: int | None,
    per_epoch: int,
    rounds: int | None = None,
    *,
    at_most: bool = False,
) -> Odometer:
    """Odometer after so many rounds of a configuration, all that its budget allows if not given.

    A row is in one batch of an epoch at most.
    """
    budget = getattr(config, "sum_budget", False)
    planned = math.ceil(config.rounds / per_epoch)
    allowed = min(planned, visits_allowed(unknowns, config.width)) if budget else planned
    visits = allowed if rounds is None else math.ceil(rounds / per_epoch)
    return Odometer(config.width, unknowns, rank, visits, planned, per_epoch, budget, at_most)
