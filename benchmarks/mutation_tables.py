"""Writes of docs/results-verification.md the section on what `mutations.py` found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from judged_again import KINDS as SECOND_KINDS
from judged_again import SECOND
from judged_mutants import JUDGED, KINDS

PAGE = Path(__file__).parents[1] / "docs" / "results-verification.md"
BEGIN, END = "<!-- mutations: begin -->", "<!-- mutations: end -->"
Row = Mapping[str, Any]


def table(results: Mapping[str, Any]) -> str:
    """Markdown: how many changes were made, who noticed them, and those that verify did not."""
    rows, dropped = results["rows"], list(results["dropped"].values())
    counts = {word: dropped.count(word) for word in ("equivalent", "error", "no Python")}
    quick = [row for row in rows if row["noticed"] == "verify"]
    ways = Counter(way_of(row) for row in quick)
    later = Counter(row["noticed"] for row in rows if row not in quick and row["noticed"])
    left = [row for row in rows if not row["noticed"].startswith("verify")]
    silent = [row for row in rows if not row["noticed"]]
    lines = [
        f"Of {results['all']} possible changes {len(rows) + len(dropped)} were drawn (seed "
        f"{results['seed']}). {counts['equivalent']} changed nothing that is sent or drawn in any "
        f"of the {len(results['cases'])} runs, {counts['error']} ended the first run in an error "
        f"before anything else was different, {counts['no Python']} were no Python. {len(rows)} "
        "were kept.",
        "",
        "| noticed by | kept changes |",
        "|---|---|",
        *(f"| `verify`, small runs: {way} | {n} |" for way, n in ways.most_common()),
        *(f"| {way.replace('verify, ', '`verify`, ')} | {n} |" for way, n in later.most_common()),
        f"| none of the stages that ran | {sum('rest' in row for row in silent)} |",
        f"| no stage after the small runs has run | {sum('rest' not in row for row in silent)} |",
    ]
    suite = [row for row in left if row.get("conformance")]
    if any("conformance" in row for row in left):
        lines += ["", f"The conformance suite notices {len(suite)} of the {len(left)} that "
                  "`verify` did not notice: together they notice "
                  f"{len(rows) - len(left) + len(suite)} of {len(rows)}."]  # fmt: skip
    apart = [row for row in left if disagree(row)]
    lines += ["", f"Of {len(left)} that `verify` did not notice, both judgements say the same of "
              f"{len(left) - len(apart)}; of {len(apart)} they differ."]  # fmt: skip
    for kind, title in SECOND_KINDS.items():
        some = [row for row in left if again_of(row)[0] == kind]
        if some:
            lines += ["", f"Not noticed by `verify`: {title} ({len(some)})", ""]
            lines += [line_of(row) for row in some]
    return "\n".join(lines)


def way_of(row: Row) -> str:
    """The way in which verify noticed a change, in words of the table."""
    return "another claim's verdict" if row["by"].startswith("another claim") else str(row["by"])


def judgement_of(row: Row) -> tuple[str, str]:
    """Kind of a change that was not noticed, and the reason."""
    judged: tuple[str, str] = JUDGED.get(row["name"], ("", "not judged"))
    return judged


def again_of(row: Row) -> tuple[str, str]:
    """Kind of a change that was not noticed by the second judgement, and the reason."""
    judged: tuple[str, str] = SECOND.get(row["name"], ("", "not judged"))
    return judged


def disagree(row: Row) -> bool:
    """Whether one judgement finds that more is told, or a guard weaker, and the other does not."""
    first, second = judgement_of(row)[0], again_of(row)[0]
    return _HARM.get(first, 0) != _HARM.get(second, 0)


_HARM = {"leak": 2, "tells": 2, "guard": 1}


def line_of(row: Row) -> str:
    """A change that verify did not notice, the judgements, and the test that notices it."""
    old, new = "; ".join(row["diff"]).split("; + ", 1)
    words = again_of(row)[1]
    if disagree(row):
        kind, why = judgement_of(row)
        words += f". First judgement: {KINDS[kind].partition(' that ')[0]}; {why}"
    if row.get("conformance"):
        words += f" (noticed by the conformance suite: {row['conformance'].rpartition('::')[2]})"
    elif row["noticed"]:
        words += f" (noticed by the {row['noticed']} alone: {row['by'].rpartition('::')[2]})"
    return f"- `{Path(row['file']).name}:{row['line']}` `{old[2:]}` became `{new}`: {words}."


def write_page(results: Mapping[str, Any]) -> None:
    """Put the section between the marks of the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{rest.split(END)[1]}")
