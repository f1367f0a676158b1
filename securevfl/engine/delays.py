"""Delay distributions: seconds that an activity of a party takes in a round.

A delay is a function of (seed, party, round, activity) only, so all protocols of a comparison have
equal delays, independent of their other draws and of the order of calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError

TraceEnd = Literal["wrap", "refuse"]


def _exponential(stream: np.random.Generator, shape: float) -> float:
    return float(stream.standard_exponential())


def _pareto(stream: np.random.Generator, shape: float) -> float:
    """Pareto variate: P(X > x) = (m / x)^shape, x >= m = (shape - 1) / shape; mean 1."""
    return (shape - 1) / shape * math.exp(float(stream.standard_exponential()) / shape)


def _lognormal(stream: np.random.Generator, shape: float) -> float:
    """Log-normal variate of mean 1: exp(shape Z - shape^2 / 2), Z standard normal."""
    return math.exp(shape * float(stream.standard_normal()) - shape**2 / 2)


# Each distribution has mean 1. It is a function of a stream and of the shape.
DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, float], float]] = {
    "exponential": _exponential,
    "pareto": _pareto,
    "lognormal": _lognormal,
}
# Beyond these shapes one delay in a million has more than half of the mean: runs would see less.
_SHAPES = {"pareto": (1.05, math.inf), "lognormal": (0.0, 5.0)}
DEFAULT_SHAPE = {"exponential": 0.0, "pareto": 2.5, "lognormal": 1.0}


@dataclass(frozen=True)
class Delay:
    """A random delay plus a constant one.

    ConfigurationError for an unknown law, or a number out of range.

    Parameters
    ----------
    mean : float
        Mean of the random part in seconds, at least 0.
    shift : float
        Constant part in seconds, at least 0.
    law : {"exponential", "pareto", "lognormal"}
        Distribution of the random part; the last two have heavy tails.
    shape : float
        Tail index of the Pareto distribution, above 1.05, or the standard deviation of the
        logarithm of the lognormal distribution, above 0 and below 5. The exponential distribution
        has none: 0.
    """

    mean: float = 0.0
    shift: float = 0.0
    law: str = "exponential"
    shape: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.mean < math.inf and 0 <= self.shift < math.inf):
            raise ConfigurationError(
                f"delay: mean {self.mean} s and shift {self.shift} s must be finite and at least 0"
            )
        if self.law not in tuple(DISTRIBUTIONS):
            raise ConfigurationError(
                f"delay: unknown law {self.law!r}; known: {', '.join(DISTRIBUTIONS)}"
            )
        if self.law not in _SHAPES:
            if self.shape != 0:
                raise ConfigurationError(f"delay: the {self.law} law has no shape; leave it out")
            return
        least, most = _SHAPES[self.law]
        if not least < self.shape < most:
            below = "finite" if most == math.inf else f"below {most:g}"
            raise ConfigurationError(
                f"delay: the shape of a {self.law} law must be above {least:g} and {below}, it is "
                f"{self.shape}"
            )

    def seconds(self, seed: int, party: int, round: int, activity: str) -> float:
        """Draw the delay, in seconds, of one party, round and activity."""
        if self.mean == 0:
            return self.shift
        stream = keyed_stream(seed, party, f"delay/{activity}", round)
        return self.shift + self.mean * DISTRIBUTIONS[self.law](stream, self.shape)

    @property
    def expectation(self) -> float:
        """Mean delay in seconds."""
        return self.shift + self.mean

    def scaled(self, times: float) -> Delay:
        """The delay multiplied by `times`."""
        return replace(self, mean=times * self.mean, shift=times * self.shift)


@dataclass(frozen=True)
class Trace:
    """Measured delays of one party, replayed round by round.

    Every activity of a round has the same value, independent of the seed. ConfigurationError if
    there is no value, or one out of range.

    Parameters
    ----------
    recorded : tuple of float
        Seconds of round 1, 2, ..., each finite and at least 0.
    end : {"wrap", "refuse"}
        Behaviour beyond the last recorded round: "wrap" starts again from the first, "refuse" stops
        the run.
    """

    recorded: tuple[float, ...]
    end: TraceEnd = "wrap"

    def __post_init__(self) -> None:
        if not self.recorded or not all(0 <= s < math.inf for s in self.recorded):
            raise ConfigurationError(
                "delay: a trace needs at least one round, and seconds that are finite and at "
                f"least 0; this one has {len(self.recorded)} rounds"
            )
        if self.end not in ("wrap", "refuse"):
            raise ConfigurationError(
                f"delay: trace_end must be 'wrap' or 'refuse', it is {self.end!r}"
            )

    def seconds(self, seed: int, party: int, round: int, activity: str) -> float:
        """Recorded delay of a round, in seconds; messages before round 1 have that of round 1.

        ConfigurationError beyond the last round of a trace with ``end="refuse"``.
        """
        place = max(round - 1, 0)
        if place >= len(self.recorded) and self.end == "refuse":
            raise ConfigurationError(
                f"delay: the trace of party {party} ends with round {len(self.recorded)} and round "
                f"{round} has come; use fewer rounds or trace_end = 'wrap'"
            )
        return self.recorded[place % len(self.recorded)]

    @property
    def expectation(self) -> float:
        """Mean of the recorded delays in seconds."""
        return math.fsum(self.recorded) / len(self.recorded)

    def scaled(self, times: float) -> Trace:
        """The trace with each delay multiplied by `times`."""
        return replace(self, recorded=tuple(times * seconds for seconds in self.recorded))

    def turned(self, by: int) -> Trace:
        """The trace rotated by `by` rounds: its start moves to its end."""
        by %= len(self.recorded)
        return replace(self, recorded=self.recorded[by:] + self.recorded[:by])
