"""Write a page for the studies of each paper: docs/results-PAPER.md, from stored results.

The words of a page stand in notes.json beside its studies. A study has one table, of its runs at
some virtual times or after the last step. Differences to what the papers print are those of
`results_page`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import ends, load, ours, paired, percent, signed, table, timed

RESULTS, STUDIES = Path("benchmarks/results"), Path("benchmarks/papers")
PAPERS = {  # page: its title, and the folders of its studies
    "coded-split": ("coded_split beside other methods, at equal virtual time", ["coded_split"]),
    "fedvs": ("FedVS, ours beside the paper's", ["fedvs"]),
    "label-partitioned": ("Labels held by several parties", ["cvfl", "multivfl"]),
    "dvfl": ("DVFL and its rivals, ours beside the paper's", ["dvfl"]),
    "vflhlp": ("VFLHLP and its baselines, ours beside the paper's", ["vflhlp"]),
    "faults": ("Nine methods under the same faults", ["faults"]),
}
# Runs that others are subtracted from at each time.
LEADERS = {
    "coded_split": ("coded-split", "coded-split-helpers"),
    "cvfl": ("last-50", "last-95"),
    "fedvs": ("fedvs",),
}
CROSSED = ("vflhlp", "faults")  # whose runs are each method in each setting
HEAD = """# {title}

Every study is a file in `benchmarks/papers/`, with all values that a paper leaves open listed as
ours; `securevfl study benchmarks/papers/PAPER/NAME.toml` repeats one (`--quick` ends in minutes; a
list such as `seeds = [11]` in the file asks for other seeds). Values are of held-out rows in per
cent, mean and 95 % t interval over seeds, with the paper's in brackets. Differences are paired by
seed; bold ones have an interval that leaves out 0, and they are not corrected for their number. A
value at a virtual time is interpolated between two evaluations; † marks the last one of a run that
had ended before. The bands of pictures are no intervals, but go from the least seed to the
greatest. [results-claims.md](results-claims.md) has differences beside the printed ones.
`benchmarks/studies_page.py` writes this page.
"""


def cell(run: Mapping[str, Any], measure: str, printed: float | None = None) -> str:
    """Table cell: mean and interval, the paper's value in brackets, number of failed seeds."""
    ended, failed = len(run["seeds"]), len(run.get("errors", {}))
    if not ended:
        return f"error ({failed} of {failed})"
    told = "" if printed is None else f" ({printed:.2f})"
    lost = f" (error in {failed} of {ended + failed})" if failed else ""
    return percent(run[measure]) + told + lost


def final(content: Mapping[str, Any]) -> list[str]:
    """Table with a row for each run after its last step."""
    runs, auc = content["runs"], any("test_auc" in run for run in content["runs"].values())
    base = content.get("baseline") if content["differences"] else None
    minus = [f"minus {base}, points"] * (base is not None)
    rows = [["run", "accuracy", *["AUC"] * auc, *minus, "seeds", "virtual time", "sent"]]
    for label, run in runs.items():
        cells = [label, cell(run, "test_accuracy", printed(content, label))]
        cells += [percent(run["test_auc"]) if "test_auc" in run else "-"] * auc
        if minus:
            found = content["differences"].get(label, {}).get("test_accuracy")
            cells.append("-" if found is None else difference(found))
        cells += [str(len(run["seeds"])), *costs(run)]
        rows.append(cells)
    return table(rows)


def difference(found: Mapping[str, Any]) -> str:
    """Text of a difference of accuracies in points."""
    half = found["half_width_95"]
    return signed(100 * found["mean"], float("nan") if half is None else 100 * half)


def costs(run: Mapping[str, Any]) -> list[str]:
    """Table cells of a run's virtual seconds and bytes."""
    if not run["seeds"]:
        return ["-", "-"]
    seconds, sent = run["virtual_seconds"]["mean"], run["bytes"]["mean"] / 1e9
    return [f"{seconds:,.0f} s", f"{sent:.3g} GB"]


def printed(content: Mapping[str, Any], label: str) -> float | None:
    """Accuracy that the paper prints for a run, in per cent; None if it does not."""
    told = content["paper"].get(label)
    found: float | None = told.get("accuracy") if isinstance(told, Mapping) else None
    return found


def crossed(content: Mapping[str, Any]) -> list[str]:
    """Table of runs "FIRST, LAST": a row for each first part, a column for each last part."""
    runs = content["runs"]
    parts = {label: label.rsplit(", ", 1) for label in runs}
    columns = list(dict.fromkeys(last for _, last in parts.values()))
    measure = "test_auc" if all("test_auc" in run for run in runs.values()) else "test_accuracy"
    rows = [[measure.removeprefix("test_"), *columns]]
    for first in dict.fromkeys(first for first, _ in parts.values()):
        labels = [f"{first}, {last}" for last in columns]
        rows.append([first, *(cell(runs[one], measure) if one in runs else "-" for one in labels)])
    return table(rows)


def chosen(folder: str, content: Mapping[str, Any]) -> list[str]:
    """Lines on options chosen on validation rows, and on those at an end of the values tried."""
    path = RESULTS / folder / "rates" / f"{content['name']}.json"
    found = content.get("chosen") or (json.loads(path.read_text()) if path.exists() else None)
    if found is None:
        return []
    said = []
    for label, run in found["runs"].items():
        best, tried = run.get("options") or run["best"], run["tried"]
        if not isinstance(best, Mapping):  # one rate, and its measure by rate
            best, tried = {"lr": best}, [{"lr": float(rate)} for rate in tried]
        words = [f"{name} {value:g}" for name, value in best.items() if is_number(name, value)]
        end = ends(tried, best)
        words = [next((one for one in end if one.startswith(f"{word} ")), word) for word in words]
        said.append(f"{label}: {', '.join(words)}, of {len(tried)}")
    told = "Chosen on validation rows, with what is an end of all that was tried: "
    return [told + "; ".join(said) + ".", ""]


def is_number(name: str, value: Any) -> bool:
    """Whether an entry is a numeric option, and not the mean measure."""
    return name != "mean" and isinstance(value, int | float)


def section(folder: str, content: dict[str, Any], note: str) -> str:
    """Markdown of a study: heading, note, table, settings and picture."""
    name, runs = content["name"], content["runs"]
    lines = [f"({folder}-{name})=\n## {content['title']}", ""]
    lines += [note, ""] if note else []
    if "source" in content["paper"]:
        lines += [f"Paper: {content['paper']['source']}.", ""]
    if folder in CROSSED:
        lines += [*crossed(content), ""]
    elif "times" in content:
        lines += [*timed(content), ""]
        for leader in LEADERS.get(folder, ()):
            if leader in runs:
                lines += [*paired(RESULTS / folder / name, leader), ""]
    else:
        lines += [*final(content), ""]
    lines += [*chosen(folder, content), *ours(content), ""]
    if (RESULTS / folder / name / "curves.csv").exists():
        lines += [f"![{content['title']}](../{RESULTS}/{folder}/{name}/curves.png)", ""]
    return "\n".join(lines)


def page(title: str, folders: Sequence[str]) -> str:
    """Markdown of a page with the studies in some folders."""
    parts = [HEAD.format(title=title)]
    for folder in folders:
        notes = json.loads((STUDIES / folder / "notes.json").read_text())
        parts.append(notes.pop("about") + "\n")
        for name in sorted(path.name for path in (RESULTS / folder).iterdir()):
            content = load(RESULTS / folder / name)
            if content is not None:  # what is said of several studies stands with the first
                key = max((key for key in notes if name.startswith(key)), key=len, default="")
                parts.append(section(folder, content, notes.pop(key, "")))
    return "\n".join(parts)


def pages() -> dict[Path, str]:
    """Markdown of all pages, by path."""
    return {Path(f"docs/results-{name}.md"): page(*words) for name, words in PAPERS.items()}
