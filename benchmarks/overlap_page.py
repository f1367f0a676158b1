"""Write docs/results-vflhlp.md from the committed results of benchmarks/papers/vflhlp."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from pages import ends, load, ours, signed, table

from securevfl.studies.intervals import paired_difference

RESULTS = Path("benchmarks/results/vflhlp")
STUDIES = Path("benchmarks/papers/vflhlp")
PAGE = Path("docs/results-vflhlp.md")
ORDER = (
    "table-2-avazu",
    "table-3-criteo",
    "table-4-avazu",
    "table-4-avazu-between",
    "credit-card",
    "avazu-twin",
    "criteo-twin",
    "adult",
    "handwritten",
    "fedvs-downstream",
)
NAMES = {"vfl": "vanilla VFL", "local": "Local-A", "vflhlp": "VFLHLP", "vflhlp-a": "VFLHLP-A",
         "vflhlp-p": "VFLHLP-P", "fedhssl-moco": "FedHSSL-MoCo", "fedhssl-byol": "FedHSSL-BYOL",
         "fedhssl-simsiam": "FedHSSL-SimSiam", "fedlocal-moco": "FedLocalMoCo",
         "fedlocal-byol": "FedLocalBYOL", "fedlocal-simsiam": "FedLocalSimSiam",
         "fedvs": "FedVS", "fedvs-p": "FedVS, passive ones pre-trained",
         "fedvs-full": "FedVS, all pre-trained"}  # fmt: skip
Cell = dict[str, Any]

HEAD = """# VFLHLP and its baselines, ours beside the paper's

Every study is a file in `benchmarks/papers/vflhlp/`, with all values that the paper leaves open
listed as ours; results with machine, versions, commit and seeds are in
`benchmarks/results/vflhlp/`. To repeat one: `securevfl study benchmarks/papers/vflhlp/NAME.toml`
(`--quick` takes fewer seeds or sizes; `*-full.toml` are the paper's sizes, for who has the
whole files). What the methods are: [few-overlap.md](few-overlap.md).

Values are held-out AUC (accuracy where there are more than two classes), mean and 95 % t interval
over seeds; the columns are numbers of aligned training rows. The paper's values come from up to ten
times as many rows, so orderings and gaps are what can be compared. Differences are paired by seed;
bold ones have an interval that leaves out 0. The twins are synthetic and show that the study runs
anywhere, not what clicks are like. `benchmarks/overlap_page.py` writes this page.

Read these with care. Intervals are of one difference each and are not corrected for their number:
"above" and "below" here are of single sizes. In Tables 2 to 4 rates, beta and
lengths of all methods were chosen on validation rows (`rates/`), and FedHSSL has the 40 epochs of
its paper; what is an end of what was tried is named below each table, for beyond it a method can be
better still. In the others no rows were held out: pre-training has 6 epochs (40 on Handwritten, 20
below FedVS) and beta is 1, so what is said of VFLHLP-A, VFLHLP-P and Local-A is open there, and
what is above FedHSSL and its kin is above rivals that were not trained long. The paper claims
nothing against Local-A at few rows of Avazu (.694 against .719 at 250), and its ablation is on
Criteo only. Its differences beside ours are in [results.md](results.md).
"""


def measured(content: dict[str, Any]) -> tuple[str, dict[str, dict[int, Cell]]]:
    """The measure, and for each run and number of aligned rows its values by seed."""
    found: dict[str, dict[int, Cell]] = {}
    measure = "test_auc"
    if not all("test_auc" in run for run in content["runs"].values()):
        measure = "test_accuracy"
    for label, run in content["runs"].items():
        match = re.fullmatch(r"(.*), (\d+) aligned", label)
        assert match is not None, label
        own = {**run[measure], "seeds": run["seeds"]}
        found.setdefault(match[1], {})[int(match[2])] = own
    return measure.removeprefix("test_"), found


def cell(entry: Cell | None) -> str:
    if entry is None:
        return "-"
    half = entry.get("half_width_95")
    return f"{entry['mean']:.3f}" + ("" if half is None else f" ± {half:.3f}")


def difference(mine: Cell, theirs: Cell) -> tuple[float, float]:
    """Mean and half interval of a difference that is paired by seed."""
    ours = dict(zip(mine["seeds"], mine["values"], strict=True))
    others = dict(zip(theirs["seeds"], theirs["values"], strict=True))
    seeds = sorted(set(ours) & set(others))
    return paired_difference([ours[s] for s in seeds], [others[s] for s in seeds])


def values(content: dict[str, Any], runs: dict[str, dict[int, Cell]]) -> list[str]:
    """One row a run; below it the paper's, where it has one."""
    sizes = sorted({size for own in runs.values() for size in own})
    paper = content["paper"]
    rows = [["aligned rows", *map(str, sizes)]]
    for name, own in runs.items():
        if name == "local":  # it does not depend on the number of aligned rows
            cells = [cell(next(iter(own.values())))] * len(sizes)
        else:
            cells = [cell(own.get(size)) for size in sizes]
        rows.append([NAMES.get(name, name), *cells])
        if name in paper:
            known = dict(zip(paper["aligned"], paper[name], strict=False))
            if name == "local":
                known = dict.fromkeys(sizes, paper[name][0])
            theirs = [f"{known[size]:.3f}" if size in known else "-" for size in sizes]
            rows.append([f"*{NAMES.get(name, name)}, paper*", *theirs])
    return table(rows)


def compared(runs: dict[str, dict[int, Cell]]) -> tuple[list[str], list[str]]:
    """Differences of a leader to every other run at each size, and what they say of claims.

    The leader is VFLHLP, or FedVS from pre-trained networks; the claims are that it is above its
    plain form, the active party alone, the best FedHSSL and VFLHLP's variants, as far as they ran.
    """
    leader, rival = ("fedvs-full", "fedvs") if "fedvs-full" in runs else ("vflhlp", "vfl")
    mine = runs[leader]
    rows, said = [[f"{NAMES[leader]} minus", *map(str, sorted(mine))]], []
    best: dict[int, tuple[float, str]] = {}
    for name, own in runs.items():
        if name == leader:
            continue
        cells = []
        for size in sorted(mine):
            theirs = own.get(size) or (next(iter(own.values())) if name == "local" else None)
            cells.append(
                "-" if theirs is None else signed(*difference(mine[size], theirs), digits=3)
            )
            if theirs is not None and name.startswith("fedhssl"):
                best[size] = max(best.get(size, (0.0, "")), (theirs["mean"], name))
        rows.append([NAMES.get(name, name), *cells])
    if rival in runs:
        found = {size: difference(mine[size], runs[rival][size]) for size in sorted(mine)}
        said.append(f"{NAMES[leader]} against {NAMES[rival]}: {verdict(found)}")
    if "local" in runs:
        alone = next(iter(runs["local"].values()))
        found = {size: difference(mine[size], alone) for size in sorted(mine)}
        said.append(f"{NAMES[leader]} against {NAMES['local']}: {verdict(found)}")
    if best:
        found = {size: difference(mine[size], runs[best[size][1]][size]) for size in sorted(best)}
        kinds = [name for name in runs if name.startswith("fedhssl")]
        which = NAMES[kinds[0]] if len(kinds) == 1 else "the best FedHSSL here"
        said.append(f"{NAMES[leader]} against {which}: {verdict(found)}")
    for name in ("vflhlp-a", "vflhlp-p"):  # the ablation: both parts together are said to be best
        if name in runs and leader == "vflhlp":
            found = {size: difference(mine[size], runs[name][size]) for size in sorted(mine)}
            said.append(f"VFLHLP against {NAMES[name]}: {verdict(found)}")
    return table(rows), said


def verdict(found: dict[int, tuple[float, float]]) -> str:
    """In plain words, from differences and half intervals by size."""
    sure = [size for size, (mean, half) in found.items() if mean > half]
    against = [size for size, (mean, half) in found.items() if mean < -half]
    open_ = [size for size in found if size not in sure and size not in against]
    if len(sure) == len(found):
        return "above at every number of aligned rows."
    parts = []
    if sure:
        parts.append(f"above at {listed(sure)} aligned rows")
    if against:
        parts.append(f"below at {listed(against)}")
    if open_:
        more = [size for size in open_ if found[size][0] > 0]
        which = f"; the mean is above at {listed(more)}" if more else ""
        parts.append(f"not decided at {listed(open_)} (the interval holds 0{which})")
    return "; ".join(parts) + "."


def listed(sizes: list[int]) -> str:
    words = [str(size) for size in sizes]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def section(name: str, content: dict[str, Any]) -> tuple[str, list[str]]:
    contents = [each for part in (name, f"{name}-alone") if (each := load(RESULTS / part))]
    for more in contents[1:]:  # Local-A at the best of more pairs
        content = content | {"runs": content["runs"] | more["runs"]}
    measure, runs = measured(content)
    shown = {"auc": "AUC"}.get(measure, measure)
    planned = tomllib.loads((STUDIES / f"{name}.toml").read_text())["aligned"]
    left = [size for size in planned if size not in runs["vflhlp"]]
    form = f" This is the quick form; the full one has {listed(left)} besides." if left else ""
    lines = [
        f"## {content['title']}",
        "",
        f"Held-out {shown}. Paper: {content['paper']['source']}.{form}",
        "",
    ]
    lines += [*values(content, runs), ""]
    differences, said = compared(runs)
    lines += [*differences, "", *(f"- {each}" for each in said), *ours(*contents), ""]
    lines += tried_ends(name)
    lines += [f"![{content['title']}](../{RESULTS / name}/curves.png)", ""]
    return "\n".join(lines), [f"- {content['title']}", *(f"  - {each}" for each in said)]


def tried_ends(name: str) -> list[str]:
    """Chosen options of a table that are the lowest or highest of what was tried."""
    path = RESULTS / "rates" / f"{name.removesuffix('-between')}.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())["runs"]
    own = {NAMES.get(label, label): ends(run["tried"], run["best"]) for label, run in found.items()}
    said = (f"{label} {', '.join(words)}" for label, words in own.items() if words)
    return [f"Ends of what was tried: {'; '.join(said)}.", ""]


def page() -> str:
    parts, summary = [], []
    for name in ORDER:
        content = load(RESULTS / name)
        if content is None:
            summary.append(f"- `{name}`: not run here.")
            continue
        text, said = section(name, content)
        parts.append(text)
        summary += said
    return "\n".join([HEAD, "## What was found", "", *summary, "", *parts])
