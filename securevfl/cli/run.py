"""The commands `run` and `resume`: load data, choose a folder, show progress, handle Ctrl-C."""

from __future__ import annotations

import functools
import os
import re
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from securevfl.cli import displays, output
from securevfl.cli.logs import is_verbose
from securevfl.cli.options import protocol_options, split_data_pairs
from securevfl.errors import ConfigurationError
from securevfl.studies.variant import parse_pairs

if TYPE_CHECKING:
    from securevfl.data.source import DataSource
    from securevfl.report.live import LivePage
    from securevfl.runs.history import Progress
    from securevfl.runs.result import Run

_STOPPING = (signal.SIGINT, signal.SIGTERM)
_TITLED = 4  # parties that the name of a data set has room for
INTERRUPTED = 130  # 128 + SIGINT, as shells expect
_DATA_FLAGS = {
    "parties": "--parties",
    "label": "--label",
    "data_dir": "--data-dir",
    "seed": "--seed",
    "party_files": "--party",
    "id_column": "--id",
    "label_file": "--label-file",
    "align": "--align",
}


def start(protocol: str, variant: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """Carry out ``securevfl run``.

    Parameters
    ----------
    protocol : str
        Name of the protocol.
    variant : mapping
        Options that were part of the protocol's name.
    values : mapping
        Values of the common options, and of the given options of the protocol, by name.
    """
    import securevfl
    from securevfl.runs import alignment
    from securevfl.runs.catalogue import get_protocol

    common, options, pairs, data_pairs = sort_out(values)
    known = get_protocol(protocol).Config.model_fields
    chosen = protocol_options(protocol, known, (variant, options, pairs))
    source = data_source(common, data_pairs)
    name = Path(source.name).stem

    def call(folder: Path, display: displays.ProgressDisplay, stop: Callable[[], bool]) -> Run:
        told = source
        if common["engine"] == "simulation":  # a source that others get must not hold the display
            told = alignment.data_source(source.name, source.options, display.preparing)
        return securevfl.run(
            protocol,
            told,
            rounds=chosen.pop("rounds", None),
            out=folder,
            track=None if page is None else page.step,
            progress=_followed(display, page),
            interrupted=stop,
            **run_options(common),
            **chosen,
        )

    with run_folder(common["out"], protocol, name) as folder, ExitStack() as served:
        page = None
        if common["live"]:
            title = f"{protocol} on {name}"
            page = _live_page(protocol, title, common["engine"], served)
        run = watched(f"{protocol} on {name}", functools.partial(call, folder))
    finish(run, as_json=common["as_json"])


def sort_out(
    values: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str], dict[str, Any]]:
    """Four mappings: common and protocol options, ``--set`` of the protocol and of the data."""
    from securevfl.cli.common import shared_options

    common = {name: values.get(name) for name in shared_options()}
    options = {name: value for name, value in values.items() if name not in common}
    if common["rounds"] is not None:
        options["rounds"] = common["rounds"]
    pairs, data_pairs = split_data_pairs(parse_pairs(common["set"] or (), what="--set"))
    return common, options, pairs, data_pairs


def run_options(common: Mapping[str, Any]) -> dict[str, Any]:
    """Options of run and cluster that have flags, in the form for `securevfl.run`."""
    from securevfl.runs.engines.cluster_options import ClusterOptions
    from securevfl.runs.options import pick
    from securevfl.runs.spec import RunSpec

    chosen = pick(RunSpec, common) | pick(ClusterOptions, common)
    return chosen | {"place": places(common["place"] or ())}


def go_on(values: Mapping[str, Any]) -> None:
    """Carry out ``securevfl resume``; ConfigurationError if there is no such folder."""
    options = dict(values)
    folder, as_json = options.pop("folder"), options.pop("as_json")
    if not folder.is_dir():
        raise ConfigurationError(f"resume: {folder} is no folder; name the folder of a run")
    options |= {"place": places(options["place"] or ()), "code": options["code"] or ()}
    live, name = options.pop("live"), folder.resolve().name
    import securevfl
    from securevfl.runs.storage import CONFIG, SUMMARY

    with ExitStack() as served:
        page = None
        if live and (folder / CONFIG).exists() and not (folder / SUMMARY).exists():
            page = _live_again(folder, name, served)
            options["track"] = page.step

        def call(display: displays.ProgressDisplay, stop: Callable[[], bool]) -> Run:
            told = _followed(display, page)
            return securevfl.resume(folder, progress=told, interrupted=stop, **options)

        run = watched(name, call)
    finish(run, as_json=as_json)


def _followed(
    display: displays.ProgressDisplay, page: LivePage | None
) -> Callable[[Progress], None]:
    """Progress callback for the display and, if there is one, the live page."""
    if page is None:
        return display

    def tell(progress: Progress) -> None:
        display(progress)
        page.follow(progress)

    return tell


def _live_again(folder: Path, name: str, served: ExitStack) -> LivePage:
    """Live page that begins with the checkpoint of the run `name`; it closes with `served`."""
    from securevfl.runs.catalogue import get_protocol
    from securevfl.runs.engines.registry import get_engine
    from securevfl.runs.spec import CONFIG, RunSpec

    spec = RunSpec.from_toml(folder / CONFIG)
    get_protocol(spec.protocol)  # its module declares the messages that a checkpoint holds
    state = get_engine(spec.engine).read(folder)
    earlier = state["historian"]["rows"] if state else []
    return _live_page(spec.protocol, f"{spec.protocol} in {name}", spec.engine, served, earlier)


def _live_page(
    protocol: str,
    title: str,
    engine: str,
    served: ExitStack,
    earlier: Sequence[Mapping[str, Any]] = (),
) -> LivePage:
    """Serve a live page until the stack `served` closes, and print its address."""
    from securevfl.report.live import LivePage

    page = served.enter_context(LivePage(protocol, title, engine))
    for row in earlier:
        page.step(row)
    output.say(f"live page: {page.address}")
    return page


def watched(name: str, call: Callable[[displays.ProgressDisplay, Callable[[], bool]], Run]) -> Run:
    """Make a call with a progress display; Ctrl-C ends it, prints how to continue, and exits."""
    from securevfl.runs.engines.run import Interrupted

    try:
        with displays.progress_display(name) as display, stopping(display) as stop:
            return call(display, stop)
    except Interrupted as error:
        folder = shlex.quote(str(error.folder))
        output.say(f"interrupted; go on with: securevfl resume {folder}")
        raise typer.Exit(INTERRUPTED) from None


def finish(run: Run, *, as_json: bool) -> None:
    """Print the summary of a finished run: short, or complete with ``--verbose``."""
    if as_json:
        output.print_json(run.summary())
    elif is_verbose():
        output.print_summary(run.summary())
    else:
        output.print_brief(run.summary())


def data_source(common: Mapping[str, Any], data_options: Mapping[str, Any]) -> DataSource:
    """Data set from the options; files by absolute paths, so that a resume finds them.

    Raises
    ------
    ConfigurationError
        When options of a data set by name and of parties' files are mixed, or one is missing.
    """

    from securevfl.runs import alignment
    from securevfl.runs.catalogue import is_own_data

    options = dict(data_options)
    for key, flag in _DATA_FLAGS.items():
        if key in options:
            raise ConfigurationError(f"--set: data.{key} is an option of its own; use {flag}")
    for key in ("parties", "label", "data_dir"):
        if common[key] is not None:
            options[key] = _whole(common[key])
    options["seed"] = common["seed"]
    name = common["data"]
    if common["party"]:
        if name is not None:
            raise ConfigurationError("run: --data and --party exclude each other; give one of them")
        if common["label"] is None:
            raise ConfigurationError("run: --party needs --label COLUMN, the name of the label")
        options |= named_files(common["party"])
        options["id_column"] = common["id"]
        if common["label_file"] is not None:
            options["label_file"] = _whole(common["label_file"])
        if common["align"] is not None:
            options["align"] = common["align"]
        return alignment.data_source(_title(options), options)
    if any(common[name] is not None for name in ("id", "label_file", "align")):
        raise ConfigurationError(
            "run: --id, --label-file and --align go with --party FILE; leave them out"
        )
    if name is not None and is_own_data(name):
        name = _whole(Path(name))
    return alignment.data_source(name or "digits", options)


def named_files(texts: Sequence[str]) -> dict[str, Any]:
    """Options ``party_files`` and, if named, ``party_names`` from texts FILE or NAME=FILE.

    Raises
    ------
    ConfigurationError
        For a name without a file, and for one that two parties have.
    """
    pairs = [_named(text) for text in texts]
    files = [_whole(Path(file)) for _, file in pairs]
    if not any(name for name, _ in pairs):
        return {"party_files": files}
    names = [name or Path(file).name.split(".")[0] for name, file in pairs]
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise ConfigurationError(
            f"run: two --party options are called {twice[0]!r}; give each party a name of its own"
        )
    return {"party_files": files, "party_names": names}


def _title(options: Mapping[str, Any]) -> str:
    """Name of a data set of several parties' files: their names joined by "+", or "tables"."""
    files = options["party_files"]
    names = options.get("party_names") or [Path(file).name.split(".")[0] for file in files]
    return "+".join(names) if len(names) <= _TITLED else "tables"


def _named(text: str) -> tuple[str, str]:
    """(name, file) of ``NAME=FILE``, or of FILE with no name; ConfigurationError for "NAME="."""
    name, equals, file = text.partition("=")
    if not equals or Path(text).is_file() or "/" in name:
        return "", text
    if not (name.strip() and file):
        raise ConfigurationError(f"run: --party {text!r}: write NAME=FILE.csv, or FILE.csv")
    return name.strip(), file


def places(options: Sequence[str]) -> dict[int, str]:
    """Party numbers and resources from ``--place``.

    Raises
    ------
    ConfigurationError
        For anything but party-N=RESOURCE or server=RESOURCE.
    """
    found = {}
    for text in options:
        match = re.fullmatch(r"(?:server|party-(\d+))=(.+)", text)
        if match is None:
            raise ConfigurationError(
                f"run: --place {text!r}: write party-3=RESOURCE or server=RESOURCE"
            )
        found[-1 if match[1] is None else int(match[1])] = match[2]
    return found


def _whole(value: Any) -> Any:
    return str(value.absolute()) if isinstance(value, Path) else value


@contextmanager
def run_folder(out: Path | None, protocol: str, dataset: str) -> Iterator[Path]:
    """Folder of a run: `out`, or a new one in ``runs`` that is removed again if left empty.

    Raises
    ------
    ConfigurationError
        When it cannot be made or written.
    """
    folder = out or Path("runs") / f"{protocol}-{_word(dataset)}-{datetime.now():%Y%m%d-%H%M%S}"
    existing = folder if folder.exists() else next(p for p in folder.parents if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "is not a folder" if not existing.is_dir() else "cannot be written"
        raise ConfigurationError(f"run: {existing} {why}; name another folder with --out")
    if out is not None:
        yield out
        return
    made = _make_new(folder)
    try:
        yield made
    finally:
        with suppress(OSError):  # not empty
            made.rmdir()
            made.parent.rmdir()


def _word(dataset: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", dataset).strip("-.") or "data"


def _make_new(folder: Path) -> Path:
    """Create the folder, under another name if it exists already."""
    made, number = folder, 1
    while True:
        with suppress(FileExistsError):
            made.mkdir(parents=True)
            return made
        number += 1
        made = folder.with_name(f"{folder.name}-{number}")


@contextmanager
def stopping(display: displays.NoteDisplay) -> Iterator[Callable[[], bool]]:
    """Context with a function that returns whether Ctrl-C or SIGTERM came.

    SIGTERM is what batch systems, systemd and Kubernetes send. A second signal ends the process.
    """
    asked = threading.Event()

    def handler(number: int, _frame: object) -> None:
        asked.set()
        # From now on the signals have their default effect: nothing can delay a second one.
        for name in _STOPPING:
            signal.signal(name, signal.SIG_DFL)
        again = "press Ctrl-C" if number == signal.SIGINT else "send SIGTERM"
        display.note(f"stopping at the next safe point; {again} again to quit at once")

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {name: signal.signal(name, handler) for name in _STOPPING}
    try:
        yield asked.is_set
    finally:
        for name, was in before.items():
            signal.signal(name, was)
