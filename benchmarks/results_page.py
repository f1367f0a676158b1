"""Write docs/results.md, a line for each claim of the five papers, and docs/results-claims.md.

The second has every difference and the reasons for each verdict, and is not committed. The lines
are those of `claims`, a module a paper. Figures are computed from ``benchmarks/results``; a verdict
from intervals gives way where a setting of ours is known that could turn it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from claims import cvfl, dvfl, fedvs, multivfl, vflhlp
from claims.line import Line
from pages import table
from verdicts import WORDS

PAGE, CLAIMS = Path("docs/results.md"), Path("docs/results-claims.md")
CHANGES = Path(__file__).parent / "papers" / "changed_verdicts.json"
PAPERS = {"FedVS": fedvs, "CVFL": cvfl, "Multi-VFL": multivfl, "DVFL": dvfl, "VFLHLP": vflhlp}

SHORT_HEAD = """# What the papers claim, and what was found here

A line for each claim of a table or figure of the five papers that are reproduced. *Ours* is the
difference in points of held-out accuracy (of AUC or of the loss where it says so), paired by seed,
with its 95 % t interval. Of several differences it is the range, and how many lie beyond their
intervals, corrected for their number by Holm's rule. *Paper* is the figure that the paper prints;
"-" where it shows curves or states an order. CVFL's Figure 2 is in per cent of time. *Half rounds*:
FedVS read off at twice the time, for the paper prints no base of the logarithm in its delay of
sharing.

- **confirmed**: all differences have the claimed sign beyond their intervals, and no setting of
  ours is known that could turn the verdict.
- **refuted**: a difference has the other sign beyond its interval, in every reading that was tried.
- **undecided**: the intervals hold 0, there is one seed, or a setting of ours could turn the
  verdict.

Most studies are smaller than the paper's. What was reduced, how rates were chosen, every difference
and the reason for each verdict stand on the page `results-claims`, which is built as below.
`benchmarks/results_page.py` writes this page from `benchmarks/results`.
"""

NOT_RUN = """## What was not run

FedVS's Table 2, CVFL's Table 1 and Figure 1, Multi-VFL's Tables 1 to 3 and Figure 1, DVFL's Tables
6 and of rates and Figures 1 and 2, and VFLHLP's Table 1 and Figures 1 to 4 hold no result. What
DVFL's Figure 3(a) shows is not legible in our copy.
"""

STUDIES = """## Study pages

Tables, pictures and settings of each study stand on pages of their own, which are not committed.
Building the site writes them from `benchmarks/results` into `docs/`, and so does
`PYTHONPATH=. python benchmarks/build.py`. Studies are files in `benchmarks/papers`;
`securevfl study FILE` repeats one.

- `results-claims`: every claim with its differences, the reason for its verdict, and verdicts that
  changed
- `results-fedvs-twins`: FedVS beside its unprotected baseline
- `results-fedvs-figures`: the figures of FedVS
- `results-coded-split`: coded_split beside other methods at equal virtual time
- `results-label-partitioned`: CVFL and Multi-VFL
- `results-dvfl`: DVFL and its rivals under faults
- `results-vflhlp`: few aligned rows
- `results-faults`: nine methods under the same faults
- `results-threshold`: how many slow, dead or lying parties a method bears
- `results-attacks`: all attacks on all methods
- `results-told`: what each card says that is told, beside what attacks got
- `results-sums`: accuracy against what the sums release of a row
- `results-cluster`: FedVS as Ray actors
- `results-organisations`: sessions between organisations
"""

HEAD = """# Every claim of the papers, with its differences and reasons

One line for each table and figure of the five papers that are reproduced here, and for each claim
of it; [results.md](results.md) has them in short. Figures are differences in points of held-out
accuracy (of AUC or of the loss where it says
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


def section(paper: str, lines: Sequence[Line]) -> str:
    """Table of a paper's claims with reasons."""
    rows = [["where", "claim", "verdict", "reason"]]
    for line in lines:
        rows.append([line.place, line.claim, word(line), f"{line.finding.text}."])
    return "\n".join([f"## {paper}", "", *table(rows), ""])


def short_section(paper: str, lines: Sequence[Line]) -> str:
    """Table of a paper's claims with figures alone."""
    rows = [["where", "claim", "paper", "ours", "verdict"]]
    for line in lines:
        rows.append([line.place, line.claim, line.paper, line.finding.brief, word(line)])
    return "\n".join([f"## {paper}", "", *table(rows), ""])


def word(line: Line) -> str:
    """The verdict, bold where a claim is refuted."""
    found = line.finding.word
    return f"**{found}**" if found == "refuted" else found


def changes() -> list[str]:
    """Verdicts that changed, with their causes."""
    rows = [["table or figure", "before", "now", "cause"]]
    for each in json.loads(CHANGES.read_text()):
        rows.append([each[key] for key in ("place", "before", "now", "cause")])
    return table(rows)


def counts(found: Mapping[str, Sequence[Line]]) -> str:
    """Numbers of lines by verdict."""
    words = [line.finding.word for lines in found.values() for line in lines]
    assert set(words) <= set(WORDS), words
    return f"Of {len(words)} lines: " + ", ".join(f"{words.count(one)} {one}" for one in WORDS)


def pages() -> dict[Path, str]:
    """Both pages."""
    found = {paper: list(module.lines()) for paper, module in PAPERS.items()}
    told = f"{counts(found)}.\n"
    short = [short_section(paper, lines) for paper, lines in found.items()]
    whole = [section(paper, lines) for paper, lines in found.items()]
    changed = "\n".join(["## Verdicts that changed", "", *changes(), ""])
    return {
        PAGE: "\n".join([SHORT_HEAD, told, *short, NOT_RUN, STUDIES]),
        CLAIMS: "\n".join([HEAD, told, *whole, changed]),
    }
