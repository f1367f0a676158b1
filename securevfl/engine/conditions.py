"""The conditions of a run: delays of its parties, bandwidth, and the time that computing takes.

Times are seconds here and nanoseconds in the engine. Every delay is a function of (seed, party,
round, activity), so all protocols of a comparison meet the same ones.
"""

from __future__ import annotations

import difflib
import inspect
import math
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from securevfl.engine.delays import DEFAULT_SHAPE, Delay, Trace, read_trace
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.plugins import Registry

__all__ = [
    "CONDITIONS",
    "NONE",
    "Conditions",
    "Delay",
    "Trace",
    "conditions_from",
    "load_conditions",
    "named_conditions",
    "paper",
    "round_ns",
    "share_factor",
    "slow_set",
]

Compute = Literal["none", "measured", "modelled"]
_COMPUTES = ("none", "measured", "modelled")


@dataclass(frozen=True)
class Conditions:
    """The conditions of a run: delays of clients, rates of uplinks, and the mode of computing time.

    Parameters
    ----------
    name : str
        Shown in summaries.
    uploads : tuple of Delay or of Trace
        Delay of each client's upload of an embedding; empty for none.
    share_factor : float
        The delay of sharing a model has the upload's distribution, scaled by this factor and
        drawn separately. The paper's factor is log2(N)^2 / |B|. A trace is scaled, not drawn.
    bandwidth : float or None
        Bits per second of every party's uplink; None for no limit.
    compute : {"none", "measured", "modelled"}
        "measured" adds the real time that a party's own code takes and makes the party busy for
        it. Such a run is labelled, and is not reproducible in time. "modelled" does so with the
        multiply-adds that a party states (`securevfl.engine.party.Party.operations`).
    uplinks : tuple of float or None
        Rate of each client's uplink in place of `bandwidth`, which then is the server's.
    seconds_per_multiply_add : float
        Price of an operation, where computing is modelled.
    """

    name: str = "none"
    uploads: tuple[Delay, ...] | tuple[Trace, ...] = ()
    share_factor: float = 0.0
    bandwidth: float | None = None
    compute: Compute = "none"
    uplinks: tuple[float | None, ...] = ()
    seconds_per_multiply_add: float = 0.0

    def __post_init__(self) -> None:
        for rate in (self.bandwidth, *self.uplinks):
            if rate is not None and not 0 < rate < math.inf:
                raise ConfigurationError(
                    f"conditions: a bandwidth of {rate} bit/s must be positive and finite"
                )
        if not 0 <= self.share_factor < math.inf:
            raise ConfigurationError(
                f"conditions: share_factor {self.share_factor} must be finite and at least 0"
            )
        if self.compute not in _COMPUTES:
            raise ConfigurationError(
                f"conditions: compute must be 'none' or 'measured' or 'modelled', it is "
                f"{self.compute!r}"
            )
        price = self.seconds_per_multiply_add
        if not 0 <= price < math.inf or (price > 0) != (self.compute == "modelled"):
            raise ConfigurationError(
                "conditions: compute = 'modelled' needs a positive seconds_per_multiply_add and "
                f"the other modes none; they are {self.compute!r} and {price}"
            )
        if len({type(delay) for delay in self.uploads}) > 1:
            raise ConfigurationError("conditions: either all clients replay a trace, or none")

    def delay(self, seed: int, party: int, round: int, activity: str) -> int:
        """Delay in nanoseconds of a party's message of a class (upload, share) in a round."""
        if not 0 <= party < len(self.uploads):
            return 0
        seconds = self.uploads[party].seconds(seed, party, round, activity)
        if activity == "share":
            seconds *= self.share_factor
        return round_ns(seconds)

    def transfer(self, nbytes: int, sender: int = SERVER) -> int:
        """Nanoseconds that a message occupies its sender's uplink."""
        own = 0 <= sender < len(self.uplinks)
        rate = self.uplinks[sender] if own else self.bandwidth
        return 0 if rate is None else round_ns(8 * nbytes / rate)

    def work(self, operations: int) -> int:
        """Nanoseconds that multiply-adds take, where computing is modelled."""
        return round_ns(operations * self.seconds_per_multiply_add)

    def describe(self) -> dict[str, Any]:
        """Values for a configuration file; `conditions_from` takes them back, the name apart."""
        said: dict[str, Any] = {
            "name": self.name,
            "upload_mean": [getattr(delay, "mean", 0.0) for delay in self.uploads],
            "upload_shift": [getattr(delay, "shift", 0.0) for delay in self.uploads],
            "share_factor": self.share_factor,
            "bandwidth": self.bandwidth or 0.0,
            "compute": self.compute,
        }
        delays = [delay for delay in self.uploads if isinstance(delay, Delay)]
        traces = [delay for delay in self.uploads if isinstance(delay, Trace)]
        if any(delay.law != "exponential" for delay in delays):
            said["upload_law"] = [delay.law for delay in delays]
            said["upload_shape"] = [delay.shape for delay in delays]
        if traces:
            said["trace"] = [list(trace.recorded) for trace in traces]
            said["trace_end"] = traces[0].end
        if self.uplinks:
            said["uplinks"] = [rate or 0.0 for rate in self.uplinks]
        if self.compute == "modelled":
            said["seconds_per_multiply_add"] = self.seconds_per_multiply_add
        return said


def round_ns(seconds: float) -> int:
    """Nanoseconds, rounded to the nearest."""
    return round(seconds * 1e9)


NONE = Conditions()


def paper(
    parties: int,
    *,
    batch_rows: int,
    slow: float = 0.5,
    fast_mean: float = 0.1,
    slow_base: float = 2.0,
    slow_step: float = 0.25,
    bandwidth: float | None = 300e6,
    compute: Compute = "none",
    seconds_per_multiply_add: float = 0.0,
) -> Conditions:
    """Delay pattern of FedVS, section 6.2.

    The first ``N - floor(slow N)`` clients delay their uploads by exp(mean 0.1 s); the i-th of
    the others, i = 1, 2, ..., by exp(mean 2 + i/4 s). The scan of the paper prints "2 + X, i in
    [4]"; base and step are parameters for that reason. That the slow ones are the last ones is
    ours. Sharing a model is delayed by the same distribution scaled by log2(N)^2 / |B|.

    Parameters
    ----------
    parties : int
        Number of clients, N.
    batch_rows : int
        Rows of a coded batch, |B|.
    slow : float
        Fraction of the clients that straggle, in [0, 1].
    fast_mean, slow_base, slow_step : float
        Means in seconds.
    bandwidth : float or None
        Bits per second of each uplink; 300 Mbit/s in the paper.
    compute, seconds_per_multiply_add
        As in `Conditions`.
    """
    if not 0 <= slow <= 1:
        raise ConfigurationError(f"conditions: the slow fraction {slow} must lie in [0, 1]")
    stragglers = math.floor(slow * parties)
    fast = [Delay(fast_mean)] * (parties - stragglers)
    late = [Delay(slow_base + slow_step * i) for i in range(1, stragglers + 1)]
    return Conditions(
        name="paper",
        uploads=tuple(fast + late),
        share_factor=share_factor(parties, batch_rows),
        bandwidth=bandwidth,
        compute=compute,
        seconds_per_multiply_add=seconds_per_multiply_add,
    )


def with_helpers(conditions: Conditions, parties: int) -> Conditions:
    """The conditions with delays for parties beyond those that have one.

    Helpers, parties without data, are as fast as the fastest of the others. Conditions without
    delays stay as they are.
    """
    missing = parties - len(conditions.uploads)
    if not conditions.uploads or missing <= 0:
        return conditions
    fastest: Any = min(conditions.uploads, key=lambda delay: delay.expectation)
    return replace(conditions, uploads=(*conditions.uploads, *[fastest] * missing))


def slow_set(
    parties: int,
    slow_parties: Collection[int],
    *,
    batch_rows: int,
    fast_mean: float = 0.1,
    slow_mean: float = 2.0,
    bandwidth: float | None = 300e6,
    compute: Compute = "none",
    seconds_per_multiply_add: float = 0.0,
) -> Conditions:
    """Conditions under which the named clients always straggle, and the others never do.

    Parameters
    ----------
    parties : int
        Number of clients, N.
    slow_parties : collection of int
        Numbers of the slow ones, from 0.
    batch_rows : int
        Rows of a coded batch, |B|.
    fast_mean, slow_mean : float
        Means of the two kinds' exponential delays in seconds.
    bandwidth, compute, seconds_per_multiply_add
        As in `paper`.
    """
    wrong = [n for n in slow_parties if type(n) is not int or not 0 <= n < parties]
    if wrong or len(set(slow_parties)) != len(slow_parties):
        raise ConfigurationError(
            f"conditions: slow_parties must be different numbers of 0 to {parties - 1}, they are "
            f"{list(slow_parties)}"
        )
    means = [slow_mean if n in slow_parties else fast_mean for n in range(parties)]
    return Conditions(
        name="slow_set",
        uploads=tuple(Delay(mean) for mean in means),
        share_factor=share_factor(parties, batch_rows),
        bandwidth=bandwidth,
        compute=compute,
        seconds_per_multiply_add=seconds_per_multiply_add,
    )


MakeConditions = Callable[..., Conditions]
CONDITIONS: Registry[MakeConditions] = Registry(
    "securevfl.conditions",
    "pattern of conditions",
    lambda: {
        "none": lambda *, parties, batch_rows: NONE,
        "paper": lambda *, parties, batch_rows: paper(parties, batch_rows=batch_rows),
    },
    callable,
)


def named_conditions(name: str, *, parties: int, batch_rows: int, **parameters: Any) -> Conditions:
    """Conditions that a function of a name makes.

    Functions of installed packages are among them: an entry point of the group
    ``securevfl.conditions`` names a ``make_conditions(*, parties, batch_rows, **parameters)``.
    Every parameter needs a default, so that the name alone is enough.

    Parameters
    ----------
    name : str
        "none", "paper", or the name of an entry point.
    parties : int
        Number of clients, N.
    batch_rows : int
        Rows of a coded batch, |B|.
    **parameters
        Of the function; a file names the function by ``pattern`` and has them as further keys.

    Raises
    ------
    UnknownNameError
        For a name or a parameter that does not exist.
    ConfigurationError
        When the function returns no `Conditions`, or not a delay for each client.
    """
    make = CONDITIONS.get(name)
    known = inspect.signature(make).parameters
    for key in parameters:
        if key not in known and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            own = known.keys() - {"parties", "batch_rows"}
            raise UnknownNameError(f"parameter of conditions {name!r}", key, own)
    made = make(parties=parties, batch_rows=batch_rows, **parameters)
    if not isinstance(made, Conditions) or len(made.uploads) not in (0, parties):
        raise ConfigurationError(
            f"conditions: {name!r} must make Conditions with a delay for each of {parties} "
            f"clients, or with none; it made {made!r}"
        )
    return made


def share_factor(parties: int, batch_rows: int) -> float:
    """log2(N)^2 / |B|: cost of sharing a model relative to evaluating a batch (section 6.2)."""
    return math.log2(parties) ** 2 / batch_rows


_COMMON = {"bandwidth", "uplinks", "compute", "seconds_per_multiply_add"}
_LAW = {"upload_law", "upload_shape"}
_FORMS = {
    "paper": {"slow", "fast_mean", "slow_base", "slow_step"} | _LAW,
    "slow_set": {"slow_parties", "slow_mean", "fast_mean"} | _LAW,
    "trace": {"trace", "trace_end", "share_factor"},
    "none": {"upload_mean", "upload_shift", "share_factor"} | _LAW,
}
_KEYS = {"pattern"}.union(_COMMON, *_FORMS.values())
_TEXTS = {"pattern", "compute", "upload_law", "trace", "trace_end"}
_LISTS = {"slow_parties", "uplinks", "upload_mean", "upload_shift", "upload_shape"}


def load_conditions(
    source: str | Path | Mapping[str, Any] | Conditions, *, parties: int, batch_rows: int
) -> Conditions:
    """Conditions by name, from a TOML file, or from what would stand in one.

    A name is "none", "paper", or one that an installed package declares (`named_conditions`).
    A file or mapping takes one of five forms:

    - ``pattern = "paper"``, with parameters of `paper`;
    - ``pattern = "slow_set"`` and ``slow_parties = [1, 4]``, with parameters of `slow_set`;
    - ``trace = "measured.csv"``, relative to the file (`securevfl.engine.delays.read_trace`), with
      ``trace_end = "wrap"`` (default) or ``"refuse"``;
    - ``upload_mean`` and ``upload_shift``: seconds, one number for all clients or one each;
    - ``pattern = NAME`` of an installed package, with that pattern's own parameters and no other.

    A trace and means take ``share_factor`` (default log2(N)^2 / |B|); all but a trace take
    ``upload_law`` and ``upload_shape`` (`securevfl.engine.delays.Delay`); all take ``bandwidth``
    (bit/s, 0 for no limit), ``uplinks`` (a rate for each client), ``compute`` and
    ``seconds_per_multiply_add``.

    Raises
    ------
    ConfigurationError
        For an unknown name, a missing or malformed file, or values out of range.
    """
    if isinstance(source, Conditions):
        return source
    if isinstance(source, Mapping):
        return conditions_from(source, parties=parties, batch_rows=batch_rows, name="custom")
    name = str(source)
    known = CONDITIONS.all()
    if name in known:
        return named_conditions(name, parties=parties, batch_rows=batch_rows)
    path = Path(source)
    if not path.is_file():
        names = " nor ".join(map(repr, known))
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigurationError(
            f"conditions: {name!r} is neither {names} nor a TOML file that exists{hint}"
        )
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"conditions: {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"conditions: {path} is not valid TOML: {error}") from None
    if isinstance(values.get("trace"), str):
        values["trace"] = str(path.parent / values["trace"])
    return conditions_from(values, parties=parties, batch_rows=batch_rows, name=path.stem)


def conditions_from(
    values: Mapping[str, Any], *, parties: int, batch_rows: int, name: str
) -> Conditions:
    """Conditions from the keys that `load_conditions` describes."""
    pattern = values.get("pattern")
    if isinstance(pattern, str) and pattern not in _FORMS and pattern in CONDITIONS.all():
        own = {key: value for key, value in values.items() if key != "pattern"}
        return named_conditions(pattern, parties=parties, batch_rows=batch_rows, **own)
    for key, value in values.items():
        if key not in _KEYS:
            known = ", ".join(sorted(_KEYS))
            raise ConfigurationError(f"conditions: unknown key {key!r}; known: {known}")
        if key not in _TEXTS | _LISTS and not _is_number(value):
            raise ConfigurationError(f"conditions: {key} must be a number, it is {value!r}")
    form = values.get("pattern", "trace" if values.get("trace") else "none")
    if form not in ("paper", "slow_set") and "pattern" in values:
        known = ", ".join(sorted({"slow_set", *CONDITIONS.all()} - {"none"}))
        raise ConfigurationError(f"conditions: unknown pattern {form!r}; known: {known}")
    own = {key: value for key, value in values.items() if key != "pattern"}
    own = _checked(form, own)
    common = _common(own, parties)
    distributions = _distributions(own, parties)
    own = {key: value for key, value in own.items() if key not in _COMMON | _LAW}
    if form == "paper":
        made = paper(parties, batch_rows=batch_rows, **own)
        return replace(made, uploads=_with_distributions(made, distributions), **common)
    if form == "slow_set":
        made = slow_set(parties, own.pop("slow_parties"), batch_rows=batch_rows, **own)
        return replace(made, uploads=_with_distributions(made, distributions), **common)
    if "share_factor" not in own and parties:
        own["share_factor"] = share_factor(parties, batch_rows)
    uploads = _traces(own, parties) if form == "trace" else _delays(own, distributions, parties)
    factor = float(own.get("share_factor", 0))
    return Conditions(name=name, uploads=uploads, share_factor=factor, **common)


def _checked(form: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, of which none may belong to another form; a trace has no means."""
    # `describe` writes means and shifts beside a trace; they count the clients and are all 0.
    unused = ("upload_mean", "upload_shift") if form == "trace" else ()
    kept = {k: v for k, v in values.items() if k not in unused or not _all_zero(v)}
    for key in kept:
        if key not in _FORMS[form] | _COMMON:
            raise ConfigurationError(
                f"conditions: {key} does not go with pattern {form!r}; leave out one of them"
            )
    if form == "slow_set" and not isinstance(kept.get("slow_parties"), list):
        raise ConfigurationError(
            "conditions: pattern 'slow_set' needs slow_parties, a list of clients' numbers, it is "
            f"{kept.get('slow_parties')!r}"
        )
    return kept


def _all_zero(value: Any) -> bool:
    return isinstance(value, list) and not any(value)


def _common(values: Mapping[str, Any], parties: int) -> dict[str, Any]:
    common = {key: values[key] for key in _COMMON - {"uplinks"} if key in values}
    if common.get("bandwidth") == 0:
        common["bandwidth"] = None
    if "uplinks" in values:
        rates = _per_party(values, "uplinks", parties)
        common["uplinks"] = tuple(rate or None for rate in rates)
    return common


def _distributions(values: Mapping[str, Any], parties: int) -> list[tuple[str, float]]:
    """Distribution and shape of each client's delay."""
    given = values.get("upload_law", "exponential")
    names = _one_each("upload_law", given, parties)
    if "upload_shape" in values:
        return list(zip(names, _per_party(values, "upload_shape", parties), strict=True))
    return [(name, DEFAULT_SHAPE.get(str(name), 0.0)) for name in names]


def _with_distributions(
    made: Conditions, distributions: Sequence[tuple[str, float]]
) -> tuple[Delay, ...]:
    means = [delay.expectation for delay in made.uploads]
    return tuple(Delay(mean, 0.0, *law) for mean, law in zip(means, distributions, strict=True))


def _delays(
    values: Mapping[str, Any], distributions: Sequence[tuple[str, float]], parties: int
) -> tuple[Delay, ...]:
    means = _per_party(values, "upload_mean", parties)
    shifts = _per_party(values, "upload_shift", parties)
    each = zip(means, shifts, distributions, strict=True)
    return tuple(Delay(mean, shift, *law) for mean, shift, law in each)


def _traces(values: Mapping[str, Any], parties: int) -> tuple[Trace, ...]:
    trace, end = values["trace"], values.get("trace_end", "wrap")
    if isinstance(trace, str):
        return read_trace(Path(trace), parties=parties, end=end)
    if not isinstance(trace, list) or len(trace) != parties:
        raise ConfigurationError(
            f"conditions: trace must name a file or hold a list for each of {parties} clients"
        )
    rows = [_numbers("trace", recorded) for recorded in trace]
    return tuple(Trace(tuple(row), end) for row in rows)


def _per_party(values: Mapping[str, Any], key: str, parties: int) -> list[float]:
    return _numbers(key, _one_each(key, values.get(key, 0.0), parties))


def _one_each(key: str, value: Any, parties: int) -> list[Any]:
    each = value if isinstance(value, list) else [value] * parties
    if len(each) != parties:
        raise ConfigurationError(
            f"conditions: {key} has {len(each)} entries for {parties} clients; give one value "
            "or one for each"
        )
    return each


def _numbers(key: str, values: Any) -> list[float]:
    if not isinstance(values, list) or not all(map(_is_number, values)):
        raise ConfigurationError(f"conditions: {key} must hold numbers only, it is {values!r}")
    return [float(number) for number in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
