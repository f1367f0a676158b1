"""Shares held by clients, and what holders decode, where nobody decodes data, models or steps.

A holder in such a protocol gets no gradient and has no model. Attacks that need one get the
holder's shares instead: of the steps, and of all data and models, which give its share of the joint
embedding. T + 1 or more holders combine their shares.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.audit.attack_matrix.observed_run import ObservedRun, Table
from securevfl.audit.attacks.outcome import NoView
from securevfl.audit.attacks.shares import (
    Combinations,
    freedom,
    known_combinations,
    short_segments,
)
from securevfl.field import LagrangeCode
from securevfl.models.polynomial_network import expand
from securevfl.verified import bare_of

NO_HOLDERS = NoView("data, models and steps do not stay in shares")
_TRIED = 500  # coalitions
_STEP_BITS = 6  # of a dealt step beyond those of its fraction: a range that is searched


def code_of(seen: ObservedRun) -> LagrangeCode | NoView:
    """Public code of a protocol whose clients hold shares of the server's steps; else `NoView`."""
    protocol: Any = seen.protocol
    found: LagrangeCode | NoView = protocol.public.code if seen.holders else NO_HOLDERS
    return found


def coalition(code: LagrangeCode, size: int) -> tuple[int, ...] | NoView:
    """Coalition of `size` holders from number T on (the first T hold seeds), or `NoView`."""
    T = code.privacy
    if T + size > code.parties:
        return NoView(f"{size} of {code.parties} holders; the first {T} are sent seeds")
    return tuple(range(T, T + size))


def keenest(code: LagrangeCode) -> tuple[int, ...]:
    """Of the first 500 coalitions of T + 1 holders, that with the largest `freedom`."""
    T = code.privacy
    every = itertools.combinations(range(T, code.parties), T + 1)
    return max(itertools.islice(every, _TRIED), key=lambda some: freedom(code, some))


def own_share(seen: ObservedRun, holder: int) -> np.ndarray | None:
    """A holder's share of the joint embedding, (M, h), scaled from [0, p) to [-1/2, 1/2).

    One share represents a row of each segment, so these rows have equal values. None if no party
    has shares of all models.
    """
    if not seen.holders:
        return None
    protocol: Any = seen.protocol
    party: Any = seen.parties[holder]
    field, layout = protocol.public.field, protocol.public.batches["train"]
    F, W = bare_of((party.data_shares["train"], party.model[0]))
    psi = field.matmul(F, W) / field.modulus - 0.5
    samples = layout.samples(np.arange(layout.length))
    rows = np.empty((layout.rows, psi.shape[1]))
    rows[samples[samples >= 0]] = np.tile(psi, (layout.segments, 1))[samples >= 0]
    return rows


def pooled_data(seen: ObservedRun, holders: Sequence[int]) -> Combinations:
    """Combinations of all clients' data segments that pooled shares reveal, free of masks."""
    protocol: Any = seen.protocol
    parties: Mapping[int, Any] = seen.parties
    shares = {j: bare_of(parties[j].data_shares["train"]) for j in holders}
    return known_combinations(protocol.public.code, shares)


def true_data(seen: ObservedRun) -> np.ndarray:
    """All clients' rows as they were shared: side by side, in segments, before rounding."""
    made: Any = seen.protocol
    columns = [
        expand(made.preparation(n).apply(x), made.config.degree)
        for n, x in enumerate(made.data.train)
    ]
    laid: np.ndarray = made.public.batches["train"].lay_out(np.concatenate(columns, axis=1))
    return laid


def elements_read(seen: ObservedRun, holders: Sequence[int]) -> float:
    """Fraction of all data elements that holders find, to one step of the fixed-point grid."""
    protocol: Any = seen.protocol
    point, known = protocol.public.data_point, pooled_data(seen, holders)
    if not len(known.matrix):
        return 0.0
    found = short_segments(known, protocol.public.field, 0, 1 << point.bits)
    values = np.ldexp(found.astype(np.float64), -point.bits)
    return float((np.abs(values - true_data(seen)) < 2.0**-point.bits).mean())


def pooled_steps(seen: ObservedRun, holders: Sequence[int]) -> Table | NoView:
    """Steps of the first epoch, by row, that holders compute from their shares."""
    protocol: Any = seen.protocol
    code, layout = protocol.public.code, protocol.public.batches["train"]
    held = {j: seen.dealt(j) for j in holders}
    rounds = sorted(set.intersection(*(set(one) for one in held.values())))
    rounds = [t for t in rounds if t <= layout.per_epoch]
    largest = 1 << (protocol.config.gradient_bits + _STEP_BITS)
    rows, values = [], []
    for t in rounds:
        known = known_combinations(code, {j: held[j][t] for j in holders})
        if not len(known.matrix):
            return NoView(f"no combination of {len(holders)} holders' shares is free of masks")
        steps = short_segments(known, code.field, -largest, largest)
        rows.append(layout.samples(layout.draw(t)))
        values.append(steps.reshape(-1, steps.shape[-1]))
    numbers, places = np.unique(np.concatenate(rows), return_index=True)
    found = np.concatenate(values)[places][numbers >= 0]
    return Table(numbers[numbers >= 0], found.astype(np.float64))
