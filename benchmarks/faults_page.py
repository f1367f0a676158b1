"""Write docs/results-faults.md from the committed results of benchmarks/papers/faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pages import load, ours, signed, table

from securevfl.studies.intervals import mean_interval

RESULTS = Path("benchmarks/results/faults")
PAGE = Path("docs/results-faults.md")
NOTES = Path(__file__).parent / "papers" / "faults" / "notes.json"

HEAD = """# Nine methods under the same faults

The table that no paper has: FedVS, coded_split, the rules of split learning for absent clients, its
asynchronous and its decoupled rivals and the label-partitioned methods, on one data set, under the
same faults.
Clients or links are two-state chains ([faults.md](faults.md)): up, they go down with probability
0.3 in a round; down, they come back with probability 1, 0.5 or 0.1, so that they are up in 77 %,
62 % or 25 % of the rounds. A draw depends on the seed, the entity and the round alone, so all
protocols of a column and seed meet the same ones, as far as their rounds correspond. Values are
held-out accuracy in per cent, mean and 95 % t interval over the seeds that ended; a run that waits
for somebody who is down ends in an error, and the table says in how many seeds.

`wait`, `skip`, `zeros`, `buffer`, `mean` and `ignore` are `split` with that `--stragglers`; a guest
is a client; the number in a column's name is the probability of coming back.

To repeat it: `securevfl study benchmarks/papers/faults/digits.toml`.
`benchmarks/faults_page.py` writes this page.

No rows were held out for validation in these studies: no rate, length or beta was chosen by them.
What is called ours was set by hand, and where one value was the best of several, by test rows.
"""


def cell(run: dict[str, Any]) -> str:
    """Accuracy over the seeds that ended, and how many did not."""
    ended, failed = len(run["seeds"]), len(run.get("errors", {}))
    if not ended:
        return f"error ({failed} of {failed})" if failed else "-"
    found = run["test_accuracy"]
    half = found["half_width_95"]
    said = f"{100 * found['mean']:.1f}" + ("" if half is None else f" ± {100 * half:.1f}")
    return said + (f" (error in {failed} of {ended + failed})" if failed else "")


def axes(labels: list[str]) -> tuple[list[str], list[str]]:
    """Names of the runs and of the faults, in order."""
    pairs = [label.rsplit(", ", 1) for label in labels]
    return list(dict.fromkeys(p[0] for p in pairs)), list(dict.fromkeys(p[1] for p in pairs))


def accuracies(content: dict[str, Any]) -> list[str]:
    runs, faults = axes(list(content["runs"]))
    rows = [["", *faults]]
    rows += [[run, *(cell(content["runs"][f"{run}, {f}"]) for f in faults)] for run in runs]
    return table(rows)


def gains(content: dict[str, Any]) -> list[str]:
    """`last` minus `omit` under each fault, paired by seed."""
    runs, faults = content["runs"], axes(list(content["runs"]))[1]
    rows = [["points", *faults], ["last minus omit"]]
    for fault in faults:
        one, two = (runs[f"{run}, {fault}"]["test_accuracy"]["values"] for run in ("omit", "last"))
        pairs = zip(one, two, strict=True)
        rows[1].append(signed(*mean_interval([100 * (last - omit) for omit, last in pairs])))
    return table(rows)


def costs(content: dict[str, Any]) -> list[str]:
    """Costs of a run under the heaviest guest faults, beside one without faults."""

    def mean(label: str, name: str) -> float | None:
        values = content["runs"][label].get(name, {}).get("values")
        return sum(values) / len(values) if values else None

    def shown(value: float | None, unit: str = "") -> str:
        return "-" if value is None else f"{value:,.0f}{unit}"

    runs, _ = axes(list(content["runs"]))
    rows = [["", "steps, none", "steps, guest 0.1", "skipped", "filled in", "lost", "time", "sent"]]
    for run in runs:
        calm, bad = f"{run}, none", f"{run}, guest 0.1"
        sent = mean(bad, "bytes")
        rows.append(
            [
                run,
                shown(mean(calm, "rounds")),
                *(shown(mean(bad, name)) for name in ("rounds", "skipped", "filled", "lost")),
                shown(mean(bad, "virtual_seconds"), " s"),
                shown(None if sent is None else sent / 1e6, " MB"),
            ]
        )
    return table(rows)


def errors(content: dict[str, Any]) -> list[str]:
    """One error of each protocol that ends in some, as a user reads it."""
    runs, faults = axes(list(content["runs"]))
    lines = []
    for run in runs:
        for fault in faults:
            said = content["runs"][f"{run}, {fault}"].get("errors", {})
            if said:
                lines.append(f"- `{run}`, {fault}: {next(iter(said.values()))}")
                break
    return lines


def page() -> str:
    """The page."""
    content, absent = load(RESULTS / "digits"), load(RESULTS / "digits-absent")
    assert content is not None
    assert absent is not None
    notes = json.loads(NOTES.read_text())
    parts = [
        HEAD,
        f"## {content['title'].rpartition(': ')[2].capitalize()}\n",
        *accuracies(content),
        "",
        *notes["table"],
        *ours(content),
        "",
        "## What the heaviest guest faults cost\n",
        *costs(content),
        "",
        *notes["costs"],
        "",
        "## FedVS with the models of those that are away, an option that is gone\n",
        *accuracies(absent),
        "",
        *gains(absent),
        "",
        *notes["absent"],
        *ours(absent),
        "",
        "## What the errors say\n",
        *errors(content),
        "",
    ]
    return "\n".join(parts)
