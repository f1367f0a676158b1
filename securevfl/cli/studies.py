"""The commands `study`, `compare` and `plan`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from securevfl.cli import displays, output, tables
from securevfl.cli.options import protocol_options
from securevfl.cli.run import INTERRUPTED, data_source, run_folder, sort_out, stopping
from securevfl.errors import ConfigurationError, SecureVFLError, UnknownNameError
from securevfl.protocols.base.defaults import SHOWN

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from securevfl.data.source import DataSource
    from securevfl.studies.jobs import Job, RefusedRunsError
    from securevfl.studies.study import Study


class Display:
    """Progress of a study on standard error: bars on a terminal, else a line for each job."""

    def __init__(self, title: str, total: int = 1) -> None:
        from rich.console import Console

        self._title = title
        self._console = Console(file=sys.stderr, highlight=False)
        self._bars: Progress | None = None
        self._all: TaskID | None = None
        self._jobs: dict[str, TaskID] = {}
        self._left, self._done, self._total = displays.TimeLeft(), 0, total
        self._parts: dict[str, float] = {}

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn

            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[figures]}"),
                console=self._console,
            )
            self._all = self._bars.add_task(self._title, total=None, figures="preparing")
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def progress(self, done: int, total: int, what: str) -> None:
        """Show that the job `what` ended, as number `done` of `total`."""
        self._done, self._total = done, total
        self._parts.pop(what, None)
        if self._bars is None or self._all is None:
            output.say(f"{self._title}: {self._so_far()} ({what})")
            return
        self._show()
        finished = self._jobs.pop(what, None)
        if finished is not None:
            self._bars.remove_task(finished)

    def _so_far(self) -> str:
        """Finished jobs, running ones as their share, and the remaining time, as text."""
        share = (self._done + sum(self._parts.values())) / max(self._total, 1)
        return f"{self._done}/{self._total}, {self._left(share)}"

    def _show(self) -> None:
        if self._bars is not None and self._all is not None:
            done = self._done + sum(self._parts.values())
            self._bars.update(self._all, total=self._total, completed=done, figures=self._so_far())

    def watch(self, job: Job, part: float) -> None:
        """Show which part, from 0 to 1, of a running job is done."""
        self._parts[job.name] = part
        self._show()
        self.part(job.name, part)

    def part(self, name: str, part: float) -> None:
        """Show the progress, from 0 to 1, of a named piece of work."""
        if self._bars is None:
            return
        if name not in self._jobs:
            self._jobs[name] = self._bars.add_task(f"  {name}", total=1.0, figures="")
        self._bars.update(self._jobs[name], completed=part, figures=f"{100 * part:.0f} %")

    def note(self, text: str) -> None:
        """Print a line without disturbing the display."""
        if self._bars is None:
            output.say(text)
        else:
            self._console.print(text)
            self._console.show_cursor(True)


def study(
    file: Path,
    code: Sequence[str],
    *,
    quick: bool,
    workers: int,
    out: Path | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Carry out ``securevfl study``."""
    from securevfl.runs.from_folder import allow
    from securevfl.studies.study import read_study

    allow(*code)
    name = f"study-{file.stem}{'-quick' if quick else ''}"
    made = read_study(file, quick=quick, data_dir=None if data_dir is None else str(data_dir))
    again = ["securevfl", "study", str(file), *(["--quick"] if quick else [])]
    again += [f"--code={name}" for name in code]
    folder = out or Path("runs") / name
    _carry_out(made, folder, name, workers, shlex.join([*again, "--out", str(folder)]), as_json)


def compare(values: Mapping[str, Any]) -> None:
    """Carry out ``securevfl compare`` with these options; ConfigurationError if they do not fit."""
    from securevfl.runs.from_folder import allow_options
    from securevfl.runs.spec import CONFIG
    from securevfl.studies.compare import comparison
    from securevfl.studies.variant import parse_variant

    common, options, pairs, data_pairs = sort_out(values)
    named = ("variants", "seeds", "workers", "attacks", "target")
    variants, count, workers, attacks, target = (options.pop(name) for name in named)
    if attacks and len(variants) == 1 and (Path(variants[0]) / CONFIG).is_file():
        _attack_run(Path(variants[0]), common["as_json"])
        return
    for text in variants:
        if len(Path(text).parts) > 1 and ":" not in text:
            raise ConfigurationError(
                f"compare: {text} is no folder of a run, nor a protocol; with --attacks name one "
                f"folder that holds {CONFIG}"
            )
    if len(variants) < 2 - attacks:
        raise ConfigurationError(
            "compare: name two protocols or more, such as: "
            f"securevfl compare {SHOWN['default']} {SHOWN['baseline']}"
        )
    if count < 1:
        raise ConfigurationError(f"compare: {count} seeds are too few; use 1 or more")
    for text in variants:
        allow_options(parse_variant(text)[1])  # whoever types a command names its code
    source = data_source(common, data_pairs)
    if attacks:
        _attack(variants, source, common, _merged(options, pairs), count, workers)
        return
    made = comparison(
        variants,
        source,
        options=_merged(options, pairs),
        seeds=range(common["seed"], common["seed"] + count),
        target=target,
        **_job_options(common),
    )
    with run_folder(common["out"], "compare", Path(source.name).stem) as folder:
        again = f"the same command with --out {shlex.quote(str(folder))}"
        _carry_out(made, folder, "compare", workers, again, common["as_json"])


def _attack(
    variants: Sequence[str],
    source: DataSource,
    common: Mapping[str, Any],
    options: Mapping[str, Any],
    count: int,
    workers: int,
) -> None:
    """Carry out ``securevfl compare --attacks``; ConfigurationError for workers or faults."""
    if workers > 1:
        raise ConfigurationError(
            f"compare: --attacks runs in one process, and --workers is {workers}; leave it out"
        )
    if common.get("faults") is not None:
        raise ConfigurationError(
            "compare: --attacks is for runs without faults; leave out --faults"
        )
    with run_folder(common["out"], "attacks", Path(source.name).stem) as folder:
        asked = {
            "options": options,
            "seeds": range(common["seed"], common["seed"] + count),
            "folder": folder,
            **_job_options(common),
        }
        path = folder / "attacks.json"
        _show_attacked(_attacked(variants, source, asked, path), path, common["as_json"])


def _show_attacked(content: Mapping[str, Any], path: Path, as_json: bool) -> None:
    if as_json:
        output.print_json({**content, "run_folder": str(path.parent)})
    else:
        output.print_attacks(content)
        output.out().print(f"written to {path}", soft_wrap=True)


def _attacked(
    variants: Sequence[str], source: DataSource, asked: Mapping[str, Any], path: Path
) -> dict[str, Any]:
    """Content of `path`, the results of attacks; if stopped, write those found so far, and exit."""
    from securevfl.audit.attack_matrix.run import Matrix, attack_matrix, write_matrix
    from securevfl.runs.engines.run import Interrupted
    from securevfl.studies.jobs import RefusedRunsError

    try:
        total = len(variants) * len(asked["seeds"])
        with Display("attacks", total) as display, stopping(display) as stop:
            told: dict[str, Any] = {"progress": display.progress, "watch": display.watch}
            return write_matrix(
                attack_matrix(variants, source, **told, interrupted=stop, **asked), path
            )
    except RefusedRunsError as error:
        if not _wants_others(error):
            raise
        return _attacked(error.others, source, asked, path)
    except Interrupted as error:
        if isinstance(error.so_far, Matrix):
            beside = path.with_name("attacks.stopped.json")
            _show_attacked(write_matrix(error.so_far, beside, stopped=True), beside, False)
        kept = "" if error.so_far is None else "what is above is kept; "
        own = asked["folder"] == path.parent  # else that of a run
        out = f" with --out {shlex.quote(str(path.parent))}" if own else ""
        output.say(f"interrupted; {kept}go on with: the same command{out}")
        raise typer.Exit(INTERRUPTED) from None


def _attack_run(folder: Path, as_json: bool) -> None:
    """Attack the configuration of a run; ConfigurationError if it does not name its data."""
    from securevfl.runs.attacked import ATTACKS
    from securevfl.runs.spec import CONFIG, RunSpec

    spec = RunSpec.from_toml(folder / CONFIG)
    if spec.source is None:
        raise ConfigurationError(
            f"compare: the run in {folder} was given a data set object; name the protocol and "
            "--data"
        )
    asked = {"options": spec.options, "seeds": [spec.seed], "folder": folder / "attacks"}
    path = folder / ATTACKS
    _show_attacked(_attacked([spec.protocol], spec.source, asked, path), path, as_json)


def _job_options(common: Mapping[str, Any]) -> dict[str, Any]:
    """Options of each run except its seed, if given; files by absolute paths."""
    from securevfl.runs.options import options_of
    from securevfl.runs.spec import RunSpec

    found: dict[str, Any] = {"conditions": "paper"}
    for name, declared in options_of(RunSpec).items():
        value = common.get(name)
        if declared.per_job and name != "seed" and value is not None:
            path = Path(value) if declared.file else None
            found[name] = str(path.absolute()) if path and path.is_file() else value
    return found


def _merged(options: Mapping[str, Any], pairs: Mapping[str, str]) -> dict[str, Any]:
    """Options from flags and ``--set``; protocols check them later."""
    from securevfl.runs.from_folder import allow_options

    every = {*options, *pairs}
    merged = protocol_options("these protocols", every, (options, pairs))
    allow_options(merged)
    return merged


def _carry_out(
    study: Study, folder: Path, name: str, workers: int, again: str, as_json: bool
) -> None:
    from securevfl.runs.engines.run import Interrupted
    from securevfl.studies.jobs import RefusedRunsError
    from securevfl.studies.run import run_study

    try:
        with Display(name) as display, stopping(display) as stop:
            content = run_study(
                study,
                folder,
                workers=workers,
                progress=display.progress,
                watch=display.watch,
                interrupted=stop,
            )
    except RefusedRunsError as error:
        if not _wants_others(error):
            raise
        others = study.only([job for job in study.jobs if job.label not in error.labels])
        _carry_out(others, folder, name, workers, again, as_json)
        return
    except Interrupted:
        _show_finished(study, folder, as_json)
        output.say(f"interrupted; finished runs are kept in {folder}; go on with: {again}")
        raise typer.Exit(INTERRUPTED) from None
    except SecureVFLError:
        _show_finished(study, folder, as_json)
        raise
    if as_json:
        output.print_json({**content, "run_folder": str(folder)})
    else:
        tables.print_study(content)
        output.out().print(f"written to {folder}", soft_wrap=True)


def _wants_others(error: RefusedRunsError) -> bool:
    """Whether a user at a terminal wants the runs that are possible."""
    if not (error.others and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    output.say(f"securevfl: {error}")
    return typer.confirm(f"Go on with {', '.join(error.others)}?", default=True, err=True)


def _show_finished(study: Study, folder: Path, as_json: bool) -> None:
    """Show the finished runs' results of a study that stopped, if any, as a table or as JSON."""
    from securevfl.studies.summary import so_far

    content = so_far(study, folder)
    if content is None:
        return
    if as_json:
        output.print_json({**content, "run_folder": str(folder), "stopped": True})
    else:
        tables.print_study(content)
        output.out().print(f"stopped; the finished runs are in {folder / 'jobs'}", soft_wrap=True)


def plan(values: Mapping[str, Any]) -> None:
    """Carry out ``securevfl plan``; ConfigurationError, or UnknownNameError, for unfit options."""
    from securevfl.planning.forecast import plan
    from securevfl.runs.catalogue import protocols

    common, options, pairs, data_pairs = sort_out(values)
    sizes = {name: options.pop(name) for name in ("rows", "features", "test_rows")}
    accuracy_bits, protocol = options.pop("accuracy_bits"), options.pop("protocol")
    known = protocols()
    if protocol not in known:
        raise UnknownNameError("protocol", protocol, known)
    chosen = protocol_options(protocol, known[protocol].Config.model_fields, (options, pairs))
    shape_given = sizes["rows"] is not None or sizes["features"] is not None
    if shape_given and (common["data"] is not None or common["party"]):
        raise ConfigurationError(
            "plan: --rows and --features give the size of a table, and --data or --party names "
            "one; leave out --data and --party, or leave out the size"
        )
    with displays.busy("plan"):
        found = plan(
            None if shape_given else data_source(common, data_pairs),
            protocol=protocol,
            parties=common["parties"] if shape_given else None,
            accuracy_bits=accuracy_bits,
            conditions=common["conditions"] or "paper",
            sealed=common["sealed"],
            seed=common["seed"],
            **sizes,
            **chosen,
        )
    if common["as_json"]:
        told = None if found.released is None else found.released.to_dict()
        output.print_json(asdict(found) | {"released": told})
    else:
        tables.print_plan(found, _as_typed(common))


def _as_typed(common: Mapping[str, Any]) -> str:
    """Options of data and conditions as typed, for the command at a plan's end."""
    flags = ("data", "label", "parties", "data_dir", "id", "label_file", "align", "conditions")
    given = [(flag, common[flag]) for flag in flags if common[flag] is not None]
    given += [("seed", common["seed"])] if common["seed"] else []
    given += [("party", file) for file in common["party"] or ()]
    given += [("set", pair) for pair in common["set"] or () if pair.startswith("data.")]
    words = [f"--{flag.replace('_', '-')} {shlex.quote(str(value))}" for flag, value in given]
    return " ".join([*words, *(["--unsealed"] if common["sealed"] is False else [])])
