"""Table of methods under one evaluation.

A *cell* is a method, or a variant of one, on a data set. In all cells

* a seed has its own split, which is the same for all methods, and the same delays;
* a method has its default options, and the learning rate that is best on validation rows: all
  methods try the same rates, on a seed that is no seed of the table;
* a run ends after the same virtual time, or before it when the method's own rounds are over.

Next to the accuracy at that time the table has bytes sent, the card's claims, the equations that
decoded sums revealed about a row and, if requested, attack results. Parts of the table can be made
one after another: finished runs are stored, and a cell without runs is empty.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError, DataError, RunError, SecureVFLError, needs
from securevfl.protocols.base.registry import get_protocol
from securevfl.studies.choice import Choice, applied, choose
from securevfl.studies.compare import comparison
from securevfl.studies.equal_times import at_times
from securevfl.studies.intervals import mean_interval, number_or_none
from securevfl.studies.jobs import (
    Job,
    RefusedRunsError,
    check_jobs,
    read_keyed,
    store,
    stored,
    write_keyed,
)
from securevfl.studies.variant import parse_variant
from securevfl.studies.workers import carry_out

DATA = (
    "digits",
    "breast-cancer:parties=6",
    "breast-cancer:parties=2,test_fraction=0.2",
    "handwritten",
    "credit-card",
)
RATES = (0.003, 0.01, 0.03)
CHOICE = 1000  # the seed on which rates are tried
VALIDATION = 0.2  # part of the training rows of that seed
POINTS = 20  # evaluations of a run
AT_RISK = ("features", "labels")

Row = dict[str, Any]
Attack = Callable[[Job], Mapping[str, Any]]


@dataclass
class MethodTable:
    """All cells of a table of methods, and the folder of their runs.

    Parameters
    ----------
    variants : sequence of str
        ``NAME`` or ``NAME:option=value,...``.
    data : sequence of str
        Data sets, with options in the same form: ``NAME:parties=6``.
    folder : Path
        Folder for the runs, one subfolder per data set; finished runs are not repeated.
    seeds : sequence of int
        Seeds of the runs.
    until : float
        Virtual seconds at which a run ends.
    conditions : str
        Argument of `securevfl.engine.conditions_file.load_conditions`.
    rates : sequence of float
        Values of ``lr`` to try; a variant with its own ``lr`` is not tuned.
    options : mapping
        Options set for every method that has them.
    attack : callable, optional
        Function that returns the attack results on a job's run.
    data_dir : str, optional
        Folder of the published data sets.
    """

    variants: Sequence[str]
    data: Sequence[str]
    folder: Path
    seeds: Sequence[int] = (0,)
    until: float = 100.0
    conditions: str = "ranks_st"
    rates: Sequence[float] = RATES
    options: Mapping[str, Any] = field(default_factory=dict)
    attack: Attack | None = None
    data_dir: str | None = None

    def __post_init__(self) -> None:
        if not self.until > 0:
            raise ConfigurationError(
                f"bench methods: runs of {self.until} virtual seconds have no end; give --until "
                "SECONDS above 0"
            )
        if not self.rates or CHOICE in self.seeds:
            raise ConfigurationError(
                f"bench methods: {len(self.rates)} rates on seed {CHOICE} choose that of seeds "
                f"{list(self.seeds)}: name one rate at least, and fewer than {CHOICE} seeds"
            )
        for names, what in ((self.variants, "methods"), (self.data, "data sets")):
            if not names or len(set(names)) != len(names):
                raise ConfigurationError(
                    f"bench methods: {what} must be named once each, and are {', '.join(names)}"
                )
        self.refused: dict[tuple[str, str], str] = {}
        self._jobs = {one: self._of(*one) for one in self.cells()}

    def cells(self) -> Iterator[tuple[str, str]]:
        """Pairs (data set, variant), one for each cell."""
        return ((data, variant) for data in self.data for variant in self.variants)

    def _of(self, data: str, variant: str) -> tuple[Job, ...]:
        """Runs of a cell before its learning rate is chosen."""
        name, options = parse_variant(data)
        where = {} if self.data_dir is None else {"data_dir": self.data_dir}
        source = DataSource(name, {key: _plain(text) for key, text in options.items()} | where)
        fields = get_protocol(parse_variant(variant)[0]).Config.model_fields
        own = {key: value for key, value in self.options.items() if key in fields}
        if "rounds" in fields:  # sizes may follow from it: a run to a time has no other bound
            own.setdefault("rounds", fields["rounds"].default)
        return comparison(
            [variant],
            source,
            options=own,
            seeds=self.seeds,
            conditions=self.conditions,
            until=self.until,
            eval_seconds=self.until / POINTS,
            sealed=False,
        ).jobs

    def check(self) -> dict[tuple[str, str], str]:
        """Reasons by cell (data set, variant) for cells that cannot be run; `run` skips them.

        ConfigurationError where no cell can be run.
        """
        for data in self.data:
            firsts = [self._jobs[data, variant][0] for variant in self.variants]
            try:
                check_jobs(firsts)
            except RefusedRunsError as error:
                self.refused |= {(data, label): why for label, why in error.reasons.items()}
            except DataError as error:
                self.refused |= {(data, variant): str(error) for variant in self.variants}
        if len(self.refused) == len(self._jobs):
            first = next(iter(self.refused.values()))
            raise ConfigurationError(f"bench methods: no cell can be run; the first: {first}")
        return self.refused

    def run(
        self,
        *,
        workers: int = 1,
        progress: Callable[[int, int, str], None] | None = None,
        interrupted: Callable[[], bool] | None = None,
        finished: Callable[[], None] | None = None,
    ) -> None:
        """Make the missing runs: first one seed in all cells, then the other seeds.

        Parameters
        ----------
        workers : int
            Number of processes.
        progress : callable, optional
            Called with (cells done, all cells, text).
        interrupted : callable, optional
            Called often; when it returns True, `Interrupted` is raised, and finished runs are kept.
        finished : callable, optional
            Called after each cell.

        Raises
        ------
        MissingPackageError
            Before any run, where intervals and pictures could not be made.
        """
        needs("bench methods", "report", "matplotlib", "scipy")
        passes = dict.fromkeys((1, len(self.seeds)))
        work = [(seeds, one) for seeds in passes for one in self.cells() if one not in self.refused]
        for number, (seeds, one) in enumerate(work):
            self._cell(one, seeds, workers, interrupted)
            if progress is not None:
                progress(number + 1, len(work), " on ".join(reversed(one)))
            if finished is not None:
                finished()

    def _cell(
        self,
        one: tuple[str, str],
        seeds: int,
        workers: int,
        interrupted: Callable[[], bool] | None,
    ) -> None:
        from securevfl.runs.engines.run import Interrupted

        folder = self._folder(one[0])
        jobs = self._jobs[one][:seeds]
        try:
            chosen = choose(
                self._choice(one), jobs, folder, workers=workers, interrupted=interrupted
            )
            jobs = applied(jobs, chosen)
            todo = [job for job in jobs if stored(folder, job) is None]
            for job, result in carry_out(todo, workers, interrupted=interrupted):
                store(folder, job, result)
        except RunError as error:  # a run that cannot go on is a result; all others were made
            for job in jobs:
                if stored(folder, job) is None:
                    store(folder, job, {"label": job.label, "seed": job.seed, "error": str(error)})
        except SecureVFLError as error:  # of this cell alone
            self.refused[one] = str(error)
            return
        if any(stored(folder, job) is None for job in jobs):
            raise Interrupted(folder)
        first = stored(folder, jobs[0]) or {"error": ""}
        path, key = self._told(one[0], jobs[0])
        if self.attack is not None and "error" not in first and read_keyed(path, key) is None:
            write_keyed(path, key, self.attack(jobs[0]))

    def _choice(self, one: tuple[str, str]) -> Choice:
        _, own = parse_variant(one[1])
        fixed = frozenset({*own, *self.options})
        return Choice({"lr": list(self.rates)}, (CHOICE,), VALIDATION, None, {one[1]: fixed})

    def _folder(self, data: str) -> Path:
        return self.folder / slug(data)

    def _told(self, data: str, job: Job) -> tuple[Path, str]:
        """(file of attack results on a job's run, digest of the job's settings)."""
        return self._folder(data) / "attacks" / job.path(Path()).name, job.key()

    # -- what was found --------------------------------------------------------------------------

    def content(self) -> Row:
        """Content of ``methods.json``: a row for each cell, and the evaluation settings."""
        from securevfl.machine import commit, describe_machine

        return {
            "cells": [self.row(*one) for one in self.cells()],
            "protocol": {
                "until": self.until,
                "conditions": self.conditions,
                "rates": list(self.rates),
                "choice": {"seed": CHOICE, "validation": VALIDATION},
                "seeds": list(self.seeds),
                "options": dict(self.options),
            },
            "machine": describe_machine(),
            "commit": commit(),
        }

    def row(self, data: str, variant: str) -> Row:
        """Table row of a data set and a variant, from finished runs; ``empty`` says why none are.

        Numbers are means over seeds at the virtual end: ``accuracy`` with its 95 % ``half_width``,
        ``bytes``, ``rounds``, ``seconds`` (virtual, until the last round), and ``curve`` with rows
        of virtual time, bytes, accuracy.
        """
        row: Row = {"data": data, "method": variant, "seeds": 0}
        if (data, variant) in self.refused:
            return row | {"empty": f"cannot run: {self.refused[data, variant]}"}
        try:
            jobs, lr, tried = self._tuned(data, variant)
        except ConfigurationError as error:  # no rate has a measure
            return row | {"empty": str(error)}
        found = [stored(self._folder(data), job) for job in jobs] if jobs else []
        there = [result for result in found if result and "error" not in result]
        errors = [result["error"] for result in found if result and "error" in result]
        if not there:
            return row | {"empty": errors[0] if errors else "not run"}
        summaries = [result["summary"] for result in there]
        row |= {"seeds": len(there), "error": errors[0] if errors else "", "lr": lr, "tried": tried}
        row["parties"] = summaries[0]["parties"]
        row |= self._means(there, summaries)
        row |= told_by_card(summaries[0])
        return row | {"attacks": read_keyed(*self._told(data, jobs[0]))}

    def _tuned(self, data: str, variant: str) -> tuple[tuple[Job, ...], float | None, list[Any]]:
        """Runs of a cell at the chosen learning rate, the rate, and pairs (rate, measure) tried.

        No runs if a trial is missing; no rate if the variant sets its own.
        """
        one, folder = (data, variant), self._folder(data)
        jobs, choice = self._jobs[one], self._choice((data, variant))
        (tried,) = choice.candidates(jobs).values()
        if any(stored(folder, job) is None for _, own in tried for job in own):
            return (), None, []
        found = choose(choice, jobs, folder).get(variant)
        if found is None:
            return jobs, None, []
        scores = [[each["lr"], number_or_none(each["mean"] or 0.0)] for each in found["tried"]]
        return applied(jobs, {variant: found}), found["options"]["lr"], scores

    def _means(self, results: Sequence[Row], summaries: Sequence[Row]) -> Row:
        grid = [self.until * (step + 1) / POINTS for step in range(POINTS)]
        at = at_times(results, grid)
        curve = []
        for time in grid:
            here = [row["accuracy"] for row in at if row["time"] == time and "accuracy" in row]
            if len(here) == len(results):
                sent = [_bytes_at(result, time) for result in results]
                curve.append([time, round(float(np.mean(sent))), round(float(np.mean(here)), 5)])
        found: Row = {}
        for name in ("accuracy", "auc"):
            values = [own[f"test_{name}"] for own in summaries if f"test_{name}" in own]
            if values and len(values) == len(summaries):
                mean, half = mean_interval(values)
                found |= {name: mean, f"{name}_values": values}
                found |= {"half_width": number_or_none(half)} if name == "accuracy" else {}
        for name, key in (("bytes", "bytes"), ("rounds", "rounds"), ("seconds", "virtual_seconds")):
            found[name] = float(np.mean([own[key] for own in summaries]))
        return found | {"curve": curve}


def slug(text: str) -> str:
    """Folder name for a data set with its options; other characters become "-", with a hash."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", text)
    return word if word == text else f"{word}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _plain(text: str) -> Any:
    """Value of a text in JSON, such as a number; the text itself if it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _bytes_at(result: Row, time: float) -> float:
    """Bytes sent by a run up to virtual second `time`, interpolated between its evaluations."""
    curve = result["curve"]
    return float(np.interp(time, [row["time"] for row in curve], [row["bytes"] for row in curve]))


def told_by_card(summary: Mapping[str, Any]) -> Row:
    """Claims on columns and labels in a run's summary, and counts of what decoded sums revealed.

    ``features`` and ``labels`` have a list for each claim: adversary, strength and, if the claim
    allows sums, "given sums". ``sums`` has equations, unknowns, rank and a word on these; None if
    nobody decodes sums.
    """
    claims = summary["claims"]
    released = summary["released"]
    found: Row = {
        asset: [
            [claim["who"], claim["notion"], *(["given sums"] if claim.get("given") else [])]
            for claim in claims
            if claim["about"] == asset
        ]
        for asset in AT_RISK
    }
    numbers = None if released is None else [released[k] for k in ("equations", "unknowns", "rank")]
    found["sums"] = None if numbers is None else [*numbers, released["state"]]
    return found


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the Pareto front: no other point has less of the first and more of the second.

    Examples
    --------
    >>> front([(1.0, 0.5), (2.0, 0.9), (3.0, 0.7), (2.0, 0.8)])
    [0, 1]
    """
    found: list[int] = []
    best = -np.inf
    for number in sorted(range(len(points)), key=lambda n: (points[n][0], -points[n][1])):
        if points[number][1] > best:
            best = points[number][1]
            found.append(number)
    return found


def fronts(cells: Sequence[Row], data: str, cost: str) -> list[tuple[str, float, float]]:
    """Pareto front of all methods on a data set: method, cost, accuracy, by rising cost.

    Points are those of the mean curves of cells with the largest number of seeds.

    Parameters
    ----------
    cost : {"time", "bytes"}
        Virtual seconds, or bytes sent by all parties.
    """
    own = [cell for cell in cells if cell["data"] == data and cell["seeds"]]
    most = max((cell["seeds"] for cell in own), default=0)
    column = ("time", "bytes").index(cost)
    points = [
        (cell["method"], float(row[column]), float(row[2]))
        for cell in own
        if cell["seeds"] == most
        for row in cell["curve"]
    ]
    return [points[number] for number in front([(x, y) for _, x, y in points])]


def on_fronts(cells: Sequence[Row], data: str) -> dict[str, list[str]]:
    """Cost axes on whose Pareto front a method has a point, by method."""
    found: dict[str, list[str]] = {}
    for cost in ("bytes", "time"):
        for name in dict.fromkeys(method for method, _, _ in fronts(cells, data, cost)):
            found.setdefault(name, []).append(cost)
    return found


def flat(cells: Sequence[Row]) -> list[Row]:
    """Rows of the CSV and LaTeX tables: one value a column."""
    return [
        {
            "data": cell["data"],
            "method": cell["method"],
            "seeds": cell["seeds"],
            "accuracy": cell.get("accuracy"),
            "half_width": cell.get("half_width"),
            "auc": cell.get("auc"),
            "bytes": cell.get("bytes"),
            "rounds": cell.get("rounds"),
            "seconds": cell.get("seconds"),
            "lr": cell.get("lr"),
            "front": " ".join(on_fronts(cells, cell["data"]).get(cell["method"], [])),
            **{asset: hidden(cell, asset) for asset in AT_RISK},
            "sums": "" if not cell.get("sums") else "{}/{} {}".format(*_sums(cell)),
            **{name: attacked(cell, name) for name in groups(cells)},
            "empty": cell.get("empty", ""),
        }
        for cell in cells
    ]


def _sums(cell: Row) -> tuple[int, int, str]:
    equations, unknowns, _, state = cell["sums"]
    return equations, unknowns, state


def groups(cells: Sequence[Row]) -> list[str]:
    """Names of the attack groups that have results in some cell."""
    return list(dict.fromkeys(name for cell in cells for name in cell.get("attacks") or ()))


def attacked(cell: Row, group: str) -> float | None:
    """Success of a cell's strongest attack of a group, 1 for all found; None if none had a view."""
    found = (cell.get("attacks") or {}).get(group)
    return None if not found else found["success"]


def hidden(cell: Row, asset: str) -> str:
    """A card's claims on an asset in words, equal ones once: "server: none"."""
    return "; ".join(
        dict.fromkeys(
            f"{who}: {notion}{' ' + ', '.join(given) if given else ''}"
            for who, notion, *given in cell.get(asset) or ()
        )
    )


def write_csv(cells: Sequence[Row], path: Path) -> None:
    """Write a line for each cell; numbers have six digits, missing values are empty."""
    rows = flat(cells)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def latex(cells: Sequence[Row]) -> str:
    """Accuracy in per cent and megabytes as a LaTeX table: a line a method, two columns a set."""
    sets = list(dict.fromkeys(cell["data"] for cell in cells))
    at = {(cell["method"], cell["data"]): cell for cell in cells}
    titles = [f"\\multicolumn{{2}}{{c}}{{{escaped(name)}}}" for name in sets]
    lines = [
        f"\\begin{{tabular}}{{l{'rr' * len(sets)}}}",
        " & ".join(["", *titles]) + " \\\\",
        " & ".join(["method", *["accuracy", "MB"] * len(sets)]) + " \\\\ \\hline",
    ]
    for name in dict.fromkeys(cell["method"] for cell in cells):
        parts = [text for data in sets for text in _printed(at[name, data])]
        lines.append(" & ".join([escaped(name), *parts]) + " \\\\")
    return "\n".join([*lines, "\\end{tabular}", ""])


def _printed(cell: Row) -> tuple[str, str]:
    if not cell["seeds"]:
        return "-", "-"
    return percent(cell, "$\\pm$"), f"{cell['bytes'] / 1e6:.3g}"


def percent(cell: Row, sign: str = "±") -> str:
    """Accuracy of a cell in per cent, then `sign` and half its 95 % interval, if known."""
    half = cell.get("half_width")
    return f"{100 * cell['accuracy']:.1f}" + (f" {sign} {100 * half:.1f}" if half else "")


def escaped(text: str) -> str:
    """Text in which "_" and "%" are escaped for LaTeX."""
    return text.replace("_", "\\_").replace("%", "\\%")
