"""Thresholds of learning: numbers of slow, busy, dead or lying parties that a method tolerates.

A *case* is a method, a setting (a law, a trace or conditions) and a kind of trouble. It is trained
with s = 0, ..., N parties in trouble, each time with several seeds, to one virtual second. Each
seed has its own split, weights, delays, and its own order in which parties become slow. A *cell* is
one s: of each seed the virtual time to the target accuracy, infinite where it was not reached.

The *threshold* is the largest s up to which the median time is at most c times that of s = 0. Its
interval is a percentile bootstrap: seeds are drawn anew, each with all its runs, so both chance of
training and which parties are slow count. The *clock's threshold* says the same of the mean time of
a round alone; methods that decode declare it, N - R - 2A of slow parties (A of lying ones).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.bench.methods import escaped
from securevfl.bench.troubles import (
    KINDS,
    Kind,
    Setting,
    faults_of,
    mean_delay,
    order_of,
    with_slow,
)
from securevfl.data.source import DataSource
from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError, RunError, UnknownNameError, needs
from securevfl.protocols.base.registry import get_protocol
from securevfl.runs.assembly import make_protocol
from securevfl.studies.intervals import mean_interval, number_or_none
from securevfl.studies.jobs import Job, check_jobs, store, stored
from securevfl.studies.speed import reached
from securevfl.studies.variant import parse_variant
from securevfl.studies.workers import Watch, carry_out

PATIENCE = 10.0  # timeouts of methods that declare them for lost parties, in mean delays
LENGTH = 400.0  # virtual time of a run in mean delays of the fast parties, where none is given
STEPS = 100  # evaluations of a run
SMALL: Mapping[str, Any] = {"batch": 64, "width": 16, "hidden": 32}
DRAWN = 2000  # resamples of the bootstrap


@dataclass(frozen=True, eq=False)
class Method:
    """A method with its options, for a threshold benchmark.

    Attributes
    ----------
    label, protocol : str
        The variant as it was named; name of its protocol.
    batch_rows : int
        Rows of a coded batch.
    declared : mapping
        Number of troubled parties that it claims to tolerate, by kind of trouble; empty without R.
    """

    label: str
    protocol: str
    options: Mapping[str, Any]
    batch_rows: int
    declared: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Case:
    """A method in a setting with a kind of trouble."""

    method: Method
    setting: Setting
    kind: Kind


@dataclass(frozen=True)
class Cell:
    """Runs of a method in a setting with `troubled` parties in a kind of trouble, one a seed.

    Attributes
    ----------
    times, bytes : tuple of float
        Virtual seconds and sent bytes until the target; infinite where it was not reached.
    rounds : tuple of float
        Virtual seconds of a round; infinite where an error ended the run.
    accuracy, sent : tuple of float
        Accuracy at the end of the run, and bytes until then; NaN if an error ended it.
    error : str
        First error.
    """

    method: str
    setting: str
    kind: str
    troubled: int
    until: float
    times: tuple[float, ...]
    bytes: tuple[float, ...]
    rounds: tuple[float, ...]
    accuracy: tuple[float, ...]
    sent: tuple[float, ...]
    error: str = ""

    @property
    def reached(self) -> int:
        """Number of seeds whose run reached the target accuracy."""
        return sum(map(math.isfinite, self.times))


@dataclass(frozen=True)
class Threshold:
    """Largest numbers of parties in a kind of trouble that a method tolerates in a setting.

    They are -1 if the target was missed even without trouble.

    Attributes
    ----------
    time, limit : float
        Median virtual seconds to the target without trouble, and c times as many.
    learning, low, high : int
        Threshold of learning with its 95 % interval.
    open : bool
        Whether the threshold of learning may be larger: with one more troubled party the runs ended
        before the limit, without reaching the target.
    clock : int
        Threshold by the time of rounds alone.
    declared : int or None
        Value of `clock` that the method declares; None if it declares none.
    """

    method: str
    setting: str
    kind: str
    time: float
    limit: float
    learning: int
    low: int
    high: int
    open: bool
    clock: int
    declared: int | None


@dataclass
class Sweep:
    """All runs of a threshold benchmark: common settings, and where results are stored.

    Parameters
    ----------
    source : DataSource
        The data set; its seed is that of each run.
    parties : int
        Number N of parties.
    folder : Path
        Folder for ``jobs/``; a run with a stored result is not repeated.
    target : float
        Accuracy to be reached.
    until : float, optional
        Virtual seconds of each run; `LENGTH` mean delays of a fast party if left out.
    seeds : sequence of int
        Seeds of the runs.
    counts : sequence of int, optional
        Numbers s of troubled parties to run, with 0; by default 0 to N.
    slower : float
        Factor by which a slow party is slower, if the setting does not define it.
    factor : float
        Factor c > 1: with s parties the target must be reached in c times the time for s = 0.
    options : mapping
        Options set for every method that has them.
    """

    source: DataSource
    parties: int
    folder: Path
    target: float = 0.9
    until: float | None = None
    seeds: Sequence[int] = (0,)
    counts: Sequence[int] = ()
    slower: float = 10.0
    factor: float = 2.0
    options: Mapping[str, Any] = field(default_factory=lambda: dict(SMALL))

    def __post_init__(self) -> None:
        N = self.parties
        self.counts = sorted({0, *(self.counts or range(N + 1))})
        if not 0 <= self.counts[0] <= self.counts[-1] <= N:
            raise ConfigurationError(
                f"bench threshold: {self.counts} slow parties must lie in 0 to {N}"
            )
        if not (1 < self.factor < math.inf and 1 < self.slower < math.inf):
            raise ConfigurationError(
                f"bench threshold: the factors c = {self.factor} and slower = {self.slower} must "
                "be finite and above 1"
            )
        if not 0 < self.target <= 1:
            raise ConfigurationError(
                f"bench threshold: target = {self.target}; give a fraction in (0, 1], such as 0.9"
            )
        if self.until is not None and not 0 < self.until < math.inf:
            raise ConfigurationError(f"bench threshold: until = {self.until}; give seconds above 0")
        if len(set(self.seeds)) < max(len(self.seeds), 1):
            raise ConfigurationError(
                f"bench threshold: seeds {list(self.seeds)} must be different, at least one"
            )

    def methods(self, variants: Sequence[str]) -> list[Method]:
        """Methods by variants, ``NAME:option=value``; UnknownNameError or ConfigurationError."""
        data = DataSource(self.source.name, self._data(self.seeds[0])).load()
        if data.task == "regression":
            raise ConfigurationError(
                f"bench threshold: {self.source.name} is a regression, and the target is an "
                "accuracy; name a data set with classes"
            )
        found = []
        for variant in dict.fromkeys(variants):
            name, own = parse_variant(variant)
            known = get_protocol(name).Config.model_fields
            for key in own:
                if key not in known:
                    raise UnknownNameError(f"option of {name}", key, known)
            options = {k: v for k, v in self.options.items() if k in known} | own
            made, _ = make_protocol(name, options, data, self.seeds[0])
            said = made.describe()
            R, A = said.get("R"), said.get("A") or 0
            late = {} if R is None else dict.fromkeys(KINDS, len(made.peers()) - R - 2 * A)
            declared = late | ({} if R is None else {"lying": A})
            found.append(Method(variant, name, options, made.batch_rows, declared))
        return found

    def _data(self, seed: int) -> dict[str, Any]:
        return {**self.source.options, "parties": self.parties, "seed": seed}

    def until_of(self, case: Case) -> float:
        """Virtual seconds of each run of a case; ConfigurationError if none follow from delays."""
        if self.until is not None:
            return self.until
        mean = mean_delay(case.setting.conditions(self.parties, case.method.batch_rows))
        if mean:
            return LENGTH * mean
        raise ConfigurationError(
            f"bench threshold: the setting {case.setting.label!r} has no delays to count time by; "
            "give --until SECONDS"
        )

    def job(self, case: Case, troubled: int, seed: int) -> Job:
        """Job of a case with `troubled` parties in trouble, the first of the seed's `order_of`."""
        method, until = case.method, self.until_of(case)
        who = order_of(seed, self.parties)[:troubled]
        base = case.setting.conditions(self.parties, method.batch_rows)
        slow = who if case.kind in ("slow", "busy") else []
        said = with_slow(base, slow, self.slower, seed).describe()
        conditions = {key: value for key, value in said.items() if key != "name" and value != []}
        if case.kind == "busy":
            conditions["delay_mode"] = "occupies"
        options = dict(method.options)
        if case.kind == "dead":
            wait = PATIENCE * (mean_delay(base) or 0.1)
            declared = get_protocol(method.protocol).fault_options
            own = {key: wait if type(value) is float else value for key, value in declared.items()}
            options = own | options
        return Job(
            label=f"{method.label}, {case.setting.label}, {troubled} {case.kind}",
            protocol=method.protocol,
            options=options,
            dataset=self.source.name,
            data=self._data(seed),
            conditions=conditions,
            faults=faults_of(case.kind, who),
            seed=seed,
            until=until,
            eval_seconds=until / STEPS,
            sealed=False,
        )

    def run(
        self,
        cases: Sequence[Case],
        *,
        workers: int = 1,
        progress: Callable[[int, int, str], None] | None = None,
        watch: Watch | None = None,
        interrupted: Callable[[], bool] | None = None,
    ) -> list[Cell]:
        """Cells of all cases; runs that have no result yet are made first, by `workers` processes.

        `progress` is called with (runs done, all runs, name). A run's RunError is its result.

        Raises
        ------
        ConfigurationError
            Before any run, where one is refused.
        Interrupted
            When `interrupted` returned True; finished runs are kept.
        """
        from securevfl.runs.engines.run import Interrupted

        needs("threshold", "report", "matplotlib", "scipy")
        check_jobs([self.job(case, 0, self.seeds[0]) for case in cases])
        every = [self.job(case, s, seed) for case, s in self._cells(cases) for seed in self.seeds]
        todo = [job for job in every if stored(self.folder, job) is None]
        done = len(every) - len(todo)
        tell = progress or (lambda done, total, what: None)
        tell(done, len(every), f"{done} were there")
        try:
            for job, result in carry_out(todo, workers, watch=watch, interrupted=interrupted):
                store(self.folder, job, result)
                done += 1
                tell(done, len(every), job.name)
        except RunError as error:  # a run that cannot go on is a result; all others were made
            for job in every:
                if stored(self.folder, job) is None:
                    store(self.folder, job, {"error": str(error)})
        if any(stored(self.folder, job) is None for job in every):
            raise Interrupted(self.folder)
        return [self.cell(case, s) for case, s in self._cells(cases)]

    def _cells(self, cases: Sequence[Case]) -> Iterator[tuple[Case, int]]:
        return ((case, s) for case in cases for s in self.counts)

    def cell(self, case: Case, troubled: int) -> Cell:
        """Cell of a case and a number of troubled parties, from its seeds' stored results."""
        jobs = [self.job(case, troubled, seed) for seed in self.seeds]
        found = [stored(self.folder, job) or {"error": "not run"} for job in jobs]
        until = self.until_of(case)
        values = [_values(result, self.target, until) for result in found]
        times, nbytes, rounds, accuracy, sent = zip(*values, strict=True)
        return Cell(
            *(case.method.label, case.setting.label, case.kind, troubled, until),
            times=times,
            bytes=nbytes,
            rounds=rounds,
            accuracy=accuracy,
            sent=sent,
            error=next((result["error"] for result in found if "error" in result), ""),
        )


def _values(result: Mapping[str, Any], target: float, until: float) -> tuple[float, ...]:
    """(seconds and bytes to the target, or inf; seconds a round, accuracy and bytes at the end)."""
    if "error" in result:
        return math.inf, math.inf, math.inf, math.nan, math.nan
    summary, curve = result["summary"], result["curve"]
    accuracy = summary.get("test_accuracy", math.nan)
    time, sent = reached(curve, "accuracy", target) or (math.inf, math.inf)
    # The round that was not finished by the end counts as a bound.
    last = curve[-1]["time"] if curve else 0.0
    count = summary["rounds"]
    return time, sent, max(last / max(count, 1), until / (count + 1)), accuracy, summary["bytes"]


def cases(
    methods: Sequence[Method], settings: Sequence[Setting], kinds: Sequence[str]
) -> list[Case]:
    """Cases to run: every method in every setting with every kind of trouble.

    UnknownNameError for a kind that does not exist.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownNameError("kind of trouble", kind, KINDS)
    own = [kind for kind in KINDS if kind in kinds]
    return [Case(method, setting, kind) for setting in settings for kind in own
            for method in methods]  # fmt: skip


def thresholds(
    cells: Sequence[Cell], factor: float, declared: Mapping[str, Mapping[str, int]]
) -> list[Threshold]:
    """Thresholds of all cases, computed from their cells.

    `declared` has, by label of the method and kind of trouble, the number that it claims to
    tolerate.
    """
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.method, cell.setting, cell.kind), []).append(cell)
    found = []
    for (method, setting, kind), own in groups.items():
        counts = [cell.troubled for cell in own]
        times = np.array([cell.times for cell in own])
        learning = int(_largest(counts, times, factor))
        low, high = map(int, _interval(_largest(counts, _resampled(times), factor)))
        free = float(np.median(times[0]))
        beyond = [cell for cell in own if cell.troubled > learning >= 0][:1]
        found.append(
            Threshold(
                *(method, setting, kind, free, factor * free, learning, low, high),
                open=any(
                    not math.isfinite(np.median(cell.times))
                    and not cell.error
                    and cell.until < factor * free
                    for cell in beyond
                ),
                clock=int(_largest(counts, np.array([cell.rounds for cell in own]), factor)),
                declared=declared.get(method, {}).get(kind),
            )
        )
    return found


def _largest(counts: Sequence[int], times: np.ndarray, factor: float) -> np.ndarray:
    """Largest s whose median is at most `factor` times that of s = 0; -1 for none.

    `times` has the numbers s first and the seeds last; the shape between them is the result's.

    Examples
    --------
    >>> print(_largest([0, 1, 2], np.array([[1.0, 1.2], [1.5, 1.4], [3.0, np.inf]]), 2.0))
    1
    """
    medians = np.median(times, axis=-1)
    borne = np.isfinite(medians) & (medians <= factor * medians[0])
    kept = np.cumprod(borne, axis=0).sum(axis=0)
    return np.asarray(np.array([-1, *counts])[kept])


def _resampled(values: np.ndarray) -> np.ndarray:
    """`DRAWN` bootstrap resamples of the last axis (seeds): (..., seeds) to (..., DRAWN, seeds).

    The same seeds are drawn for all other axes, and in every call.
    """
    seeds = values.shape[-1]
    drawn = keyed_stream(0, 0, "threshold/bootstrap").integers(seeds, size=(DRAWN, seeds))
    return values[..., drawn]


def _interval(values: np.ndarray) -> tuple[float, float]:
    """95 % percentile interval (low, high) over all resamples, both ends sampled values."""
    low, high = np.quantile(values, [0.025, 0.975], method="inverted_cdf")
    return float(low), float(high)


def rows(cells: Sequence[Cell], factor: float) -> list[dict[str, Any]]:
    """One row for each cell, in JSON types; None for missing values.

    ``median`` is that of the times to the target, ``low`` and ``high`` its 95 % bootstrap interval,
    ``within`` the fraction of seeds that reached it in c times the median without trouble, and
    ``censored`` the number of those that did not reach it at all.
    """
    limits = {(c.method, c.setting, c.kind): factor * float(np.median(c.times))
              for c in cells if not c.troubled}  # fmt: skip
    return [_row(cell, limits[cell.method, cell.setting, cell.kind]) for cell in cells]


def _row(cell: Cell, limit: float) -> dict[str, Any]:
    seeds = len(cell.times)
    low, high = _interval(np.median(_resampled(np.array(cell.times)), axis=-1))
    there = [value for value in cell.accuracy if math.isfinite(value)]
    accuracy, half = mean_interval(there) if there else (math.nan, math.nan)
    numbers = {
        "until": cell.until,
        "median": float(np.median(cell.times)),
        "low": low,
        "high": high,
        "within": sum(time <= limit < math.inf for time in cell.times) / seeds,
        "round_seconds": _median(cell.rounds),
        "accuracy": accuracy,
        "half_width": half,
        "bytes": _median(cell.bytes),
        "sent": _median(cell.sent),
    }
    return {
        "method": cell.method,
        "setting": cell.setting,
        "kind": cell.kind,
        "troubled": cell.troubled,
        "seeds": seeds,
        "censored": seeds - cell.reached,
        **{key: number_or_none(value) for key, value in numbers.items()},
        "times": [number_or_none(time) for time in cell.times],
        "error": cell.error,
    }


def _median(values: Sequence[float]) -> float:
    """Median of the existing values; NaN if there are none."""
    there = [value for value in values if not math.isnan(value)]
    return float(np.median(there)) if there else math.nan


def write_csv(table: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a line for each row; numbers have six digits, missing values are empty."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        for row in table:
            writer.writerow({key: _plain(value) for key, value in row.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(str(_plain(each)) if each is not None else "-" for each in value)
    return f"{value:.6g}" if isinstance(value, float) else value


def latex(found: Sequence[Threshold]) -> str:
    """The thresholds as a LaTeX table: a line a method, a column a setting and kind."""
    columns = list(dict.fromkeys((each.setting, each.kind) for each in found))
    names = list(dict.fromkeys(each.method for each in found))
    at = {(each.method, each.setting, each.kind): each for each in found}
    head = " & ".join(["method", *(escaped(f"{setting}, {kind}") for setting, kind in columns)])
    lines = [f"\\begin{{tabular}}{{l{'l' * len(columns)}}}", f"{head} \\\\ \\hline"]
    for name in names:
        parts = [escaped(name), *(words(at.get((name, *column))) for column in columns)]
        lines.append(" & ".join(parts) + " \\\\")
    return "\n".join([*lines, "\\end{tabular}", ""])


def words(one: Threshold | None) -> str:
    """Threshold with its interval as text, then the clock's in brackets; "-" for none."""
    if one is None or one.learning < 0:
        return "-"
    more = ">=" if one.open else ""
    return f"{more}{one.learning} [{max(one.low, 0)}, {one.high}] ({one.clock})"
