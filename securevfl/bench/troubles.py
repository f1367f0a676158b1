"""Conditions of a threshold benchmark: parties that are slow, busy, dead or lying."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from securevfl.engine.conditions import CONDITIONS, Conditions
from securevfl.engine.conditions_file import conditions_from, load_conditions
from securevfl.engine.delays import DISTRIBUTIONS, Trace
from securevfl.engine.network import SERVER
from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.studies.variant import parse_pairs

Kind = Literal["slow", "busy", "dead", "lying"]
KINDS: tuple[Kind, ...] = ("slow", "busy", "dead", "lying")
FIRST = 2  # round from which on parties are dead or lie
MEAN = 0.1  # seconds of an upload where a law is given without; the fast parties of FedVS's pattern
RATE = 1e6  # bit/s of an uplink where the law "uplinks" is given without


@dataclass(frozen=True)
class Setting:
    """Conditions under which methods are compared before any party is slowed.

    Attributes
    ----------
    label : str
        Name of the setting, as it was given.
    source : str or mapping
        Argument of `securevfl.engine.conditions_file.load_conditions`.
    """

    label: str
    source: str | Mapping[str, Any]

    def conditions(self, parties: int, batch_rows: int) -> Conditions:
        """Conditions for `parties` parties and `batch_rows` coded rows."""
        if isinstance(self.source, Mapping):
            made = conditions_from(
                self.source, parties=parties, batch_rows=batch_rows, name=self.label
            )
        else:
            made = load_conditions(self.source, parties=parties, batch_rows=batch_rows)
        return replace(made, name=self.label)


def parse_law(text: str) -> Setting:
    """A setting from ``NAME``, ``NAME:NUMBER`` or ``NAME:key=value,...``.

    NAME is a law of `securevfl.engine.delays.Delay`, "constant", "uplinks", or a name of
    conditions, those of installed packages included. A bare number is the shape of a law that has
    one, else its mean in seconds, or bit/s of "uplinks". ``mean`` and all keys of conditions may
    follow. UnknownNameError for a name; ConfigurationError for a part that is no ``key=value``.
    """
    name, _, rest = text.partition(":")
    laws = [*DISTRIBUTIONS, "constant", "uplinks"]
    known = [*laws, *(own for own in CONDITIONS.all() if own != "none")]
    if name not in known:
        raise UnknownNameError("law of delay", name, known)
    parts = rest.split(",") if rest else []
    number = {parts.pop(0)} if parts and "=" not in parts[0] else set()
    given = {k: _value(v) for k, v in parse_pairs(parts, what=f"law {text!r}").items()}
    first: Any = _value(number.pop()) if number else None
    if name not in laws:
        if first is not None:
            raise ConfigurationError(f"law {text!r}: {name} takes key=value only, not {first!r}")
        return Setting(text, {"pattern": name, **given})
    key = (
        "uplinks" if name == "uplinks" else "upload_shift" if name == "constant" else "upload_mean"
    )
    values = {key: given.pop("mean", RATE if name == "uplinks" else MEAN), **given}
    if name in ("pareto", "lognormal") and first is not None:
        values["upload_shape"] = first
    elif first is not None:
        values[key] = first
    return Setting(text, values | ({"upload_law": name} if name in DISTRIBUTIONS else {}))


def _value(text: str) -> Any:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and "." not in text and "e" not in text else number


def trace_setting(path: Path) -> Setting:
    """Setting named after a trace file, which is read only by `Setting.conditions`."""
    return Setting(path.stem, {"trace": str(path.absolute())})


def conditions_setting(source: str) -> Setting:
    """Setting of conditions, by a known name or from a TOML file."""
    path = Path(source)
    is_file = source not in CONDITIONS.all() and path.is_file()
    return Setting(path.stem, str(path.absolute())) if is_file else Setting(source, source)


def order_of(seed: int, parties: int) -> list[int]:
    """Order in which parties become slow, drawn from the seed."""
    stream = keyed_stream(seed, SERVER, "threshold/order", parties)
    return [int(n) for n in stream.permutation(parties)]


def with_slow(base: Conditions, slow: Sequence[int], slower: float, seed: int) -> Conditions:
    """Conditions in which only the listed parties are slow.

    If the parties of `base` differ, the parties in `slow` get delays, rates and slowness of its
    slow parties in turn, the others those of its fast ones. Its parties are sorted by cost
    (`_cost`), and the slow ones begin at the largest ratio of neighbours in the upper half. If all
    are alike, a slow party is `slower` times as slow. `seed` draws the first round of a trace.
    """
    pools = _pools(base)
    N = len(base.uploads) or max(map(len, (base.uplinks, base.downlinks, base.slowness)))
    places, count = [0] * N, [0, 0]
    for n in range(N):
        own = int(n in slow)
        pool = pools[own]
        places[n] = pool[count[own] % len(pool)]
        count[own] += 1
    changed: dict[str, Any] = {
        key: tuple(getattr(base, key)[k] for k in places)
        for key in ("uploads", *_LISTS)
        if getattr(base, key)
    }
    if base.uploads:
        changed["uploads"] = tuple(
            _start(delay, places[:n].count(places[n]), seed, N)
            for n, delay in enumerate(changed["uploads"])
        )
    made = replace(base, **changed)
    return _slowed(made, slow, slower) if pools[0] == pools[1] else made


_LISTS = ("uplinks", "downlinks", "slowness")


def _start(delay: Any, copy: int, seed: int, parties: int) -> Any:
    """A delay as it is; copy n of a trace starts at a drawn round, plus n / `parties` of it."""
    if not isinstance(delay, Trace):
        return delay
    length = len(delay.recorded)
    drawn = int(keyed_stream(seed, SERVER, "threshold/start", parties).integers(2**31))
    return delay.turned(drawn + copy * length // parties)


def _slowed(base: Conditions, slow: Sequence[int], slower: float) -> Conditions:
    """Conditions where delays of `slow`, or else links and computing, are `slower` times longer."""
    uploads: Sequence[Any] = base.uploads
    if any(delay.expectation for delay in uploads):
        late = (each.scaled(slower) if n in slow else each for n, each in enumerate(uploads))
        return replace(base, uploads=tuple(late))
    changed: dict[str, Any] = {}
    for key in _LISTS:
        times = slower if key == "slowness" else 1 / slower
        changed[key] = tuple(
            value * times if n in slow and value is not None else value
            for n, value in enumerate(getattr(base, key))
        )
    return replace(base, **changed)


def _pools(base: Conditions) -> tuple[list[int], list[int]]:
    """(fast parties, slow parties), both all if alike; ConfigurationError if none can be slow."""
    lists: list[Sequence[Any]] = [base.uploads, *(getattr(base, key) for key in _LISTS)]
    there = [values for values in lists if values]
    if not any(len(set(values)) > 1 or _matter(values[0]) for values in there):
        raise ConfigurationError(
            f"bench threshold: in the conditions {base.name!r} nothing of the parties can be slow; "
            "give --law NAME, --trace FILE or conditions with delays or uplinks"
        )
    N = len(there[0])
    if all(len(set(values)) == 1 for values in there):
        return list(range(N)), list(range(N))
    cost = [_cost(base, n) for n in range(N)]
    order = sorted(range(N), key=cost.__getitem__)
    steps = {k: cost[order[k]] / max(cost[order[k - 1]], 1e-9) for k in range((N + 1) // 2, N)}
    edge = max(steps, key=steps.__getitem__)
    return order[:edge], order[edge:]


def _matter(value: Any) -> bool:
    return value.expectation > 0 if hasattr(value, "expectation") else value is not None


def _cost(base: Conditions, n: int) -> float:
    """Seconds for ranking parties by speed: mean delay plus a megabyte on each link."""
    rates = [links[n] for links in (base.uplinks, base.downlinks) if links]
    seconds = base.uploads[n].expectation if base.uploads else 0.0
    seconds += math.fsum(8e6 / rate for rate in rates if rate)
    return (seconds or 1.0) * (base.slowness[n] if base.slowness else 1.0)


def mean_delay(base: Conditions) -> float:
    """Mean delay of the fast parties in seconds; 0 if the conditions delay no uploads."""
    pool = _pools(base)[0]
    return math.fsum(base.uploads[n].expectation for n in pool) / len(pool) if base.uploads else 0.0


def faults_of(kind: Kind, slow: Sequence[int]) -> dict[str, Any] | None:
    """Faults, for `load_faults`, with the listed parties dead or lying from round `FIRST` on."""
    name = {"dead": "outage", "lying": "lie"}.get(kind)
    spans = [{"party": n, "rounds": [FIRST]} for n in sorted(slow)]
    return {name: spans} if name and spans else None
