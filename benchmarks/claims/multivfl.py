"""Claims of Multi-VFL."""

from __future__ import annotations

import csv
import itertools
from collections import defaultdict
from collections.abc import Iterator

from stored import RESULTS, Difference, final, paired, parts, values

from claims.line import NAMES, Line, Printed, readings

NOTE = (
    "Local SGD, batches of 64, 500 rounds and the paper's rates; linear bottoms and two hidden "
    "layers on top for the paper's convolutions."
)
SETS = ("mnist", "fashion-mnist")
GAINS = {"mnist": (), "fashion-mnist": (Printed(2, 3),)}  # "by 2-3%", of all adaptive optimisers
DEMON = "multivfl/demon-{}"  # v of m^2
T2, M2 = "v of t^2", "v of m^2, printed"


def lines() -> Iterator[Line]:
    """All claims of the paper, in its order."""
    for name in SETS:
        yield from fall(name)
        yield still_rising(name)
        yield from leads(name)


def fall(name: str) -> Iterator[Line]:
    """Claims of Figure 2: accuracy falls from 1niid to 4niid (label owners with two classes)."""
    study, printed_layers = f"multivfl/as-printed-{name}", f"multivfl/convolutions-{name}"
    claim = "accuracy falls from 1niid to 4niid"
    found = [
        final(study, f"fedavg-{a}niid", f"fedavg-{b}niid", name=f"{a}niid above {b}niid")
        for a, b in itertools.pairwise((1, 2, 3, 4))
    ]
    place = f"F2 {NAMES[name]}"
    yield Line(place, claim, found, [study], shows="curves", note=NOTE)
    if (RESULTS / printed_layers).exists():
        ends = final(printed_layers, "fedavg-1niid", "fedavg-4niid", name="1niid above 4niid")
        yield Line(
            place,
            claim,
            [ends],
            [printed_layers],
            shows="curves",
            depends="the paper's layers",
            note="The ends of the figure alone.",
        )


def still_rising(name: str) -> Line:
    """Claim of section 4.1 that FedAvg does not converge at 4niid, which has no criterion.

    The difference is the gain in accuracy over the last tenth of the rounds.
    """
    study = f"multivfl/as-printed-{name}"
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    for part in parts(study):
        with (RESULTS / part / "curves.csv").open() as file:
            for row in csv.DictReader(file):
                if row["run"] == "fedavg-4niid":
                    curves[row["seed"]][int(row["step"])] = float(row["accuracy"])
    last = max(max(curve) for curve in curves.values())
    ends, before = ({s: curve[n] for s, curve in curves.items()} for n in (last, last - last // 10))
    return Line(
        f"4.1 {NAMES[name]}",
        "FedAvg does not converge",
        [paired("Gain of the last 50 rounds", ends, before)],
        [study],
        shows="-",
        unclear="no criterion",
        note=NOTE,
    )


def leads(name: str) -> Iterator[Line]:
    """Claims of Figure 3: other server optimisers are above FedAvg at 4niid."""
    study, place = f"multivfl/as-printed-{name}", f"F3 {NAMES[name]} 4niid"
    gains = {
        way: final(study, f"{way}-4niid", "fedavg-4niid", name=f"{way} above FedAvg")
        for way in ("fedadam", "fedyogi", "feddemonadam")
    }
    yield Line(
        place,
        "FedAdam, FedYogi above FedAvg",
        [gains["fedadam"], gains["fedyogi"]],
        [study],
        2 * GAINS[name],
        shows="curves",
        note=f"{NOTE} v is of t^2, as in their own paper. With a server's rate ten times as large "
        "both were ahead in the mean after 50 rounds of clients that step by Adam.",
    )
    line = Line(
        place,
        "FedDemonAdam above FedAvg",
        (),
        [study, *filter(lambda other: (RESULTS / other).exists(), [DEMON.format(name)])],
        shows="curves",
        note=f"{NOTE} Its moment is summed without the factor 1 - b1 and divided by 1 - b1^r. With "
        "v of t^2 its steps are about ten times as long as FedAdam's at the same rate.",
    )
    ways: dict[str, list[Difference]] = {M2: as_printed(name), T2: [gains["feddemonadam"]]}
    for each in readings(line, ways):
        yield Line(**vars(each) | {"printed": GAINS[name] if each.differences else ()})


def as_printed(name: str) -> list[Difference]:
    """Accuracy of FedDemonAdam, with v of m^2, minus that of FedAvg; empty if not run."""
    study = DEMON.format(name)
    if not (RESULTS / study).exists():
        return []
    fedavg = values(f"multivfl/as-printed-{name}", "fedavg-4niid")
    return [paired("feddemonadam above FedAvg", values(study, "feddemonadam-4niid"), fedavg)]
