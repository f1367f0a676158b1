"""Write docs/choose.md: the words of benchmarks/choose.md with figures from committed results."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from pages import compact, load, percent

RESULTS = Path("benchmarks/results")
PAGE = Path("docs/choose.md")
WORDS = Path("benchmarks/choose.md")

METHODS = {  # of attacks-digits.json, with the name that a reader would type
    "split": "split",
    "vafl:rounds=2400": "vafl",
    "wait_dp": "wait_dp",
    "wait_dp:noise_on=gradients,centre=mlp": "wait_dp --noise-on gradients",
    "fedvs": "fedvs",
    "secagg_split": "secagg_split",
    "he_split": "he_split",
    "cvfl": "cvfl",
    "multivfl": "multivfl",
    "dvfl": "dvfl",
    "fedonce": "fedonce",
    "vfb2": "vfb2",
    "vflhlp": "vflhlp",
}
CODED = {"coded_split:client_lr=16,segments=1": "coded_split"}
ATTACKS = {
    "inversion": "columns",
    "inversion of sums": "columns, by sums",
    "gradient directions": "labels",
}

MEANS = {  # of table.json: by what a value is multiplied, and digits behind the point
    "accuracy": (100, 1),
    "virtual_seconds": (1, 0),
    "bytes_round": (1e-3, 0),
    "bytes_setup": (1e-6, 1),
}

RULES = {
    "wait": "split",
    "skip": "split --stragglers skip",
    "zeros": "split --stragglers zeros",
    "buffer": "split --stragglers buffer",
    "fedvs": "fedvs --share-timeout",
}
FAULTS = ("none", "guest 0.5", "guest 0.1", "link 0.5", "link 0.1")


def read(name: str) -> dict[str, Any]:
    """Content of a committed JSON file of results, by its path below the results."""
    content: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return content


def study(name: str) -> dict[str, Any]:
    """Content of ``results.json`` of a study, by its folder below the results."""
    content = load(RESULTS / name)
    assert content is not None, name
    return content


def source(*names: str) -> list[str]:
    """Lines of Markdown that link the files of results behind a table."""
    links = ", ".join(f"[{name}](../{RESULTS}/{name})" for name in names)
    return ["", f"From {links}.", ""]


def leaks() -> list[str]:
    """Table of the success of three attacks against each method, with its accuracy."""
    rows = [["method", *ATTACKS.values(), "accuracy, %"]]
    files = {"privacy/attacks-digits.json": METHODS, "privacy/attacks-coded-digits.json": CODED}
    for file, methods in files.items():
        content = read(file)
        cells = {(c["protocol"], c["attack"]): c["success"] for c in content["cells"]}
        for label, words in methods.items():
            found = [cells[label, attack] for attack in ATTACKS]
            shown = ["-" if f is None else f"{f:.2f}".replace("-0.00", "0.00") for f in found]
            accuracy = content["figures"][label]["test_accuracy"]["mean"]
            rows.append([f"`{words}`", *shown, f"{100 * accuracy:.1f}"])
    return [*compact(rows), *source(*files)]


def price() -> list[str]:
    """Table of accuracy, time and bytes of protecting methods, beside two without protection."""
    file = "comparators/table.json"
    runs = [run for run in read(file)["runs"] if run["data"] == "digits"]
    rows = [["method", "accuracy, %", "virtual time, s", "kB a round", "MB once", "CPU ms a round"]]
    for method in dict.fromkeys(run["method"] for run in runs):
        if "10 rounds" in method:
            continue
        own = [run for run in runs if run["method"] == method]
        middle = {key: statistics.mean(run[key] for run in own) for key in MEANS}
        cells = [f"{scale * middle[key]:,.{digits}f}" for key, (scale, digits) in MEANS.items()]
        cpu = statistics.median(run["cpu_ms_round"] for run in own)
        rows.append([method, *cells, f"{cpu:.1f}"])
    return [*compact(rows), *source(file)]


def times() -> list[str]:
    """Table of accuracy at three virtual times, by method."""
    chosen, name = (10, 20, 60), "digits"
    runs = study(f"coded_split/{name}")["times"]["runs"]
    rows = [[name, *(f"{time} s" for time in chosen)]]
    for label, entries in runs.items():
        at = {entry["time"]: entry for entry in entries}
        rows.append([label, *(percent(at[time]) for time in chosen)])
    return [*compact(rows), *source(f"coded_split/{name}/results.json")]


def crashes() -> list[str]:
    """Table of accuracy under five kinds of faults, by method."""
    runs = study("faults/digits")["runs"]
    rows = [["method", *FAULTS]]
    for run in dict.fromkeys(label.rsplit(", ", 1)[0] for label in runs):
        if run in ("ignore", "mean"):
            continue
        cells = []
        for fault in FAULTS:
            one = runs[f"{run}, {fault}"]
            ended, failed = len(one["seeds"]), len(one.get("errors", {}))
            partly = f" ({ended} of {ended + failed})" if failed else ""
            mean = f"{100 * one['test_accuracy']['mean']:.1f}{partly}" if ended else "error"
            cells.append(mean)
        rows.append([f"`{RULES.get(run, run)}`", *cells])
    return [*compact(rows), *source("faults/digits/results.json")]


def page() -> str:
    """Markdown of the page: the words of choose.md with the tables in their places."""
    text = WORDS.read_text()
    tables = {
        "leaks": leaks,
        "price": price,
        "times": times,
        "crashes": crashes,
    }
    for name, lines in tables.items():
        text = text.replace(f"<!-- {name} -->", "\n".join(lines()).strip())
    return text
