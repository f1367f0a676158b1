"""Write docs/results-label-partitioned.md from the committed results of CVFL and Multi-VFL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pages import ends, load, ours, percent, signed, table
from stored import (
    EVEN_PACE,
    at_times,
    final,
    last_loss,
    over_time,
    parts,
    stops,
    time_saved,
    values,
    ways,
)
from stored import runs as told

from securevfl.studies.intervals import mean_interval, paired_difference

RESULTS = Path("benchmarks/results")
PAPERS = Path("benchmarks/papers")
PAGE = Path("docs/results-label-partitioned.md")
MULTIVFL = (
    "as-printed-mnist",
    "convolutions-mnist",
    "as-printed-fashion-mnist",
    "figures-2-3-mnist",
    "figures-2-3-fashion-mnist",
)
SETS = ("mnist", "fashion-mnist", "cifar10")
NAMES = {
    "q1": "q = 1",
    "q3": "q = 3",
    "auto": "q = auto",
    "q1-lr3": "3 x lr, q = 1",
    "q1-best": "q = 1, own rate",
    "q3-best": "q = 3, own rate",
}
WAYS = ("waits", "last", "without")  # of doing with slow passive parties
# Kinds that are compared: at one rate with q = 1, and each at the rate of validation rows.
PAIRS = (("q3", "q1"), ("auto", "q1"), ("q1-lr3", "q1"), ("q3-best", "q1-best"))

HEAD = """# Labels held by several parties: ours beside the papers'

Every study is a file in `benchmarks/papers/cvfl/` or `benchmarks/papers/multivfl/`, with all values
that the papers leave open listed as ours; results with machine, versions, commit and seeds are in
`benchmarks/results/`. To repeat one: `securevfl study benchmarks/papers/cvfl/NAME.toml` (`--quick`
ends in minutes). Values are held-out accuracy in per cent, mean and 95 % t interval over seeds;
differences are paired by seed, and bold where the interval leaves out 0. What the methods are is in
[label-partitioned.md](label-partitioned.md). `benchmarks/label_page.py` writes this page.

In CVFL's Table 2 on MNIST and Fashion-MNIST, in its Figure 2, in its Figures 3 to 6 on
Fashion-MNIST and CIFAR-10 and with slow passive parties, rates were chosen on validation rows of
another seed, where the page says so. In all other studies none were held out: what is called ours
was set by hand, and where one value was the best of several, by test rows.
"""


def difference(content: dict[str, Any], one: str, two: str, measure: str, scale: float) -> str:
    """Mean of ``one - two`` over the seeds that both have."""
    own, other = (
        dict(zip(run["seeds"], run[measure]["values"], strict=True))
        for run in (content["runs"][label] for label in (one, two))
    )
    both = sorted(own.keys() & other.keys())
    values = [own[seed] for seed in both], [other[seed] for seed in both]
    return signed(*(scale * x for x in paired_difference(*values)))


def table_2(found: dict[str, dict[str, Any]]) -> list[str]:
    """Accuracy of all ways, with the paper's."""
    rows = [["", *(f"{name} {who}" for name in found for who in ("ours", "paper"))]]
    for label in ("centralised", "cvfl", "cvfl-sync", "single"):
        cells = []
        for content in found.values():
            paper = content["paper"].get(label, {}).get("accuracy")
            cells += [percent(content["runs"][label]["test_accuracy"]),
                      "-" if paper is None else f"{paper:.2f}"]  # fmt: skip
        rows.append([label, *cells])
    for one, two in (("centralised", "cvfl"), ("cvfl", "single")):
        cells = []
        for content in found.values():
            papers = [content["paper"][label]["accuracy"] for label in (one, two)]
            cells += [
                difference(content, one, two, "test_accuracy", 100),
                f"{papers[0] - papers[1]:+.2f}",
            ]
        rows.append([f"{one} minus {two}", *cells])
    return table(rows)


def async_table(names: Sequence[str]) -> list[str]:
    """One row a data set: time that asynchrony saves until the stop loss, in per cent of sync's."""
    papers = {"mnist": "20.1", "fashion-mnist": "57.1", "cifar10": "20.4"}
    rows = [["", "stop loss", "both with", "% earlier", "at 5 updates to 4", "paper, %"]]
    for name in names:
        loss = stops()[name]["stop"]
        for how, both in ways(name).items():
            saved = (time_saved(*both, loss, "", pace=pace) for pace in (None, EVEN_PACE))
            earlier = (
                "not reached" if each is None else signed(each.mean, each.half, digits=1)
                for each in saved
            )  # fmt: skip
            rows.append([name, f"{loss:g}", how, *earlier, papers[name]])
    return table(rows)


def own_rates(content: dict[str, Any]) -> list[str]:
    """Rates of the runs that have one of their own, and what was tried; nothing without any."""
    if "chosen" not in content:
        return []
    said = []
    for label, run in content["chosen"]["runs"].items():
        end = ends(run["tried"], run["options"])
        failed = [f"{one['lr']:g}" for one in run["tried"] if one["mean"] is None]
        words = [f"{run['options']['lr']:g}", *(each.split(" ", 2)[2] for each in end)]
        words += [f"({', '.join(failed)} diverged)"] if failed else []
        said.append(f"{label} {' '.join(words)}")
    tried = {one["lr"] for run in content["chosen"]["runs"].values() for one in run["tried"]}
    rates = ", ".join(f"{rate:g}" for rate in sorted(tried))
    return [f"Own rates, the best of {rates} on validation rows: {'; '.join(said)}.", ""]


def exponents(name: str) -> list[str]:
    """Final test losses of all kinds, and the differences of `PAIRS`."""
    study = f"cvfl/figures-3-6-{name}"
    final = {run: list(last_loss(study, run).values()) for run in told(study)}
    errors = {run: len(own.get("errors", ())) for run, own in told(study).items()}
    runs = list(final)
    kinds = [kind for kind in NAMES if any(run.endswith(f"-{kind}") for run in runs)]
    pairs = [pair for pair in PAIRS if set(pair) <= set(kinds)]
    minus = (f"{NAMES[one]} minus {NAMES[two]}" for one, two in pairs)
    rows = [["test loss", *(NAMES[kind] for kind in kinds), *minus]]
    for case in dict.fromkeys("-".join(run.split("-")[:2]) for run in runs):
        values = {kind: final[f"{case}-{kind}"] for kind in kinds}
        failed = {kind: errors[f"{case}-{kind}"] for kind in kinds}
        cells = [loss_cell(values[kind], failed[kind]) for kind in kinds]
        # A mean over the seeds that did not diverge would flatter.
        cells += [
            "-" if failed[one] or failed[two]
            else signed(*paired_difference(values[one], values[two]), digits=3)
            for one, two in pairs
        ]  # fmt: skip
        rows.append([case.replace("-", ", ") + " % slower", *cells])
    return table(rows)


def loss_cell(values: list[float], failed: int) -> str:
    """Mean loss with its interval, or how many seeds diverged."""
    if failed:
        return f"diverged on {failed} of {failed + len(values)} seeds"
    mean, half = mean_interval(values)
    return f"{mean:.3f} ± {half:.3f}"


def slow_passive(name: str) -> list[str]:
    """Accuracy at equal times of all ways to do with slow passive parties, and differences."""
    found = at_times(f"cvfl/slow-passive-{name}")
    times = sorted({time for _, time in found})
    rows = [["slower", "way", *(f"{time:g} s" for time in times)]]
    for slower in ("50", "95"):
        for way in WAYS:
            values = ([100 * v for v in found[f"{way}-{slower}", time].values()] for time in times)
            cells = [f"{mean:.2f} ± {half:.2f}" for mean, half in map(mean_interval, values)]
            rows.append([f"{slower} %", way, *cells])
        others = {f"{way}-{slower}": way for way in ("waits", "without")}
        others[f"without-{slower}-same"] = "without, at the rate of last"
        for other, words in others.items():
            pairs = over_time(f"cvfl/slow-passive-{name}", f"last-{slower}", other)
            cells = [signed(each.mean, each.half, digits=1) for each in pairs]
            if cells:
                rows.append([f"{slower} %", f"last minus {words}", *cells])
    runs = told(f"cvfl/slow-passive-{name}")
    failed = [f"{run} on {len(own['errors'])} of {len(own['errors']) + len(own['seeds'])} seeds"
              for run, own in runs.items() if own.get("errors")]  # fmt: skip
    left_out = ["", f"Diverged, and left out: {', '.join(failed)}."] if failed else []
    return [*table(rows), *left_out]


def optimisers(study: str) -> list[str]:
    """Accuracy of each run, and the difference to the run with FedAvg at 4niid."""
    base = "fedavg-4niid"
    rows = [["run", "accuracy", f"minus {base}"]]
    contents = [content for part in parts(study) if (content := load(RESULTS / part))]
    for label in sorted(dict.fromkeys(run for each in contents for run in each["runs"]), key=order):
        mean, half = mean_interval([100 * value for value in values(study, label).values()])
        found = final(study, label, base)
        last = "-" if label == base else signed(found.mean, found.half)
        rows.append([label, f"{mean:.2f} ± {half:.2f}", last])
    pictures = (picture(each["title"], f"multivfl/{each['name']}") for each in contents)
    return [*table(rows), *ours(*contents), *(line for each in pictures for line in each)]


def order(label: str) -> tuple[bool, str]:
    """FedAvg first, by partition; the others as they were run."""
    mean = label.startswith("fedavg")
    return not mean, label if mean else ""


def picture(title: str, folder: str, name: str = "curves.png") -> list[str]:
    return ["", f"![{title}](../{RESULTS}/{folder}/{name})", ""]


def page() -> str:
    """The page."""
    notes = {p: json.loads((PAPERS / p / "notes.json").read_text()) for p in ("cvfl", "multivfl")}
    lines = [HEAD]
    found = {name: load(RESULTS / "cvfl" / f"table-2-{name}") for name in SETS}
    there = {name: content for name, content in found.items() if content is not None}
    if there:
        lines += ["## CVFL, Table 2", "", notes["cvfl"]["table-2"], "", *table_2(there)]
        for name, content in there.items():
            lines += [*ours(content), *picture(f"Table 2, {name}", f"cvfl/table-2-{name}")]
        lines += ["## CVFL, Figure 2: asynchronous against in step", "", notes["cvfl"]["figure-2"]]
        lines += ["", *async_table(SETS), ""]
        for name in SETS:
            studies = (f"figure-2-{name}{part}" for part in ("", "-adam"))
            contents = [each for one in studies if (each := load(RESULTS / "cvfl" / one))]
            lines += [*ours(*contents)]
            lines += picture(f"CVFL, Figure 2, {name}", f"cvfl/figure-2-{name}", "losses.png")
    for name in SETS:
        content = load(RESULTS / "cvfl" / f"figures-3-6-{name}")
        if content is not None:
            title = f"CVFL, Figures 3 to 6: the exponent q, {name}"
            lines += [f"## {title}", "", notes["cvfl"].get(f"figures-3-6-{name}", ""), ""]
            lines += [*exponents(name), "", *own_rates(content), *ours(content)]
            lines += picture(title, f"cvfl/figures-3-6-{name}", "exponents.png")
    lines += ["## CVFL, slow passive parties", "", notes["cvfl"]["slow-passive"], ""]
    for name in SETS:
        content = load(RESULTS / "cvfl" / f"slow-passive-{name}")
        if content is not None:
            lines += [f"### {name}", "", *slow_passive(name), "", *own_rates(content)]
            lines += [*ours(content), *picture(content["title"], f"cvfl/slow-passive-{name}")]
    for study in MULTIVFL:
        content = load(RESULTS / "multivfl" / study)
        if content is not None:
            lines += [f"## {content['title']}", "", notes["multivfl"].get(study, ""), ""]
            lines += optimisers(f"multivfl/{study}")
    return "\n".join(lines).rstrip() + "\n"
