"""Write docs/results-attacks.md from the committed results under benchmarks/results/privacy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pages import made_by, means, table

RESULTS = Path("benchmarks/results/privacy")
PAGE = Path("docs/results-attacks.md")
ORDER = ("digits", "handwritten", "credit-card")

HEAD = """# The matrix of attacks, measured

Success, chance in brackets, means over seeds; **bold** where the 95 % interval of success minus
chance lies above 0; "-" where the role sees nothing that the attack could use (the reasons are in
the JSON). What the attacks are, what they know and how success is counted is in
[attacks.md](attacks.md). Conditions "paper"; times are virtual; bytes are those of open links. To
repeat one: `python benchmarks/privacy.py attacks --data NAME`, of coded_split `coded` in the place
of `attacks`. `benchmarks/attacks_page.py` writes this page. Each table says of which commit it
is; FedVS stands in those of all methods and in that of coded_split.
"""

NOTHING_KNOWN = """## What the server finds with nothing known

`python benchmarks/sums.py` ({commits}), the first 12 rounds at width 64, degree 2, batches of 128
rows and no budget; the optimiser is the default, Adam. Of credit-card 2,400 rows and 48 rounds, so
that batches have rows in common. The server knows no row, no weight and no label.
Columns with a correlation above 0.999, 0.99 and 0.95 to a guess, and elements within 0.001 after
scaling by minimum and maximum, the better of a guess and its mirror image; means of the seeds.
`coded_split` rounds columns to 1/256 = 0.004. "-": the sums do not determine the space, and the
JSON says why.
"""
OTHERS = """**Inner products and other rows.** X X^T of whole batches of `coded_split` (K = 1), and
rows of the test split with their labels; the part of the squared error that is explained, and by
the means of the classes alone (chance):
"""
SHORT = """**Fewer sums than the space has dimensions.** Wine, r = 27 with the ones, c sums of each
of 178 rows by random weights, 60 tries each; columns of 13 with a correlation above 0.95
once the missing dimensions are fitted, those among the 13 best directions before (near alone), and
of 13 random directions:
"""
COMPLETION = """**Completion over reshuffled epochs.** FedVS at K = 1, D = 2, h below r and no
budget; all rows and the weights of all batches are fitted in turns, 300 times, the rank r being
known. Net equations are those left after the weights; where they are fewer than the unknown numbers
of the space ("of"), they cannot do. "Outside" is the part of the columns' variance outside the
space that was found; "misfit" is the root of what the fit leaves of the sums' squares, where it was
recorded. Columns are those read off the space above 0.95:
"""
COALITIONS = """## What each coalition gains from coded_split

`python benchmarks/coalitions.py`, whose JSON names the commit of each part.

**The server, epoch by epoch.** Its own steps and the decoded sums are linear equations in the inner
products of rows. Solved modulo 2^61-1 for each of some rows by itself, batches of a part of the
rows. They come out in the epoch in which the equations reach M, and none before; a
row some of whose equations are dependent takes an epoch more:
"""
BY_RANK = """**By rank.** The Gram matrix has the rank of the columns. Where a batch has all rows,
the whole of X X^T comes out as soon as (E - 1) h exceeds that rank. Then as many known rows as
columns give all others, and independent component analysis (ICA) gives columns that are nearly
independent. Elements within 0.001, columns with a correlation of at least 0.95:
"""
FEDVS = """The same attack on masked FedVS with SGD, whose sums are rounded (the rank being known):
relative errors of X X^T by epochs, and those after ten rounds of all rows at h = 64, of X X^T and
the median of distances, at the default field and at one whose rounding is finer (20 and 24 bits):
"""
HOLDERS = """**Holders.** What coalitions decode from their shares of another owner's data and
first model, and of a step, in a run on digits (D = 2, h = 32); p is of a chi-square test of the
shares of the step that they hold, in 64 classes. T + 1 with K = 2 decode one combination of
two segments; the matrix above says how many short values follow from it. The server with T holders
has the sums and what T holders have, which is uniform; with T + 1 it has what they have.
"""
LABELS = """**Labels.** One epoch in batches of 64, 640 rows at most, so that
many seeds are cheap (credit-card: 2000 rows, four epochs and 5 seeds, for its rare class). Low and
high are the 95 % interval of success less chance. A holder of coded_split has no gradient
and no model: attacks on gradients get its shares of the steps, and model completion its share of
the joint embedding beside its own columns, which alone are better.
"""
_ICA = ("ica_95", "ica_columns")
_KNOWN = ("rank", "epochs", "known", "known_found", "half_known", "half_known_found")
_SPACE = ("data", "h", "batch", "epochs", "rank")
# Of each file: words, the parts of the file that a table is of, what its rows are, their values.
SUMS = (
    (NOTHING_KNOWN, ("squares",), ("data", "method", "K"),
     ("above_999", "above_99", "above_95", "columns", "elements")),
    (OTHERS, ("others",), ("data", "degree"), ("success", "chance")),
    (SHORT, ("short",), ("c",), ("above", "near_alone", "random")),
    (COMPLETION, ("epochs",), _SPACE,
     ("net_equations", "of", "outside", "chance", "misfit", "above_95", "columns")),
)  # fmt: skip
GAINS = (
    (COALITIONS, ("gram",), ("data", "M", "h", "batch", "epochs", "equations"), ("exact", "tried")),
    (BY_RANK, ("rank", "independent"), ("data", "rows", "h"), (*_KNOWN, *_ICA)),
    (FEDVS, ("fedvs",), ("data", "h", "rank", "epochs"), ("error",)),
    ("", ("ten_rounds",), ("data", "p"), ("error", "error_of_distances")),
    (HOLDERS, ("holders",), ("K", "T", "N", "holders"),
     ("combinations", "data", "first_models", "steps", "p_uniform")),
    (LABELS, ("labels",), ("data", "protocol", "attack"), ("success", "chance", "low", "high")),
)  # fmt: skip


def cell(found: dict[str, Any]) -> str:
    if found["success"] is None:
        return "FAILED" if found["verdict"] == "FAILED" else "-"
    text = f"{found['success']:.2f} ({found['chance']:.2f})".replace("-0.00", "0.00")
    return f"**{text}**" if found["verdict"] == "above chance" else text


def figure(entry: dict[str, Any] | None, name: str) -> str:
    if entry is None:
        return "-"
    mean, half = entry["mean"], entry["half_width_95"]
    if name == "bytes":
        return f"{mean / 1e6:.0f} MB"
    if name == "virtual_seconds":
        return f"{mean:.0f} s"
    scale, unit = (100, " %") if name == "test_accuracy" else (1, "")
    spread = "" if half is None else f" ± {scale * half:.{1 if scale > 1 else 3}f}"
    return f"{scale * mean:.{1 if scale > 1 else 3}f}{spread}{unit}"


def matrix(content: dict[str, Any]) -> list[str]:
    """Table of one data set: a column a method; rows for accuracy and cost, then for attacks."""
    labels, cells = content["labels"], content["cells"]
    rows = [["", *(f"`{label}`" for label in labels)]]
    names = {
        "test_accuracy": "test accuracy",
        "test_auc": "test AUC",
        "virtual_seconds": "virtual time",
        "bytes": "sent",
    }
    for name, word in names.items():
        entries = [content["figures"][label].get(name) for label in labels]
        if any(entry is not None for entry in entries):
            rows.append([word, *(figure(entry, name) for entry in entries)])
    for attack in dict.fromkeys(c["attack"] for c in cells):
        own = {c["protocol"]: c for c in cells if c["attack"] == attack}
        rows.append([attack, *(cell(own[label]) for label in labels)])
    return table(rows)


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def section(name: str, file: str, title: str) -> list[str]:
    content = read(file)
    settings = content["settings"]
    options = ", ".join(f"{k} {v}" for k, v in settings["options"].items())
    rows = settings["attackers"]["rows"]
    used = "all training rows" if rows is None else f"{rows} training rows"
    return [
        f"## {title}",
        "",
        f"{len(settings['seeds'])} seeds; {used}; {options}. Commit `{content['commit']}`.",
        "",
        *matrix(content),
        "",
        f"![{name}](../{RESULTS}/{file}.png)",
        "",
    ]


def tables(found: dict[str, Any], parts: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of text and tables; `found` has rows by table, a part is (words, tables, by, values).

    Each part's words stand above the `means` of the rows of its tables.
    """
    lines: list[str] = []
    for words, names, by, values in parts:
        rows = [row for name in names for row in found.get(name, [])]
        head = words.replace("{commits}", made_by(found, rows)) if "{commits}" in words else words
        lines += [*head.splitlines(), "", *means(rows, by, values), ""]
    return lines


def page() -> str:
    """Markdown of the page."""
    lines = tables(read("sums"), SUMS)
    for coded in (True, False):
        for name in ORDER:
            file = f"attacks-{'coded-' * coded}{name}"
            if (RESULTS / f"{file}.json").exists():
                title = f"{name}: coded_split beside FedVS" if coded else f"{name}: all methods"
                lines += section(name, file, title)
        if coded:
            lines += tables(read("coalitions"), GAINS)
    return HEAD + "\n" + "\n".join(lines).rstrip() + "\n"
