"""Attacks on shares of data by coalitions of clients, with or without the server."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from securevfl.audit.attack_matrix import held_shares
from securevfl.audit.attack_matrix.setting import AttackCase
from securevfl.audit.attacks.outcome import NoView, Outcome, Result
from securevfl.audit.games.on_runs import Size, play_ranks
from securevfl.audit.recorded_runs import RunFactory, codes_shares
from securevfl.audit.share_recovery import pool_shares, recover_by_server
from securevfl.errors import RunError
from securevfl.field import LagrangeCode
from securevfl.field.kernels.primes import P31

_MOST_COLUMNS = 200  # of all clients; solving for more over F_p takes minutes
_DECODED = "combinations of segments decoded exactly"


def _held(case: AttackCase, code: LagrangeCode, size: int) -> Result:
    """Attack of `size` holders on all clients' data; RunError if shares decode to other values."""
    holders = held_shares.coalition(code, size)
    if isinstance(holders, NoView):
        return holders
    known = held_shares.pooled_data(case.observed, holders)
    within = held_shares.pooled_data(case.observed, holders[: code.privacy])
    part = len(known.matrix) / code.segments
    if len(known.matrix) == code.segments and held_shares.elements_read(case.observed, holders) < 1:
        raise RunError("the shares decode to something else than the data")
    return Outcome(
        _DECODED,
        part,
        len(within.matrix) / code.segments,
        part,
        part,
        code.segments,
        note=f"{size} holders, T = {code.privacy}, K = {code.segments}; chance is T holders",
    )


def short_values(case: AttackCase) -> Result:
    """Count elements of all clients' data found by lattice reduction from T + 1 shares.

    Only short values are found.
    """
    code = held_shares.code_of(case.observed)
    if isinstance(code, NoView):
        return code
    holders = held_shares.keenest(code)
    found = held_shares.elements_read(case.observed, holders)
    within = held_shares.elements_read(case.observed, holders[: code.privacy])
    elements = held_shares.true_data(case.observed).size
    note = f"holders {holders}, K = {code.segments}; chance is T holders"
    return Outcome("elements of data found", found, within, found, found, elements, note=note)


def _pooled(case: AttackCase, extra: Callable[[LagrangeCode], int]) -> Result:
    held = held_shares.code_of(case.observed)
    if not isinstance(held, NoView):
        return _held(case, held, extra(held))
    trial = case.shares
    if isinstance(trial, NoView):
        return trial
    code = trial.code
    size, victim = extra(code), code.parties - 1
    if size > victim:
        return NoView(f"{size} of {code.parties} clients leave no victim")
    pooled = pool_shares(trial, tuple(range(size)), victim)
    within = pool_shares(trial, tuple(range(code.privacy)), victim)
    if not (pooled.exact and within.exact):
        raise RunError("the shares decode to something else than the theory says")
    part = pooled.combinations / code.segments
    return Outcome(
        _DECODED,
        part,
        within.combinations / code.segments,
        part,
        part,
        code.segments,
        note=f"{size} clients, T = {code.privacy}, K = {code.segments}; chance is T clients; the "
        f"model is {'' if pooled.model else 'not '}decoded",
    )


def shares_above(case: AttackCase) -> Result:
    """Outcome of decoding, from T + 1 clients' shares, what masks of another's data do not hide."""
    return _pooled(case, lambda code: code.privacy + 1)


def shares_all(case: AttackCase) -> Result:
    """Outcome of decoding all of another client's data from K + T clients' shares."""
    return _pooled(case, lambda code: code.size)


def rank_game(case: AttackCase) -> Result:
    """Outcome of guesses, by ranks of uploads, which of two secrets with equal sums was used."""
    protocol: Any = case.protocol()
    if not codes_shares(protocol):
        return no_equations(case)
    code, count = protocol.public.code, case.settings.games
    masked = {"masked": protocol.config.masked} if hasattr(protocol.config, "masked") else {}
    size = Size(code.segments, code.privacy, P31, masked, rounds=count)
    right = play_ranks(type(protocol), size, case.stream)
    low, high = wilson(right, count)
    return Outcome("right guesses", right / count, 0.5, low, high, count, note=f"p = {P31}")


def no_equations(case: AttackCase) -> NoView:
    """Reason (`NoView`, no result) for not trying linear algebra on this protocol's uploads."""
    if case.observed.holders:
        return NoView(
            "written for products of shares without masks of their own; here masks span all that "
            "the sums leave open, which is checked by their ranks (docs/coded-split.md)"
        )
    return NoView("its clients hold no shares of each other's data")


def wilson(right: int, count: int) -> tuple[float, float]:
    """95 % interval (low, high) of a proportion, `right` of `count` (E. B. Wilson, 1927)."""
    z = 1.959964
    centre = (right + z * z / 2) / (count + z * z)
    half = z * math.sqrt(right * (count - right) / count + z * z / 4) / (count + z * z)
    return centre - half, centre + half


def server_and_clients(case: AttackCase) -> Result:
    """Solve for all data and models by linear algebra, as server and T clients, in a small run."""
    if not codes_shares(case.protocol()):
        return no_equations(case)
    columns = sum(case.data.widths) + case.data.parties
    if columns > _MOST_COLUMNS:
        return NoView(
            f"not run: {columns} columns are solved for over F_p, {_MOST_COLUMNS} at most here"
        )
    code = case.protocol().public.code  # type: ignore[attr-defined]
    h = 64
    options: Mapping[str, Any] = {
        "prime": P31,
        "data_bits": 8,
        "model_bits": 8,
        "weight_bound": 4.0,
        "degree": 1,
        "width": h,
        "rounds": math.ceil(columns / h) + 2,
        "tolerate_corrupt": 0,
    }
    data = case.data.subset(min(case.data.rows, (columns + 20) * code.segments))
    made = case.protocol(data, **options, batch=data.rows)
    found = recover_by_server(RunFactory(made).run(), tuple(range(code.privacy)))
    return Outcome(
        "elements of data recovered exactly",
        found.data,
        0.0,
        found.data,
        found.data,
        found.elements,
        note=f"{'models' if found.models == 1 else 'no models'} recovered; "
        f"the equations have {'a' if found.has_solution else 'no'} solution",
    )
