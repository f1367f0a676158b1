"""The circumstances of a run: delays by activity and party, bandwidth, and who computes how long.

Times are seconds here and nanoseconds in the engine. Every delay is a function of (seed, party,
round, activity), so all protocols of a comparison meet the same ones.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError

Compute = Literal["none", "measured"]


@dataclass(frozen=True)
class Delay:
    """A constant part and an exponential part.

    Parameters
    ----------
    mean : float
        Mean of the exponential part in seconds, at least 0.
    shift : float
        Constant part in seconds, at least 0.
    """

    mean: float = 0.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.mean < math.inf and 0 <= self.shift < math.inf):
            raise ConfigurationError(
                f"delay: mean {self.mean} s and shift {self.shift} s must be finite and at least 0"
            )

    def seconds(self, seed: int, party: int, round: int, activity: str) -> float:
        """Draw the delay of one party, round and activity."""
        if self.mean == 0:
            return self.shift
        stream = keyed_stream(seed, party, f"delay/{activity}", round)
        return self.shift + self.mean * float(stream.standard_exponential())


NO_DELAY = Delay()


@dataclass(frozen=True)
class Conditions:
    """Delays of each client, the rate of each uplink, and the mode of computing time.

    Parameters
    ----------
    name : str
        Shown in summaries.
    uploads : tuple of Delay
        Delay of each client's upload of an embedding; empty for none.
    share_factor : float
        The delay of sharing a model has the upload's distribution, scaled by this factor and
        drawn separately. The paper's factor is log2(N)^2 / |B|.
    bandwidth : float or None
        Bits per second of every party's uplink; None for no limit.
    compute : {"none", "measured"}
        "measured" adds the real time that a party's own code takes and makes the party busy for
        it. Such a run is labelled, and is not reproducible in time.
    """

    name: str = "none"
    uploads: tuple[Delay, ...] = ()
    share_factor: float = 0.0
    bandwidth: float | None = None
    compute: Compute = "none"
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.bandwidth is not None and not 0 < self.bandwidth < math.inf:
            raise ConfigurationError(
                f"conditions: a bandwidth of {self.bandwidth} bit/s must be positive and finite"
            )
        if not 0 <= self.share_factor < math.inf:
            raise ConfigurationError(
                f"conditions: share_factor {self.share_factor} must be finite and at least 0"
            )
        if self.compute not in ("none", "measured"):
            raise ConfigurationError(
                f"conditions: compute must be 'none' or 'measured', it is {self.compute!r}"
            )

    def delay(self, seed: int, party: int, round: int, activity: str) -> int:
        """Nanoseconds by which a party's activity of a round is late."""
        if not 0 <= party < len(self.uploads):
            return 0
        seconds = self.uploads[party].seconds(seed, party, round, activity)
        if activity == "share":
            seconds *= self.share_factor
        return round_ns(seconds)

    def transfer(self, nbytes: int) -> int:
        """Nanoseconds that a message occupies its sender's uplink."""
        if self.bandwidth is None:
            return 0
        return round_ns(8 * nbytes / self.bandwidth)

    def describe(self) -> dict[str, Any]:
        """Values for a run's configuration file."""
        return {
            "name": self.name,
            "upload_mean": [delay.mean for delay in self.uploads],
            "upload_shift": [delay.shift for delay in self.uploads],
            "share_factor": self.share_factor,
            "bandwidth": 0.0 if self.bandwidth is None else self.bandwidth,
            "compute": self.compute,
        }


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
    )


def share_factor(parties: int, batch_rows: int) -> float:
    """log2(N)^2 / |B|: cost of sharing a model relative to evaluating a batch (section 6.2)."""
    return math.log2(parties) ** 2 / batch_rows


_KEYS = {
    "pattern": str,
    "slow": float,
    "fast_mean": float,
    "slow_base": float,
    "slow_step": float,
    "upload_mean": list,
    "upload_shift": list,
    "share_factor": float,
    "bandwidth": float,
    "compute": str,
}


def load_conditions(name: str | Path, *, parties: int, batch_rows: int) -> Conditions:
    """Conditions by name ("none", "paper") or from a TOML file.

    The file either says ``pattern = "paper"`` and changes its parameters, or lists
    ``upload_mean`` and ``upload_shift`` (seconds, one number for all clients or one each), with
    ``share_factor`` (default log2(N)^2 / |B|), ``bandwidth`` (bit/s, 0 for no limit) and
    ``compute``.

    Raises
    ------
    ConfigurationError
        For an unknown name, a missing or malformed file, or values out of range.
    """
    if str(name) == "none":
        return NONE
    if str(name) == "paper":
        return paper(parties, batch_rows=batch_rows)
    path = Path(name)
    if not path.is_file():
        raise ConfigurationError(
            f"conditions: {str(name)!r} is neither 'none' nor 'paper' nor a TOML file that exists"
        )
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"conditions: {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"conditions: {path} is not valid TOML: {error}") from None
    return conditions_from(values, parties=parties, batch_rows=batch_rows, name=path.stem)


def conditions_from(
    values: Mapping[str, Any], *, parties: int, batch_rows: int, name: str
) -> Conditions:
    """Conditions from the keys that `load_conditions` describes."""
    values = dict(values)
    for key, value in values.items():
        if key not in _KEYS:
            raise ConfigurationError(f"conditions: unknown key {key!r}; known: {', '.join(_KEYS)}")
        if _KEYS[key] is float and not _is_number(value):
            raise ConfigurationError(f"conditions: {key} must be a number, it is {value!r}")
    if values.get("bandwidth") == 0:
        values["bandwidth"] = None
    pattern = values.pop("pattern", None)
    if pattern == "paper":
        _refuse_others(values, ("upload_mean", "upload_shift", "share_factor"), "paper")
        return paper(parties, batch_rows=batch_rows, **values)
    if pattern is not None:
        raise ConfigurationError(f"conditions: unknown pattern {pattern!r}; known: paper")
    _refuse_others(values, ("slow", "fast_mean", "slow_base", "slow_step"), "none")
    means = _per_party(values, "upload_mean", parties)
    shifts = _per_party(values, "upload_shift", parties)
    return Conditions(
        name=name,
        uploads=tuple(Delay(mean, shift) for mean, shift in zip(means, shifts, strict=True)),
        share_factor=float(values.get("share_factor", share_factor(parties, batch_rows))),
        bandwidth=values.get("bandwidth"),
        compute=values.get("compute", "none"),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _refuse_others(values: Mapping[str, Any], others: tuple[str, ...], pattern: str) -> None:
    wrong = [key for key in others if key in values]
    if wrong:
        raise ConfigurationError(
            f"conditions: {wrong[0]} does not go with pattern {pattern!r}; leave out one of them"
        )


def _per_party(values: Mapping[str, Any], key: str, parties: int) -> list[float]:
    value = values.get(key, 0.0)
    numbers = value if isinstance(value, list) else [value] * parties
    if len(numbers) != parties:
        raise ConfigurationError(
            f"conditions: {key} has {len(numbers)} entries for {parties} clients; give one number "
            "or one for each"
        )
    if not all(map(_is_number, numbers)):
        raise ConfigurationError(f"conditions: {key} must hold numbers only, it is {value!r}")
    return [float(number) for number in numbers]
