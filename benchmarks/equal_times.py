"""Write the tables at equal virtual times anew, from committed curves; no run is repeated.

python benchmarks/equal_times.py [FOLDER of results ...]
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

from securevfl.studies.equal_times import asked_times, at_times, read_jobs
from securevfl.studies.summary import write_times

RESULTS = Path(__file__).parent / "results"


def again(folder: Path) -> tuple[int, int]:
    """Write the tables of one folder; how many values there were, and how many have changed."""
    before = _values(folder)
    labels = list(json.loads((folder / "results.json").read_text())["runs"])
    write_times(folder, at_times(read_jobs(folder), asked_times(folder)), labels)
    after = _values(folder)
    changed = [key for key, value in before.items() if abs(after.get(key, 9e9) - value) > 5e-5]
    return len(before), len(changed)


def _values(folder: Path) -> dict[tuple[str, str, str], float]:
    with (folder / "times.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    measure = "rmse" if rows and "rmse" in rows[0] else "accuracy"
    return {(r["run"], r["seed"], r["time"]): float(r[measure]) for r in rows if r.get(measure)}


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:]]
    for folder in folders or sorted(path.parent for path in RESULTS.rglob("times.csv")):
        if not (folder / "curves.csv").exists() or not asked_times(folder):
            print(f"{folder.name}: left as it is, it has no curves or no times")
            continue
        count, changed = again(folder)
        print(f"{folder.name}: {changed} of {count} values changed")


if __name__ == "__main__":
    main()
