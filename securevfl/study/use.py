"""What the command line does with the folder of a finished run: predict files, trace messages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from securevfl.data.csvfile import read_csv
from securevfl.errors import DataError
from securevfl.models.own import allow_options as allow_options
from securevfl.study.saved import load_run, read_history, read_transcript
from securevfl.study.trace import Trace, pick


def predict_files(
    folder: Path, files: Sequence[Path], *, coded: bool = False, code: Collection[str] = ()
) -> dict[str, Any]:
    """Predict the rows of CSV files by the models of a run.

    Parameters
    ----------
    folder : Path
        Of the run.
    files : sequence of Path
        One with all columns, or one for each party in their order.
    coded : bool
        On secret shares.
    code : collection of str
        As for `securevfl.load_run`.

    Returns
    -------
    dict
        ``run_folder``, ``rows``, ``coded``, ``predictions``, ``classes``, ``probabilities`` (None
        for a regression), and of a coded prediction ``virtual_seconds``, ``messages``, ``bytes``.
    """
    from securevfl.study.result import decided, probabilities

    run = load_run(folder, code=code)
    frames = [read_csv(file) for file in files]
    data = run.protocol.data
    if len(frames) not in (1, data.parties):
        raise DataError(
            f"predict: {len(frames)} files for {data.parties} parties; give one with all columns, "
            "or one for each party in their order"
        )
    rows = frames[0] if len(frames) == 1 else frames
    cost: dict[str, Any] = {}
    if coded:
        found = run.infer(rows)
        scores = found.scores
        cost = {"virtual_seconds": found.virtual_seconds}
        cost |= {"messages": found.transcript.messages, "bytes": found.transcript.bytes}
    else:
        scores = run.scores(rows)
    shares = None if data.task == "regression" else probabilities(data.task, scores).tolist()
    return {
        "run_folder": str(folder),
        "rows": len(scores),
        "coded": coded,
        "predictions": decided(data.task, data.classes, scores).tolist(),
        "classes": list(data.classes),
        "probabilities": shares,
        **cost,
    }


def trace_folder(
    folder: Path,
    *,
    first: int | None,
    payloads: bool = False,
    code: Collection[str] = (),
    **chosen: Any,
) -> tuple[Trace, int]:
    """Messages of a run's folder, and how many were chosen before `first` cut them off.

    Parameters
    ----------
    folder : Path
    first : int or None
    payloads : bool
        Run the run again to find their types and shapes; only this needs its data.
    code : collection of str
        As for `securevfl.load_run`.
    **chosen
        As for `securevfl.study.trace.trace`.
    """
    found = pick(read_transcript(folder), read_history(folder)[1], **chosen)
    if payloads:
        return load_run(folder, code=code).trace(first=first, payloads=True, **chosen), len(found)
    return found[:first], len(found)
