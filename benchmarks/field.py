"""Measure the field and coding core: ``python benchmarks/field.py [--out FILE] [--repeats N]``.

Prints the table of ``securevfl.bench.field`` and writes it as JSON. Quote medians of at least
seven turns from a machine that does nothing else; the ratios are taken inside one run.
"""

import argparse
import json
from pathlib import Path

from securevfl.bench.field import benchmark

COLUMNS = ("operation", "ours", "unit", "yardstick", "theirs", "ratio", "target", "met")


def show(rows: list[dict]) -> None:
    words = {True: "yes", False: "NO", None: ""}
    lines = [COLUMNS] + [
        tuple(words[row["met"]] if c == "met" else str(row[c]) for c in COLUMNS) for row in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/field/field.json"))
    options = parser.parse_args(argv)
    result = benchmark(options.repeats)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    show(result["rows"])


if __name__ == "__main__":
    main()
