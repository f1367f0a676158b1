"""Reduce stored results to what pages and pictures use: ``python benchmarks/compact.py [FOLDER]``.

`securevfl study` writes more than is committed. In each folder (default: all) results.json loses
measures that no page prints, curves.csv keeps the columns that are drawn, times.csv stays only if
the study names its times, and results.csv is removed, as its values are in results.json. Numbers of
curves are rounded to nine significant digits; all others are unchanged, so that no printed mean
changes. JSON is written on one line. A compact folder is not changed.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS, PAPERS = HERE / "results", HERE / "papers"
DIGITS = 9
MEASURES = ("test_accuracy", "test_auc", "test_rmse", "rounds", "virtual_seconds", "wall_seconds",
            "bytes")  # fmt: skip
COUNTS = ("skipped", "filled", "lost")  # of results.csv, for the page of faults
OF_A_RUN = ("seeds", "delay_mode", "errors", *MEASURES, *COUNTS)
LEFT_OUT = ("speed",)
OF_A_CURVE = ("run", "seed", "step", "time", "bytes", "accuracy", "rmse")
OF_TIMES = ("run", "seed", "time", "accuracy", "rmse")


def write(path: Path, content: Any) -> None:
    """Write content as JSON on one line."""
    path.write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n")


def single(path: Path) -> None:
    """Compact a JSON file; a matrix of attacks loses its rows of single seeds, which are unused."""
    content = json.loads(path.read_text())
    if path.name.startswith("attacks-"):
        content.pop("rows", None)
    write(path, content)


def study(folder: Path) -> None:
    """Compact the folder of a study."""
    path, table = folder / "results.json", folder / "results.csv"
    content = json.loads(path.read_text())
    if table.exists():
        _add_counts(content["runs"], _rows(table))
        table.unlink()
    for run in content["runs"].values():
        for name in [name for name in run if name not in OF_A_RUN]:
            del run[name]
    for name in LEFT_OUT:
        content.pop(name, None)
    if not _asks_for_times(folder):
        content.pop("times", None)
        (folder / "times.csv").unlink(missing_ok=True)
    write(path, content)
    _cut(folder / "times.csv", OF_TIMES, str)
    _cut(folder / "curves.csv", (*OF_A_CURVE, *_of_pictures(folder)), _number)


def _asks_for_times(folder: Path) -> bool:
    """Whether the study's file names virtual times; else its times are 40 default ones, unused."""
    file = PAPERS / folder.parent.name / f"{folder.name}.toml"
    lines = file.read_text().splitlines() if file.exists() else []
    return any(line.startswith("times") for line in lines)


def _of_pictures(folder: Path) -> tuple[str, ...]:
    """Further columns of curves in pictures: the loss for CVFL's figures, the AUC for VFLHLP."""
    if folder.parent.name == "cvfl" and folder.name.startswith("figure"):
        return ("test_loss",)
    return ("auc",) if folder.parent.name == "vflhlp" else ()


def _add_counts(runs: Mapping[str, Any], rows: list[dict[str, str]]) -> None:
    """Add to each run the means of the counts in `COUNTS`, from the rows of results.csv."""
    for label, run in runs.items():
        for name in COUNTS:
            values = [float(row[name]) for row in rows if row["run"] == label and row.get(name)]
            if values:
                run[name] = {"mean": sum(values) / len(values), "values": values}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _cut(path: Path, names: tuple[str, ...], told: Callable[[str], str]) -> None:
    """Rewrite a CSV file with the columns in `names`, each cell passed through `told`."""
    if not path.exists():
        return
    rows = _rows(path)
    kept = [name for name in rows[0] if name in names] if rows else []
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(kept)
        out.writerows([told(row[name]) for name in kept] for row in rows)


def _number(text: str) -> str:
    """Text of a number with nine significant digits; integers and other texts are unchanged."""
    try:
        int(text)
        return text
    except ValueError:
        pass
    try:
        return f"{float(text):.{DIGITS}g}"
    except ValueError:
        return text


def main() -> None:
    """Compact the folders named on the command line, by default all."""
    for folder in [Path(name) for name in sys.argv[1:]] or [RESULTS]:
        for path in sorted(folder.rglob("*.json")):
            if path.name == "results.json":
                study(path.parent)
            else:
                single(path)


if __name__ == "__main__":
    main()
