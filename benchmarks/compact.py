"""Keep of results what pages, pictures and verdicts use: ``python benchmarks/compact.py [FOLDER]``.

`securevfl study` writes more than is stored here. In each folder, all by default, results.json
loses measures that no page prints, curves.csv keeps what pictures are drawn from and times.csv
stays where the study names its times; results.csv, which has the values of results.json, goes.
Numbers of curves have nine significant digits: pictures do not show more. All others are as they
were, since a mean on the edge of two printed digits must not change. JSON is on one line. What is
compact already stays as it is.
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
    """JSON on one line."""
    path.write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n")


def single(path: Path) -> None:
    """Compact another result; of a matrix of attacks, rows of single seeds are in no page."""
    content = json.loads(path.read_text())
    if path.name.startswith("attacks-"):
        content.pop("rows", None)
    write(path, content)


def study(folder: Path) -> None:
    """Compact the results of one study."""
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
    """Whether the study names virtual times; else its table has forty that nobody reads."""
    file = PAPERS / folder.parent.name / f"{folder.name}.toml"
    lines = file.read_text().splitlines() if file.exists() else []
    return any(line.startswith("times") for line in lines)


def _of_pictures(folder: Path) -> tuple[str, ...]:
    """Other measures of a curve: of CVFL's figures the loss, of aligned rows the AUC."""
    if folder.parent.name == "cvfl" and folder.name.startswith("figure"):
        return ("test_loss",)
    return ("auc",) if folder.parent.name == "vflhlp" else ()


def _add_counts(runs: Mapping[str, Any], rows: list[dict[str, str]]) -> None:
    """Means of the counts of a run's jobs that have them."""
    for label, run in runs.items():
        for name in COUNTS:
            values = [float(row[name]) for row in rows if row["run"] == label and row.get(name)]
            if values:
                run[name] = {"mean": sum(values) / len(values), "values": values}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _cut(path: Path, names: tuple[str, ...], told: Callable[[str], str]) -> None:
    """Write the columns of a table that are kept."""
    if not path.exists():
        return
    rows = _rows(path)
    kept = [name for name in rows[0] if name in names] if rows else []
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(kept)
        out.writerows([told(row[name]) for name in kept] for row in rows)


def _number(text: str) -> str:
    """A number with nine significant digits; other texts, and whole numbers, as they are."""
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
    """Compact the folders that are named, or all."""
    for folder in [Path(name) for name in sys.argv[1:]] or [RESULTS]:
        for path in sorted(folder.rglob("*.json")):
            if path.name == "results.json":
                study(path.parent)
            else:
                single(path)


if __name__ == "__main__":
    main()
