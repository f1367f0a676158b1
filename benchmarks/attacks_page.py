"""Write docs/results-attacks.md from the committed results under benchmarks/results/privacy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pages import made_by, table

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

COALITIONS = """## What each coalition gains from coded_split

`python benchmarks/coalitions.py` (commits {commits}).

**The server, epoch by epoch.** Its own steps and the decoded sums are linear equations in the inner
products of rows. Solved modulo 2^61-1 for each of some rows by itself, batches of a part of the
rows, {seeds} seeds. They come out in the epoch in which the equations reach M, and none before; a
row some of whose equations are dependent takes an epoch more:
"""

TEN_ROUNDS = """Masked FedVS with SGD at h = 64 after ten rounds of all rows of breast-cancer,
relative errors over 3 seeds, at the default field and at one whose rounding is finer (20 and 24
bits):"""
BY_RANK = """**By rank.** The Gram matrix has the rank of the columns. Where a batch has all rows,
the whole of X X^T comes out as soon as (E - 1) h exceeds that rank. Then as many known rows as
columns give all others, and independent component analysis (ICA) gives columns that are nearly
independent. Elements within 0.001, columns with a correlation of at least 0.95, means of {seeds}
seeds. The last columns have the relative error of the same attack on masked FedVS with SGD, whose
sums are rounded (the rank being known):
"""

HOLDERS = """**Holders.** What coalitions decode from their shares of another owner's data and
first model, and of a step, in a run on digits (D = 2, h = 32); p is of a chi-square test of the
shares of the step that T of them hold, in 64 classes. T + 1 with K = 2 decode one combination of
two segments; the matrix above says how many short values follow from it. The server with T holders
has the sums and what T holders have, which is uniform; with T + 1 it has what they have.
"""

LABELS = """**Labels, over {seeds} seeds.** One epoch in batches of 64, 640 rows at most, so that
many seeds are cheap (credit-card: 2000 rows, four epochs and 5 seeds, for its rare class). In
square brackets the 95 % interval of success less chance. A holder of coded_split has no gradient
and no model: attacks on gradients get its shares of the steps, and model completion its share of
the joint embedding beside its own columns, which alone are better.
"""


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
    """One column a method: what it reached and cost, then every attack on it."""
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


def of(rows: list[dict[str, Any]], *keys: str) -> list[list[dict[str, Any]]]:
    """Rows of all seeds together, by everything that says which they are."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(groups.values())


def mean(rows: list[dict[str, Any]], key: str) -> float:
    return sum(float(row[key]) for row in rows) / len(rows)


def server(found: dict[str, Any]) -> list[str]:
    """Tables of what the server solves for."""
    epochs = [["data", "M", "h", "rows a batch", "epochs", "equations", "rows exact", "of"]]
    for group in of(found["gram"], "data", "epochs"):
        one = group[0]
        counts = [sum(row[key] for row in group) for key in ("exact", "tried")]
        epochs.append([str(one[k]) for k in ("data", "M", "h", "batch", "epochs", "equations")])
        epochs[-1] += [str(count) for count in counts]
    head = ["data", "rows", "rank", "h", "epochs until exact", "known rows", "elements found"]
    head += ["known rows", "elements found", "columns by ICA", "FedVS: error then", "after 6"]
    ranks = [head]
    for group in of([*found["rank"], *found["independent"]], "data"):
        one, rough = group[0], [r for r in found["fedvs"] if r["data"] == group[0]["data"]]
        assert all(row["exact"] for row in group)
        then = [[r for r in rough if r["epochs"] == e] for e in (one["epochs"], 6)]
        ranks.append([
            one["data"], str(one["rows"]), f"{mean(group, 'rank'):.0f}", str(one["h"]),
            f"{mean(group, 'epochs'):.0f}", str(one["known"]), f"{mean(group, 'known_found'):.3f}",
            str(one["half_known"]), f"{mean(group, 'half_known_found'):.3f}",
            f"{mean(group, 'ica_95'):.0f} of {mean(group, 'ica_columns'):.0f}",
            *(f"{mean(rows, 'error'):.2f}" if rows else "-" for rows in then),
        ])  # fmt: skip
    seeds = len({row["seed"] for row in found["gram"]})
    made = ", ".join(f"`{one}`" for one in dict.fromkeys(found["commits"].values()))
    return [
        *COALITIONS.format(commits=made, seeds=seeds).splitlines(), "", *table(epochs),
        "", *BY_RANK.format(seeds=seeds).splitlines(), "", *table(ranks), "",
        *TEN_ROUNDS.splitlines(), "", *table(ten_rounds(found["ten_rounds"])), "",
    ]  # fmt: skip


def ten_rounds(found: list[dict[str, Any]]) -> list[list[str]]:
    """Smallest and largest errors of X X^T and of distances, by field."""
    rows = [["p", "X X^T", "distances, median"]]
    for group in of(found, "p"):
        cells = ([100 * row[key] for row in group] for key in ("error", "error_of_distances"))
        rows.append([group[0]["p"], *(f"{min(one):.2f} to {max(one):.2f} %" for one in cells)])
    return rows


def pooled(found: dict[str, Any]) -> list[str]:
    """Table of what holders decode."""
    rows = [["K", "T", "N", "holders", "combinations", "data", "first model", "steps", "p"]]
    for row in found["holders"]:
        within = row["holders"] == row["T"]
        rows.append([str(row[k]) for k in ("K", "T", "N", "holders", "combinations")])
        rows[-1] += [f"{row[k]:.0%}" for k in ("data", "first_models", "steps")]
        rows[-1].append(f"{row['p_uniform']:.2f}" if within else "")
    return [*HOLDERS.splitlines(), "", *table(rows), ""]


def labels(found: dict[str, Any]) -> list[str]:
    """Table of label inference over many seeds."""
    rows = [["data", "method", *dict.fromkeys(c["attack"] for c in found["labels"])]]
    for group in of(found["labels"], "data", "protocol"):
        rows.append([group[0]["data"], f"`{group[0]['protocol']}`"])
        for one in group:
            interval = "" if one["low"] is None else f" [{one['low']:.3f}, {one['high']:.3f}]"
            rows[-1].append(cell(one) + interval)
    seeds = max(cell["seeds"] for cell in found["labels"])
    return [*LABELS.format(seeds=seeds).splitlines(), "", *table(rows), ""]


NOTHING_KNOWN = """## What the server finds with nothing known

`python benchmarks/sums.py` ({commits}), the first 12 rounds at width 64, degree 2, batches of 128
rows and no budget; the optimiser is the default, Adam. Of credit-card 2,400 rows and 48 rounds, so
that batches have rows in common. The server knows no row, no weight and no label.
Columns with a correlation above 0.999, 0.99 and 0.95 to a guess, and elements within 0.001 after
scaling by minimum and maximum, the better of a guess and its mirror image; means of the seeds.
`coded_split` rounds columns to 1/256 = 0.004. As many random directions of the space have {chance}
columns above 0.95. "-": the sums do not determine the space, and the JSON says why.
"""

OTHERS = """**Inner products and other rows.** X X^T of whole batches of `coded_split` (K = 1), and
rows of the test split with their labels; the part of the squared error that is explained, and by
the means of the classes alone:
"""

SHORT = """**Fewer sums than the space has dimensions.** Wine, r = 27 with the ones, c sums of each
of 178 rows by random weights, 60 tries each, by seeds; columns of 13 with a correlation above 0.95
once the missing dimensions are fitted, those among the 13 best directions before, and of 13 random
directions:
"""


COMPLETION = """**Completion over reshuffled epochs.** FedVS at K = 1, D = 2, h below r and no
budget; all rows and the weights of all batches are fitted in turns, 300 times, the rank r being
known. Equations are those left after the weights, for each number of the space that is unknown;
below 1 they cannot do. "Outside" is the part of the columns' variance outside the space that was
found; "misfit" is the root of what the fit leaves of the sums' squares, at most, where it was
recorded. Columns are those read off the space above 0.95. By seeds:
"""


def completion(found: dict[str, Any]) -> list[str]:
    """Table of spaces that were fitted over epochs of reshuffled batches."""
    head = ["data", "h", "batch", "epochs", "r", "equations", "outside", "chance", "misfit",
            "columns"]  # fmt: skip
    lines = [head]
    own = [row for row in found.get("epochs", []) if row["outside"] is not None]
    for some in of(own, "data", "h", "batch", "epochs"):
        one, misfits = some[0], [row["misfit"] for row in some if "misfit" in row]
        lines.append([
            *(str(one[key]) for key in ("data", "h", "batch", "epochs", "rank")),
            f"{one['net_equations'] / one['of']:.1f}",
            ", ".join(f"{row['outside']:.3f}" for row in some), f"{one['chance']:.2f}",
            f"{max(misfits):.0e}" if misfits else "",
            ", ".join(str(row["above_95"]) for row in some),
        ])  # fmt: skip
    return [*COMPLETION.splitlines(), "", *table(lines)] if len(lines) > 1 else []


def nothing_known(found: dict[str, Any]) -> list[str]:
    """Tables of what a server finds that knows no attacked row."""
    rows, lines = found.get("squares", []), [["data", "method", "K", "seeds", ">0.999", ">0.99",
        ">0.95", "columns", "elements"]]  # fmt: skip
    for some in of(rows, "data", "method", "K"):
        one = some[0]
        head = [one["data"], one["method"], str(one["K"]), str(len(some))]
        if one["success"] is None:
            lines.append([*head, "-", "-", "-", "", ""])
            continue
        counts = [f"{mean(some, key):.1f}" for key in ("above_999", "above_99", "above_95")]
        elements = f"{mean(some, 'elements'):.3f}"
        lines.append([*head, *counts, str(one["columns"]), elements])
    chance = max((row["chance"] for row in rows if row["success"] is not None), default=0)
    head = NOTHING_KNOWN.format(
        commits=made_by(found, rows), chance="no" if not chance else f"{chance:.0%} of the"
    )
    text = [*head.splitlines(), "", *table(lines)]
    others = [["data", "D", "seeds", "explained", "by labels alone"]]
    for some in of(
        [r for r in found.get("others", []) if r["success"] is not None], "data", "degree"
    ):
        explained, alone = (f"{mean(some, key):.2f}" for key in ("success", "chance"))
        others.append([some[0]["data"], str(some[0]["degree"]), str(len(some)), explained, alone])
    if len(others) > 1:
        text += ["", *OTHERS.splitlines(), "", *table(others)]
    short = [["c", "seeds", "after the fit", "before", "random"]]
    for some in of(found.get("short", []), "c"):
        counts = [
            ", ".join(str(row[key]) for row in some) for key in ("above", "near_alone", "random")
        ]
        short.append([str(some[0]["c"]), str(len(some)), *counts])
    if len(short) > 1:
        text += ["", *SHORT.splitlines(), "", *table(short)]
    text += ["", *completion(found)]
    return [*text, ""]


def page() -> str:
    """The page."""
    lines = nothing_known(read("sums"))
    for coded in (True, False):
        for name in ORDER:
            file = f"attacks-{'coded-' * coded}{name}"
            if (RESULTS / f"{file}.json").exists():
                title = f"{name}: coded_split beside FedVS" if coded else f"{name}: all methods"
                lines += section(name, file, title)
        if coded:
            found = read("coalitions")
            lines += [*server(found), *pooled(found), *labels(found)]
    return HEAD + "\n" + "\n".join(lines).rstrip() + "\n"
