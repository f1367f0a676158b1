"""Write docs/results.md: one line for each table and figure of the five papers.

Run it from the repository's root after a study: ``python benchmarks/results_page.py``. The lines
are those of `claims`, a module a paper. Figures in the reasons are computed from
``benchmarks/results``; a verdict from intervals gives way where a setting of ours is known that
could turn it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from claims import cvfl, dvfl, fedvs, multivfl, vflhlp
from claims.line import Line
from pages import table
from verdicts import WORDS

PAGE = Path("docs/results.md")
CHANGES = Path(__file__).parent / "papers" / "changed_verdicts.json"
PAPERS = {"FedVS": fedvs, "CVFL": cvfl, "Multi-VFL": multivfl, "DVFL": dvfl, "VFLHLP": vflhlp}

HEAD = """# What the papers claim, and what was found here

One line for each table and figure of the five papers that are reproduced here, and for each claim
of it. Figures are differences in points of held-out accuracy (of AUC or of the loss where it says
so), paired by seed. Each ± is the 95 % t interval of that difference alone; the words, and the
counts "above" and "below, by Holm", go by intervals that are corrected for their number within a
line by Holm's rule, which are wider.

- **confirmed**: every difference has the claimed sign beyond its interval, and we know of no
  setting of ours that could turn it. *Reduced* says that our form is smaller than the paper's.
  Where the paper prints its settings, such as the rates to choose from, they are not ours: what
  other ones do is told beside the verdict.
- **refuted**: a difference has the other sign beyond its interval, in every reading that was tried.
- **undecided**: the intervals hold 0, there is one seed, or a setting of ours is known that could
  turn the verdict; the reason says which.
- **not run**: there is no result here, or what was run is another experiment.

Learning rates, lengths and beta were chosen on validation rows in the studies of
[coded_split](results-coded-split.md), which the lines on FedVS's Figure 2 go by but for the end of
Credit Card and Parkinson, in FedVS's Table 1, in CVFL's Figure 2, in its Figures 3 to 6 on
Fashion-MNIST and CIFAR-10 and in its Table 2 on MNIST and Fashion-MNIST, in VFLHLP's on Criteo and
Avazu, and in DVFL's Table 2. Elsewhere they were chosen by us: where a rate was chosen at all, it
was on test rows of another seed than the study's. `benchmarks/results_page.py` writes this page
from `benchmarks/results`.
"""

NO_RESULT = """Tables and figures that hold no result have no line: FedVS's Table 2, CVFL's Table 1
and Figure 1, Multi-VFL's Tables 1 to 3 and Figure 1, DVFL's Tables 6 and of rates and Figures 1 and
2, VFLHLP's Table 1 and Figures 1 to 4. What DVFL's Figure 3(a) shows is not legible in our copy."""


def section(paper: str, lines: Sequence[Line]) -> str:
    """Table of a paper's claims."""
    rows = [["where", "claim", "verdict", "reason"]]
    for line in lines:
        word = line.finding.word
        shown = f"**{word}**" if word == "refuted" else word
        rows.append([line.place, line.claim, shown, f"{line.finding.text}."])
    return "\n".join([f"## {paper}", "", *table(rows), ""])


def changes() -> list[str]:
    """Verdicts that changed, with their causes."""
    rows = [["table or figure", "before", "now", "cause"]]
    for each in json.loads(CHANGES.read_text()):
        rows.append([each[key] for key in ("place", "before", "now", "cause")])
    return table(rows)


def page() -> str:
    """The page."""
    found = {paper: list(module.lines()) for paper, module in PAPERS.items()}
    words = [line.finding.word for lines in found.values() for line in lines]
    assert set(words) <= set(WORDS), words
    said = ", ".join(f"{words.count(word)} {word}" for word in WORDS)
    parts = [HEAD, f"Of {len(words)} lines: {said}. {NO_RESULT}\n"]
    parts += [section(paper, lines) for paper, lines in found.items()]
    parts.append("\n".join(["## Verdicts that changed", "", *changes(), ""]))
    return "\n".join(parts)


def main() -> None:
    """Write it."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
