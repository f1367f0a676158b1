"""A finished run on disk: what its parties hold, every message, and the way back to a `Run`."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.engine.checkpoint import read_file, write_file
from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.engine.transcript import Transcript
from securevfl.errors import CheckpointError, ConfigurationError
from securevfl.models.filling import Filling
from securevfl.models.own import allow
from securevfl.models.stale import LastEmbeddings
from securevfl.protocols.protocol import get_protocol, make_config
from securevfl.study.apart import stays_apart
from securevfl.study.history import History
from securevfl.study.plan import CONFIG, Plan

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset
    from securevfl.study.result import Run

SUMMARY, HISTORY = "summary.json", "history.jsonl"
PARTIES, MESSAGES = "parties.state", "messages.npz"
NO_MODELS = (LastEmbeddings, Filling)  # kept by parties, and too large to save as a model


def write_parties(path: Path, parties: Mapping[int, Party]) -> None:
    """Write what the parties keep: models, their optimisers, counters; no data, share or mask."""
    write_file(path, {index: _kept(party) for index, party in parties.items()})


def _kept(party: Party) -> dict[str, Any]:
    values = {name: getattr(party, name) for name in party.kept}
    return {
        name: value.state_dict() if hasattr(value, "load_state_dict") else value
        for name, value in values.items()
        if not isinstance(value, NO_MODELS)
    }


def read_parties(path: Path, parties: Mapping[int, Party]) -> None:
    """Give new parties of the same protocol what those of a run kept.

    Raises
    ------
    CheckpointError
        When the file is damaged, or of another version of the protocol.
    """
    saved: dict[int, dict[str, Any]] = read_file(path)
    if sorted(saved) != sorted(parties):
        raise CheckpointError(f"load: {path} is of {len(saved)} parties, not of {len(parties)}")
    for index, party in parties.items():
        if sorted(saved[index]) != sorted(_kept(party)):
            raise CheckpointError(
                f"load: party {index} keeps {sorted(_kept(party))}, and {path} holds "
                f"{sorted(saved[index])}; it was written by another version of this protocol"
            )
        for name, value in saved[index].items():
            own: Any = getattr(party, name)
            if hasattr(own, "load_state_dict"):
                own.load_state_dict(value)
            else:
                setattr(party, name, value.copy() if isinstance(value, np.ndarray) else value)


def load_run(
    folder: Path | str, *, data: VerticalDataset | None = None, code: Collection[str] = ()
) -> Run:
    """Read a finished run back, to predict with it, to look at it, or to export its models.

    Parameters
    ----------
    folder : Path
        What `run` was given as ``out``.
    data : VerticalDataset, optional
        Needed when the run was started with a data set object and not with a name.
    code : collection of str
        Own networks and losses, ``module:name``, that may be imported; only needed where the run
        had any, since a folder must not name code to be run.

    Raises
    ------
    ConfigurationError
        When there is no finished run, or the data are not those of the run.
    CheckpointError
        When its files are damaged.
    """
    from securevfl.study.result import Run

    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigurationError(f"load: {folder} is no folder; name the folder of a run")
    plan = Plan.from_toml(folder / CONFIG)
    if not (folder / SUMMARY).exists():
        raise ConfigurationError(f"load: the run in {folder} did not end; resume it first")
    if not (folder / PARTIES).exists():
        raise ConfigurationError(
            f"load: {folder} has no {PARTIES}: it was written by an older version; run it again"
        )
    allow(*code)
    cls = get_protocol(plan.protocol)
    data = the_data(plan, folder, data)
    protocol = cls(make_config(cls, plan.options), data, seed=plan.seed)
    protocol.secrets = plan.secrets
    parties = protocol.parties()
    read_parties(folder / PARTIES, parties)
    rows, events = read_history(folder)
    return Run(
        protocol=protocol,
        parties=parties,
        plan=plan,
        history=rows,
        events=events,
        transcript=read_transcript(folder),
        wall_seconds=json.loads((folder / SUMMARY).read_text())["wall_seconds"],
        folder=folder,
    )


def the_data(
    plan: Plan, folder: Path, data: VerticalDataset | None, what: str = "load"
) -> VerticalDataset:
    """The data set of a run: loaded as it was, or the one that is given, if it is the same.

    Raises
    ------
    ConfigurationError
        When it is another one, or cannot be loaded by name.
    """
    if data is None:
        if plan.source is None:
            raise ConfigurationError(
                f"{what}: the run in {folder} was started with a data set object; pass it as data="
            )
        if stays_apart(plan.source, plan.engine):
            raise ConfigurationError(
                f"{what}: the parties of the run in {folder} read tables of their own, and nobody "
                "has them all; the weights are in model.npz"
            )
        data = plan.source.load()
    if data.fingerprint() != plan.fingerprint:
        raise ConfigurationError(
            f"{what}: the data set {data.name!r} differs from that of the run in {folder}"
        )
    return data


def read_history(folder: Path) -> tuple[History, History]:
    """Rows of the history, and all other events, in the order of time.

    Raises
    ------
    ConfigurationError
        When the folder has none.
    CheckpointError
        When it is damaged.
    """
    path = folder / HISTORY
    try:
        entries = [json.loads(line) for line in path.read_text().splitlines() if line]
    except OSError as error:
        raise ConfigurationError(f"load: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CheckpointError(f"load: {path} is damaged: {error}") from None
    rows, events = History(), History()
    for entry in entries:
        steps = entry["event"] == "round" and entry["party"] == SERVER
        (rows if steps else events).append(entry)
    return rows, events


def write_transcript(folder: Path, transcript: Transcript) -> None:
    """Write every message, compressed; ``messages.csv`` has their sums."""
    state = transcript.state()
    kinds = np.array(state["kinds"], dtype=np.str_)
    np.savez_compressed(folder / MESSAGES, allow_pickle=False, kinds=kinds, **state["columns"])


def read_transcript(folder: Path) -> Transcript:
    """Every message of a finished run.

    Raises
    ------
    ConfigurationError
        When the run was written by a version that kept none.
    CheckpointError
        When the file is damaged.
    """
    path = folder / MESSAGES
    if not path.exists():
        raise ConfigurationError(
            f"load: {folder} has no {MESSAGES}: the run did not end, or an older version wrote it"
        )
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            columns = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"load: {path} is damaged: {error}") from None
    kinds = tuple(columns.pop("kinds").tolist())
    return Transcript.from_state({"kinds": kinds, "columns": columns})
