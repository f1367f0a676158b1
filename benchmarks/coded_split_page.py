"""Write docs/results-coded-split.md from the committed results of benchmarks/papers/coded_split."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from pages import load, ours, paired, table, timed

RESULTS = Path("benchmarks/results/coded_split")
STUDIES = Path("benchmarks/papers/coded_split")
PAGE = Path("docs/results-coded-split.md")
NAMES = (
    "digits",
    "digits-occupies",
    "handwritten",
    "handwritten-occupies",
    "caltech-7",
    "caltech-7-occupies",
    "fashion-mnist",
    "fashion-mnist-occupies",
    "emnist",
    "emnist-occupies",
    "credit-card",
    "credit-card-occupies",
    "parkinson",
    "parkinson-occupies",
)

HEAD = """# coded_split beside other methods, at equal virtual time

The setting is that of Figure 2 of FedVS: the paper's delays and 300 Mbit/s, one segment. A delay is
latency: the party goes on meanwhile. In studies whose name ends in "occupies" the party is busy
until its delay is over. Each study
is a file in `benchmarks/papers/coded_split/`, and
`securevfl study benchmarks/papers/coded_split/NAME.toml` repeats one (a list such as
`seeds = [11]` in the file asks for other seeds). Every run has rates of its
own, found in one way for all by accuracy on validation rows of a split that no result is of: the
best of a grid of sixteen pairs, and of its neighbours until none is better, at most 32.
Values are held-out accuracy in per cent,
mean and 95 % t interval over seeds; between two evaluations they are interpolated, so that a value
while a curve still swings depends on how often it is evaluated (`eval_seconds`).
`benchmarks/coded_split_page.py` writes this page.
"""
READING = {
    "digits": "The means of coded_split with two helpers are above all others at every time; "
    "above VAFL's at 5 s, and its own without helpers at 60 s, by less than the interval. Without "
    "helpers all four fast owners must answer (R = 4): VAFL leads it until 10 s and is level from "
    "20 s on, FedVS leads it at 5 s and is behind at 20 and 60 s. Values of coded_split at 5 and "
    "10 s are points of curves that swing by tens of points within a second: on five other seeds, "
    "of a reading whose runs are not kept, it had 49.7 ± 13.1 and 75.1 ± 17.0, and FedVS's lead at "
    "5 s was 10.3 ± 16.7.",
    "digits-occupies": "Every round of FedVS needs a share of every model, and a client whose "
    "delay occupies it shares late: FedVS makes nine rounds in 60 s, as many as Wait, and some 120 "
    "where delays are latency. coded_split waits for no slow owner: without helpers "
    "it is level with VAFL from 10 s on and behind it at 5 s, and so it is with two helpers, where "
    "the interval at 5 s holds 0. The search for rates ended at another pair of rates than before "
    "holders left out rounds that were decided, when it was at 85.3 % at 5 s with helpers (71.6 "
    "now): the search stops where no neighbour is better. At 5 s FedVS, Wait and Wait-DP have no "
    "evaluation in most runs, which the wide intervals there say. Ignore fell at its last "
    "evaluations in some runs.",
    "parkinson-occupies": "A tie as above: the most frequent class is 75 % of the test rows. "
    "FedVS, Wait and Wait-DP stay at it from 50 s on. Rates of coded_split were chosen before its "
    "holders left out rounds that were decided.",
    "handwritten": "With two helpers coded_split leads FedVS until 120 s and Ignore until 60 s. "
    "Its means are above those of VAFL until 60 s, by an interval at 30 s only, and level from "
    "120 s on. With columns that their owners standardise (`prepare = scale`; other methods have "
    "no such option, their columns are in [0, 1]) its means are above all others at every time. "
    "Without helpers R = 4 of 6 owners needs a slow one in every round: it is behind VAFL, by an "
    "interval at all times but 60 s, behind Ignore at 15 s, level with FedVS, and ahead of it at "
    "120 s.",
    "handwritten-occupies": "With two helpers coded_split leads FedVS and Wait by an interval at "
    "every time, VAFL until 30 s and Ignore at 30 and 60 s; its means are above both at the other "
    "times. Columns that owners standardise bring 0.4 points at 120 s, and at other times nothing "
    "beyond the interval. Without helpers R = 4 of "
    "6 owners needs a slow one in every round, and its delay occupies it: 193 rounds for 1,917. "
    "So it is behind Ignore until 120 s and behind VAFL until 60 s, and ahead of FedVS at 30, 120 "
    "and 240 s. FedVS makes fewer rounds than Wait (57 and 64) and is level with it.",
    "fashion-mnist": "With 14 fast owners of 28 and R = 4 no helper is needed: coded_split leads "
    "all others by an interval from 50 s on; at 25 s VAFL is level. It is 3.6 points above VAFL "
    "and 5.2 above FedVS at 150 s. It sends seven times VAFL's bytes, three times FedVS's, nearly "
    "half of them shares of the data at the start. Runs of coded_split were made before its "
    "holders left out rounds that are decided, which changes nothing where delays are latency.",
    "fashion-mnist-occupies": "As with latency, 14 of 28 owners are fast and R = 4, so that no "
    "slow one is waited for: coded_split leads all others by an interval from 50 s on, VAFL by "
    "2.7 to 4.4 points; at 25 s VAFL is level. FedVS makes 11 rounds in 150 s, as many as Wait, "
    "and is ahead of it by 5.7 points at 25 s and 2.7 at 100 s. coded_split sends five times "
    "VAFL's bytes.",
    "emnist": "With 14 fast owners of 28 and R = 4 no helper is needed: coded_split leads all "
    "others by an interval at every time, VAFL by 9 points at 25 s and 12 to 15 later, FedVS by "
    "31 and 16. It sends nine times VAFL's bytes and 2.3 times FedVS's. Rates of all methods "
    "were chosen at 25 s alone, for a pair of rates of coded_split takes two minutes: those of "
    "the others may be too large for 100 s. Wait and Wait-DP make seven rounds. The runs of "
    "coded_split, which need some 13 GB of memory, and those of the others were made in two "
    "processes.",
    "emnist-occupies": "As with latency, 14 of 28 owners are fast and R = 4, so that no slow one "
    "is waited for: coded_split leads all others by an interval at every listed time, VAFL by 10 "
    "to 15 points; until some 22 s VAFL and Ignore are ahead, for its data are shared first. "
    "FedVS, Wait and Wait-DP make seven or eight rounds in 100 s and learn next to nothing; at 25 "
    "s few of their runs have an evaluation. coded_split sends nine times VAFL's bytes. Rates of "
    "all methods were chosen at 25 s alone.",
    "caltech-7": "With two helpers coded_split leads FedVS at every time, and Ignore and VAFL from "
    "30 s on, each by an interval; at 15 s all three are level. Without helpers R = 4 of 6 owners "
    "needs a slow one in every round: it is behind Ignore and VAFL at 30 s, level with both "
    "before and after, and ahead of FedVS from 120 s on. One of its five runs fell from 97 to 6 % "
    "at its last evaluation, 299 s: single evaluations fall so at constant rates, and no listed "
    "time shows it. Columns that owners standardise (`prepare = scale`) change nothing here.",
    "caltech-7-occupies": "With two helpers coded_split leads FedVS and Wait at every time, and "
    "Ignore and VAFL from 30 s on, each by an interval; at 15 s all three are level. Without "
    "helpers R = 4 of 6 owners needs a slow one in every round, and its delay occupies it: 192 "
    "rounds for 1,886. So it is behind VAFL and Ignore at 30 and 60 s, level with both before and "
    "after, and ahead of FedVS at all times but 60 s. FedVS makes fewer rounds than Wait (38 and "
    "64). Columns that owners standardise change nothing here.",
    "credit-card": "Nearly a tie: the most frequent class is 77.9 % of the test rows, and nobody "
    "has a mean beyond 81.6. With two helpers coded_split leads FedVS by an interval until 100 "
    "s and VAFL until 50 s, and Ignore is level at every time; without helpers it leads FedVS "
    "and VAFL at 50 s, and FedVS at 100 s. One run of Ignore (at 50 s) and one of coded_split "
    "(at 25 s) fell far for one evaluation. AUC at 100 s, in per cent: 73.4 without helpers, "
    "74.2 with them, 76.1 with columns that owners standardise (`prepare = scale`); VAFL 73.2, "
    "Ignore 72.5, FedVS 69.4, Wait 66.1 (times.csv). The server model has batch normalisation, as "
    "the paper's, and its running moments lag behind where owners step by Adam, by amounts that "
    "depend on a processor's rounding: FedVS's seed 0 has 64 or 22 % at its seventh step. Owners "
    "of coded_split step by SGD and have the same values everywhere. So this comparison handicaps "
    "the others early on.",
    "credit-card-occupies": "Nearly a tie as above, and nobody has a mean beyond 81.3. With two "
    "helpers coded_split leads VAFL at 25 and 50 s and FedVS from 50 s on, each by an interval; "
    "without helpers it leads VAFL at 25 s and FedVS at 50 and 200 s. Ignore is level with both at "
    "every time. FedVS makes fewer rounds than Wait (26 and 29). AUC at 100 s, in per cent: 72.2 "
    "without helpers, 73.4 with them, 75.3 with columns that owners standardise (`prepare = "
    "scale`); VAFL 73.2, Ignore 72.9, FedVS 69.0, Wait 67.9 (times.csv).",
    "parkinson": "A tie that says little: the most frequent class is 75 % of the test rows. "
    "coded_split without helpers, or with them and scaled columns, and VAFL have means of 74 to "
    "81 %, and only the intervals of scaled columns at 100 and 200 s and of VAFL at 25 and 200 s "
    "lie above 75 %. No pair of rates lifted FedVS, "
    "Wait or Wait-DP above the most frequent class on validation rows within 100 s; of equal "
    "pairs the first one stands in the file. With two helpers, and for Ignore, the pair that was "
    "best on validation rows (two runs each) left all five runs at that class: rates cannot be "
    "chosen well on so few rows. With rates chosen at 25 and 50 s only, the same runs had 80.5 "
    "(6.1) and 78.3 % (4.6) at 200 s.",
}
NOT_RUN = "Neither this study nor the choice of its rates has been run."
BEGUN = (
    "Of the choice of its rates {pairs} pairs of {runs} of {all} runs were tried; the study waits."
)
TUNED = "Its rates are chosen, and stand in the file. The study itself has not been run."


def rates(content: dict[str, Any]) -> list[str]:
    """The best pair of rates of each run, and whether it lies on the edge of the grid."""
    head = [
        "run",
        "server's rate",
        "clients' rate",
        "validation",
        "pairs tried",
        "at the edge of them",
    ]
    rows = [head]
    for label, run in content["runs"].items():
        best, tried = run["best"], run["tried"]
        edges = [
            name
            for key, name in (("lr", "server's"), ("client_lr", "clients'"))
            if best[key] in _ends([one[key] for one in tried])
        ]
        value = f"{100 * best['mean']:.1f}"
        pair = [f"{best['lr']:g}", f"{best['client_lr']:g}"]
        rows.append([label, *pair, value, str(len(tried)), ", ".join(edges) or "no"])
    times = ", ".join(f"{time:g}" for time in content["times"])
    said = f"Rates, by the mean accuracy on validation rows at {times} s (seed {content['seed']}):"
    return [said, "", *table(rows)]


def progress(name: str, chosen: dict[str, Any] | None) -> str:
    """Of a study that has no results: how far the choice of its rates is."""
    if chosen is None:
        return NOT_RUN
    if is_chosen(name, chosen):
        return TUNED
    pairs = sum(len(run["tried"]) for run in chosen["runs"].values())
    return BEGUN.format(pairs=pairs, runs=len(chosen["runs"]), all=len(asked_runs(name)))


def is_chosen(name: str, chosen: dict[str, Any]) -> bool:
    """Whether pairs of all runs of a study were tried."""
    return set(chosen["runs"]) == set(asked_runs(name))


def asked_runs(name: str) -> dict[str, Any]:
    """Runs of a study."""
    runs: dict[str, Any] = tomllib.loads((STUDIES / f"{name}.toml").read_text())["runs"]
    return runs


def _ends(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def section(name: str) -> str:
    """One data set: results, differences, rates."""
    content = load(RESULTS / name)
    path = RESULTS / "rates" / f"{name}.json"
    chosen = json.loads(path.read_text()) if path.exists() else None
    lines = [f"## {name}", ""]
    if content is None:
        lines += [progress(name, chosen), ""]
    else:
        lines += [*timed(content), "", *paired(RESULTS / name, "coded-split")]
        if "coded-split-helpers" in content["runs"]:
            lines += ["", *paired(RESULTS / name, "coded-split-helpers")]
        lines += [f"Reading: {READING[name]}", ""] if name in READING else []
        lines += [f"![curves](../{RESULTS / name / 'curves.png'})", "", *ours(content), ""]
    whole = chosen is not None and (content is not None or is_chosen(name, chosen))
    return "\n".join([*lines, *((*rates(chosen), "") if whole else ())])


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(name) for name in NAMES)])
