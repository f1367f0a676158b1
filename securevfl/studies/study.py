"""Studies: several runs over several seeds, from one TOML file, resumable, in worker processes.

A study file::

    title = "FedVS and its unprotected baseline on handwritten"
    dataset = "handwritten"          # a name of `securevfl datasets`, a file or a folder
    conditions = "none"              # or "paper", or a table as in `engine.conditions`
    faults = {}                      # a table as in `engine.faults`, or a file
    [grid.NAME]                      # such tables: every run is done under each, as "RUN, NAME";
                                     # or [grid.NAME.conditions] and [grid.NAME.faults]
    seeds = 5                        # or a list
    baseline = "twin"                # differences are paired against this run
    until = 200.0                    # virtual seconds, for a comparison at equal virtual time
    times = [50, 100, 200]           # virtual seconds of the table of measures, else 40 steps
    target = 0.9                     # accuracy to which time and bytes are counted
    aligned = [250, 1000]            # every run with each number of aligned rows; or for each run
    [data]                           # options of `load_dataset`
    [options]                        # of every run
    secret_seed = 7                  # of the parties' secret choices; that of each run if left out
    [runs.LABEL]                     # one table a run: `protocol`, its options, and the options of
                                     # the run that differ for it (`conditions`, `until`, ...)
    [choose]                         # options chosen on validation rows before; see
                                     # `securevfl.studies.choice`
    [paper]                          # what the paper says, for the tables: `accuracy` of all runs,
                                     # or a table for each, in per cent
    [ours]                           # every value that the paper leaves open, and why
    [quick]                          # what `--quick` changes: seeds, times, aligned, options, data,
                                     # options of runs, and those of one run in [quick.runs.X]

The keys `conditions`, `faults`, `until` and `secret_seed` above are options of runs: all that
`securevfl.runs.spec.RunSpec` declares ``per_job`` are keys here.

Each (run, seed) is one job; its result is a file of its own, so a study that was interrupted goes
on where it stopped, and a job whose settings changed is run again. That a run diverges, or that one
with faults cannot go on, is a result, too: the others are done, and the table has its error in its
place.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from securevfl.errors import ConfigurationError
from securevfl.reading import NOT_PARSED
from securevfl.studies.choice import Choice, read_choice
from securevfl.studies.jobs import JOB_OPTIONS, Job

# Options of runs that stand for all runs or in the table of one; seeds have a key of their own.
_EACH = tuple(name for name in JOB_OPTIONS if name != "seed")
_OWN = (
    "title", "dataset", "seeds", "baseline", "times", "target", "aligned", "data", "options",
    "runs",
)  # fmt: skip
_KEYS = {*_OWN, "grid", "choose", "paper", "ours", "quick", *_EACH}
_TABLES = ("data", "options", "runs", "grid", "choose", "paper", "ours", "quick")
_SEEDS = 10_000  # most seeds of a study: a digit too many must not fill the memory with jobs
_QUICK = {"seeds", "times", "target", "aligned", "data", "options", "runs", *_EACH}


@dataclass(frozen=True)
class Study:
    """A study file, read and checked; the module's docstring explains its tables.

    Jobs are ordered by seed, then by run. `times` are the virtual seconds of comparison, empty for
    equal steps; `grid` names the conditions of a grid; `chosen` has the result of
    `securevfl.studies.choice.choose` by label.
    """

    title: str
    jobs: tuple[Job, ...]
    labels: tuple[str, ...]
    baseline: str | None = None
    paper: Mapping[str, Any] = field(default_factory=dict)
    ours: Mapping[str, Any] = field(default_factory=dict)
    times: tuple[float, ...] = ()
    target: float | None = None
    grid: tuple[str, ...] = ()
    choice: Choice | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def only(self, jobs: Sequence[Job]) -> Study:
        """The study restricted to some of its jobs.

        If the baseline, against which differences are paired, is not among them, their first run
        becomes the baseline.
        """
        labels = tuple(dict.fromkeys(job.label for job in jobs))
        base = self.baseline
        if base is not None and base not in labels:
            base = labels[0] if labels else None
        return replace(self, jobs=tuple(jobs), labels=labels, baseline=base)


def read_study(path: Path, *, quick: bool = False, data_dir: str | None = None) -> Study:
    """Read a study file; `quick` applies its ``[quick]`` table.

    `data_dir` is the folder of published data sets, in place of the file's. ConfigurationError when
    the file is missing or malformed, lacks a title, a data set or runs, has unknown keys, or names
    an unknown run in ``[quick]``.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"study: {path} cannot be read: {error.strerror}") from None
    except NOT_PARSED as error:
        raise ConfigurationError(f"study: {path} is not valid TOML: {error}") from None
    _check_keys(path, content, _KEYS)
    _check_types(path, content)
    _check_keys(path, content.get("quick", {}), _QUICK)
    _check_types(path, content.get("quick", {}))
    for key in ("title", "dataset", "runs"):
        if not content.get(key):
            raise ConfigurationError(f"study: {path} needs {key!r}")
    if quick:
        changes = dict(content.get("quick", {}))
        for table in ("options", "data"):
            content[table] = content.get(table, {}) | changes.pop(table, {})
        for name, given in changes.pop("runs", {}).items():
            if name not in content["runs"]:
                raise ConfigurationError(f"study: {path} has no run {name!r} to be made quick")
            content["runs"][name] |= given
        content |= changes
    return _build(content, data_dir)


def _check_keys(path: Path, content: Mapping[str, Any], known: set[str]) -> None:
    unknown = set(content) - known
    if unknown:
        raise ConfigurationError(
            f"study: {path} has unknown keys {', '.join(sorted(unknown))}; known: "
            f"{', '.join(sorted(known))}"
        )


def _check_types(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a study file with wrong types of tables, texts or runs (ConfigurationError)."""
    kinds = {**dict.fromkeys(_TABLES, dict), **dict.fromkeys(("title", "dataset"), str)}
    wrong = [n for n, kind in kinds.items() if not isinstance(content.get(n, kind()), kind)]
    if not wrong:
        inner = [(n, content.get(n, {})) for n in ("runs", "grid")]
        wrong = [f"{n}.{k}" for n, table in inner for k, v in table.items() if not _fits(n, v)]
    if wrong:
        raise ConfigurationError(
            f"study: {path} has {', '.join(wrong)} of the wrong type: title and dataset are texts, "
            f"{', '.join(_TABLES)} and each run are tables"
        )


def _fits(table: str, value: Any) -> bool:
    """Whether an entry of ``runs`` is a table, or an entry of ``grid`` is faults or "none"."""
    return isinstance(value, dict) or (table == "grid" and (not value or isinstance(value, str)))


def _build(content: Mapping[str, Any], data_dir: str | None) -> Study:
    data = dict(content.get("data", {})) | ({"data_dir": data_dir} if data_dir else {})
    shared = {name: content.get(name) for name in _EACH} | {
        "conditions": content.get("conditions", "paper")
    }
    runs = _under_each(content["runs"], content.get("grid", {}))
    jobs, fixed = [], {}
    seeds = _seeds(content.get("seeds", 3))
    for seed in seeds:
        for name, given in runs.items():
            options = content.get("options", {}) | given
            own = {name: options.pop(name, shared[name]) for name in _EACH}
            protocol = options.pop("protocol", name)
            for label, limit in _overlaps(name, options.pop("aligned", content.get("aligned"))):
                fixed[label] = frozenset(given)
                jobs.append(
                    Job(
                        label=label,
                        protocol=protocol,
                        options=options,
                        dataset=content["dataset"],
                        data=data | limit | {"seed": seed},
                        seed=seed,
                        **own,
                    )
                )
    labels = tuple(dict.fromkeys(job.label for job in jobs))
    baseline = content.get("baseline")
    if baseline is not None and baseline not in labels:
        raise ConfigurationError(f"study: the baseline {baseline!r} is none of its runs")
    return Study(
        title=content["title"],
        jobs=tuple(jobs),
        labels=labels,
        baseline=baseline,
        paper=content.get("paper", {}),
        ours=content.get("ours", {}),
        times=_times(content.get("times", [])),
        target=_target(content.get("target")),
        grid=tuple(content.get("grid", {})),
        choice=read_choice(content.get("choose"), seeds, fixed),
    )


def _target(given: Any) -> float | None:
    if given is None or (isinstance(given, (int, float)) and not isinstance(given, bool)):
        return given
    raise ConfigurationError(f"study: target must be a number, such as 0.9; it is {given!r}")


def _overlaps(name: str, sizes: Any) -> list[tuple[str, dict[str, int]]]:
    """(label, data options) for each number of aligned rows; ConfigurationError if malformed."""
    if sizes is None:
        return [(name, {})]
    whole = isinstance(sizes, list) and all(type(size) is int and size > 0 for size in sizes)
    if not whole or not sizes or len(set(sizes)) != len(sizes):
        raise ConfigurationError(
            f"study: aligned must be a list of different numbers of rows of at least 1, it is "
            f"{sizes}"
        )
    return [(f"{name}, {size} aligned", {"aligned": size}) for size in sizes]


def _under_each(
    runs: Mapping[str, Mapping[str, Any]], grid: Mapping[str, Any]
) -> Mapping[str, Mapping[str, Any]]:
    """All runs with each of the grid's faults and conditions, by ``RUN, NAME OF THE GRID``."""
    if not grid:
        return runs
    return {
        f"{name}, {under}": {"protocol": name, **given, **_place(table)}
        for under, table in grid.items()
        for name, given in runs.items()
    }


def _place(table: Mapping[str, Any]) -> dict[str, Any]:
    """Options "conditions" and "faults" of a grid's table, which may be a table of faults alone."""
    if table and table.keys() <= {"conditions", "faults"}:
        return dict(table)
    return {"faults": dict(table) or None}


def _times(given: Any) -> tuple[float, ...]:
    if not isinstance(given, list) or not all(type(time) in (int, float) for time in given):
        raise ConfigurationError(f"study: times must be a list of numbers, they are {given!r}")
    return tuple(float(time) for time in given)


def _seeds(given: Any) -> list[int]:
    seeds = list(range(min(given, _SEEDS + 1))) if type(given) is int else given
    whole = isinstance(seeds, list) and all(type(seed) is int for seed in seeds)
    if not whole or not 0 < len(seeds) <= _SEEDS or len(set(seeds)) != len(seeds):
        raise ConfigurationError(
            f"study: seeds must be a number from 1 to {_SEEDS:,} or a list of different seeds, "
            f"they are {given!r}"
        )
    return list(seeds)
