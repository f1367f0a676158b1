"""Claims of VFLHLP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stored import Difference, paired, results, runs, values

from claims.line import Line, Printed, named, printed, readings, turned

AVAZU, CRITEO, RIVALS = "table-2-avazu", "table-3-criteo", "table-4-avazu"
BETWEEN = "table-4-avazu-between"  # the three other sizes of FedHSSL
SEARCHED = "table-2-avazu-vfl"  # vanilla VFL by Adam
ALONE = {AVAZU: "table-2-avazu-alone"}  # Local-A at the best of more pairs than in the study
SIZES = {
    AVAZU: (250, 500, 1000, 2000, 4000, 8000),
    CRITEO: (200, 400, 600, 800, 1000, 2000),
    RIVALS: (200, 400, 600, 800, 1000),
}
KINDS = ("simsiam", "byol", "moco")
THREE, BEST = "VFL by SGD", "VFL by Adam"  # best of three and of four settings
CHOSEN = "Rates, beta and lengths chosen on validation rows."


def lines() -> Iterator[Line]:
    """All claims of the paper, in its order."""
    yield from vanilla()
    yield alone(AVAZU, "VFLHLP above active party, 8000 rows", (8000,))
    yield from unaided()
    yield alone(CRITEO, "VFLHLP above active party", SIZES[CRITEO])
    for way, word in (("a", "supervised"), ("p", "self-supervised")):
        yield Line(
            "F5 Criteo",
            f"both parts above {word}",
            against(CRITEO, f"vflhlp-{way}", SIZES[CRITEO]),
            [f"vflhlp/{CRITEO}"],
            shows="curves",
            digits=3,
            note=CHOSEN,
        )
    few = (400,)
    most = tuple(n for n in SIZES[RIVALS] if n not in few)
    yield rivals("VFLHLP above FedHSSL, not 400 rows", most, 1)
    yield rivals("FedHSSL above, 400 rows", few, -1)


def vanilla() -> Iterator[Line]:
    """Claims of Tables 2 to 4: VFLHLP is above VFL without pre-training."""
    for number, study in enumerate(SIZES, 2):
        sizes = SIZES[study]
        line = Line(
            f"T{number} {'Criteo' if study == CRITEO else 'Avazu'}",
            "VFLHLP above VFL",
            against(study, "vfl", sizes),
            [f"vflhlp/{study}"],
            gaps(study, "vfl", sizes),
            digits=3,
            note=CHOSEN,
        )
        if study != AVAZU:
            yield line
            continue
        ways = {THREE: line.differences, BEST: against(study, "vfl", sizes, SEARCHED)}
        for each in readings(line, ways):
            more = [f"vflhlp/{SEARCHED}"] * (each.depends == BEST)
            yield replace(each, studies=[*line.studies, *more])


def alone(study: str, claim: str, sizes: Sequence[int]) -> Line:
    """Claim that VFLHLP is above the active party alone, with its labels and own columns."""
    return Line(
        "T2 Avazu" if study == AVAZU else "T3 Criteo",
        claim,
        against(study, "local", sizes),
        list(dict.fromkeys(f"vflhlp/{one}" for one in (study, ALONE.get(study, study)))),
        gaps(study, "local", sizes),
        digits=3,
        note="On Avazu the active party's rate and length are the best of thirty pairs on "
        "validation rows.",
    )


def unaided() -> Iterator[Line]:
    """Claim that the active party alone is above VFL at 8000 aligned rows."""
    own = values(f"vflhlp/{ALONE[AVAZU]}", "local, 250 aligned", "test_auc")
    paper = results(f"vflhlp/{AVAZU}")["paper"]
    for way, study in {THREE: AVAZU, BEST: SEARCHED}.items():
        vfl = values(f"vflhlp/{study}", "vfl, 8000 aligned", "test_auc")
        yield Line(
            "T2 Avazu",
            "active party above VFL, 8000 rows",
            [paired("8000", own, vfl, 1.0)],
            [f"vflhlp/{study}", f"vflhlp/{ALONE[AVAZU]}"],
            printed(paper["local"][0] - paper["vfl"][-1]),
            depends=way,
            digits=3,
            note=CHOSEN,
        )


def rivals(claim: str, sizes: Sequence[int], way: int) -> Line:
    """Claim on VFLHLP against the three kinds of FedHSSL at some numbers of aligned rows.

    `way` is 1 if the paper prints VFLHLP above, -1 if it prints FedHSSL above.
    """
    found, paper = [], []
    for kind in KINDS:
        for n in sizes:
            run = f"fedhssl-{kind}, {n} aligned"
            study = next(one for one in (RIVALS, BETWEEN) if run in runs(f"vflhlp/{one}"))
            found += named(kind, against(study, f"fedhssl-{kind}", (n,)))
            paper += [way * size.low for size in gaps(study, f"fedhssl-{kind}", (n,))]
    return Line(
        "T4 Avazu",
        claim,
        found if way > 0 else turned(found),
        [f"vflhlp/{RIVALS}", f"vflhlp/{BETWEEN}"],
        printed(*paper),
        digits=3,
        note=f"{CHOSEN} FedHSSL has up to 40 epochs. The paper says that VFLHLP is generally "
        "above, and prints it below all three at 400 rows.",
    )


def gaps(study: str, other: str, sizes: Sequence[int]) -> tuple[Printed, ...]:
    """AUC of VFLHLP minus that of `other` in the paper, for each number of aligned rows."""
    paper = results(f"vflhlp/{study}")["paper"]
    own, theirs = (dict(_by_size(paper, name)) for name in ("vflhlp", other))
    return printed(*(round(own[n] - theirs[n], 3) for n in sizes))


def _by_size(paper: Mapping[str, Any], name: str) -> Iterator[tuple[int, float]]:
    """Pairs (aligned rows, the paper's AUC); a method without aligned rows has one AUC for all."""
    aligned, found = paper["aligned"], paper[name]
    return zip(aligned, found * (len(aligned) // len(found)), strict=True)


def against(
    study: str, other: str, sizes: Sequence[int], where: str | None = None
) -> list[Difference]:
    """AUC of VFLHLP minus that of the run `other`, for each number of aligned rows.

    `where` names the study of the other run if it is not `study`.
    """
    found = []
    for n in sizes:
        two = f"{other}, {n} aligned"
        theirs = f"vflhlp/{where or study}"
        if other == "local":  # it has its own rows alone, so it was run once
            theirs = f"vflhlp/{ALONE.get(study, study)}"
            two = next(run for run in runs(theirs) if run.startswith("local, "))
        own = values(f"vflhlp/{study}", f"vflhlp, {n} aligned", "test_auc")
        found.append(paired(str(n), own, values(theirs, two, "test_auc"), 1.0))
    return found
