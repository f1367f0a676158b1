"""Claims of DVFL."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from stored import RESULTS, Difference, final, paired, results, values

from claims.line import NAMES, Line, Printed, printed, readings

SHORT = "3000 rows"
SHORT_NOTE = (
    "3000 of 60,000 rows and half the epochs: a guest that is up for a quarter of the rounds makes "
    "about 115 steps, 4700 in the paper."
)
ROWS_NOTE = "All 60,000 rows, a quarter of the epochs."
WHOLE, BY_TIME = "dvfl/all-rows", "dvfl/all-rows-by-time"
SPLIT, FILLED = "dvfl/main-split", "dvfl/main-split-filled"  # guests, host and owner as in DVFL
SIMCLR = "dvfl/simclr"
SETS = ("credit-card", "parkinson", "caltech-7", "handwritten")
NOTES = {
    "credit-card": "Rates of hosts, owner and SplitNN of validation rows, the last two 0.003, the "
    "highest that was tried; 4, 8 and 20 epochs of guests, hosts, and owner and SplitNN.",
    "parkinson": "Split by row, rates of validation rows.",
    "caltech-7": "Features extracted anew, rates of validation rows: the hosts' is a tenth of the "
    "paper's, at which they diverge; guests' codes of 64 for the paper's 256, batches of 16.",
    "handwritten": "Rates of validation rows.",
}
ALIGNED = (128, 256, 512, 1024)  # aligned rows of Table 3


def lines() -> Iterator[Line]:
    """All claims of the paper, in its order."""
    yield no_faults()
    for kind in ("link", "guest"):
        yield from lost(kind)
    yield host_loss()
    yield from rivals("host")
    yield vafl()
    yield more_hosts()
    yield few_rows()
    for name in SETS:
        yield from other_set(name)
    yield from widths()
    yield from simclr()
    yield period()
    yield seconds()


def paper(study: str, run: str) -> float:
    """Accuracy that the paper prints for a run, in per cent."""
    found: float = results(study)["paper"][run]["accuracy"]
    return found


def no_faults() -> Line:
    """Claim of Table 1 without faults: DVFL is "slightly poorer than SplitNN's"."""
    return Line(
        "T1 no faults",
        "SplitNN slightly above DVFL",
        [final(WHOLE, "split", "dvfl", name="SplitNN above DVFL")],
        [WHOLE],
        printed(paper(WHOLE, "split") - paper(WHOLE, "dvfl")),
        digits=2,
        note=ROWS_NOTE,
    )


def lost(kind: str) -> Iterator[Line]:
    """Claims of Table 1 on failing links or guests (`kind`), at rejoin probability 0.1."""
    place, down = f"T1 {kind} loss", f"{kind}-0.1"
    own, printed_own = values(WHOLE, f"dvfl-{down}"), paper(WHOLE, f"dvfl-{down}")
    rules = {rule: values(BY_TIME, f"{rule}-{down}") for rule in ("zeros", "message", "skip")}
    theirs = {rule: paper(BY_TIME, f"{rule}-{down}") for rule in rules}
    yield Line(
        place,
        "DVFL above zeros",
        [paired("points", own, rules["zeros"])],
        [BY_TIME, WHOLE],
        printed(printed_own - theirs["zeros"]),
        digits=2,
        note=f"{ROWS_NOTE} All columns of faults here are of rejoin 0.1.",
    )
    yield Line(
        place,
        "DVFL above skip",
        [paired("points", own, rules["skip"])],
        [BY_TIME, WHOLE],
        printed(printed_own - theirs["skip"]),
        note=ROWS_NOTE,
    )
    yield from rivals(kind)
    yield Line(
        place,
        "zeros above skip",
        [paired("points", rules["zeros"], rules["skip"])],
        [BY_TIME],
        printed(theirs["zeros"] - theirs["skip"]),
        note=ROWS_NOTE,
    )
    pairs = [("zeros", "message"), ("message", "skip")]
    line = Line(
        place,
        "zeros above buffer above skip",
        (),
        [BY_TIME, FILLED, SPLIT],
        printed(*(theirs[one] - theirs[two] for one, two in pairs)),
        note="The paper has stale activations, which are in a sense a Byzantine fault. "
        f"{ROWS_NOTE} Of the same row: {SHORT_NOTE}",
    )
    short = {rule: values(SPLIT, f"{rule}-{down}") for rule in ("zeros", "skip")}
    buffer = values(FILLED, f"buffer-{down}")
    ways = {
        "last message": [
            paired(f"{one} above {two}", rules[one], rules[two]) for one, two in pairs
        ],
        "same row; 3000": [
            paired("zeros above buffer", short["zeros"], buffer),
            paired("buffer above skip", buffer, short["skip"]),
        ],
    }
    yield from readings(line, ways)
    yield Line(
        place,
        "DVFL loses a little",
        [final(WHOLE, "dvfl", f"dvfl-{down}", name="points lost")],
        [WHOLE],
        printed(paper(WHOLE, "dvfl") - printed_own),
        digits=2,
        note=ROWS_NOTE,
    )


def rivals(kind: str) -> Iterator[Line]:
    """Claims that DVFL is above FedOnce and VFB2 when links, guests or hosts (`kind`) fail."""
    own, place = "dvfl/main-dvfl", f"T1 {kind} loss"
    for rival, study in (("FedOnce", "dvfl/main-fedonce"), ("VFB2", "dvfl/main-vfb2")):
        rejoin = ("1", "0.5", "0.1")
        runs = [f"{kind}-{each}" for each in rejoin]
        yield Line(
            place,
            f"DVFL above {rival}",
            [
                paired(each, values(own, run), values(study, run))
                for each, run in zip(rejoin, runs, strict=True)
            ],
            [study, own],
            printed(*(round(paper(own, run) - paper(study, run), 2) for run in runs)),
            depends=SHORT,
            digits=2,
            note=SHORT_NOTE,
        )


def host_loss() -> Line:
    """Claim of Table 1 on failing hosts, at rejoin probability 0.1."""
    # While the host is down no guest is late, so that all rules of SplitNN are one, here too.
    pairs = [("skip", "skip-none"), ("vafl", "vafl-none")]
    fall = paper(WHOLE, "dvfl") - paper(WHOLE, "dvfl-host-0.1")
    hosts = {"skip": paper(BY_TIME, "skip-host-0.1"), "vafl": paper(BY_TIME, "vafl-host-0.1")}
    return Line(
        "T1 host loss",
        "SplitNN-skip, VAFL lose more",
        [rivals_fall(rule) for rule, _ in pairs],
        [BY_TIME, WHOLE],
        printed(*(paper(BY_TIME, whole) - hosts[rule] - fall for rule, whole in pairs)),
        digits=2,
        note=f"{ROWS_NOTE} FedOnce and VFB2 have 3000 rows. The paper has three figures of "
        "SplitNN, which are one here: by its buffer it loses 0.16, less than DVFL's 0.20.",
    )


def rivals_fall(rule: str) -> Difference:
    """Loss of a rival's accuracy by host faults minus that of DVFL, at rejoin 0.1, in points.

    `rule` is "skip" (SplitNN) or "vafl". While the host is down no guest is late, so all rules of
    SplitNN for late guests give the same result.
    """
    up = "vafl-none" if rule == "vafl" else "skip-none"
    pairs = [(BY_TIME, up, f"{rule}-host-0.1"), (WHOLE, "dvfl", "dvfl-host-0.1")]
    fallen = []
    for study, whole, down in pairs:
        low = values(study, down)
        both = {seed: one for seed, one in values(study, whole).items() if seed in low}
        fallen.append({seed: one - low[seed] for seed, one in both.items()})
    name = {"skip": "SplitNN", "vafl": "VAFL"}[rule]
    rival, dvfl = fallen
    return paired(f"{name} loses more than DVFL by", rival, dvfl)


def vafl() -> Line:
    """Claim of Table 1 that DVFL is above VAFL when links, guests or hosts fail, at rejoin 0.1."""
    kinds = ("link", "guest", "host")
    theirs = {kind: paper(BY_TIME, f"vafl-{kind}-0.1") for kind in kinds}
    return Line(
        "T1 VAFL",
        "DVFL above: link, guest, host loss",
        [
            paired(kind, values(WHOLE, f"dvfl-{kind}-0.1"), values(BY_TIME, f"vafl-{kind}-0.1"))
            for kind in kinds
        ],
        [BY_TIME, WHOLE],
        printed(*(paper(WHOLE, f"dvfl-{kind}-0.1") - theirs[kind] for kind in kinds)),
        digits=2,
        note=f"{ROWS_NOTE} By time, so that nobody makes up for who is away.",
    )


def more_hosts() -> Line:
    """Claim of Figure 3(b): four hosts are above one."""
    kinds = {"none": "no faults", "link-0.1": "links", "host-0.1": "hosts"}
    return Line(
        "F3(b)",
        "4 hosts above 1",
        [final("dvfl/hosts", f"4-{each}", f"1-{each}", name=kind) for each, kind in kinds.items()],
        ["dvfl/hosts"],
        shows="curves",
        depends=SHORT,
        note=f"{SHORT_NOTE} The paper's figure has no and link faults.",
    )


def few_rows() -> Line:
    """Claim of Table 3: DVFL is above SplitNN on few aligned rows."""
    studies = [f"dvfl/aligned-{n}" for n in ALIGNED]
    return Line(
        "T3, 128-1024 labels",
        "above SplitNN",
        [
            final(study, "dvfl", "split", name=f"{n} rows")
            for n, study in zip(ALIGNED, studies, strict=True)
        ],
        studies,
        printed(*(paper(study, "dvfl") - paper(study, "split") for study in studies)),
        digits=2,
        note="Guests and hosts have a quarter of their epochs, and nobody stops early. SplitNN has "
        "DVFL's encoders, as in the paper.",
    )


def other_set(name: str) -> Iterator[Line]:
    """Claim of Table 2 on a tabular or multi-view set: DVFL "tracks closely" SplitNN."""
    study = f"dvfl/{name}"
    split = values(study, "split")
    line = Line(
        f"T2 {NAMES[name]}",
        "SplitNN above DVFL",
        [paired("SplitNN above DVFL", split, values(study, "dvfl"))],
        [study],
        printed(round(paper(study, "split") - paper(study, "dvfl"), 2)),
        depends="own features" * (name == "caltech-7"),
        digits=2,
        note=NOTES[name],
    )
    if name != "credit-card":
        yield line
        return
    tuned = values("dvfl/credit-card-guests", "dvfl")
    ways = {
        "guests' rate 0.001": line.differences,
        "guests' rate 0.03": [paired("SplitNN above DVFL", split, tuned)],
    }
    for each in readings(line, ways):
        note = "The guests' rate is the paper's, 0.001, or the best of four on validation rows."
        yield Line(**vars(each) | {"note": f"{line.note} {note}"})


def widths() -> Iterator[Line]:
    """Claims of Table 5 on the width of guests' codes.

    The sizes d_k of hosts' codes are not legible in the paper; two sizes are used.
    """
    printed_steps = {(120, 160): (0.17, 0.80), (160, 200): (0.03, 0.61)}
    for (narrow, wide), ends in printed_steps.items():
        yield Line(
            "T5",
            f"guests' codes: {wide} above {narrow}",
            [
                final(
                    "dvfl/table-5",
                    f"width-{wide}-dk-{size}",
                    f"width-{narrow}-dk-{size}",
                    name=f"d_k = {size}",
                )
                for size in (80, 120)
            ],
            ["dvfl/table-5"],
            2 * (Printed(*ends),),
            digits=2,
            note=f"{ROWS_NOTE} Two sizes d_k for the paper's four, which are not legible.",
        )


def simclr() -> Iterator[Line]:
    """Claims that guests with auto-encoders are above guests with SimCLR."""
    for where, one, two, gap in (
        ("no faults", "simclr", "dvfl", 0.02),
        ("guest loss", "simclr-guest-0.1", "dvfl-guest-0.1", 0.17),
    ):
        yield Line(
            "SimCLR",
            f"auto-encoders above, {where}",
            [paired("points", values(WHOLE, two), values(SIMCLR, one))],
            [SIMCLR, WHOLE],
            printed(gap),
            depends="3 hosts" * (where == "guest loss"),
            digits=2,
            note="All rows, 5 epochs of guests, batches of 64 for 600.",
        )


def period() -> Line:
    """Claim of appendix F.1: guests that send more often give higher accuracy."""
    return Line(
        "F.1",
        "more messages, more accuracy",
        [
            final("dvfl/period", f"{a}-none", f"{b}-none", name=f"period {a} above {b}")
            for a, b in itertools.pairwise((1, 5, 10, 20))
        ],
        ["dvfl/period"],
        shows="not legible",
        depends=SHORT,
        digits=2,
        note=f"{SHORT_NOTE} Without the paper's faults.",
    )


def seconds() -> Line:
    """Claim of appendix F.3 on the lifetime of a guest process, in seconds."""
    cost = json.loads((RESULTS / "dvfl/epochs.json").read_text())["seconds"]
    one, sim, two = (cost[n]["guest process"] for n in ("dvfl", "dvfl, simclr", "split"))
    return Line(
        "F.3",
        "guests of SplitNN live longer, s",
        [Difference("seconds", two - one, float("nan"), 1)],
        ["dvfl/epochs.json"],
        printed(80 - 56),
        digits=0,
        note=f"{one:.0f} s against {two:.0f} s (56 against 80), one measurement, with the time "
        f"that a guest of SplitNN waits for the server's step. With SimCLR {sim:.0f} s, where the "
        "paper has 306 s with another network.",
    )
