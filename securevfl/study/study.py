"""Studies: several runs over several seeds, from one TOML file, resumable, in worker processes.

A study file::

    title = "FedVS and its float twin on handwritten"
    dataset = "handwritten"          # a name of `securevfl datasets`, or a file
    conditions = "none"              # or "paper", or a table as in `engine.conditions`
    seeds = 5                        # or a list
    baseline = "twin"                # differences are paired against this run
    [data]                           # options of `load_dataset`
    [options]                        # of every run
    [runs.fedvs]                     # one table a run: `protocol`, its options, own `conditions`
    [paper]                          # what the paper says, for the tables
    [ours]                           # every value that the paper leaves open, and why
    [quick]                          # what `--quick` changes: seeds, options

Each (run, seed) is one job; its result is a file of its own, so a study that was interrupted goes
on where it stopped, and a job whose settings changed is run again.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from securevfl.errors import ConfigurationError, SecureVFLError
from securevfl.study.statistics import mean_interval, paired_difference

MEASURES = ("accuracy", "auc", "f1", "rmse")
_KEYS = {
    "title",
    "dataset",
    "conditions",
    "seeds",
    "baseline",
    "eval_every",
    "data",
    "options",
    "runs",
    "paper",
    "ours",
    "quick",
}


@dataclass(frozen=True)
class Job:
    """One run of a study, in values that can be written down."""

    label: str
    protocol: str
    options: Mapping[str, Any]
    dataset: str
    data: Mapping[str, Any]
    conditions: Any
    seed: int
    eval_every: int | None

    def key(self) -> str:
        """Digest of the settings; the data folder does not count."""
        content = asdict(self)
        content["data"] = {k: v for k, v in self.data.items() if k != "data_dir"}
        text = json.dumps(content, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Study:
    """A study file, read and checked.

    Attributes
    ----------
    title : str
    jobs : tuple of Job
        Ordered by seed, then by run.
    labels : tuple of str
        Names of the runs.
    baseline : str or None
        The run that differences are paired against.
    paper, ours : mapping
        What the paper says, and what it leaves open.
    """

    title: str
    jobs: tuple[Job, ...]
    labels: tuple[str, ...]
    baseline: str | None = None
    paper: Mapping[str, Any] = field(default_factory=dict)
    ours: Mapping[str, Any] = field(default_factory=dict)


def read_study(path: Path, *, quick: bool = False, data_dir: str | None = None) -> Study:
    """Read a study file.

    Parameters
    ----------
    path : Path
    quick : bool
        Apply its ``[quick]`` table.
    data_dir : str, optional
        Folder of local data files, as `load_dataset` takes it.

    Raises
    ------
    ConfigurationError
        When the file is missing, malformed, or has keys that mean nothing.
    """
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigurationError(f"study: there is no file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"study: {path} is not valid TOML: {error}") from None
    unknown = set(content) - _KEYS
    if unknown:
        raise ConfigurationError(
            f"study: {path} has unknown keys {', '.join(sorted(unknown))}; known: "
            f"{', '.join(sorted(_KEYS))}"
        )
    for key in ("title", "dataset", "runs"):
        if not content.get(key):
            raise ConfigurationError(f"study: {path} needs {key!r}")
    if quick:
        changes = content.get("quick", {})
        content["options"] = content.get("options", {}) | changes.get("options", {})
        content["seeds"] = changes.get("seeds", content.get("seeds", 3))
    return _build(content, data_dir)


def _build(content: Mapping[str, Any], data_dir: str | None) -> Study:
    seeds = content.get("seeds", 3)
    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    data = dict(content.get("data", {})) | ({"data_dir": data_dir} if data_dir else {})
    jobs = []
    for seed in seeds:
        for label, given in content["runs"].items():
            options = content.get("options", {}) | given
            jobs.append(
                Job(
                    label=label,
                    protocol=options.pop("protocol", label),
                    conditions=options.pop("conditions", content.get("conditions", "paper")),
                    options=options,
                    dataset=content["dataset"],
                    data=data | {"seed": seed},
                    seed=seed,
                    eval_every=content.get("eval_every"),
                )
            )
    baseline = content.get("baseline")
    if baseline is not None and baseline not in content["runs"]:
        raise ConfigurationError(f"study: the baseline {baseline!r} is none of its runs")
    return Study(
        title=content["title"],
        jobs=tuple(jobs),
        labels=tuple(content["runs"]),
        baseline=baseline,
        paper=content.get("paper", {}),
        ours=content.get("ours", {}),
    )


def run_job(job: Job) -> dict[str, Any]:
    """Carry out one job; its summary and the evaluated rows of its history."""
    from securevfl.engine.conditions import conditions_from
    from securevfl.study.plan import DataSource
    from securevfl.study.run import run

    source = DataSource(job.dataset, job.data)
    conditions = job.conditions
    if isinstance(conditions, Mapping):
        from securevfl.protocols.protocol import get_protocol, make_config

        data = source.load()
        cls = get_protocol(job.protocol)
        made = cls(make_config(cls, job.options), data, seed=job.seed)
        conditions = conditions_from(
            conditions, parties=data.parties, batch_rows=made.batch_rows, name="study"
        )
    result = run(
        job.protocol,
        source,
        seed=job.seed,
        conditions=conditions,
        eval_every=job.eval_every,
        **job.options,
    )
    keep = ("step", "time", "loss", *MEASURES)
    curve = [
        {name: row[name] for name in keep if name in row}
        for row in result.history
        if any(name in row for name in MEASURES)
    ]
    summary = result.summary()
    del summary["run_folder"]
    return {"label": job.label, "seed": job.seed, "summary": summary, "curve": curve}


def run_study(
    study: Study,
    folder: Path,
    *,
    workers: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Run all jobs that have no result yet, and write the study's results.

    Parameters
    ----------
    folder : Path
        Gets ``jobs/``, ``results.json``, ``results.csv`` and ``curves.png``.
    workers : int
        Processes; each computes on one thread.
    progress : callable, optional
        Told (jobs done, jobs in all, what was finished).

    Returns
    -------
    dict
        Content of ``results.json``.

    Raises
    ------
    SecureVFLError
        Of the first job that failed; the results of the others are kept.
    """
    (folder / "jobs").mkdir(parents=True, exist_ok=True)
    todo = [job for job in study.jobs if _stored(folder, job) is None]
    done = len(study.jobs) - len(todo)
    tell = progress or (lambda done, total, what: None)
    tell(done, len(study.jobs), f"{done} were there")
    for job, result in _results(todo, workers):
        path = _path(folder, job)
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"key": job.key(), **result}))
        part.replace(path)
        done += 1
        tell(done, len(study.jobs), f"{job.label}, seed {job.seed}")
    return write_results(study, folder)


def _results(jobs: Sequence[Job], workers: int) -> Any:
    if workers <= 1:
        for job in jobs:
            yield job, run_job(job)
        return
    failed: SecureVFLError | None = None
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(run_job, job): job for job in jobs}
        while running:
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                job = running.pop(future)
                try:
                    yield job, future.result()
                except SecureVFLError as error:
                    failed = failed or error
    if failed is not None:
        raise failed


def _path(folder: Path, job: Job) -> Path:
    return folder / "jobs" / f"{job.label}-{job.seed}.json"


def _stored(folder: Path, job: Job) -> dict[str, Any] | None:
    path = _path(folder, job)
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text())
    return content if content.pop("key") == job.key() else None


def write_results(study: Study, folder: Path) -> dict[str, Any]:
    """Sum up the stored jobs of a study."""
    from securevfl.study.machine import describe_machine
    from securevfl.study.plots import draw_study

    stored = [_stored(folder, job) for job in study.jobs]
    jobs = [job for job in stored if job is not None]
    content = {
        "title": study.title,
        "runs": {label: _sum_up(jobs, label) for label in study.labels},
        "differences": _differences(jobs, study),
        "paper": dict(study.paper),
        "ours": dict(study.ours),
        "machine": describe_machine(),
        "commit": commit(),
        "settings": {job.label: _settings(job) for job in study.jobs},
    }
    (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    _write_table(jobs, folder / "results.csv")
    curves = {
        label: [job["curve"] for job in jobs if job["label"] == label] for label in study.labels
    }
    draw_study(curves, folder / "curves.png", title=study.title)
    return content


def _settings(job: Job) -> dict[str, Any]:
    content = asdict(job)
    content["data"] = {k: v for k, v in job.data.items() if k not in ("data_dir", "seed")}
    return {k: v for k, v in content.items() if k not in ("label", "seed")}


def _sum_up(jobs: Sequence[Mapping[str, Any]], label: str) -> dict[str, Any]:
    summaries = [job["summary"] for job in jobs if job["label"] == label]
    result: dict[str, Any] = {"seeds": [s["seed"] for s in summaries]}
    names = [f"test_{name}" for name in MEASURES]
    names += ["virtual_seconds", "wall_seconds", "messages", "bytes", "late"]
    for name in names:
        values = [s[name] for s in summaries if name in s]
        if values and len(values) == len(summaries):
            mean, half = mean_interval(values)
            result[name] = {"mean": mean, "half_width_95": half, "values": values}
    return result


def _differences(jobs: Sequence[Mapping[str, Any]], study: Study) -> dict[str, Any]:
    if study.baseline is None:
        return {}
    by_run: dict[str, dict[int, Mapping[str, Any]]] = {label: {} for label in study.labels}
    for job in jobs:
        by_run[job["label"]][job["seed"]] = job["summary"]
    theirs = by_run[study.baseline]
    result: dict[str, Any] = {}
    for label in study.labels:
        seeds = sorted(set(by_run[label]) & set(theirs))
        if label == study.baseline or not seeds:
            continue
        for name in (f"test_{m}" for m in MEASURES):
            if name in theirs[seeds[0]]:
                mean, half = paired_difference(
                    [by_run[label][s][name] for s in seeds], [theirs[s][name] for s in seeds]
                )
                entry = {"mean": mean, "half_width_95": half, "pairs": len(seeds)}
                result.setdefault(label, {})[name] = entry
    return result


def _write_table(jobs: Sequence[Mapping[str, Any]], path: Path) -> None:
    import pandas as pd

    rows = [
        {
            "run": job["label"],
            **{k: v for k, v in job["summary"].items() if isinstance(v, (int, float, str))},
        }
        for job in jobs
    ]
    pd.DataFrame(rows).to_csv(path, index=False)


def commit() -> str:
    """Commit of the working tree that runs, "+" appended if it is changed; "unknown" elsewhere."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
