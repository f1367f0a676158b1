"""Write docs/results-comparators.md from the results of comparators.py and dp.py."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pages import table

RESULTS = Path("benchmarks/results")
PAGE = Path("docs/results-comparators.md")
SETS = {"digits": 8, "handwritten": 6, "credit-card": 11}  # parties
NOISED = {"curve": "What is noised, in `wait_dp`", "protocols": "Noise on embeddings, by method"}

HEAD = """# FedVS, masks, encryption and noise, measured

Tables behind [comparators.md](comparators.md) and
[differential-privacy.md](differential-privacy.md). `benchmarks/comparators.py` and
`benchmarks/dp.py` repeat the runs; `benchmarks/comparators_page.py` writes this page.

200 rounds of 64 rows, h = 64, D = 2, Adam with 0.003, T = 1, half of the clients slow by the
paper's delays, K = 1 (2 on credit-card), p = 2^61-1, no budget of sums. Means over 3 seeds, lowest
and highest accuracy in parentheses. CPU time is that of all parties, a median. "Once" is sent
before the first round. The runs are older than the code: clients of FedVS dealt masks to each
other, which follow from keys now, and a field element took 8 bytes, where it takes 61 bits.
"""
Row = dict[str, Any]


def by_method(rows: Iterable[Row]) -> list[str]:
    """One set's methods, or those that were run for ten rounds."""
    found = [["method", "stragglers survived", "MB once", "kB a round", "virtual s",
              "CPU ms a round", "accuracy, %"]]  # fmt: skip
    rows = list(rows)
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        found.append([method, *figures(own)])
    return table(found)


def figures(rows: list[Row]) -> list[str]:
    """Means of one method over its seeds."""

    def mean(name: str) -> float:
        return statistics.mean(row[name] for row in rows)

    values = [100 * row["accuracy"] for row in rows]
    ends = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
    return [
        str(rows[0]["survived"]),
        f"{mean('bytes_setup') / 1e6:.1f}",
        f"{mean('bytes_round') / 1e3:,.0f}",
        f"{mean('virtual_seconds'):,.0f}",
        f"{statistics.median(row['cpu_ms_round'] for row in rows):.1f}",
        f"{statistics.mean(values):.1f}{ends}",
    ]


def noised(name: str) -> list[str]:
    """Epsilon of all releases of a row, then the measure, by what is noised and epsilon'."""
    runs = json.loads((RESULTS / "dp" / f"{name}.json").read_text())["runs"]
    sets = list(dict.fromkeys(row["data"] for row in runs))
    found = [["", "epsilon'", *sets]]
    for what, epsilon in dict.fromkeys((row["what"], row["epsilon"]) for row in runs):
        own = [r for r in runs if (r["what"], r["epsilon"]) == (what, epsilon)]
        cells = [cell([row for row in own if row["data"] == data]) for data in sets]
        found.append([what, "" if epsilon is None else f"{epsilon:g}", *cells])
    return table(found)


def cell(rows: list[Row]) -> str:
    """Total epsilon, mean accuracy and AUC."""
    text = f"{100 * statistics.mean(row['accuracy'] for row in rows):.1f} %"
    if "auc" in rows[0]:
        text += f", AUC {statistics.mean(row['auc'] for row in rows):.3f}"
    total = rows[0]["total"]
    return text if total is None else f"{total:.3g}: {text}"


def page() -> str:
    """Text of the page."""
    runs = json.loads((RESULTS / "comparators" / "table.json").read_text())["runs"]
    lines = [HEAD]
    for name, parties in SETS.items():
        own = [row for row in runs if row["data"] == name and "10 rounds" not in row["method"]]
        lines += [f"## {name}, {parties} parties", "", *by_method(own), ""]
    few = [row for row in runs if "10 rounds" in row["method"]]
    lines += ["## CKKS and Paillier, digits, ten rounds, one seed", "", *by_method(few), ""]
    for name, title in NOISED.items():
        lines += [f"## {title}", "", *noised(name), ""]
    return "\n".join(lines)
