"""A finished run read from its folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from securevfl.data.source import dataset_of
from securevfl.errors import ConfigurationError, DataError
from securevfl.models.user_code import allow
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.assembly import check_default_dtype
from securevfl.runs.folders.checksums import Summary, read_summary
from securevfl.runs.spec import CONFIG, ORGANISATIONS, RunSpec, reads_local_tables
from securevfl.runs.storage import PARTIES, SUMMARY, read_history, read_parties, read_transcript

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset
    from securevfl.runs.result import Run


def load_run(
    folder: Path | str, *, data: VerticalDataset | None = None, code: Collection[str] = ()
) -> Run:
    """Read a finished run from its folder, to predict, inspect or export.

    Parameters
    ----------
    folder : Path
        The argument `out` of `securevfl.run`.
    data : VerticalDataset, optional
        Required if the run was started with a data set object.
    code : collection of str
        The user's networks and losses, ``module:name``, that may be imported. Required if the run
        used any, because a folder's files cannot choose code to import.

    Raises
    ------
    ConfigurationError
        If the folder has no finished run, or that of one party, or `data` is missing or not the
        run's data set. DataError if the data cannot be loaded again.
    CheckpointError
        If its files are damaged.
    """
    from securevfl.runs.result import Run

    folder = Path(folder)
    spec, summary = read_finished(folder)
    if not (folder / PARTIES).exists():
        raise ConfigurationError(
            f"load: {folder} has no {PARTIES}; take it from a copy, or run again"
        )
    allow(*code)
    cls = get_protocol(spec.protocol)
    data = load_run_data(spec, folder, data)
    check_default_dtype()
    # Whoever reads it may have no such device, and its weights are the same on the processor.
    options = {name: "cpu" if name == "device" else one for name, one in spec.options.items()}
    protocol = cls(make_config(cls, options), data, seed=spec.seed)
    protocol.secrets = spec.secrets
    parties = protocol.parties()
    read_parties(folder / PARTIES, parties)
    rows, events = read_history(folder)
    return Run(
        protocol=protocol,
        parties=parties,
        spec=spec,
        history=rows,
        events=events,
        transcript=read_transcript(folder),
        wall_seconds=float(summary.get("wall_seconds", 0.0)),
        folder=folder,
    )


def read_finished(folder: Path) -> tuple[RunSpec, Summary]:
    """Specification and summary of a finished run, after a check of its files.

    ConfigurationError if there is no finished run; CheckpointError if its files are damaged.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"load: {folder} is no folder; name the folder of a run")
    if not (folder / CONFIG).exists():
        exported = (folder / "server.npz").exists()
        why = "exported models, which securevfl.load_models reads in Python" if exported else "none"
        raise ConfigurationError(
            f"load: {folder} holds no {CONFIG}, so it is no run's folder; it holds {why}. Name the "
            "folder that `securevfl run` wrote"
        )
    spec = RunSpec.from_toml(folder / CONFIG)
    if not (folder / SUMMARY).exists():
        raise ConfigurationError(f"load: the run in {folder} did not end; resume it first")
    return spec, read_summary(folder / SUMMARY)


def load_run_data(
    spec: RunSpec, folder: Path, data: VerticalDataset | None, what: str = "load"
) -> VerticalDataset:
    """The data set of a run, loaded again; or the given one, if it is the same.

    ConfigurationError if it differs, or nobody has the data of all; DataError if loading fails.
    """
    if spec.engine == ORGANISATIONS:
        raise ConfigurationError(
            f"{what}: {folder} is the folder of one party of a session, and nobody has the models "
            "of all. Its own model is in its .npz file, which `securevfl.load_model` reads"
        )
    if data is None:
        if spec.source is None:
            raise ConfigurationError(
                f"{what}: the run in {folder} was started with a data set object; pass it as data="
            )
        if reads_local_tables(spec.source, spec.engine):
            raise ConfigurationError(
                f"{what}: the parties of the run in {folder} read tables of their own, and nobody "
                "has them all; the weights are in model.npz"
            )
        try:
            data = spec.source.load()
        except DataError as error:
            raise DataError(
                f"{what}: this needs the training data of the run in {folder}, which cannot be "
                f"loaded: {error}"
            ) from None
    data = dataset_of(what, data)
    if data.fingerprint() != spec.fingerprint:
        raise ConfigurationError(
            f"{what}: the data set {data.name!r} differs from that of the run in {folder}"
        )
    return data
