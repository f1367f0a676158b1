"""Use of a finished run's folder by the command line: predict files, trace messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.data.alignment.join import PartyTable, common_rows
from securevfl.data.preparation.party_preprocessor import PartyPreprocessor
from securevfl.data.preparation.tables import read_table
from securevfl.engine.names import PartyNames as PartyNames
from securevfl.errors import ConfigurationError, DataError
from securevfl.models.user_code import allow as allow
from securevfl.models.user_code import allow_options as allow_options
from securevfl.runs.export import JointModel, export_kept, kept_models, load_models
from securevfl.runs.folders.checksums import Summary, read_summary
from securevfl.runs.load import load_run, read_finished
from securevfl.runs.result import Run
from securevfl.runs.storage import SUMMARY, read_history, read_transcript
from securevfl.runs.trace import trace

if TYPE_CHECKING:
    import pandas as pd

    from securevfl.data.preparation.party_preprocessor import Table
    from securevfl.runs.spec import RunSpec


def predict_files(
    folder: Path, files: Sequence[Path], *, coded: bool = False, code: Collection[str] = ()
) -> dict[str, Any]:
    """Predict the rows of CSV files by the models of a run.

    `files` has one file with all columns, or one per party in order. If the run joined its tables
    by an id column, the files are joined by it too: rows whose id is in all files are predicted, in
    the order of the first file. The data of the run are needed for a prediction on secret shares
    (`coded`), and for a protocol without one network per client and a server model. `code` has the
    user's networks, ``module:name``, that may be imported.

    The result has ``run_folder``, ``rows``, ``coded``, ``id_column`` and ``ids`` (None without
    ids), ``left_out`` (rows of each file whose id is not in every file), ``predictions`` (indices
    of ``class_values``, the labels in the user's form), ``classes`` (their names),
    ``probabilities`` (None for a regression), and for a coded prediction ``virtual_seconds``,
    ``messages``, ``bytes``.

    DataError if the number of files is not that of the parties, a file is unusable or lacks the
    run's id column, ids are repeated, or no id is in all files. ConfigurationError or
    CheckpointError if the folder has no finished run, or damaged files.
    """
    spec, summary = read_finished(folder)
    _check_count(files, summary)
    kept = None if coded else kept_models(folder, code=code)
    if kept is None or kept.server.about["network"] is None:
        model: Run | JointModel = load_run(folder, code=code)
    else:
        model = kept
    frames = [read_table(file) for file in files]
    _check_columns(files, frames, model, summary)
    id_column = _id_column(spec, model)
    left_out: dict[str, int] = {}
    if len(frames) > 1 and id_column is not None:
        named = [PartyTable(file.name, frame) for file, frame in zip(files, frames, strict=True)]
        frames, left_out = common_rows(named, id_column)
    known = id_column is not None and id_column in frames[0].columns
    ids = frames[0][id_column].tolist() if known else None
    rows = frames[0] if len(frames) == 1 else frames
    told = {"id_column": id_column if known else None, "ids": ids, "left_out": left_out}
    return _predictions(folder, model, rows, coded, told)


def _predictions(
    folder: Path,
    model: Run | JointModel,
    rows: Table | Sequence[Table],
    coded: bool,
    told: Mapping[str, object],
) -> dict[str, Any]:
    """Result of `predict_files` for rows in memory, `coded` or not; `told`: facts known of them."""
    from securevfl.models.scores import decided, probabilities

    cost: dict[str, object] = {}
    if coded and isinstance(model, Run):
        found = model.infer(rows)
        scores = found.scores
        cost = {"virtual_seconds": found.virtual_seconds}
        cost |= {"messages": found.transcript.messages, "bytes": found.transcript.bytes}
    else:
        scores = model.scores(rows)
    task, values = model.task, model.class_values
    shares = None if task == "regression" else probabilities(task, scores).tolist()
    return {
        "run_folder": str(folder),
        "rows": len(scores),
        "coded": coded,
        **told,
        "predictions": decided(task, values, scores).tolist(),
        "classes": list(model.classes),
        "class_values": values.tolist(),
        "probabilities": shares,
        **cost,
    }


def _id_column(spec: RunSpec, model: Run | JointModel) -> str | None:
    """Column of the ids by which the run's tables were joined, on disk or by the caller."""
    options = {} if spec.source is None else spec.source.options
    if isinstance(model, JointModel):
        kept = model.server.about.get("id_column")
    else:
        kept = model.protocol.data.transform.id_column
    return options.get("id_column") or kept


def _fitted(model: Run | JointModel) -> list[PartyPreprocessor]:
    """Preprocessing of each party's columns."""
    if isinstance(model, JointModel):
        return [client.preprocessing for client in model.clients]
    return list(model.protocol.data.transform.parties)


def _check_columns(
    files: Sequence[Path],
    frames: Sequence[pd.DataFrame],
    model: Run | JointModel,
    summary: Summary,
) -> None:
    """Raise DataError for a frame without its party's columns, or files in another order."""
    fitted = _fitted(model)
    wanted = [[column.name for column in one.columns] for one in fitted]
    names = summary.get("party_names") or [f"party {n}" for n in range(len(wanted))]
    columns = "columns of the training data"
    if len(frames) == 1:
        columns += f", or one file for each party: {', '.join(names)}" if len(names) > 1 else ""
        wanted = [[name for own in wanted for name in own]]
    for n, (file, frame) in enumerate(zip(files, frames, strict=True)):
        absent = [name for name in wanted[n] if name not in frame.columns]
        if not absent:
            continue
        others = [k for k, own in enumerate(wanted) if k != n and not {*own} - {*frame.columns}]
        whose = "" if len(frames) == 1 else f" of {names[n]}"
        order = f" It has those of {names[others[0]]}; files come in the order" if others else ""
        raise DataError(
            f"predict: {file.name} has no column {absent[0]!r}{whose} ({len(absent)} of "
            f"{len(wanted[n])} columns are absent)."
            + (f"{order} {', '.join(names)}" if order else f" Give all {columns}")
        )


def _check_count(files: Sequence[Path], summary: Summary) -> None:
    """Refuse a number of files other than one, or one for each party (DataError)."""
    parties, names = int(summary.get("parties", len(files))), summary.get("party_names")
    if len(files) in (1, parties):
        return
    order = f" ({', '.join(names)})" if names else ""
    raise DataError(
        f"predict: {len(files)} files for {parties} parties; give one with all columns, or one for "
        f"each party in their order{order}"
    )


def export_folder(
    folder: Path, out: Path, *, code: Collection[str] = (), onnx: bool = False
) -> list[Path]:
    """Write each party's model of a finished run to a file of its own in folder `out`.

    With `onnx`, ONNX files are written as well. `code` has the user's networks, ``module:name``,
    that may be imported. Returns the files. ConfigurationError without a finished run, or if other
    models are in `out`; CheckpointError for damaged files.
    """
    read_finished(folder)
    paths = export_kept(folder, out) or load_run(folder, code=code).export(out)
    return paths + load_models(out, code=code).save_onnx(out) if onnx else paths


def trace_folder(
    folder: Path, *, sender: str | None, receiver: str | None, **chosen: Any
) -> tuple[pd.DataFrame, PartyNames]:
    """Messages of a run from its folder, and the names of its parties.

    `sender` and `receiver` may be a party's name, ``party-3``, ``3`` or ``server``; `chosen` are
    further arguments of `securevfl.runs.trace.trace`, which raises ConfigurationError for values
    that do not occur. CheckpointError for damaged files.
    """
    summary = {}
    if (folder / SUMMARY).exists():
        summary = read_summary(folder / SUMMARY)  # it compares the checksums of all files
    names = PartyNames(summary.get("party_names") or ())
    last = int(summary.get("parties", 0)) - 1
    chosen |= {"sender": _party(names, sender, last), "receiver": _party(names, receiver, last)}
    return trace(read_transcript(folder), read_history(folder)[1], **chosen), names


def _party(names: PartyNames, word: str | None, last: int) -> int | None:
    """Number of the party that a word names, up to `last` if known; else ConfigurationError."""
    if word is None:
        return None
    found = names.number(word)
    if found is None:
        near = difflib.get_close_matches(word, names.listed().split(", "), n=1)
        hint = f": did you mean {near[0]}?" if near else ";"
        range_ = "party-0" if last < 1 else f"party-0 to party-{last}"
        known = f", or one of {names.listed()}" if names else ""
        raise ConfigurationError(
            f"trace: {word!r} is no party{hint} write {range_}, or server{known}"
        )
    return found
