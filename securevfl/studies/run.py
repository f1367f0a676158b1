"""The runs of a study, carried out in parallel and resumed after a stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from securevfl.errors import ConfigurationError, needs
from securevfl.studies.choice import applied, choose
from securevfl.studies.jobs import check_jobs, store, stored
from securevfl.studies.study import Study
from securevfl.studies.summary import write_results
from securevfl.studies.workers import Watch, carry_out


def run_study(
    study: Study,
    folder: Path,
    *,
    workers: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
    watch: Watch | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Run all jobs that have no result yet, and write the study's results.

    Returns the content of ``results.json``. The folder gets ``jobs/``, and the files of
    `write_results`. Each of the workers is a process that computes on one thread. `progress` is
    called with (jobs done, all jobs, text on the finished one), `watch` from time to time with
    (job, fraction done). `interrupted` is called often; when it returns True, running jobs are
    dropped, and Interrupted is raised.

    RefusedRunsError before anything is run, when a run names an unknown protocol or an option out
    of its range, or cannot run on its data, under its conditions or with its faults.
    ConfigurationError for fewer than one worker, a folder with another study, or a missing package
    of the extra ``report``. The SecureVFLError of the first failed job is raised at the end, and
    other results are kept; but a DivergedError, and a RunError of a job with faults, are the job's
    result.
    """
    from securevfl.runs.engines.run import Interrupted

    needs("study", "report", "matplotlib", "scipy")
    tried = study.choice.candidates(study.jobs) if study.choice else {}
    every = [*study.jobs, *(job for each in tried.values() for _, own in each for job in own)]
    check_jobs([job for job in every if stored(folder, job) is None])
    if workers < 1:
        raise ConfigurationError(f"study: {workers} workers are too few; use 1 or more")
    if folder.exists() and not _is_study(folder):
        raise ConfigurationError(
            f"study: the folder {folder} holds something else than a study; name another with --out"
        )
    (folder / "jobs").mkdir(parents=True, exist_ok=True)
    if study.choice:
        chosen = choose(study.choice, study.jobs, folder, workers=workers, interrupted=interrupted)
        study = replace(study, jobs=applied(study.jobs, chosen), chosen=chosen)
    todo = [job for job in study.jobs if stored(folder, job) is None]
    done = len(study.jobs) - len(todo)
    tell = progress or (lambda done, total, what: None)
    tell(done, len(study.jobs), f"{done} were there")
    for job, result in carry_out(todo, workers, watch=watch, interrupted=interrupted):
        store(folder, job, result)
        done += 1
        tell(done, len(study.jobs), job.name)
    if done < len(study.jobs):
        raise Interrupted(folder)
    return write_results(study, folder)


def _is_study(folder: Path) -> bool:
    """Whether a folder is a study's: it has a job result, or only an empty job folder."""
    if {path.name for path in folder.iterdir()} <= {"jobs"}:
        return True
    return any(path.read_bytes().startswith(b'{"key": ') for path in folder.glob("jobs/*.json"))
