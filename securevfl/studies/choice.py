"""Choice of options before a study, on validation rows and seeds apart from the study's.

A study file may say::

    [choose]
    seeds = [100]                    # none of them a seed of the study
    validation = 0.2                 # part of the training rows; no test row is seen
    measure = "accuracy"             # or "auc", "f1", "rmse", "r2", "loss"; accuracy, or rmse of a
                                     # regression
    [choose.options]                 # values that are tried, all combinations
    lr = [0.003, 0.01, 0.03]
    rounds = [250, 500, 1000]        # the length of training, too

Every run is made with each combination of those options that its protocol has and its own table
does not fix. The one with the best mean of its measure after the last step is taken for all seeds
of the study; ``results.json`` has what was tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from securevfl.errors import ConfigurationError, RunError
from securevfl.models.quality import MEASURES
from securevfl.protocols.base.registry import get_protocol
from securevfl.studies.jobs import Job, store, stored
from securevfl.studies.workers import carry_out

_KEYS = {"seeds", "validation", "measure", "options"}
_KNOWN = (*MEASURES, "loss")
_ERRORS = ("rmse", "loss")  # less is better


@dataclass(frozen=True)
class Choice:
    """Options to try before a study.

    `options` has the values of each option; `seeds` are those of the trials; `validation` is the
    fraction of the training rows on which runs are compared by `measure`. `fixed` has, by run, the
    options that the run itself sets: they are not tried.
    """

    options: Mapping[str, Sequence[Any]]
    seeds: tuple[int, ...]
    validation: float
    measure: str | None
    fixed: Mapping[str, frozenset[str]]

    def candidates(self, jobs: Sequence[Job]) -> dict[str, list[tuple[dict[str, Any], list[Job]]]]:
        """Combinations of options to try, by label, with their jobs.

        The list of a run is empty if its protocol has none of the options, or its own table fixes
        them.
        """
        found: dict[str, list[tuple[dict[str, Any], list[Job]]]] = {}
        for job in jobs:
            if job.label in found:
                continue
            known = get_protocol(job.protocol).Config.model_fields
            fixed = self.fixed.get(job.label, frozenset())
            free = [name for name in self.options if name in known and name not in fixed]
            combinations = itertools.product(*(self.options[name] for name in free))
            tried = [dict(zip(free, values, strict=True)) for values in combinations]
            found[job.label] = [(own, self._jobs(job, own)) for own in tried if own]
        return found

    def _jobs(self, job: Job, own: Mapping[str, Any]) -> list[Job]:
        """Runs of one combination, without test rows and without the study's seeds."""
        words = ", ".join(f"{name} = {value}" for name, value in own.items())
        return [
            replace(
                job,
                label=f"{job.label}, choose {words}",
                options={**job.options, **own},
                data={**job.data, "seed": seed, "validation": self.validation},
                asked={**job.asked, "seed": seed},
            )
            for seed in self.seeds
        ]


def read_choice(
    given: Any, seeds: Sequence[int], fixed: Mapping[str, frozenset[str]]
) -> Choice | None:
    """The table ``[choose]`` of a study file; None without one, ConfigurationError if malformed.

    `seeds` are those of the study; `fixed` has, by run, the options that the run sets itself.
    """
    if given is None:
        return None
    unknown = set(given) - _KEYS
    if unknown:
        raise ConfigurationError(
            f"study: [choose] has unknown keys {', '.join(sorted(unknown))}; known: "
            f"{', '.join(sorted(_KEYS))}"
        )
    options, own = given.get("options"), given.get("seeds")
    lists = isinstance(options, dict) and all(isinstance(v, list) and v for v in options.values())
    if not options or not lists:
        raise ConfigurationError(
            "study: [choose.options] must have a list of values for each option, such as "
            f"lr = [0.003, 0.01]; it is {options!r}"
        )
    if not isinstance(own, list) or not own or not all(type(seed) is int for seed in own):
        raise ConfigurationError(f"study: [choose] needs a list of seeds, they are {own!r}")
    both = sorted(set(own) & set(seeds))
    if both:
        raise ConfigurationError(
            f"study: [choose] has seeds of the study, {both}: what is chosen on a split must not "
            "be told of it. Choose others, such as seeds = [100]"
        )
    fraction, measure = given.get("validation", 0.2), given.get("measure")
    if type(fraction) not in (int, float) or not 0 < fraction < 1:
        raise ConfigurationError(
            f"study: [choose] validation = {fraction!r} must be a part of the training rows, in "
            "(0, 1)"
        )
    if measure is not None and measure not in _KNOWN:
        raise ConfigurationError(
            f"study: [choose] measure = {measure!r} is none of {', '.join(_KNOWN)}"
        )
    return Choice(options, tuple(own), float(fraction), measure, fixed)


def choose(
    choice: Choice,
    jobs: Sequence[Job],
    folder: Path,
    *,
    workers: int = 1,
    interrupted: Callable[[], bool] | None = None,
) -> dict[str, dict[str, Any]]:
    """Run missing jobs of the choice, then select the best combination for each label.

    `folder` stores results of jobs, `workers` is the number of processes. Returns, by label,
    ``options``, the best; and ``tried``: each combination with its ``mean``, the larger the better,
    None where a run ended with an error. Interrupted when `interrupted` returned True; finished
    runs are kept. ConfigurationError where no combination of a label has a measure.
    """
    from securevfl.runs.engines.run import Interrupted

    candidates = choice.candidates(jobs)
    every = [job for tried in candidates.values() for _, own in tried for job in own]
    todo = [job for job in every if stored(folder, job) is None]
    try:
        for job, result in carry_out(todo, workers, interrupted=interrupted):
            store(folder, job, result)
    except RunError as error:  # one that stalls, say, is no candidate; all others were made
        for job in every:
            if stored(folder, job) is None:
                store(folder, job, {"label": job.label, "seed": job.seed, "error": str(error)})
    if any(stored(folder, job) is None for job in every):
        raise Interrupted(folder)
    found = {}
    for label, tried in candidates.items():
        scores = [{**own, "mean": _mean(choice, folder, runs)} for own, runs in tried]
        there = [score for score in scores if score["mean"] is not None]
        if tried and not there:
            raise ConfigurationError(
                f"study: [choose]: none of {len(tried)} combinations of {label!r} has a measure: "
                "each ended with an error, or before its first round. Try others, or give more time"
            )
        if there:
            best = max(there, key=lambda score: score["mean"])
            options = {key: value for key, value in best.items() if key != "mean"}
            found[label] = {"options": options, "tried": scores}
    return found


def _mean(choice: Choice, folder: Path, jobs: Sequence[Job]) -> float | None:
    """Mean of the choice's measure over all jobs, negative for errors; None if one is missing."""
    values = list(_values(choice, folder, jobs))
    return math.fsum(values) / len(values) if len(values) == len(jobs) else None


def _values(choice: Choice, folder: Path, jobs: Sequence[Job]) -> Iterator[float]:
    for job in jobs:
        own = stored(folder, job) or {}
        summary = own.get("summary", {})
        measure = choice.measure or ("rmse" if "test_rmse" in summary else "accuracy")
        if measure == "loss":  # of the validation rows, at the last evaluation
            value = next((row["test_loss"] for row in own.get("curve", [])[-1:]), None)
        else:
            value = summary.get(f"test_{measure}")
        if value is not None and math.isfinite(value):
            yield -value if measure in _ERRORS else value


def applied(jobs: Sequence[Job], chosen: Mapping[str, Mapping[str, Any]]) -> tuple[Job, ...]:
    """The study's jobs with the options chosen for their labels."""
    return tuple(
        replace(job, options={**job.options, **chosen.get(job.label, {}).get("options", {})})
        for job in jobs
    )
