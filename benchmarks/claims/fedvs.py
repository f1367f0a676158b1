"""Claims of FedVS."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stored import (
    RESULTS,
    Difference,
    at_times,
    final,
    over_time,
    paired,
    results,
    runs,
)

from claims.line import NAMES, Line, named, printed, readings, turned

MOMENTS = (
    "The server model has batch normalisation, whose running moments lag behind Adam's steps, so "
    "that one seed has other accuracies on another processor."
)
TUNED = "Each method's rates were chosen on validation rows, in the study of coded_split."
BY_HAND = "One rate for all, set by hand."
CALTECH = "caltech-7"
FIRST_SETS = ("fashion-mnist", "emnist", "handwritten", "caltech-7")
TABLES = ("credit-card", "parkinson")


def lines() -> Iterator[Line]:
    """All claims of the paper, in its order."""
    yield from figure_1()
    yield from table_1()
    for name in FIRST_SETS:
        yield from features(name, at_all_times(name))
    for name in TABLES:
        yield from first_and_last(name)
    for name in (*FIRST_SETS, *TABLES):
        yield from features(name, noise(name))
    yield from figure_3a()
    yield figure_3b()
    yield from figure_4()
    yield theorem()
    yield from read_off()


def figure_1() -> Iterator[Line]:
    """Claims of Figure 1: stragglers cost accuracy, and concatenation is above mean and maximum."""
    study, T = "fedvs/figure-1", 400.0
    found = at_times(study)
    lag = [
        paired(f"{way}-{kind}", found[f"all-fast-{kind}", T], found[f"{way}-{kind}", T])
        for way in ("wait", "ignore", "vafl")
        for kind in ("concat", "mean", "max")
    ]
    best = [
        paired(f"{way}, above {kind}", found[f"{way}-concat", T], found[f"{way}-{kind}", T])
        for way in ("wait", "ignore", "vafl", "all-fast")
        for kind in ("mean", "max")
    ]
    note = "At 400 s, polynomial clients."
    for claim, differences in (
        ("no stragglers above stragglers", lag),
        ("concatenation above mean and max", best),
    ):
        yield Line("F1", claim, differences, [study], shows="curves", note=note)


def table_1() -> Iterator[Line]:
    """Claims of Table 1 on client networks: CNN, MLP, polynomial (PN), and their numbers of layers.

    The text of the paper states the first, second and last of them; the third is in the table
    alone.
    """
    depths = (1, 2, 3)
    beside = {
        "CNN clients above MLP": [("cnn", "mlp", d, d) for d in depths],
        "CNN above PN (comparable)": [("cnn", "pn", d, d) for d in depths],
        "MLP above PN (table alone)": [("mlp", "pn", d, d) for d in depths],
        "a little more with each layer": [
            (kind, kind, d, d - 1) for kind in ("mlp", "cnn", "pn") for d in (2, 3)
        ],
    }
    study = "fedvs/table-1"
    paper = results(study)["paper"]
    for claim, pairs in beside.items():
        runs_ = [(f"{one}-{depth}", f"{other}-{lower}") for one, other, depth, lower in pairs]
        yield Line(
            "T1",
            claim,
            [final(study, one, two, name=f"{one} above {two}") for one, two in runs_],
            [study],
            printed(*(paper[one]["accuracy"] - paper[two]["accuracy"] for one, two in runs_)),
            note="20 epochs; rates chosen on validation rows; widths, channels and how an "
            "embedding enters VGG13 are ours.",
        )


def above(study: str, others: Sequence[str], faster: float = 1.0) -> list[Difference]:
    """Accuracy of FedVS minus that of each other run, at all times of a study.

    `faster` reads FedVS off at so many times the time (`over_time`).
    """
    return [d for run in others for d in named(run, over_time(study, "fedvs", run, faster=faster))]


def at_all_times(name: str) -> Iterator[Line]:
    """Claims of Figure 2 on a data set: FedVS is above all other methods at all times.

    The runs are those of the studies of coded_split, under each reading of the paper's delays.
    """
    study = f"coded_split/{name}"
    busy = f"{study}-occupies"
    steps = " and ".join(f"{runs(busy)[run]['rounds']['mean']:.0f}" for run in ("fedvs", "wait"))
    line = Line(
        f"F2 {NAMES[name]}",
        "FedVS above Wait, Wait-DP",
        (),
        [study, busy],
        shows="curves",
        note=f"{TUNED} The paper does not say whether a late party works on. Where a delay keeps "
        f"its party busy FedVS and Wait make {steps} steps.",
    )
    waits = ("wait", "wait-dp")
    ways = {
        "latency": above(study, waits),
        "busy": above(busy, waits),
    }
    yield from readings(line, ways)
    note = (
        f"{TUNED} The paper prints no base of the logarithm in its delay of sharing. With ln for "
        "log2 rounds take half as long, so FedVS is read off at twice the time. Computing is not "
        "charged, which favours FedVS; every arrival is a step of VAFL."
    )
    for run, word in (("ignore", "Ignore"), ("vafl", "VAFL")):
        line = Line(
            f"F2 {NAMES[name]}", f"FedVS above {word}", (), [study], shows="curves", note=note
        )
        bases = {"log2": above(study, [run]), "ln": above(study, [run], 2.0)}
        yield from readings(line, bases)


def features(name: str, found: Iterator[Line]) -> Iterator[Line]:
    """The same lines; for Caltech-7 each states that its features were extracted anew."""
    for line in found:
        yield replace(line, depends=f"{line.depends}; own features") if name == CALTECH else line


def noise(name: str) -> Iterator[Line]:
    """Claim of Figure 2 that noise costs accuracy: Wait is above Wait-DP.

    Noise is ours (Gaussian) or that of the paper which FedVS cites (Laplace).
    """
    study, cited = f"coded_split/{name}", f"fedvs/laplace-{name}"
    line = Line(
        f"F2 {NAMES[name]}",
        "Wait above Wait-DP",
        (),
        [study, *[cited] * (RESULTS / cited).exists()],
        shows="curves",
        note=f"{TUNED} The paper names no mechanism. Ours is Gaussian for each row, C = 1, "
        "delta = 1e-5, epsilon' = 5; its citation has Laplace noise for each entry.",
    )
    ways = {"Gaussian noise": over_time(study, "wait", "wait-dp")}
    if (RESULTS / cited).exists():
        ways["Laplace noise, cited"] = over_time(cited, "wait", "wait-dp")
    yield from readings(line, ways)


def earliest(study: str) -> list[Difference]:
    """Accuracy of Ignore and of VAFL minus that of FedVS, at the first two times of a study."""
    found = [named(run, over_time(study, "fedvs", run))[:2] for run in ("ignore", "vafl")]
    return turned([each for own in found for each in own])


def latest(study: str) -> list[Difference]:
    """Accuracy of FedVS minus those of Ignore and VAFL, at the last time of a study."""
    return [named(run, over_time(study, "fedvs", run))[-1] for run in ("ignore", "vafl")]


def first_and_last(name: str) -> Iterator[Line]:
    """Claims of Figure 2 on a table: FedVS is below VAFL and Ignore first, and above in the end."""
    ways = {"tuned rates": f"coded_split/{name}", "one rate": f"fedvs/figure-2-{name}"}
    for claim, measured in (
        ("VAFL, Ignore first", earliest),
        ("FedVS in the end", latest),
    ):
        for way, study in ways.items():
            times = sorted({time for _, time in at_times(study)})
            when = f"{times[-1]:g} s" if measured is latest else f"{times[0]:g} and {times[1]:g} s"
            parts = [f"At {when}.", TUNED if way == "tuned rates" else BY_HAND]
            parts += [MOMENTS] * (name == "credit-card")
            yield Line(
                f"F2 {NAMES[name]}",
                claim,
                measured(study),
                [study],
                shows="curves",
                depends=way,
                note=" ".join(parts),
            )


def figure_3a() -> Iterator[Line]:
    """Claim of Figure 3(a): where delays dominate, fewer segments K are better."""
    study, rows, T = "fedvs/figure-3a", "fedvs/figure-3a-rows", 240.0
    line = Line(
        "F3(a)",
        "delays dominate: smaller K better",
        (),
        [study],
        shows="curves",
        note="At 240 s. With 256 samples for every K, |B| = 256/K, and the delay of sharing, which "
        "goes with 1/|B|, doubles with K. The paper's 256 can be |B|.",
    )
    ways: dict[str, list[Difference]] = {}
    for reading, more in (("256 rows, all K", study), ("256 K rows", rows)):
        if not (RESULTS / more).exists():
            ways[reading] = []
            continue
        at = {K: at_times(study if K == 1 else more)[f"K = {K}", T] for K in (1, 2, 4, 8)}
        ways[reading] = [paired(f"K = {K} above K = {2 * K}", at[K], at[2 * K]) for K in (1, 2, 4)]
    yield from readings(line, ways)


def figure_3b() -> Line:
    """Claim of Figure 3(b): where computing dominates, more segments K are better."""
    study, T = "fedvs/figure-3b", 200.0
    found = at_times(study)
    order = [
        paired(f"K = {k} above K = {k // 2}", found[f"K = {k}", T], found[f"K = {k // 2}", T])
        for k in (2, 4, 8)
    ]
    return Line(
        "F3(b)",
        "computing dominates: larger K better",
        order,
        [study],
        shows="curves",
        note="At 200 s; means of delays ten times smaller, and 1e-7 s a multiply-add, are ours.",
    )


def figure_4() -> Iterator[Line]:
    """Claims of Figure 4: tolerating one colluder (T = 1) is faster than tolerating 2, 4 or 6."""
    for K, study in ((1, "fedvs/figure-4"), (4, "fedvs/figure-4-k4")):
        yield Line(
            "F4",
            "T = 1 ahead of T = 2, 4, 6",
            [
                each
                for t in (2, 4, 6)
                for each in named(
                    f"T = 1 above T = {t},", over_time(study, "T = 1", f"T = {t}", times=(300.0,))
                )
            ],
            [study],
            shows="curves",
            depends=f"K = {K}",
            note="At 300 s. A round is dominated by sharing models, for which all 28 parties are "
            "waited for.",
        )


def theorem() -> Line:
    """Claim of Theorem 5.4: the mean squared gradient falls with rounds R as R^-0.5 or faster."""
    study = "fedvs/rate"
    found = json.loads((RESULTS / study / "rate.json").read_text())["runs"]
    slopes = {name: run["slope"] for name, run in found.items()}
    own = slopes["lw = 24"]
    few = " and ".join(f"{slopes[n]['mean']:.2f}" for n in ("lw = 3", "lw = 2"))
    seeds = len(found["lw = 24"]["norms"])
    steeper = Difference("steeper by", -0.5 - own["mean"], own["half_width_95"], seeds)
    return Line(
        "Th 5.4",
        "gradient^2 falls by R^-0.5 or faster",
        [steeper],
        [study],
        shows="bound",
        digits=2,
        note=f"Handwritten, 24 bits. Slope {own['mean']:.2f} for R up to 4096. With 3 and 2 bits "
        f"the slopes are {few}.",
    )


def read_off() -> Iterator[Line]:
    """Our accuracies beside those that DVFL's authors read off the plots of FedVS."""
    for name in ("credit-card", "parkinson-row", "caltech-7", "handwritten"):
        study = f"fedvs/{name}"
        own = runs(study)["fedvs"]["test_accuracy"]
        level = (100 * own["mean"], 100 * own["half_width_95"], len(own["values"]))
        yield Line(
            "DVFL's T2",
            f"FedVS on {NAMES[name.removesuffix('-row')]}, read off",
            [Difference("accuracy", *level)],
            [study],
            printed(results(study)["paper"]["accuracy"]),
            depends={CALTECH: "own features", "parkinson-row": "split by row"}.get(name, ""),
            levels=True,
            digits=2,
            note="A value read off a plot has no interval. Parkinson is split by row, so that rows "
            "of a person lie on both sides.",
        )
