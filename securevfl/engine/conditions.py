"""Conditions of a run: delays of the parties, bandwidth, and computing time.

Times are seconds here and nanoseconds in the engine. Every delay is a function of (seed, party,
round, activity), so all protocols of a comparison have equal delays. A delay is either latency of a
message or work of its sender (`Conditions.delay_mode`). Papers leave this open; methods that do not
wait for stragglers gain by the first and lose by the second.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from securevfl.engine.delays import Delay, Trace
from securevfl.engine.network import SERVER
from securevfl.engine.traces import MEASURED
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.plugins import Registry

__all__ = [
    "CONDITIONS",
    "NONE",
    "Conditions",
    "Delay",
    "Trace",
    "named_conditions",
    "paper",
    "round_ns",
    "share_factor",
    "slow_set",
]

Compute = Literal["none", "measured", "modelled"]
_COMPUTES = ("none", "measured", "modelled")
DelayMode = Literal["latency", "occupies", "abort"]
DELAY_MODES = ("latency", "occupies", "abort")
LogBase = Literal["2", "e"]
_LOGARITHMS: dict[str, Callable[[float], float]] = {"2": math.log2, "e": math.log}


@dataclass(frozen=True)
class Conditions:
    """Conditions of a run: client delays, link rates, and how computing time is modelled.

    ConfigurationError for values out of range, or that contradict each other.

    Parameters
    ----------
    name : str
        Name in summaries.
    uploads : tuple of Delay or of Trace
        Delay of each client's upload of an embedding; empty for no delays.
    share_factor : float
        Delay of sharing a model (sending coded shares to the other clients), in multiples of the
        upload's delay: drawn separately from the same distribution, or read from the same trace.
        FedVS's paper has log2(N)^2 / |B| for N clients and batches of |B| rows.
    bandwidth : float or None
        Bits per second of every party's uplink; None for no limit.
    compute : {"none", "measured", "modelled"}
        "measured" adds the real computing time of a party's code, during which the party is busy;
        times of such a run are not reproducible, and it is labelled. "modelled" computes this time
        from the multiply-adds that a party declares (`securevfl.engine.party.Party.operations`).
    uplinks : tuple of float or None
        Rate of each client's uplink; `bandwidth` is then only the server's.
    downlinks : tuple of float or None
        Rate at which each client receives the server's messages, one after the other, once they
        have left the server's uplink. Empty or None for no limit.
    seconds_per_multiply_add : float
        Seconds of one operation: above 0 if `compute` is "modelled", else 0.
    delay_mode : {"latency", "occupies", "abort"}
        Meaning of a delay. "latency": the message is in transit, and its sender continues at once.
        "occupies": the sender works for this time, then sends, and does nothing else meanwhile.
        "abort": as "occupies", but a client that learns of a newer round drops its work on older
        ones: these messages are not sent, and the client is free at once.
    slowness : tuple of float
        Modelled computing time of each client, in multiples of the server's; empty for 1.
    persistence : int
        Number of rounds for which a drawn delay holds. Traces ignore it.
    """

    name: str = "none"
    uploads: tuple[Delay, ...] | tuple[Trace, ...] = ()
    share_factor: float = 0.0
    bandwidth: float | None = None
    compute: Compute = "none"
    uplinks: tuple[float | None, ...] = ()
    seconds_per_multiply_add: float = 0.0
    delay_mode: DelayMode = "latency"
    slowness: tuple[float, ...] = ()
    persistence: int = 1
    downlinks: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        for rate in (self.bandwidth, *self.uplinks, *self.downlinks):
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
        for delay in self.uploads:
            if not isinstance(delay, Delay | Trace):
                raise ConfigurationError(
                    f"conditions: an upload's delay is {delay!r}; give Delay(shift=...) for a "
                    "constant one, Delay(mean=...), or a Trace"
                )
        if len({type(delay) for delay in self.uploads}) > 1:
            raise ConfigurationError("conditions: either all clients replay a trace, or none")
        if self.delay_mode not in DELAY_MODES:
            raise ConfigurationError(
                f"conditions: delay_mode must be 'latency' or 'occupies' or 'abort', it is "
                f"{self.delay_mode!r}"
            )
        if self.slowness and self.compute != "modelled":
            raise ConfigurationError(
                f"conditions: slowness scales modelled computing, and compute is {self.compute!r}; "
                "leave slowness out, or set compute = 'modelled'"
            )
        for factor in self.slowness:
            if not 0 < factor < math.inf:
                raise ConfigurationError(
                    f"conditions: a slowness of {factor} must be positive and finite"
                )
        if type(self.persistence) is not int or self.persistence < 1:
            raise ConfigurationError(
                f"conditions: persistence is a number of rounds, at least 1; it is "
                f"{self.persistence!r}"
            )

    def delay(self, seed: int, party: int, round: int, activity: str) -> int:
        """Nanoseconds by which an activity ("upload", "share") delays a message; 0 for others."""
        if not 0 <= party < len(self.uploads):
            return 0
        seconds = self.uploads[party].seconds(seed, party, self.spell(party, round), activity)
        if activity == "share":
            seconds *= self.share_factor
        return round_ns(seconds)

    def spell(self, party: int, round: int) -> int:
        """Key of a party's delay: the round or, with `persistence`, the number of its period.

        These periods begin in different rounds for different parties.
        """
        if self.persistence == 1 or isinstance(self.uploads[party], Trace):
            return round
        return (round + party) // self.persistence

    def transfer(self, nbytes: int, sender: int = SERVER) -> int:
        """Nanoseconds that a message occupies its sender's uplink; 0 without a limit."""
        own = 0 <= sender < len(self.uplinks)
        rate = self.uplinks[sender] if own else self.bandwidth
        return 0 if rate is None else round_ns(8 * nbytes / rate)

    def download(self, nbytes: int, receiver: int) -> int:
        """Nanoseconds that the server's message occupies its receiver's downlink; 0: no limit."""
        own = 0 <= receiver < len(self.downlinks)
        rate = self.downlinks[receiver] if own else None
        return 0 if rate is None else round_ns(8 * nbytes / rate)

    def work(self, operations: int, party: int = SERVER) -> int:
        """Nanoseconds of a party's multiply-adds; 0 if computing is not modelled."""
        factor = self.slowness[party] if 0 <= party < len(self.slowness) else 1.0
        return round_ns(operations * self.seconds_per_multiply_add * factor)

    def describe(self) -> dict[str, object]:
        """Values for a file, which `conditions_file.conditions_from` reads (except the name)."""
        values: dict[str, object] = {
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
            values["upload_law"] = [delay.law for delay in delays]
            values["upload_shape"] = [delay.shape for delay in delays]
        if traces:
            values["trace"] = [list(trace.recorded) for trace in traces]
            values["trace_end"] = traces[0].end
        if self.uplinks:
            values["uplinks"] = [rate or 0.0 for rate in self.uplinks]
        if self.downlinks:
            values["downlinks"] = [rate or 0.0 for rate in self.downlinks]
        if self.compute == "modelled":
            values["seconds_per_multiply_add"] = self.seconds_per_multiply_add
        if self.delay_mode != "latency":
            values["delay_mode"] = self.delay_mode
        if self.slowness:
            values["slowness"] = list(self.slowness)
        if self.persistence != 1:
            values["persistence"] = self.persistence
        return values


_LONGEST = 1e9  # seconds, 31 years: nine of them fit into the 64 bits of a time


def round_ns(seconds: float) -> int:
    """Nanoseconds, rounded to the nearest.

    ConfigurationError if the time exceeds the range of virtual time.
    """
    if not seconds <= _LONGEST:
        raise ConfigurationError(
            f"time: a delay, timeout or transfer of {seconds:g} s; virtual time allows up to "
            f"{_LONGEST:g} s. Choose shorter times, or a larger bandwidth"
        )
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
    log_base: LogBase = "2",
    share_factor: float | None = None,
) -> Conditions:
    """Delay pattern of FedVS, section 6.2.

    The first ``N - floor(slow N)`` clients delay their uploads by exp(mean 0.1 s); the i-th of the
    others, i = 1, 2, ..., by exp(mean 2 + i/4 s). The scan of the paper prints "2 + X, i in [4]";
    base and step are parameters for that reason. Our choice is that the last clients are the slow
    ones. Sharing a model is delayed by the same distribution scaled by log(N)^2 / |B|; the paper
    does not say which logarithm. With the natural one, a round of FedVS takes about half as long.

    Parameters
    ----------
    parties : int
        Number of clients, N.
    batch_rows : int
        Rows of a coded batch, |B|.
    slow : float
        Fraction of the clients that are stragglers, in [0, 1].
    fast_mean, slow_base, slow_step : float
        Mean delay of the other clients; mean of the i-th straggler, base + i step; in seconds.
    bandwidth : float or None
        Bits per second of each uplink; 300 Mbit/s in the paper.
    compute, seconds_per_multiply_add
        Fields of `Conditions`: model of computing time, and seconds of one operation.
    log_base : {"2", "e"}
        Base of the logarithm above.
    share_factor : float, optional
        Factor that replaces log(N)^2 / |B|; refused together with `log_base` "e".

    Raises
    ------
    ConfigurationError
        For values out of range, or that exclude each other.
    """
    if not 0 <= slow <= 1:
        raise ConfigurationError(f"conditions: the slow fraction {slow} must lie in [0, 1]")
    stragglers = math.floor(slow * parties)
    fast = [Delay(fast_mean)] * (parties - stragglers)
    late = [Delay(slow_base + slow_step * i) for i in range(1, stragglers + 1)]
    return Conditions(
        name="paper",
        uploads=tuple(fast + late),
        share_factor=chosen_factor(parties, batch_rows, log_base, share_factor),
        bandwidth=bandwidth,
        compute=compute,
        seconds_per_multiply_add=seconds_per_multiply_add,
    )


def with_helpers(conditions: Conditions, parties: int) -> Conditions:
    """Conditions for `parties` clients; added ones have the fastest client's delays.

    Added clients are helpers, parties without data. Conditions without delays are unchanged.
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
    log_base: LogBase = "2",
    share_factor: float | None = None,
) -> Conditions:
    """Conditions under which listed clients are always slow and the others never.

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
    bandwidth, compute, seconds_per_multiply_add, log_base, share_factor
        Arguments of `paper`: uplink in bit/s; model of computing time and its seconds for each
        multiply-add; logarithm's base in the factor of delays of sharing, and that factor itself.

    Raises
    ------
    ConfigurationError
        For slow parties that repeat or are not in [0, N), and for values that `paper` refuses.
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
        share_factor=chosen_factor(parties, batch_rows, log_base, share_factor),
        bandwidth=bandwidth,
        compute=compute,
        seconds_per_multiply_add=seconds_per_multiply_add,
    )


def _measured(
    name: str,
    *,
    parties: int,
    batch_rows: int,
    times: float = 1.0,
    share_factor: float | None = None,
    bandwidth: float | None = None,
    delay_mode: DelayMode = "latency",
) -> Conditions:
    """Conditions of a trace or law of `securevfl.engine.traces.MEASURED`, `times` as long.

    The other parameters are those of `Conditions`.
    """
    uploads = MEASURED[name].uploads(parties, times)
    factor = chosen_factor(parties, batch_rows, "2", share_factor)
    return Conditions(name, uploads, factor, bandwidth, delay_mode=delay_mode)


MakeConditions = Callable[..., Conditions]
CONDITIONS: Registry[MakeConditions] = Registry(
    "securevfl.conditions",
    "pattern of conditions",
    lambda: {
        "none": lambda *, parties, batch_rows: NONE,
        "paper": lambda *, parties, batch_rows: paper(parties, batch_rows=batch_rows),
        **{name: functools.partial(_measured, name) for name in MEASURED},
    },
    callable,
    all_needed=False,
)


def named_conditions(name: str, *, parties: int, batch_rows: int, **parameters: Any) -> Conditions:
    """Conditions made by a registered function.

    Installed packages may register functions: an entry point of the group ``securevfl.conditions``
    names a ``make_conditions(*, parties, batch_rows, **parameters)``. Every parameter needs a
    default, so that the name alone suffices. UnknownNameError for an unknown name or parameter.
    ConfigurationError if the function returns no `Conditions`, or not one delay per client.

    Parameters
    ----------
    name : str
        "none", "paper", a name of `securevfl.engine.traces.MEASURED`, or that of an entry point.
    parties : int
        Number of clients, N.
    batch_rows : int
        Rows of a coded batch, |B|.
    **parameters
        Parameters of the function; a file names the function by ``pattern`` and has them as further
        keys.
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


def share_factor(parties: int, batch_rows: int, base: LogBase = "2") -> float:
    """log(N)^2 / |B|: cost of sharing a model relative to evaluating a batch (section 6.2).

    `base` is "2" or "e"; else ConfigurationError.
    """
    if base not in _LOGARITHMS:
        raise ConfigurationError(f"conditions: log_base must be '2' or 'e', it is {base!r}")
    return _LOGARITHMS[base](parties) ** 2 / batch_rows


def chosen_factor(parties: int, batch_rows: int, base: LogBase, given: float | None) -> float:
    """The share factor `given`, or log(N)^2 / |B| if it is None.

    ConfigurationError for a given factor and a base other than "2" together.
    """
    if given is not None and base != "2":
        raise ConfigurationError(
            f"conditions: share_factor = {given} and log_base = {base!r} exclude each other; give "
            "one of them"
        )
    return share_factor(parties, batch_rows, base) if given is None else given
