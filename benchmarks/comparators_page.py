"""Write docs/results-comparators.md from the results of comparators.py and dp.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pages import means

RESULTS = Path("benchmarks/results")
PAGE = Path("docs/results-comparators.md")
SETS = {"digits": 8, "handwritten": 6, "credit-card": 11}  # parties
NOISED = {"curve": "What is noised, in `wait_dp`", "protocols": "Noise on embeddings, by method"}

HEAD = """# FedVS, masks, encryption and noise, measured

Tables behind [comparators.md](comparators.md) and
[differential-privacy.md](differential-privacy.md). `benchmarks/comparators.py` and
`benchmarks/dp.py` repeat the runs; `benchmarks/comparators_page.py` writes this page.

200 rounds of 64 rows, h = 64, D = 2, Adam with 0.003, T = 1, half of the clients slow by the
paper's delays, K = 1 (2 on credit-card), p = 2^61-1, no budget of sums, ten rounds if it says so.
Means over seeds. "Survived" are stragglers that a round does not wait for; bytes are those before
the first round, and of a round; processor time is that of all parties. "Total" is the epsilon of
all releases of a row. The runs are older than the code: clients of FedVS dealt masks to each other,
which follow from keys now, and a field element took 8 bytes, where it takes 61 bits.
"""
COSTS = ("survived", "bytes_setup", "bytes_round", "virtual_seconds", "cpu_ms_round", "accuracy")


def runs(name: str) -> list[dict[str, Any]]:
    """List of runs in a JSON file of results, by its path below the results."""
    found: list[dict[str, Any]] = json.loads((RESULTS / name).read_text())["runs"]
    return found


def page() -> str:
    """Markdown of the page."""
    lines = [HEAD]
    for name, parties in SETS.items():
        own = [row for row in runs("comparators/table.json") if row["data"] == name]
        lines += [f"## {name}, {parties} parties", "", *means(own, ("method",), COSTS), ""]
    for name, title in NOISED.items():
        by, values = ("data", "what", "epsilon"), ("total", "accuracy", "auc")
        lines += [f"## {title}", "", *means(runs(f"dp/{name}.json"), by, values), ""]
    return "\n".join(lines)
