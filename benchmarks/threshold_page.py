"""Write docs/results-threshold.md from the tables of ``securevfl bench threshold``.

The tables are in benchmarks/results/threshold; the commands that made them stand on the page.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pages import table

RESULTS = Path("benchmarks/results/threshold")
PAGE = Path("docs/results-threshold.md")
Row = Mapping[str, str]
SHOWN = ("fedvs", "coded_split", "vafl", "split", "split:stragglers=ignore")

HEAD = """# How many slow, dead or lying parties a method bears

Each cell is a training run on digits with s of 8 parties in trouble, to the same virtual second
(20 s), two seeds; 16 parties, 10 s and one seed in the second part. Nothing was tuned: options are
the methods' defaults with batch 64 and widths of 16 and 32. Uploads take 0.2 s, those of *slow*
parties 10 s (means; exponential, constant or Pareto). *Dead* parties are gone from round 2 on, and
methods that declare timeouts for that have 1 s. *Lying* ones replace all numbers that they upload
by random ones from round 2 on. `shares too` adds the paper's delay of sharing a model; in
`occupies` a party does nothing else while its upload is due (elsewhere it is latency).

A method **goes on** if, with slow parties, a round takes less than 7.1 times as long as without
(the geometric middle between none and all slow); with dead ones, if it still steps in the last
quarter of the time; with lying ones, if moreover three quarters of what it learnt are left. The
**boundary** is the largest s up to which it goes on, found by bisection. Methods that decode
declare R, and with it the boundary: N - R - 2A for slow and dead parties, where A wrong uploads are
corrected, and A for lying ones.

`benchmarks/threshold_page.py` writes this page from
[digits-8.csv](../benchmarks/results/threshold/digits-8.csv) and
[digits-16.csv](../benchmarks/results/threshold/digits-16.csv), which have every cell with bytes.
"""


def read(name: str) -> list[Row]:
    """The rows of a table."""
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def cases(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of each case: a method in a configuration, and one trouble."""
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[k] for k in ("label", "K", "T", "A", "kind", "law"))].append(row)
    return list(found.values())


def trouble(row: Row) -> str:
    """The column of a case."""
    return row["law"] if row["kind"] == "slow" else row["kind"]


def name(row: Row) -> str:
    """The line of a case."""
    if not row["R"]:
        return f"`{row['label']}`"
    return f"`{row['label']}` K={row['K']} T={row['T']} A={row['A']} (R={row['R']})"


def boundaries(rows: Sequence[Row]) -> list[str]:
    """One line a method, one column a trouble: the boundary, bold where it is not as declared."""
    firsts = [own[0] for own in cases(rows)]
    columns = list(dict.fromkeys(trouble(row) for row in firsts))
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for row in firsts:
        differs = row["predicted"] not in ("", row["boundary"])
        mark = f"**{row['boundary']}**" if differs else row["boundary"]
        found[name(row)][trouble(row)] = mark
    predicted = {name(row): row["predicted"] or "-" for row in firsts if row["kind"] != "lying"}
    lies = {name(row): row["predicted"] or "-" for row in firsts if row["kind"] == "lying"}
    lines = [["method", "declared", *columns]]
    for label, own in found.items():
        said = predicted.get(label, "-")
        if label in lies:
            said += f", lying {lies[label]}"
        lines.append([label, said, *(own.get(column, "") for column in columns)])
    return table(lines)


def agreement(rows: Sequence[Row]) -> str:
    """Numbers of boundaries as declared, by trouble, and cells that contradict bisection."""
    counts: dict[str, list[bool]] = defaultdict(list)
    odd = []
    for own in cases(rows):
        row = own[0]
        if row["predicted"]:
            counts[trouble(row)].append(row["predicted"] == row["boundary"])
        wrong = [
            int(each["troubled"])
            for each in own
            if (each["outcome"] == "goes on") != (int(each["troubled"]) <= int(row["boundary"]))
        ]
        if wrong:
            odd.append(f"{name(row)} {trouble(row)} (s = {', '.join(map(str, wrong))})")
    said = "; ".join(f"{what} {sum(ok)} of {len(ok)}" for what, ok in counts.items())
    text = f"Boundaries as declared: {said}."
    if odd:
        text += (
            " Not on one side of their boundary, so that bisection had a choice: "
            + "; ".join(odd)
            + "."
        )
    return text


def numbers(rows: Sequence[Row]) -> list[str]:
    """Seconds of a round, accuracy and bytes by s, of the smallest K, T and A of each method."""
    lines = [["method", "trouble", *(f"s = {s}" for s in range(9))]]
    for own in cases(rows):
        row = own[0]
        plain = (row["K"], row["T"], row["A"]) in (("1", "1", "0"), ("", "", ""))
        if row["label"] not in SHOWN or not plain or row["law"] == "pareto":
            continue
        cells = {int(each["troubled"]): each for each in own}
        lines.append([name(row), trouble(row), *(cell(cells[s]) for s in range(9))])
    return table(lines)


def cell(row: Row) -> str:
    """Seconds of a round, accuracy, megabytes; the reason where an error ended all runs."""
    if not row["accuracy"]:
        return "ended" if row["error"] else "no round"
    seconds, accuracy = float(row["round_seconds"]), 100 * float(row["accuracy"])
    return f"{seconds:.2g} s, {accuracy:.0f} %, {float(row['sent']) / 1e6:.0f} MB"


def page() -> str:
    """The page."""
    facts = json.loads((RESULTS / "facts.json").read_text())
    eight, sixteen = read("digits-8.csv"), read("digits-16.csv")
    parts = [
        HEAD,
        facts["found"],
        "",
        "## Boundaries, 8 parties",
        "",
        "Bold: not as declared. Columns but the last two are laws of slow parties' delays.",
        "",
        *boundaries(eight),
        "",
        agreement(eight),
        "",
        "![Time of a round and accuracy](../benchmarks/results/threshold/digits-8.png)",
        "",
        "## Seconds of a round, accuracy at 20 s, and bytes",
        "",
        "K = T = 1 and A = 0; the table has all others. A time is a lower bound where few rounds "
        "ended.",
        "",
        *numbers(eight),
        "",
        "## Boundaries, 16 parties",
        "",
        "By bisection alone: four or five runs for each.",
        "",
        *boundaries(sixteen),
        "",
        agreement(sixteen),
        "",
        "## To repeat",
        "",
        "```",
        *facts["commands"],
        "```",
        "",
        f"{facts['cost']} Commit `{facts['commit']}`.",
    ]
    return "\n".join(parts) + "\n"
