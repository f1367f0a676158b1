"""Claims of VFLHLP."""

from __future__ import annotations

from collections.abc import Iterator

from verdicts import Difference, judge, paired, results, runs, values

from claims.line import Line, also, named, short

AVAZU, CRITEO, RIVALS = "table-2-avazu", "table-3-criteo", "table-4-avazu"
BETWEEN = "table-4-avazu-between"  # the three other sizes of FedHSSL
ALONE = {AVAZU: "table-2-avazu-alone"}  # Local-A at the best of more pairs than in the study
SIZES = {
    AVAZU: (250, 500, 1000, 2000, 4000, 8000),
    CRITEO: (200, 400, 600, 800, 1000, 2000),
    RIVALS: (200, 400, 600, 800, 1000),
}
RIVAL_KINDS = ("simsiam", "byol", "moco")
CHOSEN = "5 seeds; rates, beta and lengths chosen on validation rows"
REDUCED = {
    AVAZU: f"15,000 rows, {CHOSEN}",
    CRITEO: f"10,000 rows, {CHOSEN}",
    RIVALS: f"15,000 rows, {CHOSEN}",
}


def lines() -> Iterator[Line]:
    """All of them, in the order of the paper."""
    for number, study in enumerate(SIZES, 2):
        found = also(judge(against(study, "vfl"), 3), f"Reduced: {REDUCED[study]}")
        gaps = printed(study, "vfl")
        yield Line(f"Table {number}", "VFLHLP above vanilla VFL (AUC)", found, gaps)
    largest = judge(against(AVAZU, "local", (8000,)), 3)
    yield Line(
        "Table 2",
        "VFLHLP above the active party alone at 8000 rows",
        also(
            largest,
            "The paper has .723 and .719. The active party's rate and length are the best of "
            "thirty pairs on validation rows; with twelve, of which its rate was the largest, it "
            "was level",
        ),
        "+0.004",
    )
    yield Line(
        "Table 3",
        "VFLHLP above the active party alone",
        also(judge(against(CRITEO, "local"), 3), f"Reduced: {REDUCED[CRITEO]}"),
        printed(CRITEO, "local"),
    )
    for way, word in (("a", "supervised"), ("p", "self-supervised")):
        yield Line(
            "Figure 5",
            f"both parts above the {word} one alone (Criteo)",
            also(judge(against(CRITEO, f"vflhlp-{way}"), 3), f"Reduced: {REDUCED[CRITEO]}"),
        )
    rivals = [
        d
        for r in RIVAL_KINDS
        for study, sizes in ((RIVALS, (200, 1000)), (BETWEEN, (400, 600, 800)))
        for d in named(r, against(study, f"fedhssl-{r}", sizes))
    ]
    yield Line(
        "Table 4",
        "VFLHLP above FedHSSL",
        also(
            short(rivals, 3),
            f"Reduced: {REDUCED[RIVALS]}, of up to 40 epochs, at 200 and 1000 rows",
        ),
        printed(RIVALS, *(f"fedhssl-{r}" for r in RIVAL_KINDS)),
    )


def printed(study: str, *others: str) -> str:
    """Range of the paper's differences between VFLHLP and others."""
    paper = results(f"vflhlp/{study}")["paper"]
    own = paper["vflhlp"]
    gaps = [
        mine - theirs
        for other in others
        for mine, theirs in zip(own, paper[other] * (len(own) // len(paper[other])), strict=True)
    ]
    return f"{min(gaps):+.3f} to {max(gaps):+.3f}"


def against(study: str, other: str, sizes: tuple[int, ...] = ()) -> list[Difference]:
    """VFLHLP above another run at each number of aligned rows."""
    found = []
    for n in sizes or SIZES[study]:
        two = f"{other}, {n} aligned"
        theirs = f"vflhlp/{study}"
        if other == "local":  # it has its own rows alone, so it was run once
            theirs = f"vflhlp/{ALONE.get(study, study)}"
            two = next(run for run in runs(theirs) if run.startswith("local, "))
        pair = [
            values(*run, "test_auc")
            for run in ((f"vflhlp/{study}", f"vflhlp, {n} aligned"), (theirs, two))
        ]
        found.append(paired(str(n), *pair, 1.0))
    return found
