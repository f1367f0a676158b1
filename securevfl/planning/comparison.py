"""Comparison of a finished run with the planner's prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from securevfl.engine.conditions import Conditions
from securevfl.planning.message_bytes import sent_bytes
from securevfl.planning.message_times import expected_times
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.schedule import Shape


def held_against(
    protocol: Protocol,
    conditions: Conditions,
    rows: Sequence[Mapping[str, Any]],
    measured_bytes: int,
    *,
    sealed: bool,
    seed: int,
) -> dict[str, Any] | None:
    """Planner's prediction of bytes and of seconds a round, with the values of a finished run.

    Parameters
    ----------
    protocol : Protocol
        Configured protocol.
    conditions : Conditions
        Delays and bandwidth.
    rows : sequence of mapping
        History of the run, one row per server step.
    measured_bytes : int
        Bytes sent by all parties.
    sealed : bool
        Whether links are encrypted.
    seed : int
        Seed of the simulation of times.

    Returns
    -------
    dict or None
        ``bytes`` and ``measured_bytes`` (None if the run ended before its last round, or its
        messages depend on chance), ``round_seconds`` and ``measured_round_seconds``. None if the
        planner has no forecast, computing time was measured, or there are fewer than two rows.
    """
    data, N = protocol.data, len(protocol.peers())
    told = protocol.released()
    unknowns = None if told is None else told.unknowns
    shape = Shape(tuple(data.widths), data.rows, len(data.test_labels), unknowns)
    outline = protocol.outline(protocol.config, shape)
    if outline is None or conditions.compute == "measured" or len(rows) < 2:
        return None
    times = expected_times(outline, conditions, N, sealed=sealed, seed=seed, runs=32, rounds=60)
    # Where delays abort, or parties leave out what was decided while they were busy, it is chance
    # which messages are sent.
    chance = conditions.delay_mode == "abort"
    chance |= outline.leaves_out and conditions.delay_mode == "occupies"
    whole = len(rows) == outline.phases[0].rounds and not chance
    first, last = rows[0], rows[-1]
    return {
        "bytes": sum(sent_bytes(outline, N, sealed=sealed).total.values()) if whole else None,
        "measured_bytes": measured_bytes if whole else None,
        "round_seconds": times.round,
        "measured_round_seconds": (last["time"] - first["time"]) / (len(rows) - 1),
    }
