"""Write docs/results-coded-split.md from the committed results of benchmarks/papers/coded_split.

Run it from the repository's root after a study: ``python benchmarks/coded_split_page.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pages import load, ours, paired, table, timed

RESULTS = Path("benchmarks/results/coded_split")
STUDIES = Path("benchmarks/papers/coded_split")
PAGE = Path("docs/results-coded-split.md")
NAMES = (
    "digits",
    "handwritten",
    "caltech-7",
    "fashion-mnist",
    "emnist",
    "credit-card",
    "parkinson",
)

HEAD = """# coded_split beside other methods, at equal virtual time

The setting is that of Figure 2 of FedVS: the paper's delays and 300 Mbit/s, one segment. Each study
is a file in `benchmarks/papers/coded_split/`, and
`securevfl study benchmarks/papers/coded_split/NAME.toml` repeats one. Every run has rates of its
own, found in one way for all by accuracy on validation rows of a split that no result is of: the
best of a grid of sixteen pairs, and of its neighbours until none is better, at most 32
(`benchmarks/rates.py`). Values are held-out accuracy in per cent,
mean and 95 % t interval over seeds; between two evaluations they are interpolated.
`benchmarks/coded_split_page.py` writes this page.
"""
READING = {
    "digits": "With two helpers coded_split leads every method at every time; VAFL at 5 s by less "
    "than the interval. Without helpers all four fast owners must answer (R = 4): VAFL leads it "
    "until 10 s and is level from 20 s on, FedVS leads it at 5 s and is behind at 20 and 60 s.",
    "handwritten": "With two helpers coded_split leads FedVS until 120 s and Ignore until 60 s. "
    "Its means are above those of VAFL until 60 s, by an interval at 30 s only, and level from "
    "120 s on. With columns that their owners standardise (`prepare = scale`; other methods have "
    "no such option, their columns are in [0, 1]) its means are above all others at every time. "
    "Without helpers R = 4 of 6 owners needs a slow one in every round: it is behind VAFL, by an "
    "interval at all times but 60 s, behind Ignore at 15 s, level with FedVS, and ahead of it at "
    "120 s.",
    "caltech-7": "With two helpers coded_split leads FedVS at every time, and Ignore and VAFL from "
    "30 s on, each by an interval; at 15 s all three are level. Without helpers R = 4 of 6 owners "
    "needs a slow one in every round: it is behind Ignore and VAFL at 30 s, level with both "
    "before and after, and ahead of FedVS from 120 s on. One of its five runs fell from 97 to 6 % "
    "at its last evaluation, 299 s: single evaluations fall so at constant rates, and no listed "
    "time shows it. Columns that owners standardise (`prepare = scale`) change nothing here.",
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


def _ends(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def section(name: str) -> str:
    """One data set: results, differences, rates."""
    content = load(RESULTS / name)
    path = RESULTS / "rates" / f"{name}.json"
    chosen = json.loads(path.read_text()) if path.exists() else None
    lines = [f"## {name}", ""]
    if content is None:
        lines += [TUNED if chosen else NOT_RUN, ""]
    else:
        lines += [*timed(content), "", *paired(RESULTS / name, "coded-split")]
        if "coded-split-helpers" in content["runs"]:
            lines += ["", *paired(RESULTS / name, "coded-split-helpers")]
        lines += [f"Reading: {READING[name]}", ""] if name in READING else []
        lines += [f"![curves](../{RESULTS / name / 'curves.png'})", "", *ours(content), ""]
    return "\n".join([*lines, *((*rates(chosen), "") if chosen else ())])


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(name) for name in NAMES)])


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
