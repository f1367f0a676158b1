"""Plan of a run before it starts: segments, field, bytes and time.

The module `field_choice` derives the field and the fractional bits from the bound that prevents
wrapping; `choices` gives the feasible K and their cost. No data set is needed; one tightens the
bound on row sums. A protocol may provide its own numbers (`Protocol.needs`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.data.source import DataSource, dataset_of
from securevfl.engine.conditions import Conditions
from securevfl.engine.conditions_file import load_conditions
from securevfl.errors import ConfigurationError
from securevfl.field.kernels.primes import USUAL
from securevfl.planning.choices import Choice, choice_by_needs, choice_of, feasible_segments
from securevfl.planning.cohorts import cost_of_cohorts
from securevfl.planning.field_choice import Bits, RowSums, choose_bits, row_sum
from securevfl.planning.levels import Level, levels_of
from securevfl.planning.remedies import Planned, Remedy, remedies
from securevfl.privacy.released_equations import LAW, Odometer, refuse_width
from securevfl.protocols.base.defaults import DEFAULT
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.protocols.base.schedule import HELPERS_COUNT, Needs, Shape, shares_of_one_operator
from securevfl.protocols.base.sum_budget import odometer, unknowns_of

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

_ROWS = (1_000, 10_000)  # examples, where nobody knows how many rows tables share
_WRITTEN = dict(zip(USUAL, ("2^31-1", "2^50-2^14+1", "2^61-1"), strict=True))


@dataclass(frozen=True)
class Forecast:
    """Forecast of a run, returned by `plan`.

    Attributes
    ----------
    protocol : str
        Name of the protocol.
    parties, privacy, rounds : int
        N, T and the requested number of server steps; each choice has the actual number.
    shape : Shape
        Sizes of the data.
    conditions : str
        Name of the conditions.
    bits : Bits
        Field and fractional bits.
    choices : tuple of Choice
        All feasible K in order, or the requested one.
    best : Choice
        Choice with the shortest expected round.
    command : str
        Options of ``securevfl run`` for this run.
    released : Odometer or None
        Number of equations that the decoded sums of the whole run give about a row, and of its
        unknowns; None if the protocol decodes no sums. Without a data set all columns count as
        independent.
    warnings : tuple of str
        Texts on collusion of planned or proposed helpers, on what the decoded sums reveal at these
        sizes, and on the cost of cohorts; often empty.
    remedies : tuple of Remedy
        If no straggler is tolerated, changes of the plan that tolerate one.
    levels : tuple of Level
        Cost of each security level of the protocol, at the best K; empty if it has no levels.
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
    released: Odometer | None = None
    warnings: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    levels: tuple[Level, ...] = ()


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
        A data set. Without one give `parties`, `rows` and `features`; values are then assumed to be
        in [0, 1], as after scaling.
    protocol : str
        Name of a protocol that declares its messages and has segments; the default protocol if not
        given.
    parties, rows, features, test_rows : int, optional
        N, training rows M, columns of all clients together (divided evenly), and test rows, which
        only secure inference needs.
    accuracy_bits : int
        Smallest number of fractional bits of data and of weights. The field is the smallest
        sufficient one of 2^31-1, 2^50-2^14+1 and 2^61-1; spare bits are added up to 20 and 24.
    conditions : str, Path, mapping or Conditions
        Delays and bandwidth: a preset, a TOML file, or its content.
    sealed : bool
        Whether links are encrypted, which adds bytes to each message.
    seed : int
        Seed of the Monte Carlo simulation of times.
    **options
        Options of the protocol: ``privacy``, ``degree``, ``width``, ``batch``, ``rounds``,
        ``masked``, ``secure``, ``weight_bound``; ``segments`` to plan for that K only; ``prime``,
        ``data_bits`` and ``model_bits`` to check those.

    Returns
    -------
    Forecast

    Raises
    ------
    WouldOverflowError
        If no field is large enough for the bits.
    ConfigurationError
        If no K is feasible, a size is out of range, or the protocol has no forecast.

    Examples
    --------
    >>> found = plan(parties=8, rows=1000, features=64, privacy=1, conditions="none")
    >>> [(choice.segments, choice.threshold) for choice in found.choices]
    [(1, 3), (2, 5), (3, 7)]
    """
    cls = get_protocol(protocol)
    config: Any = make_config(cls, options)
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigurationError(f"plan: seed must be a whole number of at least 0, it is {seed!r}")
    if not isinstance(sealed, bool):
        raise ConfigurationError(f"plan: sealed must be True or False, it is {sealed!r}")
    if data is None and getattr(config, "secure", False) and not test_rows:
        raise ConfigurationError("plan: secure = True infers test rows; give test_rows")
    degree = getattr(config, "degree", 1)
    shape, sums, train = _sizes(data, parties, rows, features, test_rows, degree, options)
    config = cls.settled(config, shape)
    if train and cls.tells_sums:
        unknowns, rank = unknowns_of(train, config)
        shape = replace(shape, unknowns=unknowns, rank=rank)
    if getattr(config, "budget", 0.0):
        most = shape.unknowns or sum(shape.widths)
        refuse_width(f"plan: {cls.name}", most, config.width, config.budget)
    if cls.needs(config, shape) is not None:
        return _by_needs(cls, config, shape, conditions, sealed, seed, options)
    _check_plannable(cls, config, shape)
    bits = choose_bits(sums, config.weight_bound, accuracy_bits, options)
    chosen = {"prime": bits.prime, "data_bits": bits.data_bits, "model_bits": bits.model_bits}
    config = config.model_copy(update=chosen)
    N = len(shape.widths)
    choices = tuple(
        choice_of(cls, config.model_copy(update={"segments": K}), shape, conditions, sealed, seed)
        for K in feasible_segments(cls, N, config, shape)
    )
    given = {k: v for k, v in options.items() if k not in (*chosen, "segments")}
    planned = Planned(cls, config, shape, conditions, sealed, seed)
    return _forecast(planned, N, bits, choices, {**given, **chosen})


def _check_plannable(cls: type[Protocol], config: Any, shape: Shape) -> None:
    """Raise ConfigurationError unless a protocol has K, T and a schedule that is not random."""
    start = f"plan: {cls.name} cannot be planned"
    if cls.outline.__func__ is Protocol.outline.__func__:  # type: ignore[attr-defined]
        raise ConfigurationError(
            f"{start}: it has no message schedule, from which times and bytes would follow. Plan "
            f"{DEFAULT}, or, where the protocol is yours, define its `outline`"
        )
    if not hasattr(config, "privacy"):
        raise ConfigurationError(
            f"{start}: a plan compares the segments K that a privacy T leaves, and it has neither. "
            f"Plan {DEFAULT}"
        )
    if cls.outline(config, shape) is None:
        raise ConfigurationError(
            f"{start} with these options: what it sends depends on chance; leave out timeouts, or "
            f"plan {DEFAULT}"
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
    """Forecast by the protocol's own numbers, K given or any; ConfigurationError if none fits."""
    holds = "helpers" in cls.Config.model_fields  # holders, whose number bounds K
    tried = range(1, shape.rows + 1) if holds and "segments" not in options else [config.segments]
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
                    f"privacy. {HELPERS_COUNT}"
                )
            break
        configs.append(made)
        needs.append(found)
    choices = tuple(
        choice_by_needs(cls, made, shape, found, conditions, sealed, seed)
        for made, found in zip(configs, needs, strict=True)
    )
    used = needs[choices.index(_fastest(choices))]
    bits = Bits(
        *(used.prime, used.data_bits, used.model_bits, used.largest, used.limit),
        expected=used.expected,
        smallest=used.smallest,
    )
    settings = {**options, "prime": used.prime}
    planned = Planned(cls, config, shape, conditions, sealed, seed)
    return _forecast(planned, used.parties, bits, choices, settings)


def _forecast(
    planned: Planned,
    parties: int,
    bits: Bits,
    choices: tuple[Choice, ...],
    settings: Mapping[str, Any],
) -> Forecast:
    """Forecast of `planned`; its command has `settings` and the segments of the best choice."""
    best, config, shape = _fastest(choices), planned.config, planned.shape
    changes = remedies(planned, best)
    helped = best.helpers or any(one.helpers for one in changes)
    of_one = shares_of_one_operator(best.segments, config.privacy) if helped else ""
    released = released_by(planned.protocol, config, shape, best.segments)
    return Forecast(
        protocol=planned.protocol.name,
        parties=parties,
        privacy=config.privacy,
        rounds=config.rounds,
        shape=shape,
        conditions=_called(planned.conditions),
        bits=bits,
        choices=choices,
        best=best,
        command=" ".join(
            _flag(key, value) for key, value in {**settings, "segments": best.segments}.items()
        ),
        released=released,
        warnings=tuple(filter(None, [of_one, *_warnings(planned, best, parties, released)])),
        remedies=changes,
        levels=levels_of(
            *(planned.protocol, shape, {**settings, "segments": best.segments}),
            sealed=planned.sealed,
        ),
    )


def _warnings(planned: Planned, best: Choice, parties: int, released: Odometer | None) -> list[str]:
    """Sentences on what decoded sums (`released`) reveal and on the cost of cohorts for `best`."""
    cls, config, shape = planned.protocol, planned.config, planned.shape
    found = [*told_by_sums(released)]
    cohorts = cls.cohorts(config, parties)
    outline = cls.outline(config.model_copy(update={"segments": best.segments}), shape)
    if cohorts is not None and outline is not None:
        rows = outline.batch_rows
        conditions = load_conditions(planned.conditions, parties=parties, batch_rows=rows)
        found.append(cost_of_cohorts(cohorts, conditions, seed=planned.seed))
    return found


def released_by(
    protocol: type[Protocol], config: Any, shape: Shape, segments: int
) -> Odometer | None:
    """Count of equations that a run with K = `segments` reveals; None without decoded sums."""
    if not protocol.tells_sums:
        return None
    length = math.ceil(shape.rows / segments)
    per_epoch = length // min(max(1, config.batch // segments), length)
    if shape.unknowns is not None:
        return odometer(config, shape.unknowns, shape.rank, per_epoch)
    columns = [np.empty((0, width)) for width in shape.widths]
    most = unknowns_of(columns, config, range(len(columns)))
    return odometer(config, *most, per_epoch, at_most=True)


def sums_to_come(protocol: type[Protocol], config: Any) -> str:
    """Sentences on what decoded sums will reveal, when rows and columns are not yet known.

    Parameters
    ----------
    config : protocol options
        Options that all parties will sign. Width and batch may depend on the data's sizes.

    Returns
    -------
    str
        Empty if the protocol decodes no sums.
    """
    if not protocol.tells_sums:
        return ""
    h, R = config.width, config.rounds
    told = f"h = {h}" if h else "h, an eighth of all columns,"
    told = f"each decoded sum gives {told} equations about each row of its batch"
    if h and config.batch:
        K = getattr(config, "segments", None) or 1
        found = [released_by(protocol, config, Shape((), rows), K) for rows in _ROWS]
        each = [one.visits_planned * h for one in found if one is not None]
        told += f"; {R} rounds give {each[0]:,} with {_ROWS[0]:,} training rows"
        told += f" and {each[1]:,} with {_ROWS[1]:,}"
    elif h:
        told += f", in {R} rounds at most {R * h:,}"
    told += ". A row has as many unknowns as all parties together have independent columns"
    # The budget that is meant where none is given does not depend on sizes.
    budget = getattr(protocol.settled(config, Shape((_ROWS[0],), _ROWS[0])), "budget", 0.0)
    if budget:
        times = "" if budget == 1 else f"{budget:g} times "
        return f"{told}. Parties refuse a sum with which equations would reach {times}the unknowns"
    return f"{told}. No budget ends the run before equations reach them. {LAW}"


def told_by_sums(released: Odometer | None) -> tuple[str, ...]:
    """Warning if sums give at least as many equations of a row as it has unknowns; else empty."""
    if released is None or released.state == "below":
        return ()
    return (f"{released.sentence()}. To stay below: {released.ways_below()}",)


def _fastest(choices: tuple[Choice, ...]) -> Choice:
    """The choice with the shortest expected round."""
    return min(choices, key=lambda choice: choice.round_seconds)


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
    degree: int,
    options: Mapping[str, Any],
) -> tuple[Shape, list[RowSums], tuple[np.ndarray, ...]]:
    """(shape of the data, bound on each client's row sums, training columns, if available)."""
    asked = {"parties": parties, "rows": rows, "features": features, "test_rows": test_rows}
    for name, size in asked.items():
        least = int(name != "test_rows")
        whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if size is not None and not (whole and size >= least):
            raise ConfigurationError(
                f"plan: {name} must be a whole number of at least {least}, it is {size!r}"
            )
    if data is None:
        if rows is None or features is None:
            raise ConfigurationError("plan: give a data set, or its shape with rows and features")
        N = 8 if parties is None else parties
        if features < N:
            raise ConfigurationError(
                f"plan: {features} features cannot be divided among {N} parties. Use at most "
                f"{features} parties"
            )
        widths = tuple(len(part) for part in np.array_split(np.arange(features), N))
        return Shape(widths, rows, test_rows), [RowSums(d * degree + 1.0) for d in widths], ()
    if rows or features or test_rows:
        raise ConfigurationError("plan: give a data set or rows and features, not both")
    if isinstance(data, str):
        data = DataSource(data, {"parties": parties} if parties else {})
    dataset = dataset_of("plan", data)
    if parties not in (None, dataset.parties):
        raise ConfigurationError(
            f"plan: parties = {parties}, and the data set has {dataset.parties}; leave parties out"
        )
    parts = [dataset.train, dataset.test] if options.get("secure") else [dataset.train]
    shape = Shape(tuple(dataset.widths), len(dataset.train_labels), len(dataset.test_labels))
    sums = [
        RowSums(max(row_sum(part[n], degree) for part in parts), width * degree)
        for n, width in enumerate(shape.widths)
    ]
    return shape, sums, dataset.without_leaves


def _called(conditions: str | Path | Mapping[str, Any] | Conditions) -> str:
    if isinstance(conditions, Mapping):
        return "custom"
    return conditions.name if isinstance(conditions, Conditions) else str(conditions)
