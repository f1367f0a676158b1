"""Write docs/results-told.md: what cards say is revealed, and what attacks found.

From benchmarks/results/privacy/told.json (``benchmarks/told.py``) and sums.json. To write it:
``PYTHONPATH=. python benchmarks/build.py told``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pages import made_by, means, table

RESULTS = Path(__file__).parent / "results" / "privacy"
PAGE = Path("docs/results-told.md")
ALONE = ("squares", "binary columns of sums", "directions of whole batches")
KNOWING = ("completion of sums", "inversion of sums", "inversion", "inner products and other rows")
SETS = ("wine", "breast-cancer", "digits", "handwritten", "credit-card")
#: Cells in which a column came out above correlation 0.95 though the card calls all undetermined.
FINDINGS = {(n, m) for n in ("breast-cancer", "credit-card") for m in ("fedvs", "coded_split")}
SHORT = {"squares": "squares", "binary columns of sums": "binary",
         "directions of whole batches": "directions", "completion of sums": "completion",
         "inversion of sums": "inversion", "inversion": "inversion",
         "inner products and other rows": "other rows"}  # fmt: skip

HEAD = """# What cards say, and what attacks got

`python benchmarks/told.py` ({commits}), every method at its default options, {seeds}. The
card is that of the configuration, about features, against the server or, where there is none, who
gets the embeddings. Equations are those about a row at the end of the run, for each of its
unknowns: of all clients where sums are decoded, of one client where single embeddings are sent.

"Nothing known": the share of columns with a correlation above 0.95 to a guess of `squares` or of
the directions nearest to columns and the principal axes of the sums of whole batches; of columns of
two values the share that `binary columns of sums` found. Random guesses
of the same number have {chance}. "Rows known": 200 rows
(inversion), or as many as the sums have rank (completion); it is tried where the card claims
something, and is no part of the claim. "-": no attack had a view. Chance in brackets where it is
not 0. `benchmarks/told_page.py` writes this page.

"""
FOUND = """
In **bold** cells an attack got columns that the card calls undetermined. On breast-cancer many
columns depend on each other, and some are guessed above 0.95, none above 0.999. On credit-card the
only column of two values comes out exactly. The card says both, and that it bounds no guess.
"""


def card(cell: dict[str, Any]) -> str:
    """Words of a card on features: the claim, or "nothing protected" with the roles."""
    claims = cell["claims"]
    given = [c for c in claims if c.get("given") and c["who"] == "server"]
    if given:
        states = {
            "below": "columns undetermined",
            "beyond": "nothing promised of columns",
            "spanned": "the space of the columns follows from them",
        }
        return f"{given[0]['notion']}, given the sums; {states[cell['state']]}"
    noise = [c for c in claims if c["notion"] == "differential"]
    if noise:
        found = re.search(r"\((\S+), \S+\) for each.*?\((\S+), \S+\) for all", noise[0]["source"])
        numbers = "" if found is None else f", epsilon {found[1]} a release, {found[2]} in all"
        return f"differential{numbers}"
    return "nothing protected (" + ", ".join(dict.fromkeys(c["who"] for c in claims)) + ")"


def undetermined(cell: dict[str, Any]) -> bool:
    """Whether the card claims that columns are undetermined for a party without other knowledge."""
    return any(c["notion"] == "undetermined" for c in cell["claims"])


def strongest(cell: dict[str, Any], names: Iterable[str]) -> tuple[str, float, float] | None:
    """Attack with the largest excess over chance: name, success, chance."""
    seen = [(n, cell[n]) for n in names if cell.get(n, {}).get("success") is not None]
    if not seen:
        return None
    name, best = max(seen, key=lambda one: one[1]["success"] - one[1]["chance"])
    return name, best["success"], best["chance"]


def exact(cell: dict[str, Any]) -> int:
    """Number of columns above 0.999 that the best attack without known rows finds."""
    notes = [cell[n]["note"] for n in ALONE if cell.get(n, {}).get("success") is not None]
    counts = [re.search(r"columns (\d+) above 0.999", note) for note in notes]
    return max((int(c[1]) for c in counts if c is not None), default=0)


def figure(cell: dict[str, Any] | None, names: Sequence[str]) -> str:
    """Table cell of the strongest attack: success (chance); bold if it refutes the card's claim."""
    if cell is None:
        return "not run"
    best = strongest(cell, names)
    if best is None:
        return "-"
    name, success, chance = best
    text = f"{success:.2f}".replace("-0.00", "0.00") + (f" ({chance:.2f})" if chance else "")
    above = names is ALONE and undetermined(cell) and success > chance
    return (f"**{text}**" if above else text) + f" {SHORT[name]}"


def ratio(cell: dict[str, Any] | None) -> str:
    """Text "equations/unknowns" of a result row."""
    return "" if cell is None else f"{cell['equations']}/{cell['unknowns']}"


def short_table(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Table with a row for each method; cells list the data sets in order, with the first seed."""
    rows = [["method", "the card says", "equations/unknowns", "nothing known", "rows known"]]
    for method in dict.fromkeys(c["method"] for c in cells):
        own = {c["data"]: c for c in cells if c["method"] == method and c["seed"] == 0}
        found = [own.get(name) for name in SETS]
        first = next(one for one in found if one is not None)
        parts = [
            "; ".join(map(ratio, found)),
            "; ".join(figure(one, ALONE) for one in found),
            "; ".join(figure(one, KNOWING) for one in found),
        ]
        rows.append([f"`{method}`", card(first), *parts])
    return [f"{', '.join(SETS)} behind one another:", "", *table(rows)]


def page() -> str:
    """Markdown of the page."""
    found = json.loads((RESULTS / "told.json").read_text())
    sums = json.loads((RESULTS / "sums.json").read_text())
    cells = found["cells"]
    seeds = len({c["seed"] for c in cells})
    chance = max(b[2] for c in cells if (b := strongest(c, ALONE)) is not None)
    head = HEAD.format(
        commits=made_by(found, cells),
        seeds=f"{seeds} seeds" if seeds > 1 else "one seed",
        chance=f"{chance:.2f} at most" if chance else "none",
    )
    text = [*short_table(cells), *FOUND.splitlines(), "", "## Directions under the budget"]
    for part, words in {"directions": "batches of all rows", "standing": "default batches"}.items():
        counts = means(sums.get(part, []), ("data", "method", "K"), ("above_95", "columns"))
        text += ["", f"Columns above 0.95 in sums of {words}:", "", *counts]
    return head + "\n".join(text) + "\n"
