"""HTML page of runs: no network, no tracking, no trusted content."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from securevfl.errors import ConfigurationError
from securevfl.machine import versions
from securevfl.report import claims, figures, pictures
from securevfl.report.in_words import NAMES, clock, is_fraction, number_text, percent, size
from securevfl.report.records import Record
from securevfl.report.reproduce import how_to_reproduce
from securevfl.report.timeline import event_counts, timeline
from securevfl.runs.options import options_of
from securevfl.runs.result import TOLD
from securevfl.runs.spec import RunSpec
from securevfl.studies.intervals import mean_interval

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("base.js", "plot.js", "curves.js", "timeline.js", "links.js", "theme.js", "start.js")
COLOURS = 8
_TITLED = 5  # protocols that a title names
_HIDDEN = ("wall_seconds", "test_brier", "test_calibration_error", "test_average_precision")
SUMMARY = {name: label for name, label in NAMES.items() if name not in _HIDDEN} | {
    "equations_each": "equations per unknown"
}
_ALWAYS = ("rounds", "virtual_seconds", "bytes", "messages", "late", "crashes")
# Keys of config.toml that the table of differences shows: versions, and what a command can say.
_RUN_OPTIONS = tuple(name for name, own in options_of(RunSpec).items() if own.has_flag("run"))
_COMPARED = ("version", "versions", "data", *_RUN_OPTIONS, "options")


def render(records: Sequence[Record]) -> str:
    """HTML page of the records.

    Parameters
    ----------
    records : sequence of Record
        Runs, with labels that differ.
    """
    from securevfl._version import __version__

    groups = list(dict.fromkeys(record.group for record in records))
    runs = [_run(record, groups.index(record.group)) for record in records]
    firsts = [[record.group for record in records].index(group) for group in groups]
    for run in runs:
        run["seeds"] = [r.seed for r in records if r.group == run["name"]][1:]
    return rendered(
        "page.html",
        title=_title(records),
        groups=groups,
        runs=runs,
        firsts=[runs[place] for place in firsts],
        summary=_summary(records, groups),
        differences=differences([records[place] for place in firsts]),
        same_data=len({_fingerprint(record) for record in records}) == 1,
        meanings=claims.meanings([records[place] for place in firsts]),
        claims_table=claims.claims_side_by_side([records[place] for place in firsts]),
        measures={name: figures.MEASURES[name] for name in figures.measures_of(records)},
        **script_of(SCRIPTS),
        clock=clock_of(records),
        data=_embedded(
            {
                "groups": groups,
                "clock": clock_of(records),
                "runs": [run["drawn"] for run in runs],
            }
        ),
        versions={"securevfl": __version__, **versions()},
        colours=COLOURS,
        axis="time" if any(record.rows[-1]["time"] > 0 for record in records) else "step",
    )


def render_live(record: Record, title: str) -> str:
    """HTML page of a running run; its script fetches rows as they come."""
    from securevfl._version import __version__

    names = [name for name in SCRIPTS if name not in ("timeline.js", "links.js")]
    columns = figures.curves(record) if record.rows else {name: [] for name in figures.AXES}
    run = {"label": record.label, "group": 0, "curves": columns}
    return rendered(
        "live.html",
        title=title,
        measures=figures.MEASURES,
        clock=clock_of([record]),
        axis="step",
        data=_embedded({"groups": [record.group], "clock": clock_of([record]), "runs": [run]}),
        version=__version__,
        **script_of((*names, "live.js")),
    )


def rendered(template: str, **values: Any) -> str:
    """Text of a template filled with values, which are always escaped as text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment.get_template(template).render(**values)


def script_of(names: Sequence[str]) -> dict[str, str]:
    """Script of a page, and its hash for the page's content security policy."""
    script = "\n".join((TEMPLATES / name).read_text() for name in names)
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {"script": script, "script_hash": digest}


def write_files(records: Sequence[Record], folder: Path) -> tuple[Path, ...]:
    """Write the figures and tables of the page into a folder, and return the files.

    ConfigurationError when the folder cannot be made or written.
    """
    from securevfl.report.tables import write_tables

    try:
        folder.mkdir(parents=True, exist_ok=True)
        drawn = pictures.write_pictures(records, folder, clock_of(records))
        named = {**SUMMARY, "virtual_seconds": f"{clock_of(records)} (s)", "bytes": "sent (bytes)"}
        return (*drawn, *write_tables(records, named, folder))
    except OSError as error:
        raise ConfigurationError(
            f"report: --figures {folder} cannot be written: {error.strerror}; name another folder"
        ) from None


def _run(record: Record, group: int) -> dict[str, Any]:
    lanes, sums = timeline(record), figures.links(record)
    return {
        "label": record.label,
        "name": record.group,
        "group": group,
        "place": record.place,
        "named": record.names.listed(),
        "protocol": record.protocol,
        "dataset": record.summary.get("dataset", record.config.get("data", {}).get("name")),
        "summary": record.summary,
        "sums": record.summary.get("released"),
        "attacked": record.attacked,
        "notices": [n for n in record.summary.get("notices", ()) if not n.startswith(TOLD)],
        "config": record.config,
        "whole": record.whole,
        "evaluated": figures.evaluated(record),
        "timeline": lanes,
        "events": event_counts(record),
        "links": sums,
        "test_rows": {
            name: pictures.inline(figure)
            for name, figure in pictures.of_test_rows(record.evaluation).items()
        },
        "claims": claims.claims(record),
        "others": claims.other_verdicts(record),
        "verification": record.verification,
        "other_parameters": claims.other_parameters(record),
        "spent": claims.spent(record),
        "card": claims.card(record.protocol),
        "reproduction": how_to_reproduce(record.config),
        "versions": {"securevfl": record.config.get("version")}
        | dict(record.config.get("versions", {})),
        "drawn": {
            "label": record.label,
            "group": group,
            "curves": figures.curves(record),
            "timeline": lanes,
            "links": sums,
        },
    }


def clock_of(records: Sequence[Record]) -> str:
    """Name of the runs' time axis: "virtual time", "real time" (cluster), or "time" for both."""
    engines = {record.config.get("engine") or "simulation" for record in records}
    return (
        "time" if len(engines) > 1 else "virtual time" if engines == {"simulation"} else "real time"
    )


def _title(records: Sequence[Record]) -> str:
    protocols = list(dict.fromkeys(record.protocol for record in records))
    if len(protocols) > _TITLED:
        return f"{len(protocols)} protocols{_of_data(records)}"
    names = ", ".join(protocols[:-1]) + " and " + protocols[-1] if protocols[1:] else protocols[0]
    return names + _of_data(records)


def _of_data(records: Sequence[Record]) -> str:
    names = {str(r.summary.get("dataset", r.config.get("data", {}).get("name"))) for r in records}
    return f" on {names.pop()}" if len(names) == 1 else f", {len(names)} data sets"


def _summary(records: Sequence[Record], groups: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of the first table: a figure with its value for each group, as text."""
    rows = []
    for name, label in SUMMARY.items():
        each = [[figures.summed(r, name) for r in records if r.group == group] for group in groups]
        values = [value for own in each for value in own if value is not None]
        if values and (name in _ALWAYS or any(values)):
            texts = [_mean_text(own, name) for own in each]
            label = clock_of(records) if name == "virtual_seconds" else label
            rows.append({"name": name, "label": label, "values": texts})
    return rows


def _mean_text(values: Sequence[Any], name: str) -> str:
    """A single value, or the mean of several with half its 95 % interval, as text."""
    there = [value for value in values if value is not None]
    if len(there) < 2:
        return value_text(there[0] if there else None, name)
    mean, half = mean_interval(there)
    if isinstance(there[0], int) and name != "bytes":
        return f"{mean:,.1f} ± {half:,.1f}"
    return f"{value_text(mean, name)} ± {value_text(half, name)}"


def differences(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Settings that differ between the runs: ``name``, and ``values``, one a run (None if lacking).

    A setting of faults also counts if some run lacks it.
    """
    each = [
        figures.flat({k: record.config[k] for k in _COMPARED if k in record.config})
        for record in records
    ]
    found = []
    for name in dict.fromkeys(name for own in each for name in own):
        values = [own.get(name) for own in each]
        there = [value for own, value in zip(each, values, strict=True) if name in own]
        if any(value != there[0] for value in there) or (
            name.startswith("faults.") and len(there) < len(each)
        ):
            found.append({"name": name.removeprefix("options."), "values": values})
    return found


def _fingerprint(record: Record) -> str:
    data = record.config.get("data", {})
    options = {k: v for k, v in data.get("options", {}).items() if k != "data_dir"}
    return str(data.get("fingerprint") or [data.get("name"), sorted(options.items())])


# -- text ----------------------------------------------------------------------------------------


def _embedded(content: Any) -> str:
    """JSON for a script element, in which no character can end the element."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def value_text(value: Any, name: str = "") -> str:
    """A figure as readable text.

    Examples
    --------
    >>> value_text(0.9042316, "test_accuracy"), value_text(142522992, "bytes")
    ('90.42 %', '142.52 MB')
    """
    plain = name.removeprefix("test_")
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(value_text(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k} = {value_text(v)}" for k, v in value.items())
    if not isinstance(value, (int, float)):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    if is_fraction(name):
        return percent(value)
    if plain == "bytes":
        return size(value)
    if plain == "time" or plain.endswith("seconds"):
        return clock(value)
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 2**31 - 1 else _power(value)
    return number_text(value)


def exact_text(value: Any) -> str:
    """Text of a setting as in TOML, with all digits; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(exact_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _power(value: int) -> str:
    length = value.bit_length()
    return f"2^{length}-1" if value == 2**length - 1 else str(value)


def sentence(text: str) -> Any:
    """A notice as HTML; text in backticks becomes code."""
    from markupsafe import Markup, escape

    text = text[:1].upper() + text[1:]
    parts = [escape(part) for part in text.split("`")]
    marked = [Markup("<code>{}</code>").format(p) if n % 2 else p for n, p in enumerate(parts)]
    return Markup("").join([*marked, "" if text.endswith(".") else "."])


FILTERS = {
    "sentence": sentence,
    "value": value_text,
    "size": size,
    "exact": exact_text,
    "flat": lambda content: list(figures.flat(content).items()),
}
