"""Boundaries of training: how many slow, dead or lying parties a method bears.

Training runs stand beside the prediction.

A *case* is a method in one configuration (K, T and A where it has them) and one kind of trouble. It
is run with s = 0, ..., N troubled parties, all runs to the same virtual second. A *cell* is one s:
whether training goes on, virtual time of a round, accuracy at that second, bytes. The *boundary* is
the largest s up to which it goes on, found by bisection. A method that declares R (in `describe`)
predicts it: N - R - 2A parties may be slow or dead, and A may lie.

What "goes on" means depends on the trouble:

* slow: a round takes less than sqrt(`SLOW` / `FAST`) times as long as with no slow party, which is
  the geometric middle between none and all of them slow;
* dead: the server steps in the last quarter of the time, and no error ends the run;
* lying: the same, and of what the accuracy without liars is above that of the largest class,
  three quarters are left.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError, RunError, UnknownNameError
from securevfl.protocols.base.registry import get_protocol
from securevfl.runs.assembly import make_protocol
from securevfl.studies.intervals import mean_interval
from securevfl.studies.jobs import Job, run_job, store, stored
from securevfl.studies.variant import parse_variant

Kind = Literal["slow", "dead", "lying"]
Outcome = Literal["goes on", "slow", "ended", "spoiled"]
KINDS: tuple[Kind, ...] = ("slow", "dead", "lying")
FAST, SLOW = 0.2, 10.0  # mean seconds of an upload
FIRST = 2  # round from which on parties are dead or lie
PATIENCE = 1.0  # seconds: the timeouts that methods declare for lost parties
SMALL: Mapping[str, Any] = {"batch": 64, "width": 16, "hidden": 32}

# Laws of delay: what a study's `conditions` may say beside the means.
LAWS: Mapping[str, Mapping[str, Any]] = {
    "exponential": {"share_factor": 0.0},
    "constant": {"share_factor": 0.0},
    "pareto": {"share_factor": 0.0, "upload_law": "pareto"},
    "shares too": {},
    "occupies": {"share_factor": 0.0, "delay_mode": "occupies"},
}


@dataclass(frozen=True, eq=False)
class Method:
    """A method in one configuration.

    Attributes
    ----------
    label : str
        The variant as it was named.
    K, T, A, R : int or None
        None where the method has no threshold.
    holders : int
        Parties that upload, helpers included.
    """

    label: str
    protocol: str
    options: Mapping[str, Any]
    holders: int
    K: int | None = None
    T: int | None = None
    A: int | None = None
    R: int | None = None

    def tolerated(self, kind: Kind) -> int | None:
        """Predicted boundary; None where the method declares no R."""
        if self.R is None:
            return None
        return self.A if kind == "lying" else self.holders - self.R - 2 * (self.A or 0)


@dataclass(frozen=True)
class Case:
    """A method and its trouble: a kind, and the law of delay that all parties have."""

    method: Method
    kind: Kind
    law: str


@dataclass(frozen=True)
class Cell:
    """Result of one case with so many troubled parties; means over seeds.

    Attributes
    ----------
    round_seconds : float
        Virtual seconds of a round; where few were finished, at least so many. Infinite where an
        error ended all runs.
    accuracy, half_width : float
        Of the models at the end of the virtual time, and of its 95 % interval; NaN for none.
    sent : float
        Bytes that all parties sent in that time.
    error : str
        Of the first seed that ended with one; empty for none.
    """

    label: str
    K: int | None
    T: int | None
    A: int | None
    R: int | None
    kind: str
    law: str
    troubled: int
    predicted: int | None
    outcome: str
    boundary: int | None
    rounds: float
    round_seconds: float
    accuracy: float
    half_width: float
    sent: float
    seeds: int
    error: str


@dataclass
class Sweep:
    """All runs of a benchmark: what is the same in them, and where their results are kept.

    Parameters
    ----------
    source : DataSource
        The data set; its seed is that of each run.
    parties : int
        N.
    folder : Path
        Gets ``jobs/``: a run whose result is there is not made again.
    until : float
        Virtual seconds of each run.
    options : mapping
        Of every method that has them.
    """

    source: DataSource
    parties: int
    folder: Path
    until: float = 20.0
    seeds: Sequence[int] = (0,)
    options: Mapping[str, Any] = field(default_factory=lambda: dict(SMALL))
    _known: dict[tuple[Case, int], dict[str, Any]] = field(default_factory=dict, repr=False)

    def methods(
        self, variants: Sequence[str], K: Sequence[int], T: Sequence[int], A: Sequence[int]
    ) -> list[Method]:
        """Every variant; with every K, T and A for which its N is enough, where it has an R."""
        found = []
        for variant in variants:
            name, own = parse_variant(variant)
            known = get_protocol(name).Config.model_fields
            for key in own:
                if key not in known:
                    raise UnknownNameError(f"option of {name}", key, known)
            base = {k: v for k, v in self.options.items() if k in known} | own
            plain = self._method(variant, name, base)
            if plain.R is None:
                found.append(plain)
                continue
            for k, t, a in ((k, t, a) for k in K for t in T for a in A):
                coded = {"segments": k, "privacy": t, "tolerate_corrupt": a}
                try:
                    found.append(self._method(variant, name, {**coded, **base}))
                except ConfigurationError:
                    continue  # N is too small for them: nothing can be measured
        if not found:
            raise ConfigurationError(
                f"bench threshold: {self.parties} parties are too few for each K, T and A that "
                "was asked for; raise --parties, or lower --segments, --privacy and --corrupt"
            )
        return found

    def _method(self, variant: str, name: str, options: Mapping[str, Any]) -> Method:
        made, _ = make_protocol(name, options, self._data, self.seeds[0])
        said = made.describe()
        names = {key: said.get(key) for key in ("K", "T", "A", "R")} if "R" in said else {}
        return Method(variant, name, options, len(made.peers()), **names)

    @functools.cached_property
    def _data(self) -> Any:
        return DataSource(self.source.name, self._data_options(self.seeds[0])).load()

    def _data_options(self, seed: int) -> dict[str, Any]:
        return {**self.source.options, "parties": self.parties, "seed": seed}

    def cell(self, case: Case, troubled: int) -> dict[str, Any]:
        """Means over the seeds of one case with so many troubled parties."""
        key = case, troubled
        if key not in self._known:
            found = [self._result(self._job(case, troubled, seed)) for seed in self.seeds]
            self._known[key] = _mean(found, self.until)
        return self._known[key]

    def _result(self, job: Job) -> dict[str, Any]:
        known = stored(self.folder, job)
        if known is None:
            try:
                known = run_job(job)
            except RunError as error:
                known = {"error": str(error)}
            store(self.folder, job, known)
        return known

    def _job(self, case: Case, troubled: int, seed: int) -> Job:
        """The run of a cell; the last parties are the troubled ones."""
        method, N = case.method, self.parties
        last = range(N - troubled, N)
        slow = case.kind == "slow"
        seconds = [SLOW if slow and n in last else FAST for n in range(N)]
        means = "upload_shift" if case.law == "constant" else "upload_mean"
        spans = [{"party": n, "rounds": [FIRST]} for n in last]
        faults = {"dead": "outage", "lying": "lie"}.get(case.kind)
        options = dict(method.options)
        if case.kind == "dead":
            options |= _patient(get_protocol(method.protocol).fault_options)
        numbers = "" if method.R is None else f" K{method.K} T{method.T} A{method.A}"
        return Job(
            label=f"{method.label}{numbers}, {troubled} {case.kind}, {case.law}",
            protocol=method.protocol,
            options=options,
            dataset=self.source.name,
            data=self._data_options(seed),
            conditions={means: seconds, **LAWS[case.law]},
            faults={faults: spans} if faults and spans else None,
            seed=seed,
            until=self.until,
            eval_seconds=self.until,
            sealed=False,
        )

    def outcome(self, case: Case, troubled: int) -> Outcome:
        """Outcome of a cell, by the rule of its kind."""
        found = self.cell(case, troubled)
        free = self.cell(case, 0)
        if case.kind == "slow":
            limit = math.sqrt(SLOW / FAST) * free["round_seconds"]
            return "slow" if found["round_seconds"] > limit else "goes on"
        if found["error"] or found["last"] < 0.75 * self.until:
            return "ended"
        if case.kind == "lying" and troubled:
            least = free["majority"] + 0.75 * (free["accuracy"] - free["majority"])
            return "goes on" if found["accuracy"] >= min(least, free["accuracy"]) else "spoiled"
        return "goes on"

    def boundary(self, case: Case) -> int:
        """The largest number of troubled parties with which the case goes on."""
        return bisect(lambda s: self.outcome(case, s) == "goes on", self.parties)

    def row(self, case: Case, troubled: int) -> Cell:
        """The cell as a row of the table."""
        found, method = self.cell(case, troubled), case.method
        named = {key: getattr(method, key) for key in ("label", "K", "T", "A", "R")}
        measured = {key: found[key] for key in found if key not in ("last", "majority")}
        return Cell(
            **named,
            kind=case.kind,
            law=case.law,
            troubled=troubled,
            predicted=method.tolerated(case.kind),
            outcome=self.outcome(case, troubled),
            boundary=self.boundary(case),
            seeds=len(self.seeds),
            **measured,
        )


def _patient(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Options with which a method goes on without a lost party; its times are `PATIENCE`."""
    return {key: PATIENCE if type(value) is float else value for key, value in declared.items()}


def _mean(results: Sequence[Mapping[str, Any]], until: float) -> dict[str, Any]:
    """Means over seeds; of the seeds that ended without an error, where there are any."""
    errors = [result["error"] for result in results if "error" in result]
    ended = [result for result in results if "error" not in result]
    there = [result["summary"] for result in ended]
    rounds = [summary["rounds"] for summary in there]
    last = [result["curve"][-1]["time"] if result["curve"] else 0.0 for result in ended]
    times = [_round_seconds(*each, until) for each in zip(last, rounds, strict=True)]
    values = [s["test_accuracy"] for s in there if "test_accuracy" in s]
    accuracy, half = mean_interval(values) if values else (math.nan, math.nan)

    def mean(numbers: Sequence[float], none: float) -> float:
        return math.fsum(numbers) / len(numbers) if numbers else none

    return {
        "rounds": mean(rounds, 0.0),
        "round_seconds": mean(times, math.inf),
        "accuracy": accuracy,
        "half_width": half,
        "sent": mean([s["bytes"] for s in there], math.nan),
        "error": errors[0] if errors else "",
        "last": min(last, default=0.0),
        "majority": mean([s.get("majority_accuracy", 0.0) for s in there], 0.0),
    }


def _round_seconds(last: float, rounds: int, until: float) -> float:
    """Mean time of a round; the one that was not finished by `until` counts as a bound."""
    return max(last / max(rounds, 1), until / (rounds + 1))


def bisect(goes_on: Callable[[int], bool], most: int) -> int:
    """The largest s in [0, `most`] with which it goes on; -1 for none.

    It is supposed to go on up to some s and not beyond, so about log2(`most`) values are asked for.

    Examples
    --------
    >>> bisect(lambda s: s <= 5, 8)
    5
    >>> bisect(lambda s: False, 8)
    -1
    """
    low, high = -1, most + 1  # goes on at low, and not at high
    while high - low > 1:
        middle = (low + high) // 2
        if goes_on(middle):
            low = middle
        else:
            high = middle
    return low


def cases(methods: Sequence[Method], kinds: Sequence[Kind], laws: Sequence[str]) -> list[Case]:
    """Every method with every trouble: slow parties by every law, or where A > 0 by the first.

    Parties die under constant delays, so that no timeout strikes who is alive. They lie under
    exponential ones, so that liars are among the first as often as others.
    """
    for given, known in ((kinds, KINDS), (laws, LAWS)):
        for name in given:
            if name not in known:
                raise UnknownNameError("kind or law of bench threshold", name, known)
    found = []
    for method in methods:
        for kind in kinds:
            slow = laws[:1] if method.A else laws
            own = {"dead": ["constant"], "lying": ["exponential"]}.get(kind, slow)
            found += [Case(method, kind, law) for law in own]
    return found


def map_boundaries(
    sweep: Sweep,
    wanted: Sequence[Case],
    *,
    every: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Cell]:
    """Rows of all cases: every number of troubled parties, or the ones that bisection asked for."""
    for done, case in enumerate(wanted):
        edge = sweep.boundary(case)
        asked = {s for known, s in sweep._known if known == case}
        counts = range(sweep.parties + 1) if every else sorted(asked | {max(edge, 0)})
        yield from (sweep.row(case, s) for s in counts)
        if progress is not None:
            progress(done + 1, len(wanted))


def write_csv(cells: Sequence[Cell], path: Path) -> None:
    """Write one row a cell."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Cell)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(_plain(cell) for cell in cells)


def _plain(cell: Cell) -> dict[str, Any]:
    """Values of a row; numbers that do not exist are empty, and others have six digits."""
    values = asdict(cell)
    for name, value in values.items():
        if isinstance(value, float):
            values[name] = f"{value:.6g}" if math.isfinite(value) else ""
    return values


def boundaries(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Of each case: its boundary beside the prediction, time of a round and accuracy at both."""
    rows: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        key = cell.label, cell.K, cell.T, cell.A, cell.kind, cell.law
        rows.setdefault(key, []).append(cell)
    found = []
    for own in rows.values():
        first = own[0]
        at = {cell.troubled: cell for cell in own}
        beyond = at.get((first.boundary or 0) + 1)
        found.append(
            {
                **{name: getattr(first, name) for name in ("label", "K", "T", "A", "R", "kind")},
                "law": first.law,
                "predicted": first.predicted,
                "boundary": first.boundary,
                "without": at.get(0),
                "within": at.get(first.boundary or 0),
                "beyond": beyond,
            }
        )
    return found
