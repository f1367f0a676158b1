"""Claims of Multi-VFL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from verdicts import RESULTS, Difference, final, judge, values

from claims.line import Line, also, open_question

AS_PRINTED = (
    "Local SGD, batches of 64, 500 rounds and the paper's rates, {seeds} seeds. Reduced: linear "
    "bottoms and two hidden layers on top for the paper's convolutions"
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


def lines() -> Iterator[Line]:
    """All of them, in the order of the paper."""
    for name in ("mnist", "fashion-mnist"):
        study = f"multivfl/as-printed-{name}"
        seeds = len(values(study, "fedavg-4niid"))
        printed = AS_PRINTED.format(seeds=seeds)
        yield Line(
            f"Figure 2, {name}", FALL, also(judge(fall(study)), printed + convolutions(name))
        )
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
