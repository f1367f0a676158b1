"""Write docs/results-methods.md from the table that `securevfl bench methods` makes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import table

from securevfl.bench.methods import attacked, fronts, groups, hidden, on_fronts, percent

RESULTS = Path("benchmarks/results/methods")
PAGE = Path("docs/results-methods.md")
VFLAIR = "breast-cancer:parties=2,test_fraction=0.2"
TITLES = {VFLAIR: "breast-cancer, two parties, as VFLAIR"}

HEAD = """# All methods on one protocol of evaluation

{done} of {cells} cells are run, of {methods} methods in {sets} settings of data; {cannot} cannot be
run, for the reasons below each table; {left} are left. In all cells a seed has the same split for
all methods and the same delays (`{conditions}`), and a run ends after {until:g} virtual seconds, or
before where the method's own rounds are over. Options are the defaults of each method, budgets of
sums included, but for the learning rate: each method tries {rates} in runs as long, on seed {seed}
of the split, where a part of {validation:g} of the training rows is held back; the best goes on to
all seeds. Links are not sealed. Virtual time counts the delays of messages, and no computing.

To make the table again, or a part of it; finished runs are kept, and the same command goes on:

```
securevfl bench methods --seeds 5 --attacks --out runs/methods
securevfl bench methods split vafl --data digits --seeds 1
```

On the site a click on the head of a column sorts a table. The same as
[CSV](../{folder}/methods.csv), [LaTeX](../{folder}/methods.tex) and
[JSON](../{folder}/methods.json), with the curves. `benchmarks/methods_page.py` writes this page.

- *Accuracy* is that of the test rows at the last evaluation, in per cent, a mean over seeds with
  its 95 % t interval where there are several; *MB* what all parties sent by then, *rounds* the
  server's steps, *seconds* the virtual end of the last round.
- *Front*: the method has a point on the Pareto front of accuracy against bytes or time; nobody has
  more accuracy for less. Fronts are those of whole mean curves, read off linearly between
  evaluations; they pick from test rows, and lie a little high.
- *Columns* and *labels* are words of the card: against whom (*columns*: who gets the embeddings,
  others in the CSV), and how strong; "none" says that nothing is claimed, so that the party sees
  them or can compute them.
- *Sums*: equations that decoded sums gave about the row used most, of so many unknowns, and their
  state: below the unknowns, beyond them, or spanned, where linear algebra gives the space of the
  columns ([what sums tell](sums.md)). "-": nobody decodes sums; see *columns*.
{attacks}
"""
ATTACKS = """- Attacks on the first seed, the strongest of each group by its excess over chance
  ([how](attacks.md)): {groups}.
"""
NO_ATTACKS = """- Attacks on these runs were not made (`--attacks`);
  [what attacks got at default options](results-told.md) is a page of its own.
"""
TWO = """The setting of VFLAIR (Zou et al., ICLR 2024), by the configuration
`src/configs/main_task/2_party/splitVFL/basic_configs_breast.json` of its repository: two parties
with 15 columns each, a fifth of the rows for testing, columns scaled into [0, 1]. There, bottom
models have one hidden layer of 128, batches 256 rows, the rate is 0.05 for 50 epochs, and runs are
ten; here methods have their defaults, as in the other tables. Its code counts rounds until a
training accuracy of 0.88 on this set (`STOPPING_ACC`); figures of the paper are not copied here.
"""
ONE_CLASS = """77.9 % of all rows have one class: at this accuracy a model names it for each, and
AUC says whether its scores are in order nevertheless.
"""
WORDS = {VFLAIR: TWO, "credit-card": ONE_CLASS}

Row = Mapping[str, Any]


def page() -> str:
    """Markdown of the page."""
    content = json.loads((RESULTS / "methods.json").read_text())
    cells, how = content["cells"], content["protocol"]
    sets = list(dict.fromkeys(cell["data"] for cell in cells))
    found = groups(cells)
    attacks = ATTACKS.format(groups="; ".join(found)) if found else NO_ATTACKS
    done = sum(cell["seeds"] > 0 for cell in cells)
    cannot = sum(cell.get("empty", "").startswith("cannot") for cell in cells)
    head = HEAD.format(
        done=done,
        cannot=cannot,
        left=len(cells) - done - cannot,
        cells=len(cells),
        methods=len({cell["method"] for cell in cells}),
        sets=len(sets),
        conditions=how["conditions"],
        until=how["until"],
        rates=", ".join(f"{rate:g}" for rate in how["rates"]),
        seed=how["choice"]["seed"],
        validation=how["choice"]["validation"],
        folder=RESULTS,
        attacks=attacks,
    )
    lines = [head]
    if any(cell["seeds"] for cell in cells):
        lines += [f"![Accuracy against bytes and virtual time](../{RESULTS}/methods.png)", ""]
    for data in sets:
        lines += section(data, [cell for cell in cells if cell["data"] == data], found)
    return "\n".join(lines)


def section(data: str, cells: Sequence[Row], found: Sequence[str]) -> list[str]:
    """Lines of a data set: heading, table, Pareto fronts, and the reasons for empty cells."""
    there = [cell for cell in cells if cell["seeds"]]
    lines = [f"## {TITLES.get(data, data)}", "", *([WORDS[data]] if data in WORDS else [])]
    if there:
        lines += [*figures(there, on_fronts(cells, data), found), ""]
        for cost, unit in (("bytes", 1e6), ("time", 1.0)):
            lines += [f"Front of {cost}: {steps(fronts(cells, data, cost), unit, cost)}.", ""]
    for reason in dict.fromkeys(cell["empty"] for cell in cells if not cell["seeds"]):
        names = ", ".join(f"`{c['method']}`" for c in cells if c.get("empty") == reason)
        lines += [f"- {names}: {reason}"]
    return [*lines, ""]


def figures(cells: Sequence[Row], front: Mapping[str, Sequence[str]], found: Sequence[str]) -> Any:
    """Table with a row for each method, by falling accuracy: cost, claims, sums and attacks."""
    rows = [["method", "accuracy", "MB", "seconds", "columns", "labels", "sums", *found, "front",
             "AUC", "rounds", "seeds", "rate"]]  # fmt: skip
    for cell in sorted(cells, key=lambda one: -one["accuracy"]):
        sums = "-" if not cell["sums"] else "{}/{} {}".format(*cell["sums"][:2], cell["sums"][3])
        got = [attacked(dict(cell), name) for name in found]
        rows.append(
            [
                *(f"`{cell['method']}`", percent(dict(cell))),
                *(f"{cell['bytes'] / 1e6:.3g}", f"{cell['seconds']:.0f}"),
                *(server(cell) or "-", hidden(dict(cell), "labels") or "-"),
                *(sums, *(number(value, ".2f") for value in got)),
                " ".join(front.get(cell["method"], [])) or "-",
                *(number(cell.get("auc"), ".3f"), f"{cell['rounds']:.0f}"),
                *(str(cell["seeds"]), number(cell["lr"], "g")),
            ]
        )
    return table(rows)


def server(cell: Row) -> str:
    """Words on the claims about columns against single parties, without outsiders."""
    own = [claim for claim in cell["features"] if "T " not in claim[0] and claim[0] != "outsider"]
    return hidden({"features": own}, "features")


def number(value: float | None, form: str) -> str:
    """Value in a format; "-" for None."""
    return "-" if value is None else format(value, form)


def steps(points: Sequence[tuple[str, float, float]], unit: float, cost: str) -> str:
    """Words on a Pareto front: its methods by rising cost, with ranges of cost and accuracy."""
    word = "MB" if cost == "bytes" else "s"
    parts: list[list[Any]] = []
    for name, value, accuracy in points:
        if not parts or parts[-1][0] != name:
            parts.append([name, value / unit, accuracy, value / unit, accuracy])
        parts[-1][3:] = [value / unit, accuracy]
    return "; ".join(
        f"`{name}` {low:.3g} to {high:.3g} {word} ({100 * first:.1f} to {100 * last:.1f} %)"
        if low != high
        else f"`{name}` {low:.3g} {word} ({100 * first:.1f} %)"
        for name, low, first, high, last in parts
    )
