"""Measured delays: readers of trace files, the traces that ship with the package, and fitted laws.

A *worker* is one column of a trace: its seconds in round 1, 2, ... `deal` assigns the W workers of
a trace to any number N of parties.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from securevfl.engine.delays import Delay, Trace, TraceEnd
from securevfl.errors import ConfigurationError

Worker = tuple[float, ...]
_LONG = {"party", "round", "seconds"}


@dataclass(frozen=True)
class Measured:
    """Measured delays by name: a shipped trace, or a law fitted to one.

    Attributes
    ----------
    what, source : str
        Description and origin of the measurement, for users.
    file : str
        Name of the shipped table; "" for a law.
    law : Delay or None
        Delay of every party; None for a trace.
    """

    what: str
    source: str
    file: str = ""
    law: Delay | None = None

    def uploads(self, parties: int, times: float = 1.0) -> tuple[Delay, ...] | tuple[Trace, ...]:
        """Delays of the uploads of so many parties, multiplied by `times`."""
        if self.law is not None:
            return (self.law.scaled(times),) * parties
        dealt = deal(read_workers(Path(__file__).parent / "measured" / self.file), parties)
        return tuple(trace.scaled(times) for trace in dealt)


_RANKS = (
    "Understanding Stragglers in Large Model Training Using What-if Analysis (Lin et al., OSDI "
    "2025), github.com/ByteDance-Seed/StragglerAnalysis, Apache-2.0"
)
_LAMBDA = (
    "fitted to Sequential Gradient Coding (Krishnan et al., ICLR 2023), "
    "github.com/mamaj/Sequential-Gradient-Coding-2; its traces have no licence and are not here"
)

# Fits: a shift and a lognormal rest with the least Kolmogorov-Smirnov distance (D). No law here has
# the tail of the last: 1 % of its calls take 26 times the median.
MEASURED: Mapping[str, Measured] = {
    "ranks_st": Measured("8 ranks of a training job, 32 steps; 2 are 1.6 x", _RANKS, "ST.csv"),
    "ranks_ar": Measured("16 ranks of a training job, 44 steps; 1 is 2.4 x", _RANKS, "AR.csv"),
    "ranks_se": Measured("64 ranks of a training job, 43 steps; 32 are 1.5 x", _RANKS, "SE.csv"),
    "lambda_canada": Measured(
        "law of 256 AWS Lambda workers, Canada, batch 2048, 30 rounds (D = 0.15)",
        *(_LAMBDA, "", Delay(0.153, 0.542, "lognormal", 0.677)),
    ),
    "lambda_london": Measured(
        "law of 256 AWS Lambda workers, London, batch 256, 10 rounds (D = 0.05)",
        *(_LAMBDA, "", Delay(1.490, 0.0, "lognormal", 0.158)),
    ),
    "lambda_cold": Measured(
        "law of 256 AWS Lambda workers, Canada, batch 256, 10 rounds (D = 0.07, no tail)",
        *(_LAMBDA, "", Delay(0.580, 0.597, "lognormal", 0.728)),
    ),
}  # fmt: skip


def deal(workers: Sequence[Worker], parties: int, end: TraceEnd = "wrap") -> tuple[Trace, ...]:
    """Traces of so many parties, from the fastest to the slowest.

    If there are more workers than parties, every W/N-th in the order of means is used, so the
    fraction of slow ones is kept. If there are fewer, each is used several times, starting at
    different rounds.

    Examples
    --------
    >>> [trace.recorded[0] for trace in deal([(4.0,), (1.0,), (2.0,), (3.0,)], 2)]
    [2.0, 4.0]
    >>> [trace.recorded for trace in deal([(1.0, 2.0)], 2)]
    [(1.0, 2.0), (2.0, 1.0)]
    """
    ordered = sorted(workers, key=lambda delays: math.fsum(delays) / len(delays))
    places = [(2 * n + 1) * len(ordered) // (2 * parties) for n in range(parties)]
    copies, found = -(-parties // len(ordered)), []
    for n, place in enumerate(places):
        worker = ordered[place]
        start = places[:n].count(place) * len(worker) // copies
        found.append(Trace(worker, end).turned(start))
    return tuple(found)


def read_workers(path: Path) -> list[Worker]:
    """Workers of a trace file.

    Parameters
    ----------
    path : Path
        One of two forms:

        - CSV with the columns ``party`` (from 0), ``round`` (from 1, without gaps), ``seconds``;
        - CSV with the column ``step`` and one column of seconds for each worker.

    Raises
    ------
    ConfigurationError
        If the file cannot be read, or is no such table; the message names the line.
    """
    return [tuple(worker) for worker in _read(path, None)]


def read_trace(path: Path, *, parties: int, end: TraceEnd = "wrap") -> tuple[Trace, ...]:
    """Delays of all parties from a file that `read_workers` describes.

    A table with the column ``party`` must have exactly these parties; workers are assigned by
    `deal`.

    Raises
    ------
    ConfigurationError
        If the file cannot be read, is no such table, or a party is missing or unknown.
    """
    workers = _read(path, parties)
    if isinstance(workers, _Parties):
        return tuple(Trace(tuple(worker), end) for worker in workers)
    return deal([tuple(worker) for worker in workers], parties, end)


class _Parties(list[list[float]]):
    """Delay lists of workers that a file calls parties."""


def _read(path: Path, parties: int | None) -> list[list[float]]:
    try:
        rows = csv.reader(io.StringIO(path.read_text("utf-8"), newline=""))
        names = next(rows, [])
        if set(names) >= _LONG:
            return _long(names, rows, path, parties)
        if names[:1] == ["step"] and len(names) > 1:
            return _wide(rows, path, len(names))
    except OSError as error:
        raise ConfigurationError(f"trace: {path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"trace: {path} is no CSV file: {error}") from None
    raise ConfigurationError(
        f"trace: {path} needs the columns party, round and seconds, or step and one for each "
        f"worker; it has {', '.join(names) or 'none'}"
    )


def _long(names: list[str], rows: Iterator[list[str]], path: Path, parties: int | None) -> _Parties:
    """Seconds by party from rows (party, round, seconds); ConfigurationError for gaps or more."""
    seconds: dict[int, dict[int, float]] = defaultdict(dict)
    for number, row in enumerate(rows, 2):
        where = f"trace: {path}, line {number}"
        _take_row(seconds, dict(zip(names, row, strict=False)), where, parties)
    count = parties if parties is not None else max(seconds, default=0) + 1
    for party in range(count):
        rounds = seconds[party]
        if sorted(rounds) != list(range(1, len(rounds) + 1)) or not rounds:
            raise ConfigurationError(
                f"trace: {path} must hold rounds 1, 2, ... of party {party} without gaps, it holds "
                f"{len(rounds)} of them up to {max(rounds, default=0)}"
            )
    return _Parties([seconds[n][r] for r in sorted(seconds[n])] for n in range(count))


def _take_row(
    seconds: dict[int, dict[int, float]], row: dict[str, str], where: str, parties: int | None
) -> None:
    try:
        party, round, value = int(row["party"]), int(row["round"]), float(row["seconds"])
    except (KeyError, ValueError):
        raise ConfigurationError(
            f"{where}: party and round must be integers and seconds a number"
        ) from None
    if party < 0 or (parties is not None and party >= parties):
        last = "above" if parties is None else str(parties - 1)
        raise ConfigurationError(f"{where}: party {party} is none of 0 to {last}")
    if round in seconds[party]:
        raise ConfigurationError(f"{where}: round {round} of party {party} occurs twice")
    seconds[party][round] = _checked(value, where)


def _wide(rows: Iterator[list[str]], path: Path, columns: int) -> list[list[float]]:
    """Seconds by worker, from rows (step, one column a worker); ConfigurationError for others."""
    steps = []
    for number, row in enumerate(rows, 2):
        where = f"trace: {path}, line {number}"
        try:
            values = [_checked(float(text), where) for text in row[1:]]
        except ValueError:
            raise ConfigurationError(f"{where}: seconds must be numbers") from None
        if len(row) != columns:
            raise ConfigurationError(f"{where}: {len(row)} columns, and the first has {columns}")
        steps.append(values)
    if not steps:
        raise ConfigurationError(f"trace: {path} holds no step")
    return [list(worker) for worker in zip(*steps, strict=True)]


def _checked(value: float, where: str) -> float:
    if not 0 <= value < float("inf"):
        raise ConfigurationError(f"{where}: {value} seconds must be finite and at least 0")
    return value
