"""Feasible numbers K of segments, and the expected cost of each.

K is feasible if decoding needs at most as many results as there are clients (`Protocol.results`).
Bytes and times come from `message_bytes` and `message_times`, memory from the sizes of shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securevfl.engine.conditions import Conditions, with_helpers
from securevfl.engine.conditions_file import load_conditions
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError
from securevfl.field.designs import blocks_of, stream_count
from securevfl.planning.message_bytes import (
    SEALED_LINK,
    UNDER_WAY,
    Sent,
    link_memory,
    sent_bytes,
)
from securevfl.planning.message_times import Times, expected_times
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.schedule import Needs, Outline, Shape


@dataclass(frozen=True)
class Choice:
    """A feasible number K of segments and its expected cost.

    Attributes
    ----------
    segments, threshold, tolerated : int
        K, the recovery threshold R, and the number of tolerated stragglers.
    batch_rows : int
        Rows |B| of a coded batch.
    rounds : int
        Number of server steps; fewer than requested if a budget of sums ends the run.
    setup_seconds, round_seconds, round_error, total_seconds : float
        Virtual time; `round_error` is the standard error of `round_seconds` over simulated runs.
    bytes : int
        Bytes that all parties send in the whole run.
    setup_bytes, round_bytes : int
        Bytes that all parties send before the first round, and on average in a training round.
    server_bytes, client_bytes : int
        Bytes sent by the server, and by the client that sends most.
    client_memory, simulation_memory : int
        Memory in bytes of the largest client on its own machine, and of all clients in one process.
    keys : int
        Number of keys that the parties agree on in setup.
    replay : int
        Multiply-adds by which a client catches up a missed round; 0 if the protocol does not allow
        it.
    helpers : int or None
        Number of helpers, parties without data, with which no round waits for a slow party (mean
        delay above twice the smallest); None if the protocol has no helpers.
    helped_seconds : float or None
        Virtual seconds of a round with these helpers.
    """

    segments: int
    threshold: int
    tolerated: int
    batch_rows: int
    rounds: int
    setup_seconds: float
    round_seconds: float
    round_error: float
    total_seconds: float
    bytes: int
    setup_bytes: int
    round_bytes: int
    server_bytes: int
    client_bytes: int
    client_memory: int
    simulation_memory: int
    keys: int = 0
    replay: int = 0
    helpers: int | None = None
    helped_seconds: float | None = None


def feasible_segments(cls: type[Protocol], parties: int, config: Any, shape: Shape) -> list[int]:
    """Feasible numbers of segments K, or the K asked for; ConfigurationError if there is none."""

    def wanted(segments: int) -> int:
        return cls.results(config.model_copy(update={"segments": segments}), parties)[1]

    found = [K for K in range(1, min(shape.rows, parties) + 1) if wanted(K) <= parties]  # R >= K
    if not found:
        raise ConfigurationError(
            f"plan: no K is feasible: K = 1 and T = {config.privacy} need "
            f"{wanted(1)} results of {parties} parties. Lower privacy or add parties"
        )
    asked = config.segments
    if asked is None or asked in found:
        return found if asked is None else [asked]
    why = f"segments need a row each, and there are {shape.rows}"
    if wanted(asked) > parties:
        why = f"and T = {config.privacy} need {wanted(asked)} results of {parties} parties"
    most = max((K for K in found if asked > K), default=found[-1])
    raise ConfigurationError(f"plan: K = {asked} {why}; use at most {most} segments")


def choice_of(
    cls: type[Protocol],
    config: Any,
    shape: Shape,
    conditions: str | Path | Mapping[str, Any] | Conditions,
    sealed: bool,
    seed: int,
) -> Choice:
    """Expected seconds, bytes and memory of `config`'s K, if clients share data and models."""
    outline = cls.outline(config, shape)
    assert outline is not None
    N, K = len(shape.widths), config.segments
    conditions = load_conditions(conditions, parties=N, batch_rows=outline.batch_rows)
    times = expected_times(outline, conditions, N, sealed=sealed, seed=seed)
    threshold, wanted = cls.results(config, N)
    return _of_times(
        K,
        threshold,
        N - wanted,
        outline,
        times,
        sent_bytes(outline, N, sealed=sealed),
        memory(config, shape, outline.batch_rows, sealed=sealed),
    )


def memory(config: Any, shape: Shape, batch_rows: int, *, sealed: bool) -> tuple[int, int]:
    """Memory, in bytes, of the largest client and of a simulation of all clients.

    `batch_rows` are coded rows |B|; `sealed` links hold more. A client holds its rows and
    everyone's data shares. While it shares its data, it also holds their powers, field elements, a
    copy in segments and N shares; in a round, the model shares of all and the streams of its masks.
    A simulation holds the data shares of N clients, the powers, elements and copy of one client at
    a time, and all links (`link_memory`).
    """
    N, K = len(shape.widths), config.segments
    size = 4 if config.prime < 2**32 else 8
    widths = [d * config.degree + 1 for d in shape.widths]
    parts = [shape.rows, shape.test_rows] if config.secure else [shape.rows]
    lengths = [math.ceil(rows / K) for rows in parts]
    held = sum(lengths) * sum(widths) * size
    working = max(parts) * max(widths) * (4 + 3 * size)
    dealt = N * max(lengths) * max(widths) * size
    own = sum(parts) * max(shape.widths) * 4
    streams, T = 0, config.privacy
    if config.masked:
        streams = stream_count(blocks_of(N, T, K + T - 1), N, T, K + T - 1)
    # Streams are summed some at a time (`securevfl.field.prss`).
    at_once = min(streams * batch_rows * config.width, 1 << 20)
    round_ = (sum(widths) * config.width + at_once) * size
    one = 2 * N * (SEALED_LINK // 2 * sealed + UNDER_WAY)  # an end of the links to all, and from
    whole = N * held + working + link_memory(N, sealed=sealed)
    return own + held + max(working + dealt, round_) + one, whole


def choice_by_needs(
    cls: type[Protocol],
    config: Any,
    shape: Shape,
    needs: Needs,
    conditions: str | Path | Mapping[str, Any] | Conditions,
    sealed: bool,
    seed: int,
) -> Choice:
    """Expected cost of the configured K by the protocol's own numbers (`Protocol.needs`).

    ConfigurationError if its messages depend on chance or are not forecast.
    """
    outline = cls.outline(config, shape)
    if outline is None:
        raise ConfigurationError(
            f"plan: {cls.name} with these options cannot be planned: what it sends depends on "
            "chance, or has no forecast; leave out timeouts and a release"
        )
    N, owners = needs.parties, len(shape.widths)
    loaded = load_conditions(conditions, parties=owners, batch_rows=outline.batch_rows)
    times = expected_times(outline, with_helpers(loaded, N), N, sealed=sealed, seed=seed)
    helpers, helped = None, None
    if hasattr(config, "helpers"):
        helpers, helped = max(config.helpers, needs.results - _fast(loaded, owners)), times
    if helpers is not None and helpers > config.helpers:
        more = config.model_copy(update={"helpers": helpers})
        outlined, all_of_them = cls.outline(more, shape), owners + helpers
        assert outlined is not None
        under = with_helpers(loaded, all_of_them)
        helped = expected_times(outlined, under, all_of_them, sealed=sealed, seed=seed)
    return _of_times(
        config.segments,
        needs.threshold,
        N - needs.results,
        outline,
        times,
        sent_bytes(outline, N, sealed=sealed),
        (needs.client_memory, needs.simulation_memory),
        keys=needs.keys,
        replay=needs.replay,
        helpers=helpers,
        helped_seconds=helped and helped.round,
    )


def _fast(conditions: Conditions, parties: int) -> int:
    """Number of parties whose mean delay is at most twice the smallest one."""
    means = [delay.expectation for delay in conditions.uploads] or [0.0] * parties
    return sum(mean <= 2 * min(means) for mean in means)


def _of_times(
    segments: int,
    threshold: int,
    tolerated: int,
    outline: Outline,
    times: Times,
    sent: Sent,
    memory: tuple[int, int],
    **more: Any,
) -> Choice:
    """`Choice` of K = `segments` with the bytes, seconds and memory of these messages."""
    total = sent.total
    return Choice(
        segments=segments,
        threshold=threshold,
        tolerated=tolerated,
        batch_rows=outline.batch_rows,
        rounds=outline.phases[0].rounds,
        setup_seconds=times.setup,
        round_seconds=times.round,
        round_error=times.error,
        total_seconds=times.total,
        bytes=sum(total.values()),
        setup_bytes=sum(sent.setup.values()),
        round_bytes=round(sum(sent.training.values()) / outline.phases[0].rounds),
        server_bytes=total[SERVER],
        client_bytes=max(nbytes for n, nbytes in total.items() if n != SERVER),
        client_memory=memory[0],
        simulation_memory=memory[1],
        **more,
    )
