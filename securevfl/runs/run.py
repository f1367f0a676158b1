"""Start a run, watch it, interrupt it, resume it."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.data.source import DataSource
from securevfl.engine.checkpoint import read_checkpoint, remove_checkpoints
from securevfl.engine.conditions import Conditions, load_conditions
from securevfl.engine.faults import Faults, load_faults
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError
from securevfl.models.user_code import allow, allow_options
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.assembly import (
    check_memory,
    make_protocol,
    reviver,
    rules_of,
    schedule_of,
    sealing_of,
)
from securevfl.runs.autosave import Autosave
from securevfl.runs.engines.own_tables import (
    FACTS,
    experimenters,
    facts_of,
    prepare,
    stays_apart,
    tables_of,
)
from securevfl.runs.history import Historian, Progress
from securevfl.runs.load import the_data
from securevfl.runs.result import Run
from securevfl.runs.spec import CONFIG, Plan
from securevfl.runs.storage import SUMMARY
from securevfl.runs.threads import one_thread
from securevfl.runs.tracking import Track, Tracker, make_tracker

if TYPE_CHECKING:
    from securevfl.data.alignment.local_tables import PublicFacts, Tables
    from securevfl.data.dataset import VerticalDataset
    from securevfl.engine.security.identity import Manifest


ENGINES = ("simulation", "ray")
_LOG = logging.getLogger(__name__)


class Interrupted(KeyboardInterrupt):
    """A run that was stopped on request; `folder` can be resumed, if there is one."""

    def __init__(self, folder: Path | None) -> None:
        where = "nothing was kept; give out= to make runs resumable" if folder is None else folder
        super().__init__(f"interrupted: {where}")
        self.folder = folder


def run(
    protocol: str,
    data: VerticalDataset | DataSource | str = "digits",
    *,
    rounds: int | None = None,
    until: float | None = None,
    seed: int = 0,
    secret_seed: int | None = None,
    conditions: str | Path | Mapping[str, Any] | Conditions | None = None,
    faults: str | Path | Mapping[str, Any] | Faults | None = None,
    sealed: bool = True,
    engine: str = "simulation",
    address: str | None = None,
    place: Mapping[int, str] | None = None,
    manifest: Path | str | None = None,
    keys: Path | str | None = None,
    out: Path | str | None = None,
    eval_every: int | None = None,
    eval_seconds: float | None = None,
    checkpoint_seconds: float | None = 20.0,
    progress: Callable[[Progress], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    track: Track = None,
    **options: Any,
) -> Run:
    """Train a model by a protocol.

    Parameters
    ----------
    protocol : str
        Name, such as "fedvs"; see `securevfl.protocols.base.registry.find_protocols`.
    data : VerticalDataset, DataSource or str
        A data set, or what `securevfl.data.load_dataset` takes; a name is split by `seed`.
    rounds : int, optional
        Server steps; the protocol's default if not given.
    until : float, optional
        Virtual second at which the run ends even if not all rounds are done; the models are then
        evaluated as they stand.
    seed : int
        Seed of public choices, such as batches and delays, at least 0. Every party knows it.
        Masks never follow from a seed.
    secret_seed : int, optional
        Seed of the parties' secret choices in a simulation, such as initial weights and rounding;
        `seed` if not given. Whoever knows it can reconstruct rows from the sums that a server
        decodes. On a cluster each party draws entropy of its own instead, and a common secret
        seed is refused.
    conditions : str, Path, mapping or Conditions, optional
        "paper" (half of the clients straggle), "none", a TOML file, what would stand in one
        (`securevfl.engine.conditions.load_conditions`), or an object. If not given, "paper" in
        simulation, and "none" on a cluster, where delays are real seconds.
    faults : str, Path, mapping or Faults, optional
        What breaks: a TOML file, what would stand in one (`securevfl.engine.faults.load_faults`),
        or an object. A party that comes back starts from its own last safe point.
    sealed : bool
        Encrypt and authenticate every message between two parties. Off, a run is faster and its
        claims against outsiders fall away; the history is the same but for times.
    engine : {"simulation", "ray"}
        In virtual time in this process; or in real time, each party an actor of a Ray cluster.
    address : str, optional
        HOST:PORT of a running cluster; one is started on this machine if not given.
    place : mapping of int to str, optional
        Ray resource that the node of a party must have, such as ``{3: "node-b"}``.
    manifest : Path, optional
        Signed list of those who take part on a cluster
        (`securevfl.engine.security.identity.Manifest`); without one the driver introduces the
        parties to each other and is trusted with it.
    keys : Path, optional
        Folder of key files, ``server.key`` and ``party-0.key``, on each party's own machine.
    out : Path, optional
        Folder of the run. It is written at the end; meanwhile it holds checkpoints, so that a run
        that was killed can be resumed. Checkpoints are removed at the end.
    eval_every : int, optional
        Steps between held-out evaluations; a fiftieth of the rounds if not given.
    eval_seconds : float, optional
        Virtual seconds between them instead; a fiftieth of `until`, if that is given and
        `eval_every` is not.
    checkpoint_seconds : float or None
        Real seconds between checkpoints; None for none.
    progress : callable, optional
        Told a `Progress` after each server step.
    interrupted : callable, optional
        Asked often; when it says True a checkpoint is written and `Interrupted` is raised.
    track : str or callable, optional
        Where each row of the history goes as it comes: "tensorboard", "tensorboard:FOLDER",
        "mlflow" or "mlflow:URI" (the extra ``track``), or a callable that is told the row.
    **options
        The protocol's own options, such as ``segments=2``. ``own_client``, ``own_centre`` and
        ``own_loss`` may be classes or functions as well as ``"module:name"``.

    Returns
    -------
    Run

    Raises
    ------
    ConfigurationError
        Before anything is started: unknown names, options out of range, values that could
        overflow, a run that does not fit in memory.
    RunError
        When the run cannot go on; the folder then holds its last checkpoint.
    """
    if engine not in ENGINES:
        raise ConfigurationError(f"run: unknown engine {engine!r}; known: {', '.join(ENGINES)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigurationError(f"run: seed must be an integer of at least 0, it is {seed!r}")
    _check_secret_seed(secret_seed, engine)
    if isinstance(data, str):
        data = DataSource(data, {"seed": seed})
    if rounds is not None:
        options["rounds"] = rounds
    allow_options(options)
    ray = {"address": address, "place": place, "manifest": manifest, "keys": keys}
    faults = load_faults(faults)
    _check_engine(engine, ray, until=until, faults=faults)
    folder = None if out is None else Path(out)
    source = data if isinstance(data, DataSource) else None
    apart = None
    if source is not None and stays_apart(source, engine):
        make_config(get_protocol(protocol), options)  # what is wrong with it is told first
        apart = _prepared(protocol, source, folder, ray, sealed=sealed, interrupted=interrupted)
        dataset = experimenters(*apart)
    else:
        dataset = data.load() if isinstance(data, DataSource) else data
    made, config = make_protocol(protocol, options, dataset, seed)
    if conditions is None:
        conditions = "paper" if engine == "simulation" else "none"
    conditions = load_conditions(conditions, parties=dataset.parties, batch_rows=made.batch_rows)
    if until is not None and not 0 < until < math.inf:
        raise ConfigurationError(f"run: until must be a positive time in seconds, it is {until}")
    every = max(1, config.rounds // 50) if eval_every is None else eval_every
    if every < 1:
        raise ConfigurationError(f"run: eval_every must be at least 1, it is {eval_every}")
    if eval_seconds is None and eval_every is None and until is not None:
        eval_seconds = until / 50
    if eval_seconds is not None and not 0 < eval_seconds < math.inf:
        raise ConfigurationError(
            f"run: eval_seconds must be a positive time in seconds, it is {eval_seconds}"
        )
    plan = Plan(
        protocol=protocol,
        options=config.model_dump(),
        seed=seed,
        eval_every=every,
        conditions=conditions,
        source=source,
        fingerprint=dataset.fingerprint(),
        until=until,
        sealed=sealed,
        run_id=secrets.token_hex(8),
        eval_seconds=eval_seconds,
        faults=faults,
        engine=engine,
        secret_seed=secret_seed,
    )
    made.secrets = plan.secrets
    schedule = schedule_of(made, plan)
    check_memory(made)
    if folder is not None:
        _claim(folder, plan, made)
    tracker = make_tracker(track, plan, folder)
    _LOG.info("run of %s on %r with seed %s, %s", protocol, dataset.name, seed, made.describe())
    if engine == "ray":
        return _on_cluster(made, plan, folder, progress, interrupted, ray, tracker, apart=apart)
    parties = made.parties()
    historian = _historian(made, parties, plan, progress, tracker)
    simulation = Simulation(
        parties,
        seed=seed,
        secrets=made.secrets,
        conditions=conditions,
        observer=historian,
        sealing=sealing_of(plan, parties),
        faults=schedule,
        revive=reviver(made),
        rules=rules_of(made),
    )
    keeper = Autosave(simulation, historian, folder, checkpoint_seconds, interrupted)
    return _finish(made, plan, simulation, historian, keeper, tracker)


def resume(
    folder: Path | str,
    *,
    data: VerticalDataset | None = None,
    address: str | None = None,
    place: Mapping[int, str] | None = None,
    manifest: Path | str | None = None,
    keys: Path | str | None = None,
    checkpoint_seconds: float | None = 20.0,
    progress: Callable[[Progress], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    track: Track = None,
    code: Collection[str] = (),
) -> Run:
    """Go on with a run that was interrupted or killed; the result equals the unbroken run's.

    Parameters
    ----------
    folder : Path
        What `run` was given as ``out``.
    data : VerticalDataset, optional
        Needed when the run was started with a data set object and not with a name.
    address, place, manifest, keys : optional
        As for `run`, for a run on a cluster: it goes on from the newest round of which every party
        has a checkpoint.
    track : optional
        As for `run`; steps that were told before are told anew from the checkpoint on.
    code : collection of str
        Own networks and losses of the run, ``module:name``, that may be imported: a folder must
        not name code to be run.

    Raises
    ------
    ConfigurationError
        When there is nothing to resume, or the data are not those of the run.
    CheckpointError
        When the checkpoints are damaged.
    """
    folder = Path(folder)
    plan = Plan.from_toml(folder / CONFIG)
    if (folder / SUMMARY).exists():
        raise ConfigurationError(f"resume: the run in {folder} is complete; nothing is left to do")
    ray = {"address": address, "place": place, "manifest": manifest, "keys": keys}
    _check_engine(plan.engine, ray)
    allow(*code)
    get_protocol(plan.protocol)  # its module declares the messages that a checkpoint holds
    state = read_checkpoint(folder) if plan.engine == "simulation" else {}
    apart = None
    if data is None and plan.source is not None and stays_apart(plan.source, plan.engine):
        apart = tables_of(plan.source, plan.protocol), facts_of(folder)
        data = experimenters(*apart)
    data = the_data(plan, folder, data, "resume")
    made, _ = make_protocol(plan.protocol, plan.options, data, plan.seed)
    made.secrets = plan.secrets
    check_memory(made)
    rows = state["historian"]["rows"] if state else []
    tracker = make_tracker(track, plan, folder, done=len(rows))
    _LOG.info("resume of the run in %s after %s steps", folder, len(rows))
    if plan.engine == "ray":
        return _on_cluster(
            made, plan, folder, progress, interrupted, ray, tracker, resumed=True, apart=apart
        )
    parties = made.parties()
    historian = _historian(made, parties, plan, progress, tracker)
    historian.restore(state["historian"])
    with one_thread():  # to come back, parties compute again what followed their safe points
        simulation = Simulation.from_state(
            parties,
            state["simulation"],
            secrets=made.secrets,
            conditions=plan.conditions,
            observer=historian,
            sealing=sealing_of(plan, parties),
            faults=schedule_of(made, plan),
            revive=reviver(made),
            rules=rules_of(made),
        )
    keeper = Autosave(
        simulation, historian, folder, checkpoint_seconds, interrupted, state["wall_seconds"]
    )
    return _finish(made, plan, simulation, historian, keeper, tracker)


def _check_secret_seed(secret_seed: int | None, engine: str) -> None:
    """Refuse a secret seed that is no seed, and any on a cluster."""
    if secret_seed is None:
        return
    if isinstance(secret_seed, bool) or not isinstance(secret_seed, int) or secret_seed < 0:
        raise ConfigurationError(
            f"run: secret_seed must be an integer of at least 0, it is {secret_seed!r}"
        )
    if engine != "simulation":
        raise ConfigurationError(
            f"run: secret_seed = {secret_seed} with engine = {engine!r}: on a cluster every party "
            "draws its secret choices from entropy of its own, and a seed that all know would "
            "give the server their rows; leave it out, or use engine = 'simulation'"
        )


def _check_engine(
    engine: str, ray: Mapping[str, Any], *, until: float | None = None, faults: Faults | None = None
) -> None:
    """Refuse what only the other engine can do."""
    if engine == "simulation":
        given = [name for name, value in ray.items() if value]
        if given:
            raise ConfigurationError(
                f"run: {', '.join(given)}: only a cluster has a use for it; take engine = 'ray', "
                "or leave it out"
            )
        return
    for name, value in (("until", until), ("faults", faults)):
        if value is not None:
            raise ConfigurationError(
                f"run: {name} needs virtual time; use engine = 'simulation', or leave it out"
            )


def _identities(ray: Mapping[str, Any]) -> tuple[Manifest | None, str | None]:
    """Who takes part on a cluster, and the folder of their key files."""
    from securevfl.engine.security.identity import Manifest

    signed = None if ray["manifest"] is None else Manifest.read(Path(ray["manifest"]))
    return signed, None if ray["keys"] is None else str(Path(ray["keys"]).absolute())


def _on_cluster(
    protocol: Protocol,
    plan: Plan,
    folder: Path | None,
    progress: Callable[[Progress], None] | None,
    interrupted: Callable[[], bool] | None,
    ray: Mapping[str, Any],
    tracker: Tracker,
    *,
    resumed: bool = False,
    apart: tuple[Tables, PublicFacts] | None = None,
) -> Run:
    from securevfl.runs.engines.ray import Driver

    started = time.monotonic()
    historian = _historian(protocol, protocol.parties(), plan, progress, tracker)
    signed, keys = _identities(ray)
    driver = Driver(
        protocol,
        plan,
        historian,
        folder,
        address=ray["address"],
        place=ray["place"],
        manifest=signed,
        keys=keys,
        apart=apart,
    )
    with tracker, one_thread():
        if not driver.run(interrupted, resumed=resumed):
            raise Interrupted(folder)
    result = Run(
        protocol=protocol,
        parties=historian.parties,
        plan=plan,
        history=historian.rows,
        events=historian.events,
        transcript=driver.transcript,
        wall_seconds=time.monotonic() - started,
    )
    if folder is not None:
        result.save(folder)
        driver.clear()
    return result


def _historian(
    protocol: Protocol,
    parties: Mapping[int, Any],
    plan: Plan,
    progress: Callable[[Progress], None] | None,
    tracker: Tracker,
) -> Historian:
    return Historian(
        protocol,
        parties,
        eval_every=plan.eval_every,
        eval_seconds=plan.eval_seconds,
        progress=progress,
        track=tracker.step,
    )


def _prepared(
    protocol: str,
    source: DataSource,
    folder: Path | None,
    ray: Mapping[str, Any],
    *,
    sealed: bool,
    interrupted: Callable[[], bool] | None,
) -> tuple[Tables, PublicFacts]:
    """Let parties on a cluster get their own tables ready."""
    tables = tables_of(source, protocol)
    if folder is None:
        raise ConfigurationError(
            "run: parties with tables of their own need a folder, where each keeps which of its "
            "rows are meant; give out="
        )
    _refuse_used(folder)
    manifest, keys = _identities(ray)
    facts = prepare(
        tables,
        protocol,
        folder,
        sealed=sealed,
        address=ray["address"],
        place=ray["place"] or {},
        manifest=manifest,
        keys=keys,
        interrupted=interrupted,
    )
    if facts is None:
        raise Interrupted(None)
    return tables, facts


def _refuse_used(folder: Path) -> None:
    """Refuse a folder that holds anything but what the parties have got ready."""
    if folder.exists() and any(p.name not in ("parties", FACTS) for p in folder.iterdir()):
        raise ConfigurationError(
            f"run: the folder {folder} is not empty; choose another, or resume the run in it"
        )


def _claim(folder: Path, plan: Plan, protocol: Protocol) -> None:
    """Make the folder this run's own; one that holds a run already is refused, not overwritten."""
    _refuse_used(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(plan.to_toml(protocol.describe()))


def _finish(
    protocol: Protocol,
    plan: Plan,
    simulation: Simulation,
    historian: Historian,
    keeper: Autosave,
    tracker: Tracker,
) -> Run:
    with tracker, one_thread():
        simulation.run(keeper.pause, until=plan.until)
        if keeper.stopped and not simulation.finished:
            raise Interrupted(keeper.folder)
        historian.finish()
    result = Run(
        protocol=protocol,
        parties=historian.parties,
        plan=plan,
        history=historian.rows,
        events=historian.events,
        transcript=simulation.transcript,
        wall_seconds=keeper.spent,
    )
    if keeper.folder is not None:
        result.save(keeper.folder)
        remove_checkpoints(keeper.folder)
    _LOG.info("run of %s ended at %.3f s", protocol.name, result.virtual_seconds)
    return result
