"""Jobs of a study: one run each, its key, and its stored result."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.engine.faults import load_faults
from securevfl.errors import CheckpointError, ConfigurationError, DataError, UnknownNameError
from securevfl.models.quality import MEASURES
from securevfl.models.user_code import refuse_unnamed
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.reading import NOT_PARSED
from securevfl.runs.alignment import data_source
from securevfl.runs.options import per_job
from securevfl.runs.spec import RunSpec
from securevfl.writing import write_durably

if TYPE_CHECKING:
    from securevfl.runs.history import Progress

UNBOUNDED = 10**6  # rounds of a job that ends at a virtual second
JOB_OPTIONS = per_job(RunSpec)
# Part of the key even where they are not set, as in the first studies.
_ALWAYS = ("conditions", "seed", "eval_every")


@dataclass(frozen=True, init=False)
class Job:
    """One run of a study, with settings in plain types.

    The options of a run that `RunSpec` declares ``per_job`` are keyword arguments and attributes,
    such as ``job.until``: as they were asked, and None where the run chooses. `label` names the job
    in the study. `options` are the protocol's, `data` those of `securevfl.data.load_dataset` for
    `dataset`, `asked` those of the run. Where a virtual end is asked, a job without ``rounds`` has
    as many as fit in.
    """

    label: str
    protocol: str
    options: Mapping[str, Any]
    dataset: str
    data: Mapping[str, Any]
    asked: Mapping[str, Any]

    def __init__(
        self,
        *,
        label: str,
        protocol: str,
        options: Mapping[str, Any],
        dataset: str,
        data: Mapping[str, Any],
        asked: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        asked = {**(asked or {}), **more}
        for name in asked:
            if name not in JOB_OPTIONS:
                raise UnknownNameError("option of a run", name, JOB_OPTIONS)
        parts = {"label": label, "protocol": protocol, "options": options, "dataset": dataset}
        for name, value in {**parts, "data": data, "asked": asked}.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name in JOB_OPTIONS:
            return self.asked.get(name)
        raise AttributeError(f"a Job has no attribute {name!r}")

    @property
    def name(self) -> str:
        """Name of the job for a reader: label and seed."""
        return f"{self.label}, seed {self.seed}"

    def key(self) -> str:
        """Digest of all settings except `data_dir`, which identifies stored results."""
        content = asdict(self)
        content["data"] = {k: v for k, v in self.data.items() if k != "data_dir"}
        asked = content.pop("asked")
        content |= {name: asked.get(name) for name in _ALWAYS}
        content |= {name: value for name, value in asked.items() if value is not None}
        text = json.dumps(content, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def path(self, folder: Path) -> Path:
        """File of the job's result in a study's folder."""
        word = re.sub(r"[^A-Za-z0-9._-]+", "-", self.label)
        if word != self.label:
            word += "-" + hashlib.sha256(self.label.encode()).hexdigest()[:6]
        return folder / "jobs" / f"{word}-{self.seed}.json"


def store(folder: Path, job: Job, result: Mapping[str, Any]) -> None:
    """Write a job's result below `folder`, with its settings' digest; never a partial file."""
    write_keyed(job.path(folder), job.key(), result)


def stored(folder: Path, job: Job) -> dict[str, Any] | None:
    """Stored result of a job with exactly these settings; else None."""
    return read_keyed(job.path(folder), job.key())


def write_keyed(path: Path, key: str, result: Mapping[str, Any]) -> None:
    """Write a result as JSON with `key`, the digest of its settings; never a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, json.dumps({"key": key, **result}))


def read_keyed(path: Path, key: str) -> dict[str, Any] | None:
    """Result that `write_keyed` wrote with this key; None without, CheckpointError if damaged."""
    if not path.exists():
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        return content if content.pop("key") == key else None
    except (KeyError, TypeError, AttributeError, *NOT_PARSED) as error:
        raise CheckpointError(
            f"study: {path} is damaged ({error}). Remove it: its run is then made again"
        ) from None


def run_job(
    job: Job,
    *,
    progress: Callable[[Progress], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Carry out one job: ``label``, ``seed``, ``summary``, ``curve`` and ``history``.

    The curve is the evaluated rows of the history; ``history`` is a digest of all its rows, equal
    exactly if the runs were.
    """
    from securevfl.runs.engines.run import run

    source = data_source(job.dataset, job.data)
    options = dict(job.options)
    refuse_unnamed(options)  # a study is a file
    fields = get_protocol(job.protocol).Config.model_fields
    if job.until is not None and "rounds" in fields:
        options.setdefault("rounds", UNBOUNDED)
    asked = {name: value for name, value in job.asked.items() if value is not None}
    result = run(
        job.protocol, source, progress=progress, interrupted=interrupted, **options, **asked
    )
    keep = ("step", "time", "bytes", "loss", "test_loss", *MEASURES)
    curve = [
        {name: row[name] for name in keep if name in row}
        for row in result.history
        if any(name in row for name in MEASURES)
    ]
    summary = result.summary()
    del summary["run_folder"]
    return {
        "label": job.label,
        "seed": job.seed,
        "summary": summary,
        "curve": curve,
        "history": history_digest(result.history),
    }


class RefusedRunsError(ConfigurationError):
    """Runs of a study that are impossible; nothing was started.

    Attributes
    ----------
    reasons : mapping
        Reason for refusing a run, by its label.
    labels : tuple of str
        Labels of the refused runs.
    others : tuple of str
        Labels of the possible runs.
    """

    def __init__(self, refused: Mapping[str, str], others: Sequence[str]) -> None:
        said = "; ".join(
            f"run {label!r}: {why.removesuffix('.')}" for label, why in refused.items()
        )
        rest = f" {', '.join(others)} can run: leave out the rest." if others else ""
        super().__init__(f"study: nothing was started: {said}.{rest}")
        self.reasons = dict(refused)
        self.labels, self.others = tuple(refused), tuple(others)


def check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse runs that data, conditions, faults or memory do not permit, before any starts.

    The first job of each label represents all its seeds. If parties must find their common rows
    first (``align = "psi"``), only options and the number of parties are checked. RefusedRunsError
    names every run that is refused, and why; DataError if a data set cannot be loaded.
    """
    loaded: tuple[Any, Any] = (None, None)

    def attempt(job: Job) -> None:
        nonlocal loaded
        cls = get_protocol(job.protocol)
        config = make_config(cls, job.options)
        if job.data.get("align") == "psi":
            cls.check_parties(config, len(job.data.get("party_files", ())))
            return
        key = job.dataset, json.dumps(dict(job.data), sort_keys=True, default=str)
        if key != loaded[0]:
            loaded = key, data_source(job.dataset, job.data).load()
        _make(job, loaded[1])

    refuse_runs(list({job.label: job for job in reversed(jobs)}.values())[::-1], attempt)


def refuse_runs(jobs: Sequence[Job], attempt: Callable[[Job], object]) -> None:
    """Call `attempt` on each job; RefusedRunsError names all with a ConfigurationError.

    An error of their data (DataError) is raised at once.
    """
    refused: dict[str, str] = {}
    for job in jobs:
        try:
            attempt(job)
        except DataError:
            raise
        except ConfigurationError as error:
            refused[job.label] = str(error)
    if refused:
        raise RefusedRunsError(refused, [j.label for j in jobs if j.label not in refused])


def _make(job: Job, data: Any) -> None:
    """Check a job: make protocol, specification and fault schedule; errors are those of a run."""
    from securevfl.runs.assembly import check_memory, make_protocol, schedule_of, specify

    options = dict(job.options)
    refuse_unnamed(options)
    made, _ = make_protocol(job.protocol, options, data, job.seed)
    asked = {**job.asked, "faults": load_faults(job.faults)}
    schedule_of(made, specify(made, asked, conditions="paper", source=None))
    check_memory(made, messages=job.until is None)


def history_digest(rows: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 of all rows of a history, exact in every value."""
    lines = (json.dumps(row, sort_keys=True) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
