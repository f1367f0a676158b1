"""Measure the field and coding core: ``python benchmarks/field.py [--repeats N] [--page]``.

Prints the table of ``field_rows`` and writes it as benchmarks/results/field/KIND.json,
where KIND is the kind of the fastest kernels here. Quote medians of at least seven turns from a
machine that does nothing else; the ratios are taken inside one run. ``--page`` measures nothing and
writes tables.md beside these files from all of them.
"""

import argparse
import json
from pathlib import Path

from field_rows import KINDS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "field"
PAGE = RESULTS / "tables.md"
COLUMNS = ("operation", "ours", "unit", "yardstick", "theirs", "ratio", "target", "met")
HEAD = """# Speed of the field core

Ratios to a yardstick of the same run, with targets in brackets; those that were missed are bold. A
column is one kind of kernels on one machine. "dgemm" is numpy's float64 product with
`OPENBLAS_CORETYPE=Haswell`; "true copy" the time of copying as many bytes as the operation reads
and writes, from memory that was written before; "beyond imports" after numba or llvmlite was
imported. GMAC/s: 10^9 multiply-adds modulo p a second. `python benchmarks/field.py` measures and
writes this page; docs/performance.md says how.

"""
PRIMES = {2**31 - 1: "2^31-1", 2**61 - 1: "2^61-1", 2**50 - 2**14 + 1: "2^50-2^14+1"}


def show(rows: list[dict]) -> None:
    words = {True: "yes", False: "NO", None: ""}
    lines = [COLUMNS] + [tuple(_cell(row, c, words) for c in COLUMNS) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)))


def _cell(row: dict, column: str, words: dict) -> str:
    if column == "met":
        return words[row["met"]]
    return f"{row[column]:.4g}" if isinstance(row[column], float) else str(row[column])


def load() -> list[dict]:
    """Return the results of all machines, those with the fastest kernels first."""
    return [json.loads(path.read_text()) for k in KINDS if (path := RESULTS / f"{k}.json").exists()]


def tables(results: list[dict]) -> str:
    """Return the figures of each machine, and all ratios that have a target."""
    columns = [
        (result, kind)
        for result in results
        for kind in KINDS
        if kind in result["machine"]["kernels"].values()
    ]
    found = [
        {(row["case"], row["yardstick"]): row for row in result["rows"] if row["kernels"] == kind}
        for result, kind in columns
    ]
    keys = dict.fromkeys(key for rows in found for key, row in rows.items() if row["target"])
    names = [f"{KINDS[kind]} ({_short(result)})" for result, kind in columns]
    lines = [_line("operation, of", *names), _line(*["---"] * (len(columns) + 1))]
    lines += [_line(_named(*key), *(_ratio(rows.get(key)) for rows in found)) for key in keys]
    figures = [_line("operation", *map(_short, results)), _line(*["---"] * (len(results) + 1))]
    used = [
        {
            row["case"]: f"{row['ours']:.3g} {row['unit']}"
            for row in reversed(result["rows"])
            if row["kernels"] == result["machine"]["kernels"][result["machine"]["in use"]]
        }
        for result in results
    ]
    cases = dict.fromkeys(row["case"] for result in results for row in result["rows"])
    figures += [_line(_readable(case), *(own.get(case, "") for own in used)) for case in cases]
    return "\n".join([*lines, "", "With the fastest kernels of each machine:", "", *figures]) + "\n"


def _short(result: dict) -> str:
    words = result["machine"]["processor"].replace("(R)", "").split()
    return " ".join(word for word in words if word not in ("Processor", "CPU"))


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _readable(case: str) -> str:
    for number, text in PRIMES.items():
        case = case.replace(str(number), text)
    return case


def _named(case: str, yardstick: str) -> str:
    """Name a comparison; one with a number of seconds is named by its case alone."""
    return _readable(case if yardstick[0] == "1" else f"{case}, {yardstick}")


def _ratio(row: dict | None) -> str:
    if row is None:
        return ""
    ratio = f"{row['ratio']:.3g}"
    if row["met"] is None:
        return ratio
    target = row["target"].replace("<=", "≤").replace(">=", "≥")
    return f"{ratio if row['met'] else f'**{ratio}**'} ({target})"


def write_page(results: list[dict]) -> None:
    """Write the tables of all machines."""
    PAGE.write_text(HEAD + tables(results))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args(argv)
    if not options.page:
        from field_measure import benchmark

        result = benchmark(options.repeats)
        machine = result["machine"]
        RESULTS.mkdir(parents=True, exist_ok=True)
        path = RESULTS / f"{machine['kernels'][machine['in use']]}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        show(result["rows"])
    write_page(load())


if __name__ == "__main__":
    main()
