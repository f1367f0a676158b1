"""Summary of a study: means over seeds, paired differences, measures at equal virtual times."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.models.quality import MEASURES as MEASURES
from securevfl.models.quality import QUALITY as QUALITY
from securevfl.studies.equal_times import at_times
from securevfl.studies.intervals import mean_interval, number_or_none, paired_difference
from securevfl.studies.jobs import Job, stored
from securevfl.studies.speed import speeds

if TYPE_CHECKING:
    from securevfl.studies.study import Study


def so_far(study: Study, folder: Path) -> dict[str, Any] | None:
    """Content of ``results.json`` for the jobs done so far; None if there are none."""
    done = study.only([job for job in study.jobs if stored(folder, job) is not None])
    return _content(done, folder)[0] if done.jobs else None


def write_results(study: Study, folder: Path) -> dict[str, Any]:
    """Summarise the stored jobs of a study, and write the results.

    Means are over the completed runs; failed ones are listed as ``errors``. Returns the content of
    ``results.json``.

    Writes ``results.json``; ``results.csv``, one row a job; ``curves.csv``, one row an evaluation;
    ``times.csv``, the measures at equal virtual times, if any time passes; and ``curves.png``.
    """
    content, jobs, times = _content(study, folder)
    (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    _write_table([_job_row(job) for job in jobs], folder / "results.csv")
    curves = [{"run": job["label"], "seed": job["seed"], **r} for job in jobs for r in job["curve"]]
    _write_table(curves, folder / "curves.csv")
    if times:
        _write_table(times, folder / "times.csv")
    else:
        (folder / "times.csv").unlink(missing_ok=True)
    draw(study, jobs, folder / "curves.png")
    return content


def _content(
    study: Study, folder: Path
) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Content of ``results.json``, jobs finished without an error, and measures at equal times."""
    from securevfl.machine import commit, describe_machine

    found = [stored(folder, job) for job in study.jobs]
    there = [job for job in found if job is not None]
    jobs = [job for job in there if "error" not in job]
    errors = [job for job in there if "error" in job]
    times = at_times(jobs, study.times)
    content = {
        "title": study.title,
        "runs": {label: _sum_up(jobs, label) | _errors(errors, label) for label in study.labels},
        "baseline": study.baseline,
        "differences": _differences(jobs, study),
        "times": _sum_up_times(times, jobs, study.labels),
        "speed": speeds(jobs, study.labels, study.target),
        "paper": dict(study.paper),
        "ours": dict(study.ours),
        "machine": describe_machine(),
        "commit": commit(),
        "settings": {job.label: _settings(job) for job in study.jobs},
    }
    if study.choice is not None:
        how = {"seeds": study.choice.seeds, "validation": study.choice.validation}
        content["chosen"] = {**how, "runs": dict(study.chosen)}
    return content, jobs, list(times)


def draw(study: Study, jobs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a study's curves: of a grid, in a panel for each of its conditions.

    If runs differ in their number of aligned rows, last values are drawn against this number.

    Parameters
    ----------
    jobs : sequence of mapping
        Finished jobs of the study, each with ``label`` and ``curve``, its evaluations.
    path : Path
        The PNG file, which is replaced.
    """
    from securevfl.runs.plots import draw_grid, draw_sizes, draw_study

    by_run = {
        label: [job["curve"] for job in jobs if job["label"] == label] for label in study.labels
    }
    sizes = _by_size(by_run)
    if len({size for own in sizes.values() for size in own}) > 1:
        draw_sizes(sizes, path, title=study.title)
        return
    cells: dict[str, dict[str, Any]] = {under: {} for under in study.grid}
    for label, curves in by_run.items():
        under = max((u for u in cells if label.endswith(f", {u}")), key=len, default=None)
        if under is not None:
            cells[under][label.removesuffix(f", {under}")] = curves
    if len(cells) > 1 and sum(map(len, cells.values())) == len(by_run):
        draw_grid(cells, path, title=study.title)
    else:
        draw_study(by_run, path, title=study.title)


def _by_size(by_run: Mapping[str, Any]) -> dict[str, dict[int, Any]]:
    """Curves by run and number of aligned rows; empty if some run has no such number."""
    found: dict[str, dict[int, Any]] = {}
    for label, curves in by_run.items():
        match = re.fullmatch(r"(.+), (\d+) aligned", label)
        if match is None:
            return {}
        found.setdefault(match[1], {})[int(match[2])] = curves
    return found


def _sum_up_times(
    rows: Sequence[Mapping[str, Any]], jobs: Sequence[Mapping[str, Any]], labels: Sequence[str]
) -> dict[str, Any]:
    """Mean and interval, by run and time (s), of the first measure at times all seeds have.

    ``ended`` is true if some seed's run had ended by then, so that its last value is used.
    """
    measure = next((name for name in ("rmse", "accuracy") if any(name in r for r in rows)), None)
    if measure is None:
        return {}
    result: dict[str, Any] = {"measure": measure, "runs": {}}
    for label in labels:
        own = [row for row in rows if row["run"] == label]
        seeds = {job["seed"] for job in jobs if job["label"] == label}
        entries = []
        for time in sorted({row["time"] for row in own}):
            here = [row for row in own if row["time"] == time]
            if len(here) == len(seeds):
                mean, half = mean_interval([row[measure] for row in here])
                ended = any(row["ended"] for row in here)
                entries.append(
                    {
                        "time": time,
                        "mean": mean,
                        "half_width_95": number_or_none(half),
                        "ended": ended,
                    }
                )
        result["runs"][label] = entries
    return result


def _settings(job: Job) -> dict[str, Any]:
    content = asdict(job)
    content["data"] = {k: v for k, v in job.data.items() if k not in ("data_dir", "seed")}
    return {k: v for k, v in content.items() if k not in ("label", "seed")}


def _sum_up(jobs: Sequence[Mapping[str, Any]], label: str) -> dict[str, Any]:
    summaries = [job["summary"] for job in jobs if job["label"] == label]
    modes = sorted({s.get("delay_mode") or "none" for s in summaries})
    result: dict[str, Any] = {
        "seeds": [s["seed"] for s in summaries],
        "delay_mode": ", ".join(modes),
    }
    names = [*(f"test_{name}" for name in MEASURES), *QUALITY]
    names += ["rounds", "virtual_seconds", "wall_seconds", "messages", "bytes", "late"]
    for name in names:
        values = [s[name] for s in summaries if name in s]
        if values and len(values) == len(summaries):
            mean, half = mean_interval(values)
            result[name] = {"mean": mean, "half_width_95": number_or_none(half), "values": values}
    return result


def _errors(jobs: Sequence[Mapping[str, Any]], label: str) -> dict[str, Any]:
    """Error messages of failed runs by seed; empty if there are none."""
    messages = {str(job["seed"]): job["error"] for job in jobs if job["label"] == label}
    return {"errors": messages} if messages else {}


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
            own = by_run[label]  # a run that ended before its first step has no measure
            both = [s for s in seeds if name in own[s] and name in theirs[s]]
            if both:
                mean, half = paired_difference(
                    [own[s][name] for s in both], [theirs[s][name] for s in both]
                )
                entry = {"mean": mean, "half_width_95": number_or_none(half), "pairs": len(both)}
                result.setdefault(label, {})[name] = entry
    return result


def _job_row(job: Mapping[str, Any]) -> dict[str, Any]:
    plain = {k: v for k, v in job["summary"].items() if isinstance(v, (int, float, str))}
    return {"run": job["label"], **plain}


def _write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    import pandas as pd

    pd.DataFrame(rows).to_csv(path, index=False)
