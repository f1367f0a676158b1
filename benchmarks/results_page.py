"""Write docs/results.md, a row for each claim of the five papers, and docs/results-claims.md.

The second has every difference with the paper's beside it, and is not committed. The rows are those
of `claims`, a module a paper, and figures are computed from ``benchmarks/results``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill

from claims import cvfl, dvfl, fedvs, multivfl, vflhlp
from claims.line import NONE, OPEN, OTHER, SAME, Line
from pages import compact, table
from stored import RESULTS

PAGE, CLAIMS = Path("docs/results.md"), Path("docs/results-claims.md")
PAPERS = {"FedVS": fedvs, "CVFL": cvfl, "Multi-VFL": multivfl, "DVFL": dvfl, "VFLHLP": vflhlp}
LONGEST = 120  # characters of a row, links but the first aside
COLUMNS = ["claim", "printed", "ours", "seeds", "sign", "size", "depends on", ""]

HEAD = """# Five papers, and what was found here

{summary}

A row is a difference that a table or figure of a paper shows, and that we measured; rows of
accuracies alone are not counted. What rests on a reading of the paper, or on a choice of ours, has
a row for each, and counts in each. Of {sizes} printed sizes {alike} have the sign of our mean, and
{inside} lie in our intervals. {turned} claims change their word with the reading, {opposed}
between *same* and *other*.

- **ours**: points of held-out accuracy, of AUC or of the loss where it says so, paired by seed,
  with the 95 % t interval. Of several differences (times, row counts, steps, settings; each in
  `results-claims`): each in the order of the printed, or their range, and the widest interval (±).
- **sign**: *same* where every interval is beyond 0 on the paper's side. *other* where one is beyond
  it on the other side, by intervals corrected by Holm's rule; 1/6 is one of six. Else *none*:
  "none 4/6", four of six intervals are beyond 0 on the paper's side; "none, < 0.8", all hold 0,
  and lie within 0.8 of it. A printed 0 has the same sign where our interval holds 0.
- **size**: *inside* where our interval holds the printed size, which has an error of its own.
- **depends on**: the reading or setting, and why a sign cannot be told.
- F is figure, T table. A number links to stored results, on the site to
  [all differences](#study-pages) of a row.

`benchmarks/results_page.py` writes this page.
"""

ABOUT = {
    "FedVS": "Three seeds to five, smaller networks. A party that is late works on (*latency*) or "
    "is *busy*. The delay of sharing has a logarithm of base 2 or e (*log2*, *ln*). T1 has 20 "
    "epochs; Caltech-7 has features of ours.",
    "CVFL": "Small networks: one convolution and a Linear layer, in F3 to F6 on MNIST and "
    "Fashion-MNIST a Linear layer alone. F3 to F6 are differences of the test loss; at 50 "
    "% (95 %) three of four parties make half (a twentieth) of the updates. *Best rates* "
    "are each way's own; stop losses of F2 are ours.",
    "Multi-VFL": "Linear bottoms and two hidden layers for the paper's convolutions; owners as in "
    "the paper. 4.1 is the gain of the last 50 rounds.",
    "DVFL": "MNIST has a quarter of the paper's epochs, or 3000 of 60,000 rows and half of them "
    "where it says so (T3's owner has all); Credit Card 4, 8 and 20 (guests, hosts, "
    "owner). *Rejoin* is the chance per round that what is down returns: 0.1, of FedOnce "
    "and VFB2 1, 0.5 and 0.1. Rates and most sizes of layers are ours.",
    "VFLHLP": "15,000 rows of Avazu and 10,000 of Criteo, for 100,000 and 80,000. All in AUC.",
}

NOT_RUN = """## What was not run

A difference without a row is not judged here. DVFL's F.2 (`dvfl --buffer`) has no study.
"""

STUDIES = """## Study pages

Building the site, or `PYTHONPATH=. python benchmarks/build.py`, writes these pages: tables,
pictures and settings. `securevfl study FILE` repeats a study of `benchmarks/papers`.
`results-claims` has every difference of the tables above, `results-told` what cards say beside what
attacks got, `results-sums` accuracy against equations. More: `results-fedvs`,
`results-coded-split`, `results-cluster`, `results-label-partitioned`, `results-dvfl`,
`results-vflhlp`, `results-faults`, `results-attacks`, `results-comparators`,
`results-organisations`, `results-thresholds`; `results-methods` compares all methods.
"""

WHOLE = """# Every claim of the papers, with its differences

Rows of [results.md](results.md) by their studies: each difference with its own 95 % interval, the
paper's beside it where it prints one, and settings. `benchmarks/results_page.py` writes this page
from `benchmarks/results`.
"""

Found = Mapping[str, Sequence[Line]]


def count(lines: Sequence[Line]) -> list[int]:
    """Numbers of lines; of each verdict; of printed sizes; and of those inside our intervals.

    Levels are left out, because they are no differences.
    """
    signs = [line.sign for line in lines if not line.levels]
    held = [one for line in lines for one in line.inside if not line.levels]
    return [len(signs), *(signs.count(w) for w in (SAME, NONE, OTHER, OPEN)), len(held), sum(held)]


def summary(found: Found) -> list[str]:
    """Table of these counts, a row for each paper."""
    every = [line for lines in found.values() for line in lines]
    rows = [["paper", "rows", "same sign", "no sign shown", "other sign", "cannot be tested",
             "printed sizes", "inside"]]  # fmt: skip
    for name, lines in (*found.items(), ("all", every)):
        shown = f"[{name}](#{name.lower()})" if lines is not every else "**all**"
        rows.append([shown, *map(str, count(lines))])
    return table(rows)


def turned(lines: Sequence[Line]) -> list[set[str]]:
    """Sets of verdicts of the claims whose verdict depends on the reading."""
    words: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in lines:
        if line.sign != OPEN:
            words[line.place, line.claim].add(line.sign)
    return [each for each in words.values() if len(each) > 1]


def row(numbers: Sequence[int], line: Line) -> list[str]:
    """Table cells of a line, last the `numbers` of its studies; ValueError if it is too long."""
    found = [
        f"{line.place}: {line.claim}",
        line.printed_cell(),
        line.ours_cell(),
        line.seeds_cell(),
        line.sign_cell(),
        line.size_cell(),
        line.depends_cell(),
        " ".join(f"[{number}]" for number in numbers),
    ]
    text = compact([[*found[:-1], f"[{numbers[0]}]"]])[0]
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters, {LONGEST} at most: {text}")
    return found


def numbers(found: Found) -> dict[str, int]:
    """Number of each study to which lines refer, from 1."""
    studies = dict.fromkeys(s for lines in found.values() for line in lines for s in line.studies)
    return {study: number for number, study in enumerate(studies, 1)}


def link(number: int, study: str) -> str:
    """Markdown definition of the link from a number to a study's results."""
    path = RESULTS / study
    path = path / "results.json" if (path / "results.json").exists() else path
    return f"[{number}]: ../{path.relative_to(RESULTS.parents[1])}"


def whole(numbers: Sequence[int], study: str, lines: Iterable[Line]) -> Iterator[str]:
    """Paragraphs on a study: heading with link targets, and each line with all its differences."""
    yield "\n".join([*(f"(study-{number})=" for number in numbers), f"### {study}"])
    for line in lines:
        told = f" ({line.depends_cell()})" if line.depends_cell() != "-" else ""
        yield f"**{line.place}: {line.claim}**{told}. {line.note}".rstrip()
        sizes = line.printed or (None,) * len(line.differences)
        rows = [["difference", "ours", "printed"]]
        for each, size in zip(line.differences, sizes, strict=False):
            ends = "-" if size is None else " to ".join(dict.fromkeys(f"{end:.6g}" for end in size))
            rows.append([each.name, each.figure(max(line.digits, 2)), ends])
        if line.differences:
            yield "\n".join(table(rows))
        yield f"From {', '.join(f'`{one}`' for one in line.studies)}."


def pages() -> dict[Path, str]:
    """Markdown of both pages, by path."""
    found = {paper: list(module.lines()) for paper, module in PAPERS.items()}
    every = [line for lines in found.values() for line in lines]
    *_, sizes, inside = count(every)
    changed = turned(every)
    head = HEAD.format(
        summary="\n".join(summary(found)),
        sizes=sizes,
        alike=sum(one for line in every for one in line.alike if not line.levels),
        inside=inside,
        turned=len(changed),
        opposed=sum({SAME, OTHER} <= words for words in changed),
    )
    number = numbers(found)
    parts, claims = [head], [WHOLE]
    led: dict[str, str] = {line.studies[0]: line.studies[0] for line in every}
    for line in every:  # a study that is nowhere first stands with the first of its row
        for study in line.studies:
            led.setdefault(study, line.studies[0])
    for paper, lines in found.items():
        rows = [COLUMNS, *(row([number[one] for one in line.studies], line) for line in lines)]
        about = fill(ABOUT[paper], 100)
        parts.append("\n".join([f"## {paper}", "", about, "", *compact(rows), ""]))
        claims.append(f"## {paper}\n")
        for study in dict.fromkeys(line.studies[0] for line in lines):
            own = [line for line in lines if line.studies[0] == study]
            here = [number[one] for one, place in led.items() if place == study]
            claims.append("\n\n".join(whole(here, study, own)) + "\n")
    links = [link(each, study) for study, each in number.items()]
    return {
        PAGE: "\n".join([*parts, NOT_RUN, STUDIES, *links, ""]),
        CLAIMS: "\n".join(claims),
    }
