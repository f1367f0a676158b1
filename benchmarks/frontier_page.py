"""Draw the pictures of benchmarks/frontier.py and write docs/results-sums.md from its results.

Run it from the repository's root after a study: ``python benchmarks/frontier_page.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pages import signed, table

RESULTS = Path("benchmarks/results/sums")
PAGE = Path("docs/results-sums.md")
SETS = ("digits", "breast-cancer", "credit-card", "handwritten", "fashion-mnist")
COLOURS = {1: "black", 2: "#0072b2", 4: "#009e73", 8: "#e69f00", 16: "#d55e00", 64: "#cc79a7"}
T95 = 2.776  # of five seeds

HEAD = """# Accuracy against what the sums release of a row

The server of `fedvs`, `coded_split` and `secagg_split` gets h numbers of the joint embedding at
each visit of a row: h equations about it. After E epochs there are E h, and a row has as many
unknowns as the columns of all parties have dimensions, d; while E h is below d, not even who knows
all weights can solve for a row by them alone. Columns depend on each other, so few numbers may say
much: the tables' last column is the median over columns of the part of a column's variance that
lies in the space of the sums. The pictures show what accuracy is left.

Training is that of `securevfl run split` with the same options, step by step (losses are equal to
the last bit; trainings side by side differ in the order of additions). The server's model is the
default `mlp`, by Adam; the clients' models step by Adam, or by plain SGD as those of
`coded_split` do. Rates are constant. Batch (32 or 128 on breast-cancer, 64 on Fashion-MNIST, else
32), the clients' optimiser and both rates of each point were chosen on a fifth of the training rows
that was held back; the test rows saw five trainings of what was chosen. Rates: 6 pairs of Adam and
4 of SGD on breast-cancer, 3 and 1 elsewhere. On digits, credit-card and handwritten, lines with a
rotation have the choices of the same line without, which suit them less; where one collapses, as
digits at D = 1, that may be why. Lines of few epochs end
where training was ended, not where accuracy does: 10 epochs on handwritten, 8 on Fashion-MNIST,
which has no lines of D = 1 with a rotation. Accuracy is in per cent, mean and 95 % t interval of
five seeds. The grey line is h = 64, D = 2, 500 rounds of 128, Adam at 0.01, whatever that releases;
its rates were not tuned.

Red marks say how many columns the attack `squares` finds, with correlation above 0.95, in the space
of the sums of 300 rows, if all visits of an epoch were under one model: more than a server of
reshuffled batches has. It was tried on the lines of D = 2 and h = 8 and more,
at the last point and at the last one with E h at most d, where that space has at most 62
dimensions, of breast-cancer and digits.
`benchmarks/frontier_page.py` writes this page.
"""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half of the 95 % t interval of five seeds, in per cent."""
    own = 100 * np.array(values)
    return float(own.mean()), float(T95 * own.std(ddof=1) / math.sqrt(len(own)))


def draw(name: str, content: dict[str, Any]) -> None:
    """The picture of a set: panels by degree and rotation, lines by width."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 7), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, degree in enumerate((2, 1)):
        for column, rotation in enumerate((False, True)):
            axes = panels[row][column]
            kind = degree, rotation
            own = [one for one in content["lines"] if (one["degree"], one["rotation"]) == kind]
            _panel(axes, own, content)
            turned = "secret rotation" if rotation else "no rotation"
            axes.set_title(f"D = {degree}, {turned}", fontsize=10)
    d = content["unknowns"]["d"]
    for axes in panels[1]:
        axes.set_xlabel(f"equations about a row / unknowns, E h / d; d = {d}")
    for axes in panels[:, 0]:
        axes.set_ylabel("test accuracy (%)")
    panels[0][0].set_ylim(*_range(content))
    _legend(figure, content)
    rows = f"{content['rows']} training rows, {content['parties']} parties"
    figure.suptitle(f"{name}: {rows}; mean and 95 % interval of five seeds", fontsize=11)
    figure.savefig(RESULTS / f"frontier-{name}.png", dpi=90)


def _range(content: dict[str, Any]) -> tuple[float, float]:
    """Accuracies to show: all means, and a little more."""
    means = [interval(v)[0] for line in content["lines"] for v in line["test"].values()]
    means.append(interval(content["reference"]["test"])[0])
    room = 0.08 * (max(means) - min(means))
    return min(means) - room, max(means) + room


def _panel(axes: Any, lines: Sequence[dict[str, Any]], content: dict[str, Any]) -> None:
    mean, half = interval(content["reference"]["test"])
    axes.axhspan(mean - half, mean + half, color="0.85", zorder=0)
    axes.axhline(mean, color="0.55", linewidth=1, zorder=0)
    axes.axvline(1, color="black", linewidth=1, linestyle="--", zorder=0)
    for line in lines:
        x = [released(line, E, content) for E in line["test"]]
        y, band = np.array([interval(values) for values in line["test"].values()]).T
        colour = COLOURS[line["width"]]
        axes.plot(x, y, color=colour, marker=".", linewidth=1.2)
        axes.fill_between(x, y - band, y + band, color=colour, alpha=0.12, linewidth=0)
        if len(x) == 1:
            axes.errorbar(x, y, band, color=colour, capsize=2, linewidth=1)
        for E, one in line.get("attack", {}).items():
            if one.get("above 0.95"):
                at = list(line["test"]).index(E)
                axes.plot(x[at], y[at], marker="x", color="red", markersize=7, zorder=5)
                axes.annotate(str(one["above 0.95"]), (x[at], y[at]), xytext=(4, -11),
                              textcoords="offset points", color="red", fontsize=8)  # fmt: skip
    if not lines:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color="0.5")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def released(line: dict[str, Any], epochs: str, content: dict[str, Any]) -> float:
    """E h / d of a point."""
    return float(int(epochs) * line["width"] / content["unknowns"]["d"])


def _legend(figure: Any, content: dict[str, Any]) -> None:
    from matplotlib.lines import Line2D

    widths = sorted({line["width"] for line in content["lines"]})
    handles = [Line2D([], [], color=COLOURS[h], marker=".", label=f"h = {h}") for h in widths]
    ratio = content["reference"]["epochs"] * 64 / content["unknowns"]["d"]
    words = f"h = 64, D = 2, 500 rounds of 128: E h / d = {ratio:.3g}"
    handles.append(Line2D([], [], color="0.7", linewidth=4, label=words))
    words = "as many equations as unknowns"
    handles.append(Line2D([], [], color="black", linestyle="--", label=words))
    if any(one.get("above 0.95") for line in content["lines"] for one in _attacks(line)):
        words = "columns found (correlation above 0.95)"
        handles.append(Line2D([], [], color="red", marker="x", linestyle="", label=words))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)


def _attacks(line: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return list(line.get("attack", {}).values())


def figures(content: dict[str, Any]) -> list[str]:
    """A table of each line's last point with at most as many equations as unknowns."""
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
    """A set's picture and table."""
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
    """Accuracy of one rule for all sets, beside that of the grey line."""
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
    """Accuracy of FedVS itself at its defaults, beside the paper's settings."""
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
    """Measures of a set."""
    content: dict[str, Any] = json.loads((RESULTS / f"frontier-{name}.json").read_text())
    return content


def main() -> None:
    """Write the page."""
    PAGE.write_text("\n".join([HEAD, defaults(), rule(), *map(section, SETS)]))


if __name__ == "__main__":
    for name in SETS:
        draw(name, found(name))
    main()
