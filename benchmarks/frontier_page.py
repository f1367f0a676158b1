"""Write docs/results-sums.md from the results of benchmarks/frontier.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pages import signed, table

from securevfl.studies.intervals import mean_interval

RESULTS = Path("benchmarks/results/sums")
PAGE = Path("docs/results-sums.md")
SETS = ("digits", "breast-cancer", "credit-card", "handwritten", "fashion-mnist")

HEAD = """# Accuracy against what the sums release of a row

The server of `fedvs`, `coded_split` and `secagg_split` gets h numbers of the joint embedding at
each visit of a row: h equations about it. After E epochs there are E h, and a row has as many
unknowns as the columns of all parties have dimensions, d; while E h is below d, not even who knows
all weights can solve for a row by them alone. Columns depend on each other, so few numbers may say
much: the tables' last column is the median over columns of the part of a column's variance that
lies in the space of the sums. The pictures show what accuracy is left.

Training is that of `securevfl run split` with the same options, step by step, up to the order of
additions. The server's model is the default `mlp`, by Adam; the clients' models step by Adam, or by
plain SGD as those of `coded_split` do. Rates are constant. Batch (32 or 128 on breast-cancer, 64 on
Fashion-MNIST, else 32), the clients' optimiser and both rates of each point were chosen on a fifth
of the training rows that was held back; the test rows saw five trainings of what was chosen. Rates:
6 pairs of Adam and 4 of SGD on breast-cancer, 3 and 1 elsewhere. On digits, credit-card and
handwritten, lines with a rotation have the choices of the same line without, which suit them less;
where one collapses, as digits at D = 1, that may be why. Lines of few epochs end where training was
ended, not where accuracy does: 10 epochs on handwritten, 8 on Fashion-MNIST. Accuracy is in per
cent, mean and 95 % t interval of five seeds. The grey line is h = 64, D = 2, 500 rounds of 128,
Adam at 0.01, whatever that releases; its rates were not tuned.

Red marks say how many columns the attack `squares` finds, with correlation above 0.95, in the space
of the sums of 250 rows, if all visits of an epoch were under one model: more than a server of
reshuffled batches has. It was tried at each point, by one training, where that space has at most 62
dimensions; in larger ones a search takes minutes a start, and no column was searched ("-").
`benchmarks/frontier_page.py` writes this page.
"""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of the 95 % t interval of some values, in per cent."""
    return mean_interval(100 * np.array(values))


def released(line: dict[str, Any], epochs: str, content: dict[str, Any]) -> float:
    """Equations per unknown, E h / d, at a point of a line."""
    return float(int(epochs) * line["width"] / content["unknowns"]["d"])


def figures(content: dict[str, Any]) -> list[str]:
    """Table with the last point of each line that has at most as many equations as unknowns."""
    before = content["reference"]["test"]
    head = ["D", "rotation", "h", "epochs", "E h / d", "accuracy", "less than the grey line",
            "columns found", "median part of a column in the space"]  # fmt: skip
    rows = [head]
    for line in content["lines"]:
        within = [E for E in line["test"] if released(line, E, content) <= 1]
        if not within:
            continue
        E = within[-1]
        mean, half = interval(line["test"][E])
        less = interval(np.array(line["test"][E]) - before)
        attack = line.get("attack", {}).get(E, {})
        found = [str(attack.get("above 0.95", "-")), str(attack.get("explained", "-"))]
        turned = "secret" if line["rotation"] else "none"
        rows.append([str(line["degree"]), turned, str(line["width"]), E,
                     f"{released(line, E, content):.2f}", f"{mean:.1f} ± {half:.1f}",
                     signed(*less, 1), *found])  # fmt: skip
    return table(rows)


def section(name: str) -> str:
    """Heading, picture and table of a data set."""
    content = found(name)
    known = content["unknowns"]
    mean, half = interval(content["reference"]["test"])
    words = (
        f"{content['rows']} training and {content['test_rows']} test rows, {content['parties']} "
        f"parties, {known['columns']} columns: d = {known['d']}, and with squares and ones "
        f"{known['r2']}. Grey: {mean:.1f} ± {half:.1f} after "
        f"{content['reference']['epochs']} epochs."
    )
    picture = f"![{name}](../{RESULTS}/frontier-{name}.png)"
    return "\n".join([f"## {name}", "", words, "", picture, "", *figures(content), ""])


def rule() -> str:
    """Table of accuracy with one rule for all data sets, beside that of `reference`."""
    content = json.loads((RESULTS / "rule.json").read_text())
    rows = [["set", "rows", "h", "epochs", "batch", "rounds", "D", "rotation", "accuracy",
             "less the grey line's"]]  # fmt: skip
    for name, one in content["sets"].items():
        for run in one["runs"]:
            mean, half = interval(run["test"])
            less = interval(np.array(run["test"]) - one["reference"]["test"])
            turned = "secret" if run["rotation"] else "none"
            numbers = [str(one[k]) for k in ("rows", "width", "epochs", "batch", "rounds")]
            rows.append([name, *numbers, str(run["degree"]), turned,
                         f"{mean:.1f} ± {half:.1f}", signed(*less, 2)])  # fmt: skip
    words = (
        f"With E h at most d throughout: {content['rule']}. The rates, the fall and small batches "
        "were chosen on held-back rows of the same sets."
    )
    return "\n".join(["## One rule for all", "", words, "", *table(rows), ""])


def defaults() -> str:
    """Table of accuracy of FedVS at its defaults, beside the paper's settings."""
    content = json.loads((RESULTS / "defaults.json").read_text())
    rows = [["set", "h", "batch", "steps", "equations / unknowns", "accuracy", "--paper",
             "equations / unknowns", "ours less the paper's"]]  # fmt: skip
    for name, one in content["sets"].items():
        ours, paper = one["ours"], one["paper"]
        rows.append([
            name, *(str(ours[k]) for k in ("width", "batch", "steps")),
            f"{ours['equations']} / {ours['unknowns']}", "{} ± {}".format(*ours["accuracy"]),
            "{} ± {}".format(*paper["accuracy"]), f"{paper['equations']} / {paper['unknowns']}",
            "{:+} ± {}".format(*one["difference"]),
        ])  # fmt: skip
    words = (
        "`securevfl run fedvs` itself, K = 1, without delays, five seeds: with the sizes that it "
        "chooses (docs/sums.md), and with `--paper` (h = 64, D = 2, 500 rounds of 128). "
        "`benchmarks/default_sizes.py` made it. Small batches have a price in modelled time: under "
        "the conditions `paper` sharing a model is delayed log(N)^2 / |B| times as long as an "
        "upload, and a round waits for all shares, so a round of batches of 16 takes several "
        "times as long there as one of 128."
    )
    return "\n".join(["## The defaults, in FedVS itself", "", words, "", *table(rows), ""])


def found(name: str) -> dict[str, Any]:
    """Content of a data set's file of results."""
    content: dict[str, Any] = json.loads((RESULTS / f"frontier-{name}.json").read_text())
    return content


def page() -> str:
    """Markdown of the page."""
    return "\n".join([HEAD, defaults(), rule(), *map(section, SETS)])
