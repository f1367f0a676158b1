"""Execution of jobs, one by one in this process or in parallel workers."""

from __future__ import annotations

import gc
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

from securevfl.errors import DivergedError, RunError, SecureVFLError
from securevfl.studies.jobs import Job, run_job

if TYPE_CHECKING:
    from securevfl.runs.history import Progress

_POLL = 0.2  # real seconds between looks at Ctrl-C and at the workers' progress
Watch = Callable[["Job", float], None]


def carry_out(
    jobs: Sequence[Job],
    workers: int,
    *,
    watch: Watch | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Yield each job with its result as it ends, in any order; stop early if interrupted.

    With one worker the jobs run in this process. `watch` is called with (job, finished share) from
    time to time. Once `interrupted` returns True, no further job starts, and running jobs are
    dropped. The SecureVFLError of the first failed job is raised after all others.
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
    """Result of a job, its error, or None if interrupted.

    A run that diverges, or that faults end, gives a result with ``error`` alone.
    """
    from securevfl.runs.engines.run import Interrupted

    def progress(now: Progress) -> None:
        part = now.round / max(now.rounds, 1)
        watch(job, max(part, now.virtual_seconds / job.until) if job.until else part)

    try:
        return run_job(job, progress=progress, interrupted=interrupted)
    except SecureVFLError as error:
        bare = _bare(error)
        if isinstance(bare, DivergedError) or (job.faults and isinstance(bare, RunError)):
            return {"label": job.label, "seed": job.seed, "error": str(bare)}
        return bare
    except Interrupted:
        return None


def _bare(error: SecureVFLError) -> SecureVFLError:
    """An error without its traceback, which refers to the run and its messages (perhaps gigabytes).

    They are in cycles of references, which Python would collect late: it counts objects, not bytes.
    """
    error.__context__ = error.__cause__ = None
    bare = error.with_traceback(None)
    gc.collect()
    return bare


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
    """Prepare a worker: store its stop event and queue, ignore Ctrl-C, end with its parent."""
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
