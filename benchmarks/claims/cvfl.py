"""Claims of CVFL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stored import (
    EVEN_PACE,
    OWN_BEST,
    RESULTS,
    Difference,
    final,
    last_loss,
    mean_loss,
    paired,
    results,
    runs,
    stops,
    time_saved,
    ways,
)

from claims.line import NAMES, Line, printed, readings

SETS = ("mnist", "fashion-mnist", "cifar10")
EARLIER = {"mnist": 20.1, "fashion-mnist": 57.1, "cifar10": 20.4}
CASES = {"3": "iid-50", "4": "iid-95", "5": "noniid-50", "6": "noniid-95"}
WORDS = {"iid": "iid", "noniid": "non-iid"}
# Both at the paper's 0.01, and each at its best rate on validation rows: how runs' names end.
RATES = {"rates 0.01": ("", ""), "best rates": ("-best", "-best")}
NETWORKS = {
    "mnist": "one Linear layer for the paper's CNN",
    "fashion-mnist": "one Linear layer for the paper's CNN",
    "cifar10": "small convolutions, 6 epochs",
}


def lines() -> Iterator[Line]:
    """All claims of the paper, in its order."""
    for name in SETS:
        yield from table_2(name)
    for name in SETS:
        yield from figure_2(name)
    for number, case in CASES.items():
        for name in SETS:
            yield from figure_q(number, case, name)


def table_2(name: str) -> Iterator[Line]:
    """Claims of Table 2 on a data set: accuracies of centralised, CVFL and single training."""
    study = f"cvfl/table-2-{name}"
    paper = {run: entry["accuracy"] for run, entry in results(study)["paper"].items()}
    chosen = "chosen" in results(study)
    step = final(study, "cvfl-sync", "cvfl", name="In step above CVFL")
    for claim, one, two in (
        ("centralised above CVFL", "centralised", "cvfl"),
        ("CVFL above single", "cvfl", "single"),
    ):
        yield Line(
            f"T2 {NAMES[name]}",
            claim,
            [final(study, one, two, name=claim)],
            [study],
            printed(paper[one] - paper[two]),
            depends="" if chosen else "rates chosen on test rows",
            digits=2,
            note=f"{step.text(2)}. Optimiser and rate "
            + (
                "are the best of SGD and Adam and of the paper's three on validation rows."
                if chosen
                else "are the best on test rows of another seed."
            ),
        )


def figure_2(name: str) -> Iterator[Line]:
    """Claims of Figure 2: time saved until a test loss, in per cent, for each choice of rates."""
    loss, both_best = stops()[name]["stop"], ways(name)
    best = both_best.pop(OWN_BEST, None)
    own = best and time_saved(*best, loss, "Each at its own best rate")
    for how, both in both_best.items():
        found = time_saved(*both, loss, how)
        even = time_saved(*both, loss, how, pace=EVEN_PACE)
        notes = [
            f"Per cent of the time in step until a test loss of {loss:g}; constant rates.",
            "Optimiser, rate and loss were fixed on validation rows of another seed.",
        ]
        notes += [f"With 5 updates to 4 in step, {even.text(1)}."] if even else []
        yield Line(
            f"F2 {NAMES[name]}",
            "asynchronous earlier, %",
            [found] if found else [],
            figures_2(name),
            printed(EARLIER[name]),
            depends=how,
            unclear="" if found else f"loss {loss:g} not reached",
            note=" ".join(notes),
        )
    yield Line(
        f"F2 {NAMES[name]}",
        "asynchronous earlier, %",
        [own] if own else [],
        figures_2(name),
        printed(EARLIER[name]),
        depends="best rates",
        unclear="" if own else f"loss {loss:g} not reached",
        note=f"Until a test loss of {loss:g}; optimiser and rate of each on validation rows.",
    )


def figures_2(name: str) -> list[str]:
    """Folders of the stored studies of Figure 2 for a data set."""
    first = f"cvfl/figure-2-{name}"
    return [one for one in (first, f"{first}-adam") if (RESULTS / one).exists()]


def figure_q(number: str, case: str, name: str) -> Iterator[Line]:
    """Claim of Figure `number` (3 to 6): slow parties' losses to the power q = 3 against q = 1.

    With q = 3 the test loss falls faster, and from Figure 4 on also ends lower. `case` names the
    rows and the percentage of slow parties, such as "iid-50".
    """
    study = f"cvfl/figures-3-6-{name}"
    level = number == "4" and name != "cifar10"
    claim = "q = 3 faster" if number == "3" else "q = 3 faster and lower"
    rows, slow = case.split("-")
    line = Line(
        f"F{number} {NAMES[name]}, {WORDS[rows]} {slow} %",
        "q = 3 and 1 much alike" if level else claim,
        (),
        [study],
        shows="curves",
        unclear="no bound" if level else "",
        digits=3,
        note="Of the test loss; faster is its mean over the run. "
        f"{NETWORKS[name]}. {longer(study, case)}".rstrip(),
    )
    for how, (one, three) in RATES.items():
        both = f"{case}-q1{one}", f"{case}-q3{three}"
        if any(run not in runs(study) for run in both):
            continue
        failed = "; ".join(filter(None, (diverged(study, run) for run in both)))
        found = [] if failed else gains(study, *both)
        [each] = readings(line, {how: found if number != "3" else found[:1]})
        yield replace(each, unclear=failed or each.unclear)


def gains(study: str, one: str, three: str) -> list[Difference]:
    """Differences in test loss, q = 1 minus q = 3: mean over the run, and last value."""
    return [
        paired("faster", mean_loss(study, one), mean_loss(study, three), 1.0),
        paired("lower in the end", last_loss(study, one), last_loss(study, three), 1.0),
    ]


def diverged(study: str, run: str) -> str:
    """Words on the seeds for which a run diverged, such as "q3 diverges 1/5"; "" if none did."""
    own = runs(study)[run]
    failed, ended = len(own.get("errors", ())), len(own["seeds"])
    return f"{run.split('-')[2]} diverges {failed}/{failed + ended}" if failed else ""


def longer(study: str, case: str) -> str:
    """Sentence that compares q = 3 with q = 1 at three times the rate; "" if that was not run."""
    if f"{case}-q1-lr3" not in runs(study):
        return ""
    found = paired("", last_loss(study, f"{case}-q3"), last_loss(study, f"{case}-q1-lr3"), 1.0)
    return f"q = 1 with three times the rate ends lower than q = 3 by {found.figure(3)}."
