"""Write docs/results.md: one line for each table and figure of the five papers.

Run it from the repository's root after a study: ``python benchmarks/results_page.py``. Figures in
the reasons are computed from ``benchmarks/results``; a verdict from intervals gives way where a
setting of ours is known that could turn it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pages import table
from verdicts import (
    RESULTS,
    STOPS,
    WORDS,
    Difference,
    Finding,
    at_times,
    final,
    judge,
    last_loss,
    over_time,
    paired,
    runs,
    time_saved,
    values,
)

PAGE = Path("docs/results.md")
CHANGES = Path(__file__).parent / "papers" / "changed_verdicts.json"

HEAD = """# What the papers claim, and what was found here

One line for each table and figure of the five papers that are reproduced here, and for each claim
of it. Figures are differences in points of held-out accuracy (of AUC or of the loss where it says
so), paired by seed, with 95 % t intervals, corrected for their number by Holm's rule within a line.

- **confirmed**: every difference has the claimed sign beyond its interval, and we know of no
  setting of ours that could turn it. *Reduced* says that our form is smaller than the paper's.
- **refuted**: a difference has the other sign beyond its interval, in every reading that was tried.
- **undecided**: the intervals hold 0, there is one seed, or a setting of ours is known that could
  turn the verdict; the reason says which.
- **not run**: there is no result here, or what was run is another experiment.

Learning rates, lengths and beta were chosen by us and, but for the studies of
[coded_split](results-coded-split.md), not on validation rows: where a rate was chosen at all, it
was on test rows, of another seed than the study's or, for CVFL on MNIST, of seed 0, which the study
has. `benchmarks/results_page.py` writes this page from `benchmarks/results`.
"""


@dataclass(frozen=True)
class Line:
    """One claim of a table or figure with its verdict."""

    paper: str
    place: str
    claim: str
    word: str
    reason: str


def open_question(found: Finding, why: str) -> Finding:
    """A finding that a setting of ours could turn."""
    return Finding("undecided", f"{found.text}. But {why}")


def also(found: Finding, text: str) -> Finding:
    """A finding with a remark."""
    return Finding(found.word, f"{found.text}. {text}")


# -- FedVS -----------------------------------------------------------------------------------------

SETS = {
    "fashion-mnist": "Fashion-MNIST",
    "emnist": "EMNIST",
    "handwritten": "Handwritten",
    "credit-card": "Credit Card",
    "parkinson": "Parkinson",
}
AT_ALL_TIMES = ("fashion-mnist", "emnist", "handwritten")
OCCUPIES = (
    "this is with delays that are latency: where a delay occupies its party, FedVS makes "
    "fewer steps "
    "than Wait (Handwritten, 47 and 51 in 240 s) and does not lead it "
    "([stragglers.md](stragglers.md)); the paper does not say which is meant"
)


def figure_1() -> Iterator[tuple[str, Finding]]:
    study, T = "fedvs/figure-1", 400.0
    found = at_times(study)
    kinds = ("concat", "mean", "max")
    lag = [
        paired(f"{way}-{kind}", found[f"all-fast-{kind}", T], found[f"{way}-{kind}", T])
        for way in ("wait", "ignore", "vafl")
        for kind in kinds
    ]
    yield (
        "stragglers cost accuracy under every aggregation and every way to handle them",
        also(judge(lag), "At 400 s; 3 seeds, polynomial clients"),
    )
    best = [
        paired(f"{way}, above {kind}", found[f"{way}-concat", T], found[f"{way}-{kind}", T])
        for way in ("wait", "ignore", "vafl", "all-fast")
        for kind in ("mean", "max")
    ]
    yield "concatenation is the best aggregation", also(judge(best), "At 400 s; 3 seeds")


def figure_2(name: str) -> Iterator[tuple[str, Finding]]:
    study = f"fedvs/figure-2-{name}"
    waits = [d for run in ("wait", "wait-dp") for d in _named(run, over_time(study, "fedvs", run))]
    others = {run: over_time(study, "fedvs", run) for run in ("ignore", "vafl")}
    if name in AT_ALL_TIMES:
        yield "FedVS above Wait and Wait-DP at all times", open_question(_short(waits), OCCUPIES)
        twice = {run: over_time(study, "fedvs", run, faster=2.0) for run in others}
        both = [d for run, own in others.items() for d in _named(run, own)]
        quick = [d for run, own in twice.items() for d in _named(run, own)]
        found = judge(quick)
        text = f"As run: {_short(both).text}. With rounds of half the time: {_short(quick).text}"
        yield (
            "FedVS above Ignore and VAFL at all times",
            Finding(
                found.word,
                f"{text}. With ln for log2 in the delay of sharing, of which the paper prints "
                "no base, "
                "FedVS's rounds take half as long, so it is also read off at twice the time. "
                "Computing is not charged, which favours FedVS; every arrival is a step of VAFL",
            ),
        )
        return
    last = [_named(run, own)[-1] for run, own in others.items()]
    yield (
        "VAFL and Ignore first",
        also(
            judge([_flip(_named(run, own)[0]) for run, own in others.items()]), "At the first time"
        ),
    )
    yield (
        "in the end FedVS above VAFL and Ignore",
        also(
            judge(last),
            f"At {max(t for _, t in at_times(study)):g} s, with FedVS at {_steps(study)} steps: "
            "FedVS may lead later; single evaluations swing by a point",
        ),
    )


def figure_2_caltech() -> Iterator[tuple[str, Finding]]:
    """From the study of coded_split, which has all methods with rates chosen on validation rows."""
    study = "coded_split/caltech-7"
    remark = (
        "Views extracted anew; each method's rates were chosen on validation rows. Of the study "
        "of coded_split: [figures](results-coded-split.md#caltech-7)"
    )
    for words, names in (("Wait and Wait-DP", ("wait", "wait-dp")),
                         ("Ignore and VAFL", ("ignore", "vafl"))):  # fmt: skip
        own = [d for run in names for d in _named(run, over_time(study, "fedvs", run))]
        claim = f"FedVS above {words} at all times"
        if "wait" in names:
            yield claim, open_question(also(_short(own), remark), OCCUPIES)
            continue
        twice = [
            d for run in names for d in _named(run, over_time(study, "fedvs", run, faster=2.0))
        ]
        found = judge(twice)
        text = f"As run: {_short(own).text}. With rounds of half the time: {_short(twice).text}"
        yield claim, Finding(found.word, f"{text}. {remark}")


def _named(run: str, found: list[Difference]) -> list[Difference]:
    return [Difference(f"{run} {d.name}", d.mean, d.half, d.pairs) for d in found]


def _flip(d: Difference) -> Difference:
    return Difference(d.name, -d.mean, d.half, d.pairs)


def _steps(study: str) -> str:
    return f"{runs(study)['fedvs']['rounds']['mean']:,.0f}"


def _short(found: list[Difference]) -> Finding:
    """A judgement on many differences, told by their range."""
    whole = judge(found)
    count = whole.text[whole.text.rindex("(") + 1 : -1]
    low, high = (pick(d.mean for d in found) for pick in (min, max))
    return Finding(whole.word, f"{low:+.1f} to {high:+.1f}, {count}")


def figure_3a() -> Iterator[tuple[str, Finding]]:
    steps = [("K = 1", "K = 2"), ("K = 2", "K = 4"), ("K = 4", "K = 8")]
    found = at_times("fedvs/figure-3a")
    order = [paired(f"{a} above {b}", found[a, 240.0], found[b, 240.0]) for a, b in steps]
    yield (
        "where delays dominate, a smaller K is better",
        open_question(
            judge(order),
            "the batch is 256 for every K, so |B| = 256/K and the delay of sharing, which goes "
            "with 1/|B|, doubles with K. The paper's 256 can be |B|: then the planner has rounds "
            "of 1.27, 1.34 and 1.49 s for K = 1, 2 and 4, each with K times the rows. At 240 s",
        ),
    )


def figure_3b() -> Iterator[tuple[str, Finding]]:
    found = at_times("fedvs/figure-3b")
    order = [
        paired(f"{k} above K = 1", found[k, 200.0], found["K = 1", 200.0])
        for k in ("K = 2", "K = 4", "K = 8")
    ]
    yield (
        "where computing dominates, a larger K is better",
        also(
            judge(order),
            "At 200 s; means of delays ten times smaller and 1e-7 s a multiply-add are ours",
        ),
    )


def figure_4() -> Iterator[tuple[str, Finding]]:
    found = at_times("fedvs/figure-4")
    order = [
        paired(f"T = 1 above T = {t}", found["T = 1", 300.0], found[f"T = {t}", 300.0])
        for t in (2, 4, 6)
    ]
    yield (
        "a larger T is slower",
        also(
            judge(order),
            "At 300 s. K = 1 leaves R at 13 of 28 at most; K = 4, where T weighs, was not run",
        ),
    )


def theorem() -> Iterator[tuple[str, Finding]]:
    found = json.loads((RESULTS / "fedvs/rate/rate.json").read_text())["runs"]
    slopes = {name: run["slope"] for name, run in found.items()}
    ours = slopes["lw = 24"]
    steep = ours["mean"] + ours["half_width_95"] <= -0.5
    yield (
        "the squared gradient norm is O(1/sqrt(R)): a slope of -1/2 or steeper",
        Finding(
            "confirmed" if steep else "undecided",
            f"24 bits: {ours['mean']:.2f} ± {ours['half_width_95']:.2f}; 3 seeds of "
            "Handwritten, R up to "
            "4096. With 3 and 2 bits the slopes are "
            + " and ".join(f"{slopes[n]['mean']:.2f}" for n in ("lw = 3", "lw = 2"))
            + ": a floor there is undecided",
        ),
    )


def fedvs() -> Iterator[Line]:
    for claim, found in figure_1():
        yield Line("FedVS", "Figure 1", claim, *_of(found))
    yield Line(
        "FedVS",
        "Table 1",
        "CNN best, PN comparable to MLP, a little more with each layer",
        *_of(table_1()),
    )
    for name, shown in SETS.items():
        for claim, found in figure_2(name):
            yield Line("FedVS", f"Figure 2, {shown}", claim, *_of(found))
    for claim, found in figure_2_caltech():
        yield Line("FedVS", "Figure 2, Caltech-7", claim, *_of(found))
    for place, rows in (
        ("Figure 3(a)", figure_3a()),
        ("Figure 3(b)", figure_3b()),
        ("Figure 4", figure_4()),
        ("Theorem 5.4", theorem()),
    ):
        for claim, found in rows:
            yield Line("FedVS", place, claim, *_of(found))


def table_1() -> Finding:
    own = runs("fedvs/table-1")
    pairs = [(f"CNN-{d} above PN-{d}", f"cnn-{d}", f"pn-{d}") for d in (1, 2, 3)]
    text = "; ".join(
        f"{name}: {100 * (own[a]['test_accuracy']['mean'] - own[b]['test_accuracy']['mean']):+.1f}"
        for name, a, b in pairs
    )
    return Finding("undecided", f"{text}: one seed and two epochs")


def _of(found: Finding) -> tuple[str, str]:
    return found.word, found.text


# -- CVFL ------------------------------------------------------------------------------------------

EARLIER = {"mnist": "20.1", "fashion-mnist": "57.1", "cifar10": "20.4"}
CASES = {"3": "iid-50", "4": "iid-95", "5": "noniid-50", "6": "noniid-95"}


def cvfl() -> Iterator[Line]:
    for name in STOPS:
        study = f"cvfl/table-2-{name}"
        above = judge(
            [
                final(study, "centralised", "cvfl", name="centralised above CVFL"),
                final(study, "cvfl", "single", name="CVFL above single"),
            ],
            2,
        )
        if name == "mnist":
            above = open_question(
                above,
                "rates differ by method (0.03 for centralised and single, 0.01 for CVFL), "
                "chosen on "
                "test rows of a seed of the study, and all fall to 0, so rate and method are mixed",
            )
        elif name == "cifar10":
            above = also(above, "Reduced: small networks, 12 epochs, levels 15 to 22 points lower")
        else:
            above = also(
                above, "Reduced: small networks, 3 seeds; training in step is level with CVFL"
            )
        yield Line("CVFL", f"Table 2, {name}", "centralised above CVFL above single", *_of(above))
    for name, levels in STOPS.items():
        study = f"cvfl/table-2-{name}"
        found = [time_saved(study, "cvfl", "cvfl-sync", level, name) for level in levels]
        saved = judge([each for each in found if each is not None])
        remark = (
            f"Per cent of the time in step (paper {EARLIER[name]} % earlier), to stop losses "
            "that are the "
            "same for all seeds. They were set by us after the curves were seen, and rates "
            "fall to 0, "
            "the paper's are constant"
        )
        if name == "fashion-mnist":
            remark += "; the paper's loss of 0.25 is not reached"
        yield Line(
            "CVFL",
            f"Figure 2, {name}",
            "asynchronous earlier than in step",
            *_of(also(saved, remark)),
        )
    for number, case in CASES.items():
        yield from figure_q(number, case)


def figure_q(number: str, case: str) -> Iterator[Line]:
    claim = "q = 3 ends at a lower test loss than q = 1"
    for name in ("mnist", "fashion-mnist"):
        study = f"cvfl/figures-3-6-{name}"
        lower = paired(name, last_loss(study, f"{case}-q1"), last_loss(study, f"{case}-q3"), 1.0)
        remark = "Reduced: one Linear layer for the paper's CNN. "
        if name == "mnist":
            control = paired(
                "control", last_loss(study, f"{case}-q1-lr3"), last_loss(study, f"{case}-q3"), 1.0
            )
            whose = "above" if control.mean > 0 else "below"
            remark += (
                f"q = 1 with three times the rate ends {abs(control.mean):.3f} ± "
                f"{control.half:.3f} {whose} "
                "q = 3" + ("" if control.mean > 0 else ": the gain is that of a longer step")
            )
        else:
            remark += "No control with a larger rate was run on this set"
        yield Line("CVFL", f"Figure {number}, {name}", claim, *_of(also(judge([lower], 3), remark)))
    study = "cvfl/figures-3-6-cifar10"
    lower = paired("cifar10", last_loss(study, f"{case}-q1"), last_loss(study, f"{case}-q3"), 1.0)
    yield Line(
        "CVFL",
        f"Figure {number}, cifar10",
        claim,
        *_of(
            open_question(
                judge([lower], 3),
                "one Linear layer in 2500 steps hardly learns this set "
                "(2.30 is guessing): the paper's networks were not run",
            )
        ),
    )


# -- Multi-VFL -------------------------------------------------------------------------------------

LOCAL_ADAM = (
    "clients step by Adam, renewed in each round, where line 7 of the algorithm is SGD; 50 of 500 "
    "rounds, batch 125 for 64, and linear bottoms. What the paper prints was not run"
)


def multivfl() -> Iterator[Line]:
    for place, name in (("mnist", "mnist"), ("fashion-mnist", "fashion-mnist")):
        study = f"multivfl/figures-2-3-{name}"
        falls = judge(
            [
                final(
                    study,
                    f"fedavg-{k}niid",
                    f"fedavg-{k + 1}niid",
                    name=f"{k}niid above {k + 1}niid",
                )
                for k in (1, 2, 3)
            ]
        )
        yield Line(
            "Multi-VFL",
            f"Figure 2, {place}",
            "accuracy falls from 1niid to 4niid",
            *_of(open_question(falls, LOCAL_ADAM)),
        )
        leads = judge(
            [
                final(study, f"{way}-4niid", "fedavg-4niid", name=f"{way} above FedAvg")
                for way in ("fedadam", "fedyogi", "feddemonadam")
            ]
        )
        yield Line(
            "Multi-VFL",
            f"Figure 3, {place}",
            "adaptive server optimisers beat FedAvg at 4niid",
            *_of(
                open_question(
                    leads,
                    LOCAL_ADAM + ". FedDemonAdam's sums are undivided, so its "
                    "steps are up to ten times longer at the same rate",
                )
            ),
        )


# -- DVFL ------------------------------------------------------------------------------------------

OTHER_SPLIT = (
    "SplitNN here is another network (196-40-40 and its classifier) than the paper's, whose "
    "guests and "
    "hosts are DVFL's encoders"
)
SHORT = "3000 of 60,000 rows and half the epochs, 3 seeds"


def rivals_fall(rule: str) -> Difference:
    """Points that a rival loses by host faults at rejoin 0.1 beyond what DVFL loses."""
    lost = [
        {seed: value - down[seed] for seed, value in up.items()}
        for up, down in (
            (
                values("dvfl/main-by-time", f"{rule}-none"),
                values("dvfl/main-by-time", f"{rule}-host-0.1"),
            ),
            (values("dvfl/main-dvfl", "none"), values("dvfl/main-dvfl", "host-0.1")),
        )
    ]
    return paired(f"{rule} loses more than DVFL by", *lost)


def dvfl() -> Iterator[Line]:
    p = "DVFL"
    gap = final("dvfl/all-rows", "dvfl", "split", name="DVFL minus SplitNN")
    yield Line(
        p,
        "Main table, no faults",
        "DVFL within half a point of SplitNN",
        "undecided",
        f"{gap.text(2)}; all rows, a quarter of the epochs, 5 seeds. It is, but {OTHER_SPLIT}",
    )
    for kind in ("link", "guest"):
        zeros = values("dvfl/main-split", f"zeros-{kind}-0.1")
        skip = values("dvfl/main-split", f"skip-{kind}-0.1")
        own = values("dvfl/main-dvfl", f"{kind}-0.1")
        yield Line(
            p,
            f"Main table, {kind} loss",
            "DVFL above SplitNN-zeros at rejoin 0.1",
            *_of(open_question(judge([paired("points", own, zeros)]), f"{OTHER_SPLIT}; {SHORT}")),
        )
        yield Line(
            p,
            f"Main table, {kind} loss",
            "SplitNN-zeros above SplitNN-skip at rejoin 0.1",
            *_of(also(judge([paired("points", zeros, skip)]), f"Reduced: {SHORT}")),
        )
        rules = {
            rule: values("dvfl/main-split-message", f"{rule}-{kind}-0.1")
            for rule in ("zeros", "message", "skip")
        }
        order = judge([paired("zeros above buffer", rules["zeros"], rules["message"]),
                       paired("buffer above skip", rules["message"], rules["skip"])])  # fmt: skip
        yield Line(
            p,
            f"Main table, {kind} loss",
            "SplitNN-zeros above SplitNN-buffer, and it above -skip, at rejoin 0.1",
            *_of(also(order, "The buffer is read as a party's last message, of whatever rows, "
                             f"which the paper does not say. Reduced: {SHORT}")),
        )  # fmt: skip
        fall = paired("points lost", values("dvfl/main-dvfl", "none"), own)
        yield Line(
            p,
            f"Main table, {kind} loss",
            "DVFL loses at most 0.22 points",
            "undecided",
            f"{fall.text(2)}: {SHORT}; a guest that is up for a quarter of the rounds makes "
            "about 115 "
            "steps, 4700 in the paper",
        )
    own = values("dvfl/main-dvfl", "host-0.1")
    fall = paired("points lost by DVFL", values("dvfl/main-dvfl", "none"), own)
    yield Line(
        p,
        "Main table, host loss",
        "DVFL degrades least",
        *_of(
            open_question(
                judge([rivals_fall(rule) for rule in ("skip", "zeros", "message", "vafl")]),
                f"{OTHER_SPLIT}; FedOnce and VFB2 are not among them; {fall.text(2)}; {SHORT}",
            )
        ),
    )
    cells = [f"{kind}-{rate}" for kind in ("link", "guest", "host") for rate in ("1", "0.5", "0.1")]
    yield Line(
        p,
        "Main table, VAFL",
        "below DVFL under every fault",
        *_of(
            open_question(
                judge(
                    [
                        paired(
                            f"DVFL minus VAFL, {each}",
                            values("dvfl/main-dvfl", each),
                            values("dvfl/main-by-time", f"vafl-{each}"),
                        )
                        for each in cells
                    ]
                ),
                f"{SHORT}: a guest that is up for a quarter of the rounds makes about 115 steps, "
                "4700 in the paper. By time, so that nobody makes up for who is away",
            )
        ),
    )
    four = {
        each: final("dvfl/hosts", f"4-{each}", f"1-{each}", name=each)
        for each in ("none", "link-0.1", "host-0.1")
    }
    yield Line(
        p,
        "Figure 3(b)",
        "more hosts are better, with link faults too",
        *_of(
            also(
                judge(list(four.values())),
                f"Four hosts above one. {SHORT}; the paper's figure has link faults",
            )
        ),
    )
    few = [
        final(f"dvfl/aligned-{n}", "dvfl", "split", name=f"{n} rows") for n in (128, 256, 512, 1024)
    ]
    yield Line(
        p,
        "Table 3 (few labelled rows)",
        "DVFL above SplitNN with few labelled rows",
        *_of(
            open_question(
                judge(few, 2), f"{OTHER_SPLIT}, and it is 9 points above the paper's at 128 rows"
            )
        ),
    )
    for name, other in (
        ("credit-card", 1.45),
        ("parkinson", 0.88),
        ("caltech-7", 0.66),
        ("handwritten", 0.0),
    ):
        d = final(f"dvfl/{name}", "dvfl", "split", name="DVFL minus SplitNN")
        word, why = "undecided", f"paper {-other:+.2f}; {OTHER_SPLIT}"
        if name == "caltech-7":
            word = "not run"
            why = (
                f"paper {-other:+.2f}. The hosts' auto-encoders diverge at this rate with our "
                "sizes, so this is no "
                "figure of DVFL; the split is 80/20, and features are extracted anew"
            )
        if name == "credit-card":
            why += "; 80/20, 17.5 epochs of SplitNN for 20"
        yield Line(
            p, f"Table 2, {name}", "DVFL follows SplitNN closely", word, f"{d.text(2)}, {why}"
        )
    read = {"credit-card": 81.99, "parkinson-row": 81.83, "caltech-7": 95.98, "handwritten": 98.25}
    yield Line(
        p, "Table 2, FedVS", "what DVFL's authors read off FedVS's plots", *_of(_read_off(read))
    )
    for what in ("Table 5 (widths and d_k)", "SimCLR guests' accuracies"):
        yield Line(
            p,
            what,
            "accuracy by size" if "5" in what else "SimCLR close to auto-encoders",
            "not run",
            "No study of it",
        )
    often = final("dvfl/period", "1-none", "20-none", name="period 1 above 20")
    yield Line(
        p,
        "F.1 (communication period)",
        "more communication, more accuracy",
        *_of(also(judge([often], 2), f"Reduced: {SHORT}, without the paper's faults")),
    )
    cost = json.loads((RESULTS / "dvfl/epochs.json").read_text())["seconds"]
    one, sim, two = (cost[n]["guest process"] for n in ("dvfl", "dvfl, simclr", "split"))
    yield Line(
        p,
        "F.3 (seconds)",
        "a guest of DVFL is alive for less time than one of SplitNN",
        "undecided",
        f"{one:.0f} s against {two:.0f} s of processor (56 against 80), one measurement; with "
        "SimCLR "
        f"{sim:.0f} s, where the paper has 306 s with another network",
    )


def _read_off(read: dict[str, float]) -> Finding:
    """Our FedVS beside what was read off its plots."""
    parts = []
    for name, theirs in read.items():
        own = runs(f"fedvs/{name}")["fedvs"]["test_accuracy"]
        parts.append(
            f"{name} {100 * own['mean']:.2f} ± {100 * own['half_width_95']:.2f} ({theirs})"
        )
    return Finding(
        "undecided",
        "; ".join(parts)
        + ": values read off a plot have no interval; Parkinson leaks between rows of a "
        "person, and Caltech-7's features are not the paper's",
    )


# -- VFLHLP ----------------------------------------------------------------------------------------

PRETRAINED = (
    "pre-training has 6 epochs and beta is 1, neither chosen on validation rows, which the paper "
    "has on Criteo; a short check, not committed, found the supervised part trained past its best"
)


def vflhlp() -> Iterator[Line]:
    p = "VFLHLP"
    sizes = {
        "table-2-avazu": (250, 500, 1000, 2000, 4000, 8000),
        "table-3-criteo": (200, 400, 1000, 2000),
        "table-4-avazu": (200, 600, 1000),
    }

    def against(study: str, other: str, which: tuple[int, ...]) -> list[Difference]:
        found = []
        for n in which:
            two = (
                "local, 250 aligned"
                if other == "local" and "avazu" in study
                else f"{other}, {n} aligned"
            )
            if other == "local":
                two = next(
                    label for label in runs(f"vflhlp/{study}") if label.startswith("local, ")
                )
            found.append(
                final(
                    f"vflhlp/{study}", f"vflhlp, {n} aligned", two, measure="test_auc", name=str(n)
                )
            )
        return found

    for number, study, rows in (
        ("2", "table-2-avazu", "15,000 rows"),
        ("3", "table-3-criteo", "10,000 rows"),
        ("4", "table-4-avazu", "15,000 rows"),
    ):
        above = judge(against(study, "vfl", sizes[study]), 3)
        missing = {"3": "; sizes 600 and 800 were not run", "4": "; sizes 400 and 800 were not run"}
        yield Line(
            p,
            f"Table {number}",
            "VFLHLP above vanilla VFL (AUC)",
            *_of(also(above, f"Reduced: {rows}{missing.get(number, '')}")),
        )
    yield Line(
        p,
        "Table 2",
        "VFLHLP above the active party alone at 8000 rows",
        *_of(
            also(
                judge(against("table-2-avazu", "local", (8000,)), 3),
                "Below it at fewer rows, as in the paper (.694 against .719 at 250)",
            )
        ),
    )
    yield Line(
        p,
        "Table 3",
        "VFLHLP above the active party alone",
        *_of(
            open_question(
                judge(against("table-3-criteo", "local", sizes["table-3-criteo"]), 3), PRETRAINED
            )
        ),
    )
    for way, word in (("a", "supervised"), ("p", "self-supervised")):
        yield Line(
            p,
            "Figure 5",
            f"both parts above the {word} one alone (Criteo)",
            *_of(
                open_question(
                    judge(against("table-3-criteo", f"vflhlp-{way}", sizes["table-3-criteo"]), 3),
                    PRETRAINED,
                )
            ),
        )
    rivals = [
        d
        for r in ("simsiam", "byol", "moco")
        for d in _named(r, against("table-4-avazu", f"fedhssl-{r}", sizes["table-4-avazu"]))
    ]
    yield Line(
        p,
        "Table 4",
        "VFLHLP above FedHSSL",
        *_of(
            open_question(
                _short_auc(rivals),
                "the rivals had 6 epochs for 40: a moving average of .999 "
                "keeps 76 % of its start, and their joint part made 18 steps at 200 rows",
            )
        ),
    )


def _short_auc(found: list[Difference]) -> Finding:
    whole = judge(found, 3)
    count = whole.text[whole.text.rindex("(") + 1 : -1]
    low, high = (pick(d.mean for d in found) for pick in (min, max))
    return Finding(whole.word, f"{low:+.3f} to {high:+.3f}, {count}")


NO_RESULT = """Tables and figures that hold no result have no line: FedVS's Table 2, CVFL's Table 1
and Figure 1, Multi-VFL's Tables 1 to 3 and Figure 1, DVFL's Tables 6 and of rates and Figures 1 and
2, VFLHLP's Table 1 and Figures 1 to 4. What DVFL's Figure 3(a) shows is not legible in our copy."""

# -- the page --------------------------------------------------------------------------------------


def lines() -> list[Line]:
    """All lines, paper by paper."""
    return [*fedvs(), *cvfl(), *multivfl(), *dvfl(), *vflhlp()]


def changes() -> list[str]:
    """Verdicts that changed, with their causes."""
    rows = [["table or figure", "before", "now", "cause"]]
    for each in json.loads(CHANGES.read_text()):
        rows.append([each[key] for key in ("place", "before", "now", "cause")])
    return table(rows)


def page() -> str:
    """The page."""
    found = lines()
    unknown = {line.word for line in found} - set(WORDS)
    assert not unknown, unknown
    parts = [HEAD]
    counts = {word: sum(line.word == word for line in found) for word in WORDS}
    said = ", ".join(f"{count} {word}" for word, count in counts.items())
    parts.append(f"Of {len(found)} lines: {said}. {NO_RESULT}\n")
    for paper in dict.fromkeys(line.paper for line in found):
        rows = [["where", "claim", "verdict", "reason"]]
        rows += [
            [
                line.place,
                line.claim,
                f"**{line.word}**" if line.word == "refuted" else line.word,
                f"{line.reason}.",
            ]
            for line in found
            if line.paper == paper
        ]
        parts.append("\n".join([f"## {paper}", "", *table(rows), ""]))
    parts.append("\n".join(["## Verdicts that changed", "", *changes(), ""]))
    return "\n".join(parts)


def main() -> None:
    """Write it."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
