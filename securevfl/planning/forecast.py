"""Plan a run before it is started: which K, which field, how many bytes, how long.

What is computed where: the feasible K from ``R = 2(K+T-1)+1 <= N``; the field and the fractional
bits from the bound that rules out a wrap; bytes and times by `securevfl.planning.message_times`
from the protocol's outline of its messages; memory from the sizes of shares. No data is needed; a
data set, where given, sharpens the bound on row sums. A protocol with other numbers says them
itself (`Protocol.needs`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.data.source import DataSource
from securevfl.engine.conditions import Conditions, with_helpers
from securevfl.engine.conditions_file import load_conditions
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError, WouldOverflowError
from securevfl.field import primes
from securevfl.planning.message_times import Sent, Times, expected_times, sent_bytes
from securevfl.protocols.base.defaults import DEFAULT
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.protocols.base.schedule import Needs, Outline, Shape

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

PRIMES = primes.USUAL
_WRITTEN = dict(zip(PRIMES, ("2^31-1", "2^50-2^14+1", "2^61-1"), strict=True))
DATA_BITS, MODEL_BITS = 20, 24  # more is of no use: float32 weights have 24


@dataclass(frozen=True)
class Bits:
    """A field and fractional bits that cannot wrap.

    Attributes
    ----------
    prime, data_bits, model_bits : int
        p, lx and lw.
    largest : int
        sum_n max_i sum_j |X-bar_n[i,j]| ceil(2^lw w), the largest magnitude of a decoded sum. Of a
        protocol whose bound grows with its steps, that of the first sums.
    limit : int
        (p - 1) / 2.
    expected, smallest : int
        Where the bound grows: what it is expected to reach, and the smallest usual prime with room
        for it. Else 0.
    """

    prime: int
    data_bits: int
    model_bits: int
    largest: int
    limit: int
    expected: int = 0
    smallest: int = 0


@dataclass(frozen=True)
class RowSums:
    """Bound on one client's row sums of |X_pow|, the ones column included.

    Attributes
    ----------
    largest : float
        max_i sum_j |X_pow[i,j]| of the real values.
    rounded : int
        Columns whose rounding may add half a unit each; 0 where `largest` counts columns in [0, 1].
    """

    largest: float
    rounded: int = 0

    def units(self, data_bits: int) -> int:
        """Bound on max_i sum_j |X-bar[i,j]|, in units of 2^-lx."""
        bound: int = math.ceil(self.largest * 2**data_bits + self.rounded / 2)
        return bound


@dataclass(frozen=True)
class Choice:
    """A feasible K and what it is expected to cost.

    Attributes
    ----------
    segments, threshold, tolerated : int
        K, R = 2(K+T-1)+1, and N - R - 2A stragglers that do no harm.
    batch_rows : int
        |B|.
    setup_seconds, round_seconds, round_error, total_seconds : float
        Virtual time; `round_error` is the standard error of the prediction's Monte Carlo.
    bytes : int
        Sent by all parties in the whole run.
    setup_bytes, round_bytes : int
        Sent by all parties before the first round, and in a round of training on average.
    server_bytes, client_bytes : int
        Sent by the server, and by the client that sends most.
    client_memory, simulation_memory : int
        Bytes of the largest client on a machine of its own, and of all of them in one process.
    keys : int
        Keys that the parties agree on in setup.
    replay : int
        Multiply-adds with which a client makes up for a round that it missed; 0 where none can.
    helpers : int or None
        Helpers with which the fast parties are as many as the results that are waited for; None
        where a protocol has none. Fast is who has at most twice the smallest mean delay.
    helped_seconds : float or None
        A round with so many helpers.
    """

    segments: int
    threshold: int
    tolerated: int
    batch_rows: int
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


@dataclass(frozen=True)
class Forecast:
    """Forecast of a run: what `plan` returns.

    Attributes
    ----------
    protocol : str
    parties, privacy, rounds : int
        N, T and the server's steps.
    shape : Shape
    conditions : str
    bits : Bits
    choices : tuple of Choice
        All feasible K in order, or the one that was asked for.
    best : Choice
        The one with the shortest expected round.
    command : str
        The run that it stands for, as options of ``securevfl run``.
    warnings : tuple of str
        What the decoded sums give away at these sizes, one text each; often none.
    """

    protocol: str
    parties: int
    privacy: int
    rounds: int
    shape: Shape
    conditions: str
    bits: Bits
    choices: tuple[Choice, ...]
    best: Choice
    command: str
    warnings: tuple[str, ...] = ()


def plan(
    data: VerticalDataset | DataSource | str | None = None,
    *,
    protocol: str = DEFAULT,
    parties: int | None = None,
    rows: int | None = None,
    features: int | None = None,
    test_rows: int = 0,
    accuracy_bits: int = 8,
    conditions: str | Path | Mapping[str, Any] | Conditions = "paper",
    sealed: bool = True,
    seed: int = 0,
    **options: Any,
) -> Forecast:
    """Predict what a run needs, for every K that is feasible.

    Parameters
    ----------
    data : VerticalDataset, DataSource or str, optional
        A data set; else give `parties`, `rows` and `features`, whose values are taken to lie in
        [0, 1], as scaling leaves them.
    protocol : str
        One that outlines its messages and has segments; the default protocol if not given.
    parties, rows, features, test_rows : int, optional
        N, training rows M, columns of all clients together (dealt as evenly as can be), and rows
        of the test set, which only secure inference needs.
    accuracy_bits : int
        Fractional bits wanted of data and of weights, at least; the field is the smallest of
        2^31-1, 2^50-2^14+1 and 2^61-1 that has room for them, and is filled up to 20 and 24.
    conditions : str, Path, mapping or Conditions
        As for `securevfl.run`.
    sealed : bool
        Whether links are sealed, as for `securevfl.run`.
    seed : int
        Seed of the Monte Carlo of times.
    **options
        Of the protocol: ``privacy``, ``degree``, ``width``, ``batch``, ``rounds``, ``masked``,
        ``secure``, ``weight_bound``; ``segments`` to plan for that K only; ``prime``,
        ``data_bits`` and ``model_bits`` to check those.

    Returns
    -------
    Forecast

    Raises
    ------
    WouldOverflowError
        When no field has room for the bits.
    ConfigurationError
        When no K is feasible, or the sizes make no sense.

    Examples
    --------
    >>> found = plan(parties=8, rows=1000, features=64, privacy=1, conditions="none")
    >>> [(choice.segments, choice.threshold) for choice in found.choices]
    [(1, 3), (2, 5), (3, 7)]
    """
    cls = get_protocol(protocol)
    shape, sums = _sizes(data, parties, rows, features, test_rows, options)
    config: Any = make_config(cls, options)
    if cls.needs(config, shape) is not None:
        return _by_needs(cls, config, shape, conditions, sealed, seed, options)
    if not hasattr(config, "privacy") or cls.outline(config, shape) is None:
        raise ConfigurationError(
            f"plan: {protocol} with these options cannot be planned: what it sends depends on "
            f"chance; leave out timeouts, or plan {DEFAULT}"
        )
    bits = choose_bits(sums, config.weight_bound, accuracy_bits, options)
    chosen = {"prime": bits.prime, "data_bits": bits.data_bits, "model_bits": bits.model_bits}
    config = config.model_copy(update=chosen)
    N = len(shape.widths)
    choices = tuple(
        _choice(cls, config.model_copy(update={"segments": K}), shape, conditions, sealed, seed)
        for K in _feasible(N, config, shape)
    )
    best = min(choices, key=lambda choice: choice.round_seconds)
    given = {k: v for k, v in options.items() if k not in (*chosen, "segments")}
    settings = {**given, **chosen, "segments": best.segments}
    return Forecast(
        protocol=protocol,
        parties=N,
        privacy=config.privacy,
        rounds=config.rounds,
        shape=shape,
        conditions=_called(conditions),
        bits=bits,
        choices=choices,
        best=best,
        command=" ".join(_flag(key, value) for key, value in settings.items()),
        warnings=_warnings(sum(shape.widths), config.width),
    )


def _by_needs(
    cls: type[Protocol],
    config: Any,
    shape: Shape,
    conditions: str | Path | Mapping[str, Any] | Conditions,
    sealed: bool,
    seed: int,
    options: Mapping[str, Any],
) -> Forecast:
    """The plan of a protocol that says its numbers itself, for the K asked for or all feasible."""
    tried = [config.segments] if "segments" in options else range(1, shape.rows + 1)
    configs: list[Any] = []
    needs: list[Needs] = []
    for K in tried:
        made = config.model_copy(update={"segments": K})
        found = cls.needs(made, shape)
        assert found is not None
        if found.results > found.parties:
            if not configs:
                raise ConfigurationError(
                    f"plan: K = {K} and T = {config.privacy} need {found.results} results of "
                    f"{found.parties} parties. Use helpers = "
                    f"{config.helpers + found.results - found.parties}, or lower segments or "
                    "privacy"
                )
            break
        configs.append(made)
        needs.append(found)
    choices = tuple(
        _own_choice(cls, made, shape, found, conditions, sealed, seed)
        for made, found in zip(configs, needs, strict=True)
    )
    best = min(choices, key=lambda choice: choice.round_seconds)
    used = needs[choices.index(best)]
    settings = {**options, "prime": used.prime, "segments": best.segments}
    return Forecast(
        protocol=cls.name,
        parties=used.parties,
        privacy=config.privacy,
        rounds=config.rounds,
        shape=shape,
        conditions=_called(conditions),
        bits=Bits(
            *(used.prime, used.data_bits, used.model_bits, used.largest, used.limit),
            expected=used.expected,
            smallest=used.smallest,
        ),
        choices=choices,
        best=best,
        command=" ".join(_flag(key, value) for key, value in settings.items()),
        warnings=_warnings(sum(shape.widths), config.width),
    )


def _own_choice(
    cls: type[Protocol],
    config: Any,
    shape: Shape,
    needs: Needs,
    conditions: str | Path | Mapping[str, Any] | Conditions,
    sealed: bool,
    seed: int,
) -> Choice:
    outline = cls.outline(config, shape)
    if outline is None:
        raise ConfigurationError(
            f"plan: {cls.name} with these options cannot be planned: what it sends depends on "
            "chance; leave out timeouts and a release"
        )
    N, owners = needs.parties, len(shape.widths)
    loaded = load_conditions(conditions, parties=owners, batch_rows=outline.batch_rows)
    times = expected_times(outline, with_helpers(loaded, N), N, sealed=sealed, seed=seed)
    helpers = max(config.helpers, needs.results - _fast(loaded, owners))
    helped = times
    if helpers > config.helpers:
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
        helped_seconds=helped.round,
    )


def _fast(conditions: Conditions, parties: int) -> int:
    """Parties with at most twice the smallest mean delay."""
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
    """The choice whose messages these are."""
    total = sent.total
    return Choice(
        segments=segments,
        threshold=threshold,
        tolerated=tolerated,
        batch_rows=outline.batch_rows,
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


def _warnings(columns: int, width: int) -> tuple[str, ...]:
    """Warn where the sums of a row are enough equations for its columns."""
    if columns > width:
        return ()
    return (
        f"The sums of each row are h = {width} equations in {columns} columns. A server that knows "
        "the clients' weights solves them for the rows, and with SGD it learns all inner products "
        "of rows from its own gradients. Lower width; SECURITY.md says more.",
    )


def _flag(key: str, value: Any) -> str:
    name = key.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if key == "prime":
        return f"--{name} {_WRITTEN.get(value, value)}"
    return f"--{name} {value}"


def _sizes(
    data: VerticalDataset | DataSource | str | None,
    parties: int | None,
    rows: int | None,
    features: int | None,
    test_rows: int,
    options: Mapping[str, Any],
) -> tuple[Shape, list[RowSums]]:
    """Shape of the data, and a bound on each client's row sums."""
    if data is None:
        if not (rows and features):
            raise ConfigurationError(
                "plan: give a data set, or its shape with rows and features of at least 1"
            )
        N = parties or 8
        if features < N:
            raise ConfigurationError(
                f"plan: {features} features cannot be divided among {N} parties. Use at most "
                f"{features} parties"
            )
        widths = tuple(len(part) for part in np.array_split(np.arange(features), N))
        degree = int(options.get("degree", 2))
        return Shape(widths, rows, test_rows), [RowSums(d * degree + 1.0) for d in widths]
    if rows or features or test_rows:
        raise ConfigurationError("plan: give a data set or rows and features, not both")
    if isinstance(data, str):
        data = DataSource(data, {"parties": parties} if parties else {})
    dataset = data.load() if isinstance(data, DataSource) else data
    degree = int(options.get("degree", 2))
    parts = [dataset.train, dataset.test] if options.get("secure") else [dataset.train]
    shape = Shape(tuple(dataset.widths), len(dataset.train_labels), len(dataset.test_labels))
    return shape, [
        RowSums(max(_row_sum(part[n], degree) for part in parts), width * degree)
        for n, width in enumerate(shape.widths)
    ]


def _row_sum(features: np.ndarray, degree: int) -> float:
    """max_i sum_j |X_pow[i,j]| in float64, ones column included."""
    largest = 0.0
    for start in range(0, len(features), 8192):
        rows = np.abs(features[start : start + 8192].astype(np.float64))
        sums = sum((rows**power).sum(axis=1) for power in range(1, degree + 1))
        largest = max(largest, float(np.max(sums, initial=0.0)))
    return 1.0 + largest


def choose_bits(
    sums: Sequence[RowSums],
    weight_bound: float,
    accuracy_bits: int,
    options: Mapping[str, Any],
) -> Bits:
    """The smallest field with room for `accuracy_bits` on both sides, filled with more of them.

    Parameters
    ----------
    sums : sequence of RowSums
        Of each client.
    weight_bound : float
        w, the enforced bound on weights.
    accuracy_bits : int
        Least lx and least lw, 1 to 20.
    options : mapping
        ``prime``, ``data_bits`` and ``model_bits``, where they are given.

    Raises
    ------
    WouldOverflowError
        When there is no room.
    """
    if not 1 <= accuracy_bits <= DATA_BITS:
        raise ConfigurationError(
            f"plan: accuracy_bits must lie in 1 to {DATA_BITS}, it is {accuracy_bits}"
        )
    primes = (int(options["prime"]),) if "prime" in options else PRIMES
    lx, lw = (
        int(options.get(name, min(accuracy_bits, most)))
        for name, most in (("data_bits", DATA_BITS), ("model_bits", MODEL_BITS))
    )
    for prime in primes:
        if largest_sum(sums, weight_bound, lx, lw) <= (prime - 1) // 2:
            lx, lw = _filled(sums, weight_bound, prime, lx, lw, options)
            largest = largest_sum(sums, weight_bound, lx, lw)
            return Bits(prime, lx, lw, largest, (prime - 1) // 2)
    largest, limit = largest_sum(sums, weight_bound, lx, lw), (primes[-1] - 1) // 2
    raise WouldOverflowError(
        f"plan: with lx = {lx} and lw = {lw} a sum of embeddings can reach {largest:.4g} and "
        f"(p-1)/2 = {limit:.4g} for p = {primes[-1]}. Lower accuracy_bits, data_bits, model_bits "
        f"or log2 of weight_bound ({weight_bound:g}) by {math.ceil(math.log2(largest / limit))} "
        "in all, or use a larger prime"
    )


def largest_sum(sums: Sequence[RowSums], weight_bound: float, lx: int, lw: int) -> int:
    """Bound on a decoded sum: all clients' row sums at lx bits, times ceil(2^lw w)."""
    rows = sum(each.units(lx) for each in sums)
    weight: int = math.ceil(2**lw * weight_bound)
    return rows * weight


def _filled(
    sums: Sequence[RowSums],
    weight_bound: float,
    prime: int,
    lx: int,
    lw: int,
    options: Mapping[str, Any],
) -> tuple[int, int]:
    """Add bits in turn while there is room, up to 20 and 24; those that were given stay."""
    limit = (prime - 1) // 2
    grown = True
    while grown:
        grown = False
        for name, more in (("model_bits", (0, 1)), ("data_bits", (1, 0))):
            wider = (lx + more[0], lw + more[1])
            fits = largest_sum(sums, weight_bound, *wider) <= limit
            if name not in options and fits and wider[0] <= DATA_BITS and wider[1] <= MODEL_BITS:
                (lx, lw), grown = wider, True
    return lx, lw


def _feasible(parties: int, config: Any, shape: Shape) -> list[int]:
    """All K with R + 2A <= N, or the one that was asked for."""
    if config.segments is not None:
        largest = (parties - 1) // 2 - config.privacy - config.tolerate_corrupt + 1
        if config.segments > min(largest, shape.rows):
            raise ConfigurationError(
                f"plan: K = {config.segments} and T = {config.privacy} need "
                f"{_wanted(config, config.segments)} results of {parties} parties; "
                f"use at most {largest} segments"
            )
        return [config.segments]
    found = [K for K in range(1, shape.rows + 1) if _wanted(config, K) <= parties]
    if not found:
        raise ConfigurationError(
            f"plan: no K is feasible: K = 1 and T = {config.privacy} need "
            f"{_wanted(config, 1)} results of {parties} parties. Lower privacy or add parties"
        )
    return found


def _wanted(config: Any, segments: int) -> int:
    """R + 2A = 2(K+T-1) + 1 + 2A."""
    return int(2 * (segments + config.privacy - 1) + 1 + 2 * config.tolerate_corrupt)


def _called(conditions: str | Path | Mapping[str, Any] | Conditions) -> str:
    if isinstance(conditions, Mapping):
        return "custom"
    return conditions.name if isinstance(conditions, Conditions) else str(conditions)


def _choice(
    cls: type[Protocol],
    config: Any,
    shape: Shape,
    conditions: str | Path | Mapping[str, Any] | Conditions,
    sealed: bool,
    seed: int,
) -> Choice:
    outline = cls.outline(config, shape)
    assert outline is not None
    N, K = len(shape.widths), config.segments
    conditions = load_conditions(conditions, parties=N, batch_rows=outline.batch_rows)
    times = expected_times(outline, conditions, N, sealed=sealed, seed=seed)
    wanted = _wanted(config, K)
    return _of_times(
        K,
        wanted - 2 * config.tolerate_corrupt,
        N - wanted,
        outline,
        times,
        sent_bytes(outline, N, sealed=sealed),
        memory(config, shape, outline.batch_rows),
    )


def memory(config: Any, shape: Shape, batch_rows: int) -> tuple[int, int]:
    """Bytes of the largest client on its own machine, and of a simulation of all of them.

    A client holds its rows and everyone's data shares; while it deals its data it has the powers,
    field elements, their copy in segments and N shares of them; in a round the model shares of
    all, and the streams of its masks. The sum over clients leaves out what only one of them has at
    a time.
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
    streams = math.comb(N - 1, config.privacy) * (K + config.privacy - 1) * config.masked
    # Streams are summed some at a time (`securevfl.field.prss`).
    at_once = min(streams * batch_rows * config.width, 1 << 20)
    round_ = (sum(widths) * config.width + at_once) * size
    return own + held + max(working + dealt, round_), N * held + working


def held_against(
    protocol: Protocol,
    conditions: Conditions,
    rows: Sequence[Mapping[str, Any]],
    measured_bytes: int,
    *,
    sealed: bool,
    seed: int,
) -> dict[str, Any] | None:
    """Prediction for a run that ended, beside what was measured; None where there is none.

    Parameters
    ----------
    protocol : Protocol
    conditions : Conditions
    rows : sequence of mapping
        The history: one row a server step.
    measured_bytes : int
        Sent by all parties.
    sealed : bool
    seed : int

    Returns
    -------
    dict or None
        ``bytes`` and ``measured_bytes`` (None if the run was ended before its last round),
        ``round_seconds`` and ``measured_round_seconds``.
    """
    data, N = protocol.data, len(protocol.peers())
    shape = Shape(tuple(data.widths), len(data.train_labels), len(data.test_labels))
    outline = protocol.outline(protocol.config, shape)
    if outline is None or conditions.compute == "measured" or len(rows) < 2:
        return None
    times = expected_times(outline, conditions, N, sealed=sealed, seed=seed, runs=32, rounds=60)
    whole = len(rows) == protocol.config.rounds
    first, last = rows[0], rows[-1]
    return {
        "bytes": sum(sent_bytes(outline, N, sealed=sealed).total.values()) if whole else None,
        "measured_bytes": measured_bytes if whole else None,
        "round_seconds": times.round,
        "measured_round_seconds": (last["time"] - first["time"]) / (len(rows) - 1),
    }
