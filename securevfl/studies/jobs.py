"""Jobs of a study: one run each, carried out here or in worker processes."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.errors import RunError, SecureVFLError, UnknownNameError
from securevfl.models.user_code import refuse_unnamed
from securevfl.protocols.base.registry import get_protocol
from securevfl.runs.alignment import data_source
from securevfl.runs.options import per_job
from securevfl.runs.spec import RunSpec

if TYPE_CHECKING:
    from securevfl.runs.history import Progress

MEASURES = ("accuracy", "auc", "f1", "rmse")
UNBOUNDED = 10**6  # rounds of a job that ends at a virtual second
_POLL = 0.2  # real seconds between looks at Ctrl-C and at the workers' progress
JOB_OPTIONS = per_job(RunSpec)
# Part of the key even where they are not set, as in the first studies.
_ALWAYS = ("conditions", "seed", "eval_every")
Watch = Callable[["Job", float], None]


@dataclass(frozen=True, init=False)
class Job:
    """One run of a study, in values that can be written down.

    The options of a run that `RunSpec` declares ``per_job`` are keyword arguments and attributes,
    such as ``job.until``: as they were asked, and None where the run chooses.

    Attributes
    ----------
    label : str
        Name of the run in the study.
    protocol : str
    options : mapping
        Of the protocol.
    dataset : str
    data : mapping
        Options of `securevfl.data.load_dataset`.
    asked : mapping
        Options of the run by name. Where a virtual end is asked, a job without ``rounds`` has as
        many as fit in.
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
        """Name for a reader."""
        return f"{self.label}, seed {self.seed}"

    def key(self) -> str:
        """Digest of the settings; the data folder does not count."""
        content = asdict(self)
        content["data"] = {k: v for k, v in self.data.items() if k != "data_dir"}
        asked = content.pop("asked")
        content |= {name: asked.get(name) for name in _ALWAYS}
        content |= {name: value for name, value in asked.items() if value is not None}
        text = json.dumps(content, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def path(self, folder: Path) -> Path:
        """File of its result in a study's folder."""
        word = re.sub(r"[^A-Za-z0-9._-]+", "-", self.label)
        if word != self.label:
            word += "-" + hashlib.sha256(self.label.encode()).hexdigest()[:6]
        return folder / "jobs" / f"{word}-{self.seed}.json"


def store(folder: Path, job: Job, result: Mapping[str, Any]) -> None:
    """Write the result of a job; a process that is killed leaves no half of it."""
    write_keyed(job.path(folder), job.key(), result)


def stored(folder: Path, job: Job) -> dict[str, Any] | None:
    """Result of a job with these very settings, if it is there."""
    return read_keyed(job.path(folder), job.key())


def write_keyed(path: Path, key: str, result: Mapping[str, Any]) -> None:
    """Write a result with the digest of what it depends on, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"key": key, **result}))
    part.replace(path)


def read_keyed(path: Path, key: str) -> dict[str, Any] | None:
    """Inverse of `write_keyed`; None where there is none with this key."""
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text())
    return content if content.pop("key") == key else None


def run_job(
    job: Job,
    *,
    progress: Callable[[Progress], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Carry out one job.

    Returns
    -------
    dict
        ``label``, ``seed``, ``summary``, ``curve`` (the evaluated rows of the history), and
        ``history``, a digest of all its rows: equal exactly if the runs were.
    """
    from securevfl.runs.run import run

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


def history_digest(rows: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 of a history: of every row, value for value."""
    lines = (json.dumps(row, sort_keys=True) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# -- carrying out many ---------------------------------------------------------------------------


def carry_out(
    jobs: Sequence[Job],
    workers: int,
    *,
    watch: Watch | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Yield each job with its result as it ends, in any order; stop early when interrupted.

    Parameters
    ----------
    workers : int
        Processes; with 1 the jobs run in this one.
    watch : callable, optional
        Called with (job, part that is done) now and then.
    interrupted : callable, optional
        When it says True, no job is begun any more, and those under way are dropped.

    Raises
    ------
    SecureVFLError
        Of the first job that failed, after all others.
    """
    failed: SecureVFLError | None = None
    each = _here if workers <= 1 or len(jobs) <= 1 else _elsewhere
    for job, result in each(jobs, workers, watch or (lambda job, part: None), interrupted):
        if isinstance(result, SecureVFLError):
            failed = failed or result
        elif result is not None:
            yield job, result
    if failed is not None:
        raise failed


Outcomes = Iterator[tuple[Job, "dict[str, Any] | SecureVFLError | None"]]


def _here(
    jobs: Sequence[Job], workers: int, watch: Watch, interrupted: Callable[[], bool] | None
) -> Outcomes:
    for job in jobs:
        yield job, _attempt(job, watch, interrupted)
        if interrupted is not None and interrupted():
            return


def _attempt(
    job: Job, watch: Watch, interrupted: Callable[[], bool] | None
) -> dict[str, Any] | SecureVFLError | None:
    """Result of a job, its error, or None if it was interrupted.

    That a run with faults cannot go on is what was asked about it: a result with ``error`` alone.
    """
    from securevfl.runs.run import Interrupted

    def progress(now: Progress) -> None:
        part = now.round / max(now.rounds, 1)
        watch(job, max(part, now.virtual_seconds / job.until) if job.until else part)

    try:
        return run_job(job, progress=progress, interrupted=interrupted)
    except SecureVFLError as error:
        if job.faults and isinstance(error, RunError):
            return {"label": job.label, "seed": job.seed, "error": str(error)}
        return error
    except Interrupted:
        return None


def _elsewhere(
    jobs: Sequence[Job], workers: int, watch: Watch, interrupted: Callable[[], bool] | None
) -> Outcomes:
    context = get_context("spawn")
    stop, reports = context.Event(), context.Queue()
    started = (stop, reports, [job.key() for job in jobs])
    pool = ProcessPoolExecutor(
        min(workers, len(jobs)), mp_context=context, initializer=_prepare, initargs=started
    )
    try:
        running: dict[Future[Any], Job] = {pool.submit(_work, job): job for job in jobs}
        while running:
            finished, _ = wait(running, timeout=_POLL, return_when=FIRST_COMPLETED)
            _pass_on(reports, jobs, watch)
            for future in finished:
                yield running.pop(future), _outcome(future)
            if interrupted is not None and interrupted() and not stop.is_set():
                stop.set()
                # `wait` never counts a future that is cancelled here as done.
                running = {future: job for future, job in running.items() if not future.cancel()}
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _outcome(future: Future[Any]) -> dict[str, Any] | SecureVFLError | None:
    try:
        result: dict[str, Any] | SecureVFLError | None = future.result()
    except BrokenProcessPool:
        return RunError(
            "study: a worker process ended by itself, most likely for want of memory; use fewer "
            "workers. The same command goes on with the jobs that are left"
        )
    return result


def _pass_on(reports: Any, jobs: Sequence[Job], watch: Watch) -> None:
    while True:
        try:
            number, part = reports.get_nowait()
        except queue.Empty:
            return
        watch(jobs[number], part)


# -- in a worker process -------------------------------------------------------------------------

_stop: Any = None
_reports: Any = None
_numbers: dict[str, int] = {}


def _prepare(stop: Any, reports: Any, keys: Sequence[str]) -> None:
    """Leave Ctrl-C to the parent, and end with it should it be killed."""
    global _stop, _reports
    _stop, _reports = stop, reports
    _numbers.update({key: number for number, key in enumerate(keys)})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(job: Job) -> dict[str, Any] | SecureVFLError | None:
    last = 0.0
    number = _numbers[job.key()]

    def watch(_: Job, part: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > 1:
            last = now
            _reports.put((number, part))

    return None if _stop.is_set() else _attempt(job, watch, _stop.is_set)
