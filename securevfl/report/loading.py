"""Reading of run and study folders for a report; nothing in them is trusted."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from securevfl.engine.network import SERVER
from securevfl.errors import CheckpointError, ConfigurationError, DataError
from securevfl.reading import NOT_PARSED, refuse_beyond_memory
from securevfl.report.evaluations import evaluation_of
from securevfl.report.organisations import join_organisations, party_of
from securevfl.report.records import Messages, Record
from securevfl.runs.attacked import attacked
from securevfl.runs.folders.checksums import read_summary
from securevfl.runs.spec import CONFIG, FORMAT
from securevfl.runs.storage import (
    HISTORY,
    MESSAGES,
    SUMMARY,
    messages_bytes,
    parse_history,
    read_transcript,
)

VERIFICATION, RESULTS = "verify.json", "results.json"
_TABLES = ("options", "conditions", "data", "derived", "faults", "versions")
_RELEASED = ("equations", "unknowns", "share", "state", "sentence", "ways_below")
_CLAIM = ("who", "about", "notion", "source")


def read_records(folders: Sequence[Path], verifications: Sequence[Path] = ()) -> list[Record]:
    """Read run folders and study folders.

    Parameters
    ----------
    folders : sequence of Path
        Folders of runs and of studies.
    verifications : sequence of Path
        Files with output of `securevfl verify`; each is used for the runs of its protocol, instead
        of a ``verify.json`` in their folders.

    Raises
    ------
    ConfigurationError
        If a folder has no run, or an unfinished one.
    DataError
        When a file in it is damaged.
    """
    records: list[Record] = []
    for folder in folders:
        records += _read_study(folder) if _is_study(folder) else [_read_run(folder)]
    records = join_organisations(records)
    given = [_verification(path) for path in verifications]
    for report, path in zip(given, verifications, strict=True):
        if report["protocol"] not in {record.protocol for record in records}:
            raise ConfigurationError(
                f"report: {path} verifies {report['protocol']!r}, and none of the runs is one of "
                "it; leave it out, or name such a run"
            )
    return _labelled([_with_verification(record, given) for record in records])


# -- one run -------------------------------------------------------------------------------------


def _read_run(folder: Path) -> Record:
    config = _config(folder)
    history = folder / HISTORY
    if not history.is_file():
        raise ConfigurationError(
            f"report: the run in {folder} has not ended: it holds no {HISTORY}. Go on with "
            f"`securevfl resume {folder}`, or report another run"
        )
    rows, events = _history(history)
    if not rows and not party_of(config):
        raise ConfigurationError(
            f"report: {history} holds no server step, so there is nothing to draw; a run needs at "
            "least one round"
        )
    summary = folder / SUMMARY
    own = folder / VERIFICATION
    found = _summary(summary) if summary.is_file() else {}
    return Record(
        label=str(config["protocol"]),
        group="",
        place=folder.resolve().name,
        protocol=str(config["protocol"]),
        config=config,
        rows=rows,
        events=events,
        messages=_messages(folder),
        summary=found,
        verification=_verification(own) if own.is_file() else None,
        attacked=_attacked(folder, config) if found.get("released") else "",
        evaluation=evaluation_of(found, str(summary)),
    )


def _attacked(folder: Path, config: Mapping[str, Any]) -> str:
    own_data = "name" not in config.get("data", {})
    return attacked(folder, str(config["protocol"]), own_data=own_data)


def _config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ConfigurationError(
            f"report: {folder} {what}; name the folder of a run, as `securevfl run` says at its end"
        )
    path = folder / CONFIG
    if not path.is_file():
        raise ConfigurationError(f"report: {folder} is no run: it holds no {CONFIG}{_hint(folder)}")
    try:
        content = tomllib.loads(path.read_text())
    except NOT_PARSED as error:
        raise DataError(f"report: {path} is not valid TOML: {error}") from None
    if content.get("format") != FORMAT or not isinstance(content.get("protocol"), str):
        raise DataError(
            f"report: {path} has format {content.get('format')}, this version reads {FORMAT}; "
            "report it with the version that wrote it"
        )
    wrong = [name for name in _TABLES if not isinstance(content.get(name, {}), dict)]
    if wrong or not isinstance(content.get("seed", 0), int):
        raise DataError(
            f"report: {path} was changed: seed must be an integer, and a table each of "
            f"{', '.join(_TABLES)}"
        )
    return content | {"data": _without_folders(content.get("data", {}))}


def _without_folders(data: Any) -> Any:
    """Data names and options with bare file names, since a page may be sent to others."""
    if isinstance(data, Mapping):
        return {k: _without_folders(v) for k, v in data.items()}
    if isinstance(data, list):
        return [_without_folders(one) for one in data]
    whole = isinstance(data, str) and (PurePosixPath(data).is_absolute() or "\\" in data)
    return PureWindowsPath(data).name if whole else data


def _hint(folder: Path) -> str:
    if (folder / "jobs").is_dir():
        return f" and no {RESULTS} of a study; go on with the study, and report it when it is done"
    inside = sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}"))
    if not inside:
        return ". Name the folder that `securevfl run` or `securevfl study` wrote"
    return f", but folders of runs, such as {folder / inside[-1]}; name one of them or several"


def _summary(path: Path) -> dict[str, Any]:
    content = read_summary(path)
    claims = content.setdefault("claims", [])
    if not _are(claims, _CLAIM):
        raise DataError(f"report: {path} holds claims without {', '.join(_CLAIM)}")
    _check_sums(content, path)
    return content


def _check_sums(summary: Mapping[str, Any], path: Path) -> None:
    """Refuse data on sums that differ from the form of `Odometer.to_dict` (DataError)."""
    told = summary.get("released")
    if told is not None and not _are([told], _RELEASED):
        raise DataError(f"report: {path} holds 'released' without {', '.join(_RELEASED)}")


def _history(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    text = _text(path)
    try:
        return parse_history(text)
    except ValueError as error:
        raise DataError(f"report: {path}, {error}") from None


def _messages(folder: Path) -> Messages | None:
    """Messages of a run, None if none are stored; CheckpointError if they exceed the memory."""
    if not (folder / MESSAGES).is_file():
        return None
    try:  # columns are wide beside what they take packed, and are all needed at once
        refuse_beyond_memory(messages_bytes(folder))
    except ValueError as error:
        raise CheckpointError(f"report: {folder / MESSAGES} is too large: {error}") from None
    columns = read_transcript(folder).columns()
    return Messages(columns) if len(columns["round"]) else None


# -- verifications -------------------------------------------------------------------------------


def _verification(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigurationError(
            f"report: {path} is no file; `securevfl verify PROTOCOL --json > verify.json` writes "
            "one"
        )
    content = _object(path)
    whole = (
        "protocol" in content
        and _are(content.get("claims"), (*_CLAIM, "verdict"))
        and _are(content.get("shown", []), ("who", "what", "evidence"))
        and isinstance(content.get("parameters", {}), dict)
    )
    if not whole:
        raise DataError(f"report: {path} is no output of `securevfl verify PROTOCOL --json`")
    return content


def _are(items: Any, names: Sequence[str]) -> bool:
    """Whether the value is a list of objects with these names."""
    return isinstance(items, list) and all(
        isinstance(item, dict) and set(names) <= set(item) for item in items
    )


def _with_verification(record: Record, given: Sequence[Mapping[str, Any]]) -> Record:
    own = [report for report in given if report["protocol"] == record.protocol]
    return replace(record, verification=own[-1]) if own else record


# -- studies -------------------------------------------------------------------------------------


def _is_study(folder: Path) -> bool:
    return (folder / RESULTS).is_file() and (folder / "jobs").is_dir()


def _read_study(folder: Path) -> list[Record]:
    results = _object(folder / RESULTS)
    settings = results.get("settings", {})
    records = []
    for path in sorted((folder / "jobs").glob("*.json")):
        job = _object(path)
        own = settings.get(job.get("label"))
        if own is None or "error" in job or not job.get("curve"):
            continue
        try:
            records.append(_job(folder, job, own, results))
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"report: {path} is no result of a study: {error!r}") from None
    if not records:
        raise ConfigurationError(
            f"report: the study in {folder} holds no run that ended; carry it out with "
            "`securevfl study`"
        )
    order = list(settings)
    return sorted(records, key=lambda record: (order.index(record.group), record.seed))


def _job(
    folder: Path, job: Mapping[str, Any], own: Mapping[str, Any], results: Mapping[str, Any]
) -> Record:
    summary = dict(job["summary"])
    _check_sums(summary, folder)
    data = {"name": own["dataset"], "options": own.get("data", {})}
    conditions = own.get("conditions")
    known = {"name": conditions} if isinstance(conditions, str) else dict(conditions or {})
    config = {k: v for k, v in own.items() if k not in ("dataset", "data", "conditions")}
    config |= {"seed": job["seed"], "data": _without_folders(data), "conditions": known}
    config["derived"] = summary.get("derived", {})
    config["sealed"] = own.get("sealed") is not False
    config["study"] = {"commit": results.get("commit"), "machine": results.get("machine", {})}
    return Record(
        label=f"{job['label']}, seed {job['seed']}",
        group=str(job["label"]),
        place=folder.resolve().name,
        protocol=str(own["protocol"]),
        config=config,
        rows=[{"event": "round", "party": SERVER, "round": r["step"], **r} for r in job["curve"]],
        events=[],
        messages=None,
        summary=summary,
        whole=False,
    )


# -- names and files -----------------------------------------------------------------------------


def _labelled(records: Sequence[Record]) -> list[Record]:
    """Runs with distinct labels; equal labels get an addition."""
    # The runs of one label of one study are a group; any other run is one of its own.
    keys = [(r.group, r.place) if r.group else (number,) for number, r in enumerate(records)]
    first = dict(reversed(list(zip(keys, records, strict=True))))
    base = {key: record.group or record.protocol for key, record in first.items()}
    names: dict[Any, str] = {}
    for name in dict.fromkeys(base.values()):
        alike = [key for key in dict.fromkeys(keys) if base[key] == name]
        names |= dict(zip(alike, _distinct(name, [first[key] for key in alike]), strict=True))
    return [
        replace(
            record,
            group=names[key],
            label=f"{names[key]}, seed {record.seed}" if record.group else names[key],
        )
        for key, record in zip(keys, records, strict=True)
    ]


def _distinct(name: str, records: Sequence[Record]) -> list[str]:
    if len(records) == 1:
        return [name]
    for found in (
        [f"{name}, seed {record.seed}" for record in records if not record.group],
        [f"{name} in {record.place}" for record in records],
    ):
        if len(set(found)) == len(records):
            return found
    return [f"{name} ({number})" for number in range(1, len(records) + 1)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"report: {path} is no text: {error}") from None


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except NOT_PARSED as error:
        raise DataError(f"report: {where} is not valid JSON: {error}") from None


def _object(path: Path) -> dict[str, Any]:
    content = _json(_text(path), str(path))
    if not isinstance(content, dict):
        raise DataError(f"report: {path} must hold one JSON object")
    return content
