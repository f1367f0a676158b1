"""Functions shared by the scripts that write pages of results."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from securevfl.studies.intervals import paired_difference


def load(folder: Path) -> dict[str, Any] | None:
    """Content of ``results.json`` in a study's folder, with its names; None if there is none."""
    path = folder / "results.json"
    if not path.exists():
        return None
    own = {"name": folder.name, "study": f"{folder.parent.name}/{folder.name}"}
    return own | json.loads(path.read_text())


def percent(entry: dict[str, Any]) -> str:
    """Text of a mean with the half-width of its interval, in per cent."""
    half = entry.get("half_width_95")
    spread = "" if half is None or math.isnan(half) else f" ± {100 * half:.2f}"
    return f"{100 * entry['mean']:.2f}{spread}"


def signed(mean: float, half: float, digits: int = 2) -> str:
    """Text of a difference and its half-width, bold if the interval excludes 0.

    "(one pair)" replaces a half-width of NaN.
    """
    if math.isnan(half):
        return f"{mean:+.{digits}f} (one pair)"
    bold = "**" if abs(mean) > half else ""
    return f"{bold}{mean:+.{digits}f}{bold} ± {half:.{digits}f}"


def ends(tried: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> list[str]:
    """Words on options whose best value is the lowest or highest of those tried.

    A value beyond it may be better. Values with which training diverged count as tried.
    """
    found = []
    for name, value in best.items():
        if name == "mean" or not isinstance(value, int | float):
            continue
        known = {one[name] for one in tried if name in one}
        if len(known) == 1:
            continue
        for word, end in (("lowest", min(known)), ("highest", max(known))):
            if value == end:
                found.append(f"{name} {value:g} ({word})")
    return found


def table(rows: list[list[str]]) -> list[str]:
    """Lines of a Markdown table; the first row is the head."""
    head, *body = rows
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]


def compact(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table without spaces around cells."""
    head, *body = [f"|{'|'.join(cells)}|" for cells in rows]
    return [head, "|---" * len(rows[0]) + "|", *body]


def means(rows: Sequence[Mapping[str, Any]], by: Sequence[str], values: Sequence[str]) -> list[str]:
    """Table of means over rows that agree in the fields `by`, with their number of seeds.

    `values` are the fields to average; "-" if no row has one.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in by)].append(row)
    lines = [[*by, *values, "seeds"]]
    for key, some in groups.items():
        found = [[row[name] for row in some if row.get(name) is not None] for name in values]
        cells = [_number(sum(own) / len(own)) if own else "-" for own in found]
        seeds = sum(row.get("seeds", 1) for row in some)
        lines.append([*("" if one is None else str(one) for one in key), *cells, str(seeds)])
    lines[0] = [word.replace("_", " ") for word in lines[0]]
    return table(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def timed(content: dict[str, Any]) -> list[str]:
    """Table of accuracy by run and virtual time."""
    runs = content["times"]["runs"]
    times = sorted({entry["time"] for entries in runs.values() for entry in entries})
    rows = [["run", *(f"{time:g} s" for time in times), "rounds", "sent"]]
    for label, entries in runs.items():
        at = {entry["time"]: entry for entry in entries}
        own = content["runs"][label]
        cells = [
            percent(at[time]) + " †" * at[time]["ended"] if time in at else "-" for time in times
        ]
        sent = f"{own['bytes']['mean'] / 1e9:.2f} GB"
        rows.append([label, *cells, f"{own['rounds']['mean']:,.0f}", sent])
    return table(rows)


def paired(folder: Path, first: str) -> list[str]:
    """Table of a run's accuracy minus that of each other run, at each time, in points.

    Differences are paired by seed. A sentence on intervals follows.
    """
    values: dict[tuple[str, float], dict[str, float]] = defaultdict(dict)
    with (folder / "times.csv").open() as file:
        for row in csv.DictReader(file):
            values[row["run"], float(row["time"])][row["seed"]] = 100 * float(row["accuracy"])
    times = sorted({time for _, time in values})
    others = sorted({run for run, _ in values} - {first})
    every = max(map(len, values.values()))
    rows = [[f"{first} minus", *(f"{time:g} s" for time in times)]]
    for other in others:
        cells = []
        for time in times:
            mine, theirs = values[first, time], values[other, time]
            seeds = sorted(set(mine) & set(theirs))
            if not seeds:
                cells.append("-")
                continue
            found = paired_difference([mine[s] for s in seeds], [theirs[s] for s in seeds])
            fewer = "" if len(seeds) == every else f" (n = {len(seeds)})"
            cells.append(signed(*found, digits=1) + fewer)
        rows.append([other, *cells])
    count = sum(cell != "-" for row in rows[1:] for cell in row[1:])
    said = (
        f"Bold: the 95 % interval of the difference leaves out 0. The {count} intervals are not "
        f"corrected for their number: were there no difference anywhere, {count / 20:.1f} of them "
        "would be bold by chance."
    )
    if any("(n = " in cell for row in rows for cell in row):
        said += f" n: seeds of which both runs had an evaluation by then, of {every}."
    return [*table(rows), "", said]


def made_by(content: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str:
    """Words on the commits by which rows were made: their own, or that of the content."""
    found = dict.fromkeys(f"`{row.get('commit', content['commit'])}`" for row in rows)
    return f"commit{'s' * (len(found) > 1)} {', '.join(found)}"


def ours(*contents: dict[str, Any]) -> list[str]:
    """Lines on values that the paper leaves open, seeds, commits and options of some studies.

    A value that not all studies share is followed by the names of those that have it.
    """
    said: dict[str, list[str]] = {}
    for content in contents:
        for key, value in content["ours"].items():
            said.setdefault(f"{key}: {value}", []).append(content["name"])
    parts = []
    for value, names in said.items():
        whose = "" if len(names) == len(contents) else f" ({', '.join(names)})"
        parts.append(value + whose)
    runs = [run for each in contents for run in each["runs"].values()]
    seeds = sorted({len(run["seeds"]) + len(run.get("errors", {})) for run in runs})
    commits = sorted({content["commit"] for content in contents})
    count = f"{' or '.join(map(str, seeds))} seed{'s' * (seeds != [1])}"
    made = f"commit{'s' * (len(commits) > 1)} {', '.join(f'`{each}`' for each in commits)}"
    lines = ["", f"Ours: {'; '.join(parts)}. {count}, {made}.{''.join(map(files, contents))}"]
    return [*lines, *(line for each in contents for line in ("", settings(each)))]


def settings(content: Mapping[str, Any]) -> str:
    """Sentence on the options of a study's runs: first the common ones, then others by value."""
    runs = content["settings"]
    whole = {name: run["options"] | _rhythm(run) for name, run in runs.items()}
    common = _shared(whole.values())
    parts = [f"`{key} = {_text(value)}`" for key, value in common.items()]
    for key in dict.fromkeys(key for run in whole.values() for key in run if key not in common):
        by: dict[str, list[str]] = {}
        for name, run in whole.items():
            if key in run:
                by.setdefault(_text(run[key]), []).append(name)
        told = ", ".join(f"{value} ({_names(names)})" for value, names in by.items())
        parts.append(f"`{key}`: {told if len(by) <= _VALUES else 'by run'}")
    own = f" of {content['name']}" if content.get("name") else ""
    return f"Options{own}, beside the defaults of its commit: {'; '.join(parts)}."


_AT_THE_END = 10**6  # rounds from one evaluation to the next
_VALUES, _NAMES = 8, 4  # of an option, and of the runs that have one, that a page lists


def _rhythm(run: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a run for the rounds or seconds between its evaluations."""
    asked = run.get("asked", run)
    found = {key: asked.get(key) for key in ("eval_every", "eval_seconds")}
    return {key: value for key, value in found.items() if value is not None and value < _AT_THE_END}


def _shared(runs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = runs
    return {k: v for k, v in first.items() if all(k in run and run[k] == v for run in others)}


def _names(names: Sequence[str]) -> str:
    if len(names) <= _NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMES - 1])} and {len(names) - _NAMES + 1} more"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def files(content: Mapping[str, Any]) -> str:
    """Markdown links to a study's file and results, for pages in docs/; "" if there is no study."""
    study = Path("benchmarks/papers") / f"{content.get('study')}.toml"
    if not study.exists():
        return ""
    results = Path("benchmarks/results") / content["study"] / "results.json"
    return f" [{study.stem}](../{study}), [results](../{results})."
