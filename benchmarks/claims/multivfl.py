"""Claims of Multi-VFL."""

from __future__ import annotations

import csv
import itertools
from collections import defaultdict
from collections.abc import Iterator

from verdicts import RESULTS, Difference, Finding, final, judge, paired, parts, values

from claims.line import Line, also, open_question

NETWORKS = "Reduced: linear bottoms and two hidden layers on top for the paper's convolutions"
AS_PRINTED = (
    "Local SGD, batches of 64, 500 rounds and the paper's rates, {seeds} seeds. " + NETWORKS
)
LONG_STEPS = (
    "Its moment is summed without the factor 1 - b1 and divided by 1 - b1^r, so its steps are "
    "about ten times as long as FedAdam's at the same rate: the gain may be that of the step"
)
LONGER = (
    "the server's rate of 0.001 may be too small for our networks: with one ten times as large "
    "both were ahead in the mean after 50 rounds of clients that step by Adam"
)
FALL = "accuracy falls from 1niid to 4niid"
STILL = "FedAvg fails to converge at 4niid in 500 rounds"


def lines() -> Iterator[Line]:
    """All of them, in the order of the paper."""
    for name in ("mnist", "fashion-mnist"):
        study = f"multivfl/as-printed-{name}"
        seeds = len(values(study, "fedavg-4niid"))
        printed = AS_PRINTED.format(seeds=seeds)
        yield Line(
            f"Figure 2, {name}", FALL, also(judge(fall(study)), printed + convolutions(name))
        )
        yield Line(f"Section 4.1, {name}", STILL, still_rising(study))
        *others, demon = leads(study)
        yield Line(
            f"Figure 3, {name}",
            "FedAdam and FedYogi beat FedAvg at 4niid",
            open_question(judge(others), f"{LONGER}. {printed}"),
        )
        yield Line(
            f"Figure 3, {name}",
            "FedDemonAdam beats FedAvg at 4niid",
            also(judge([demon]), f"{printed}. {LONG_STEPS}"),
        )


def fall(study: str) -> list[Difference]:
    """Losses of each number of owners with two classes against the one before."""
    return [
        final(study, f"fedavg-{a}niid", f"fedavg-{b}niid", name=f"{a}niid above {b}niid")
        for a, b in itertools.pairwise((1, 2, 3, 4))
    ]


def still_rising(study: str) -> Finding:
    """Gain of the last tenth of the rounds under FedAvg at 4niid; the paper has no criterion."""
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    for part in parts(study):
        with (RESULTS / part / "curves.csv").open() as file:
            for row in csv.DictReader(file):
                if row["run"] == "fedavg-4niid":
                    curves[row["seed"]][int(row["step"])] = float(row["accuracy"])
    last = max(max(curve) for curve in curves.values())
    ends, before = ({s: curve[n] for s, curve in curves.items()} for n in (last, last - last // 10))
    rise = paired("Gain of the last 50", ends, before)
    text = f"{rise.text(1)} points. The paper prints no criterion. {NETWORKS}"
    return Finding("undecided", text, rise.figure(1))


def convolutions(name: str) -> str:
    """The ends of Figure 2 with the layers that the paper prints; nothing where not run."""
    study = f"multivfl/convolutions-{name}"
    if not (RESULTS / study).exists():
        return ""
    found = final(study, "fedavg-1niid", "fedavg-4niid", name="1niid above 4niid")
    return f". With the convolutions, {found.pairs} seeds: {found.text(1)}"


def leads(study: str) -> list[Difference]:
    """Gains of each server optimiser on the mean at 4niid."""
    return [
        final(study, f"{way}-4niid", "fedavg-4niid", name=f"{way} above FedAvg")
        for way in ("fedadam", "fedyogi", "feddemonadam")
    ]
