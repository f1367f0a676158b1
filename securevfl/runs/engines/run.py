"""Start, watch, interrupt and resume a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, MutableMapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.data.source import DataSource, dataset_of
from securevfl.engine.checkpoint import has_checkpoint
from securevfl.engine.conditions import Conditions
from securevfl.engine.faults import Faults, load_faults
from securevfl.engine.names import PartyNames
from securevfl.engine.party import SERVER, Party
from securevfl.errors import (
    ConfigurationError,
    DivergedError,
    RangeError,
    RunError,
    SecureVFLError,
    WouldNotFitError,
)
from securevfl.models.user_code import allow, allow_options
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.assembly import (
    Assembled,
    LocalTables,
    check_gradients,
    check_memory,
    make_protocol,
    schedule_of,
    specify,
)
from securevfl.runs.claim import claimed, unmark
from securevfl.runs.engines.base import Course, Ended, Engine
from securevfl.runs.engines.cluster_options import ClusterOptions
from securevfl.runs.engines.registry import (
    check_conditions,
    check_supported,
    engine_options,
    get_engine,
)
from securevfl.runs.history import HistoryRecorder, Progress, Row
from securevfl.runs.load import load_run_data
from securevfl.runs.options import check_values, documents_options, pick
from securevfl.runs.result import Run
from securevfl.runs.spec import CONFIG, RunSpec, reads_local_tables
from securevfl.runs.storage import MODELS, SUMMARY, read_transcript, write_config

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

_LOG = logging.getLogger(__name__)


class Interrupted(KeyboardInterrupt):
    """A run was stopped on request; the run in `folder`, if given, can be resumed.

    `so_far` is the partial result, if several runs were made.
    """

    so_far: object = None

    def __init__(self, folder: Path | None) -> None:
        where = "nothing was kept; give out= to make runs resumable" if folder is None else folder
        super().__init__(f"interrupted: {where}")
        self.folder = folder


@documents_options(RunSpec, ClusterOptions)
def run(
    protocol: str,
    data: VerticalDataset | DataSource | str = "digits",
    *,
    rounds: int | None = None,
    until: float | None = None,
    seed: int = 0,
    secret_seed: int | None = None,
    conditions: str | Path | Mapping[str, object] | Conditions | None = None,
    faults: str | Path | Mapping[str, object] | Faults | None = None,
    sealed: bool = True,
    engine: str = "simulation",
    address: str | None = None,
    place: Mapping[int, str] | None = None,
    manifest: Path | str | None = None,
    keys: Path | str | None = None,
    answer_timeout: float | None = None,
    out: Path | str | None = None,
    eval_every: int | None = None,
    eval_seconds: float | None = None,
    checkpoint_seconds: float | None = 20.0,
    progress: Callable[[Progress], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    track: Callable[[Row], None] | None = None,
    **options: Any,
) -> Run:
    """Train a model by a protocol.

    Parameters
    ----------
    protocol : str
        Name; `securevfl.protocols.base.registry.find_protocols` lists them.
    data : VerticalDataset, DataSource or str
        A data set, or an argument for `securevfl.data.load_dataset`; `seed` splits a data set by
        name.
    rounds : int, optional
        Number of server steps; the protocol's default if not given.
    {options}
    out : Path, optional
        Folder of the run. Results are written at the end. Until then the folder has checkpoints,
        from which `resume` continues a killed run.
    checkpoint_seconds : float or None
        Real seconds between checkpoints of a simulation; None for no checkpoints.
    progress : callable, optional
        Called with a `Progress` after each server step.
    interrupted : callable, optional
        Called often; when it returns True, a checkpoint is written and `Interrupted` is raised.
    track : callable, optional
        Called with each complete row of the history, to log it elsewhere.
    **options
        Options of the protocol, such as ``segments=2``. ``own_client``, ``own_centre`` and
        ``own_loss`` may be classes, functions or ``"module:name"``.

    Returns
    -------
    Run

    Raises
    ------
    ConfigurationError
        Before the run starts: for unknown names, options out of range, data that are unusable
        (DataError), a folder in use, values that could overflow, and a run that does not fit in
        memory.
    RunError
        If the run cannot continue; the folder then has its last checkpoint.
    Interrupted
        When `interrupted` returned True.
    """
    given = dict(locals())  # the keywords above by name, so that none is written again below
    _check_track(track)
    chosen = get_engine(engine)
    asked = pick(RunSpec, given)
    check_values(RunSpec, asked)
    asked["faults"] = load_faults(faults)
    check_supported(chosen, asked)
    own = engine_options(chosen, given)
    if isinstance(data, str):
        data = DataSource(data, {"seed": seed})
    if rounds is not None:
        options["rounds"] = rounds
    allow_options(options)
    folder = None if out is None else Path(out)
    source = data if isinstance(data, DataSource) else None
    tables = None
    with claimed(folder, new=True), ExitStack() as actors:
        if source is not None and reads_local_tables(source, engine):
            from securevfl.runs.engines.own_tables import aligned, driver_dataset

            make_config(get_protocol(protocol), options)  # its errors come first
            tables = actors.enter_context(
                aligned(source, protocol, folder, options=own, pause=interrupted)
            )
            if tables is None:
                raise Interrupted(None)
            dataset = driver_dataset(tables)
        else:
            dataset = dataset_of("run", data)
        with PartyNames(dataset.party_names).in_errors():
            made, _ = make_protocol(protocol, options, dataset, seed)
            spec = specify(made, asked, conditions=chosen.conditions, source=source)
            check_conditions(chosen, spec.conditions)
            made.secrets = spec.secrets
            job = Assembled(spec, made, folder, tables)
            schedule_of(made, spec)  # refuses faults that do not fit the parties
            kept = folder if engine == "simulation" else None
            check_memory(made, kept, messages=spec.until is None)
            if folder is not None:
                write_config(folder / CONFIG, spec.to_toml(made.describe()))
            about = made.describe()
            _LOG.info("run of %s on %r with seed %s, %s", protocol, dataset.name, seed, about)
            course = Course(own, checkpoint_seconds, interrupted)
            return _carry_out(job, chosen, course, track, progress)


@documents_options(ClusterOptions)
def resume(
    folder: Path | str,
    *,
    data: VerticalDataset | None = None,
    address: str | None = None,
    place: Mapping[int, str] | None = None,
    manifest: Path | str | None = None,
    keys: Path | str | None = None,
    answer_timeout: float | None = None,
    checkpoint_seconds: float | None = 20.0,
    progress: Callable[[Progress], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    track: Callable[[Row], None] | None = None,
    code: Collection[str] = (),
) -> Run:
    """Continue an interrupted or killed run; the result equals the unbroken run's.

    A run on a cluster continues from the newest round of which every party has a checkpoint.

    Parameters
    ----------
    folder : Path
        Folder of the run, `out` of `run`.
    data : VerticalDataset, optional
        Required if the run was started with a data set object.
    {options}
    checkpoint_seconds, progress, interrupted, track : optional
        Arguments of `run`; steps after the checkpoint are tracked again.
    code : collection of str
        Own networks and losses of the run, ``module:name``, that may be imported: a folder must
        not name code to be run.

    Raises
    ------
    ConfigurationError
        When there is nothing to resume, or the data are not those of the run.
    CheckpointError
        When the checkpoints are damaged.
    RunError, Interrupted
        If the run cannot continue, or `interrupted` returned True.
    """
    given = dict(locals())
    _check_track(track)
    folder = Path(folder)
    if not (folder / CONFIG).exists():
        raise ConfigurationError(
            f"resume: {folder} holds no {CONFIG}. If this is the run's folder, the run was stopped "
            "before its first checkpoint, so start it again"
        )
    with claimed(folder, new=False):
        return _go_on(folder, given)


def _go_on(folder: Path, given: Mapping[str, Any]) -> Run:
    """Resume the run in a claimed folder, as `resume`; ConfigurationError if it cannot go on."""
    spec = RunSpec.from_toml(folder / CONFIG)
    if (folder / SUMMARY).exists():
        raise ConfigurationError(f"resume: the run in {folder} is complete; nothing is left to do")
    chosen = get_engine(spec.engine)
    own = engine_options(chosen, given)
    allow(*given["code"])
    data = given["data"]
    get_protocol(spec.protocol)  # its module declares the messages that a checkpoint holds
    state = chosen.read(folder)
    tables = None
    if data is None and spec.source is not None and reads_local_tables(spec.source, spec.engine):
        from securevfl.runs.engines.own_tables import driver_dataset, facts_of, tables_of

        tables = LocalTables(tables_of(spec.source, spec.protocol), facts_of(folder))
        data = driver_dataset(tables)
    data = load_run_data(spec, folder, data, "resume")
    with PartyNames(data.party_names).in_errors():
        made, _ = make_protocol(spec.protocol, spec.options, data, spec.seed)
        made.secrets = spec.secrets
        kept = folder if chosen.name == "simulation" else None
        check_memory(made, kept, messages=spec.until is None)
        done = len(state["historian"]["rows"]) if state else 0
        _LOG.info("resume of the run in %s after %s steps", folder, done)
        job = Assembled(spec, made, folder, tables)
        course = Course(own, given["checkpoint_seconds"], given["interrupted"], state)
        return _carry_out(job, chosen, course, given["track"], given["progress"])


def _carry_out(
    job: Assembled,
    engine: Engine,
    course: Course,
    track: Callable[[Row], None] | None,
    progress: Callable[[Progress], None] | None,
) -> Run:
    """Carry out a job on an engine, and store its result; Interrupted if it was stopped."""
    check_gradients()
    recorder = HistoryRecorder(
        job.protocol,
        _parties_of(job),
        eval_every=job.spec.eval_every,
        eval_seconds=job.spec.eval_seconds,
        progress=progress,
        track=track,
    )
    try:
        ended = engine.run(job, recorder, course)
    except SecureVFLError as error:
        if job.folder is None:
            raise
        raise _kept(error, recorder, job.folder) from None
    if ended is None:
        raise Interrupted(job.folder)
    result = Run(
        protocol=job.protocol,
        parties=recorder.parties,
        spec=job.spec,
        history=recorder.rows,
        events=recorder.events,
        transcript=ended.transcript,
        wall_seconds=ended.wall_seconds,
    )
    if job.folder is not None:
        _save(result, job.folder, ended)
        if result.transcript.spilled:
            result.transcript = read_transcript(job.folder)  # what it was read from goes
        engine.clear(job.folder)
        _keep_wrong_uploads(result.parties, job.folder)
    _LOG.info("run of %s ended at %.3f s", job.protocol.name, result.virtual_seconds)
    return result


def _check_track(track: object) -> None:
    if track is not None and not callable(track):
        raise ConfigurationError(
            f"track = {track!r} is no function; give one that takes a row of the history, such as "
            "one that writes it to TensorBoard or MLflow"
        )


def _parties_of(job: Assembled) -> MutableMapping[int, Party]:
    """Parties at the start of a run; WouldNotFitError for networks larger than the memory."""
    try:
        return job.protocol.parties()
    except (MemoryError, RuntimeError) as error:  # torch raises the second
        if isinstance(error, SecureVFLError) or "memory" not in str(error).lower():
            raise
        raise WouldNotFitError(
            f"{job.protocol.name}: the networks do not fit into memory ({error}). Choose a smaller "
            "width, hidden or batch"
        ) from None


def _keep_wrong_uploads(parties: Mapping[int, Party], folder: Path) -> list[Path]:
    """Store evidence of wrong uploads that the server found; return the files."""
    if not getattr(parties.get(SERVER), "caught", ()):
        return []
    from securevfl.runs.evidence import keep_wrong_uploads

    with suppress(OSError):
        return keep_wrong_uploads(parties[SERVER], folder)
    return []


def _kept(error: SecureVFLError, recorder: HistoryRecorder, folder: Path) -> SecureVFLError:
    """The error, with the place in `folder` of stored evidence of lies or of last good models."""
    from securevfl.active.judge import LieFoundError

    wrong = _keep_wrong_uploads(recorder.parties, folder)
    if isinstance(error, LieFoundError):
        from securevfl.runs.evidence import keep_evidence

        found, error = error, keep_evidence(error, folder)
        if found is not error:
            unmark(folder)  # else the next run in this folder would remove it
    elif isinstance(error, (DivergedError, RangeError)) and recorder.good is not None:
        error = type(error)(f"{error}. {_keep_good(*recorder.good, folder)}")
    if wrong:
        unmark(folder)
        where = " and ".join(map(str, wrong))
        error.args = (f"{error}. Evidence of wrong uploads is in {where}", *error.args[1:])
    return error


def _keep_good(step: int, arrays: Mapping[str, Any], folder: Path) -> str:
    """Write a diverged run's last finite models, `arrays` of `step`; return a sentence on where."""
    with suppress(OSError):
        (folder / MODELS).touch(mode=0o600)
        np.savez(folder / MODELS, **arrays)
        unmark(folder)  # else the next run in this folder would remove them
        return f"The models of step {step}, the last good ones evaluated, are in {folder / MODELS}"
    return f"The models of step {step} could not be written"


def _save(result: Run, folder: Path, ended: Ended) -> None:
    """Save a result; if that fails, save a checkpoint instead, if possible.

    RunError when the folder cannot be written, as on a full disk.
    """
    try:
        result.save(folder, own=True)
    except OSError as error:
        why = f"run: the result could not be written to {folder}: {error.strerror or error}"
        with suppress(OSError):
            if ended.keep is not None:
                ended.keep()
        if has_checkpoint(folder):
            raise RunError(
                f"{why}. Its checkpoint was kept: make room, and go on with `securevfl resume "
                f"{folder}`"
            ) from None
        raise RunError(f"{why}. Make room, and resume the run or start it again") from None
