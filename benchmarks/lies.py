"""Gain of each single lie of a server or client, measured in a run.

Without arguments all lies without a result are measured; with words those whose names contain one
of them, again. Results are added to benchmarks/results/privacy/lies.json. ``--page`` writes their
tables, lies.md.

    PYTHONPATH=. python benchmarks/lies.py [--page] [words of names]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, get_args

from tests.lies import FULL, Lie, Outcome, all_lies

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "privacy" / "lies.json"
PAGE = RESULTS.with_suffix(".md")
HEAD = """# What single lies gain

In each row one party, or the few that it says, deviates in one point and runs against the real
others in a simulation. The gain stands with the same quantity of an honest run, or of a guess, in
brackets. Gains are bold. `benchmarks/lies.py` writes this page.

FedVS has N = 10 clients, K = 2, T = 1, R = 5, A = 0, h = 64, D = 2, 128 samples of digits a batch,
masks, Adam and `cohorts=0`, so that what stands behind cohorts is seen, unless a row says
otherwise. `coded_split` has 10 owners, K = T = 1, R = 4 and p = 2^40 - 87. The other methods have
6 clients. S are the sharers. "Error of H" is the largest change of the decoded mean, whose entries
are below 0.4; 6554 is as far as the field reaches. Clients 1 and 8 are honest; the two that upload
wrong values together are of N = 9, K = 3. A client that refuses by an error ends the run.
"""

Row = dict[str, Any]


def measure(lie: Lie) -> Row:
    """Result row of a lie: outcome, gain, the same quantity in an honest run, and who notices."""
    begin = time.perf_counter()
    found = lie.measure(FULL)
    return {
        "name": lie.name,
        "outcome": found.outcome,
        "quantity": found.quantity,
        "value": found.value,
        "control": found.control,
        "noticed": found.noticed,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def load() -> dict[str, Row]:
    """Stored result rows by name."""
    if not RESULTS.exists():
        return {}
    return {row["name"]: row for row in json.loads(RESULTS.read_text())["rows"]}


def store(rows: dict[str, Row]) -> None:
    """Write the rows of all existing lies, in the order of `all_lies`."""
    known = [rows[lie.name] for lie in all_lies() if lie.name in rows]
    size = {"rows": FULL.rows, "batch": FULL.batch, "width": FULL.width}
    RESULTS.write_text(json.dumps({"data": "digits", **size, "rows": known}, indent=1) + "\n")


def number(value: float | None) -> str:
    """Number with two significant digits; "-" for None."""
    if value is None:
        return "-"
    if value == 0 or 0.01 <= abs(value) < 1e4:
        return f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def gain_of(row: Row) -> str:
    """Table cell of a lie's gain, with the value of an honest run in brackets; bold if it gains."""
    if row["value"] is None or (row["outcome"] == "refused" and row["value"] == 0):
        return "nothing"
    said = f"{row['quantity']}: {number(row['value'])} ({number(row['control'])})"
    return f"**{said}**" if row["outcome"] == "gains" else said


def title_of(lie: Lie) -> str:
    """Heading of the table that contains a lie."""
    method, server = lie.protocol.partition(" ")[0], lie.who == "server"
    if method == "fedvs":
        return "FedVS, the server" if server else "FedVS, clients"
    if method == "coded_split":
        return "coded_split, the server" if server else "coded_split, owners and holders"
    return "Other methods"


def told(lie: Lie) -> str:
    """A lie in words: method and party if the table has several, its act, and its options."""
    method, _, options = lie.protocol.partition(" ")
    own = method in ("fedvs", "coded_split")  # it has tables of its own
    whose = "" if lie.who == "server" and own else f"{lie.who} "
    place = "" if own else f"`{method}`: "
    return f"{place}{whose}{lie.does}" + (f" (`{options}`)" if options else "")


def table(rows: dict[str, Row]) -> str:
    """Markdown tables of all lies, with counts of outcomes."""
    lines, title = list[str](), ""
    for lie in all_lies():
        row = rows[lie.name]
        if title_of(lie) != title:
            title = title_of(lie)
            lines += ["", f"## {title}", "", "| lie | gain | noticed by | stopped or limited by |",
                      "|---|---|---|---|"]  # fmt: skip
        lines.append(f"| {told(lie)} | {gain_of(row)} | {row['noticed']} | {lie.limit} |")
    outcomes = [rows[lie.name]["outcome"] for lie in all_lies()]
    gain, refused, corrected, nothing = map(outcomes.count, get_args(Outcome))
    lines += ["", f"Of {len(outcomes)} lies {gain} gain something, {refused} are refused, "
              f"{corrected} are corrected, and {nothing} gain nothing."]  # fmt: skip
    return "\n".join(lines)


def write_page(rows: dict[str, Row]) -> None:
    """Write lies.md."""
    PAGE.write_text(f"{HEAD}{table(rows)}\n")


def main() -> None:
    """Measure lies, or write their tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--page", action="store_true")
    asked, rows = parser.parse_args(), load()
    for lie in () if asked.page else all_lies():
        again = any(word in lie.name for word in asked.names)
        if again if asked.names else lie.name not in rows:
            rows[lie.name] = row = measure(lie)
            store(rows)
            marked = "" if row["outcome"] == lie.expected else f", expected {lie.expected}"
            print(f"{row['outcome']:9} {row['seconds']:6.1f} s  {lie.name}{marked}", flush=True)
    if asked.page:
        write_page(rows)


if __name__ == "__main__":
    main()
