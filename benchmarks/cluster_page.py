"""Write docs/results-cluster.md from benchmarks/results/cluster/cluster.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pages import table

from securevfl.studies.intervals import mean_interval

RESULTS = Path("benchmarks/results/cluster/cluster.json")
PAGE = Path("docs/results-cluster.md")

HEAD = """# FedVS as Ray actors, measured

What [cluster.md](cluster.md) says, in figures: every party is a process of its own on one machine,
links are sealed unless a row says otherwise. `python benchmarks/cluster.py NAME` repeats a part;
values with machine, versions and commit are in `benchmarks/results/cluster/cluster.json`.
`benchmarks/cluster_page.py` writes this page.
"""
Part = dict[str, Any]


def percent(value: float) -> str:
    """A share of 1, in per cent."""
    return f"{100 * value:.2f} %"


def same(part: Part) -> list[str]:
    """The simulation's numbers."""
    equal = "equal" if part["losses_equal"] else "NOT equal"
    accuracy = [part[engine]["test_accuracy"] for engine in ("cluster", "simulation")]
    return [
        f"{part['parties']} parties and the server in {part['processes']} processes, "
        f"{part['cluster']['rounds']} rounds on digits: all losses are {equal} to the "
        f"simulation's of the same seed; test accuracy {percent(accuracy[0])} and "
        f"{percent(accuracy[1])}."
    ]


def kills(part: Part) -> list[str]:
    """A party killed -9 every few rounds."""
    rows = [["seed", "killed", "named by events", "accuracy", "without kills", "real time"]]
    options = part["options"]
    without = "it is made without them"
    if options.get("absent") == "last":
        without = (
            "it is made with the models of theirs that it was made with last (`absent=last`, which "
            "the named commit had; [coded_split](coded-split.md) does what it was for)"
        )
    for run in part["runs"]:
        named = "all" if sorted(run["named_in_events"]) == sorted(run["killed"]) else "NOT all"
        rows.append(
            [
                str(run["seed"]),
                ", ".join(f"party {n}" for n in run["killed"]),
                named,
                percent(run["cluster"]["test_accuracy"]),
                percent(run["without_kills"]["test_accuracy"]),
                f"{run['cluster']['wall_seconds']:.0f} s",
            ]
        )
    return [
        f"{part['rounds']} rounds, every {part['every']} of them a party is killed -9, restarted "
        "and goes on from its own checkpoint, some five seconds later. A round waits "
        f"{options['share_timeout']:g} s for those who have not shared, then {without}.",
        "",
        *table(rows),
        "",
        f"With kills minus without, in points: {difference(part)}.",
    ]


def coded(part: Part) -> list[str]:
    """Holders of coded_split killed -9 every few rounds."""
    rows = [["seed", "killed", "named by events", "losses", "accuracy", "without", "real time"]]
    for run in part["runs"]:
        rows.append(
            [
                str(run["seed"]),
                ", ".join(f"party {n}" for n in run["killed"]),
                "all" if sorted(run["named_in_events"]) == sorted(run["killed"]) else "NOT all",
                "equal" if run["losses_equal"] else "NOT equal",
                percent(run["cluster"]["test_accuracy"]),
                percent(run["without_kills"]["test_accuracy"]),
                f"{run['cluster']['wall_seconds']:.0f} s",
            ]
        )
    return [
        f"[coded_split](coded-split.md), {part['rounds']} rounds, a holder killed -9 every "
        f"{part['every']} of them. The first R = 4 of 8 uploads make a round, and nobody waits for "
        "a party that is down; one that comes back asks for the steps that it missed. Losses are "
        "compared with those of a simulation without kills that has the parties' secrets.",
        "",
        *table(rows),
    ]


def away(part: Part) -> list[str]:
    """The same losses in simulation."""
    names = [name for name in ("whole", "away", "last") if name in part["runs"][0]]
    accuracy = {name: ", ".join(percent(run[name]) for run in part["runs"]) for name in names}
    points = {
        name: interval([100 * (run[name] - run["whole"]) for run in part["runs"]]) for name in names
    }
    last = (
        f" With `absent=last`, which the named commit had, it ends at {accuracy['last']}; "
        f"{points['last']}. In the mean it is not the step that a party misses "
        "which costs accuracy, but the sum that lacks its features, and the steps of everybody "
        "else on that sum; with three seeds the interval of that loss holds 0."
    )
    return [
        "What of this is the protocol's: the simulation with the same parties away in the same "
        f"places, for one round each, ends at {accuracy['away']} where the whole runs end at "
        f"{accuracy['whole']}; in points {points['away']}." + (last if "last" in names else "")
    ]


def difference(part: Part) -> str:
    """Of accuracies, paired by seed."""
    return interval(
        [
            100 * (run["cluster"]["test_accuracy"] - run["without_kills"]["test_accuracy"])
            for run in part["runs"]
        ]
    )


def interval(values: list[float]) -> str:
    """Mean and half-width."""
    mean, half = mean_interval(values)
    return f"{mean:+.2f} ± {half:.2f} (95 % t interval over {len(values)} seeds)"


def lost(part: Part) -> list[str]:
    """More parties lost than are tolerated."""
    return [
        f"Six of eight parties killed for good, where R = 3 are needed: the error comes after "
        f"{part['seconds']} s, and checkpoints are kept:",
        "",
        f"> {part['said']}",
    ]


def drivers(part: Part) -> list[str]:
    """Drivers killed -9."""
    runs = part["runs"]
    at = ", ".join(str(run["killed_at"]) for run in runs)
    since = ", ".join(str(run["went_on_from"]) for run in runs)
    return [
        f"{len(runs)} drivers of four parties killed -9 when they told of the rounds {at} of 40, "
        f"and resumed; the runs went on from the rounds {since}. {part['equal']} of {len(runs)} "
        "end with all losses and the accuracy of the unbroken run."
    ]


def rates(part: Part) -> list[str]:
    """Rates and shares."""
    rows = [
        ["", "rounds a second, simulation", "cluster", "processor a round, simulation", "cluster",
         "share of Ray and processes", "bytes, simulation", "cluster"]
    ]  # fmt: skip
    for run in part["runs"]:
        one, two = run["simulation"], run["ray"]
        rows.append(
            [
                f"{run['protocol']}, {run['what']}",
                f"{one['rounds_per_second']:.1f}",
                f"{two['rounds_per_second']:.1f}",
                f"{one['cpu_ms']} ms",
                f"{two['cpu_ms']} ms",
                f"{100 * run['share_of_ray']:.0f} %",
                f"{one['bytes'] / 1e6:.1f} MB",
                f"{two['bytes'] / 1e6:.1f} MB",
            ]
        )
    return [
        f"{part['rounds']} rounds without delays. The share is the processor's time of all "
        "processes beyond what one process needs for the same run: Ray, its own processes, "
        "and what every party does anew. Bytes are those of the protocol's messages; they differ "
        "where a slow result comes too late for its round.",
        "",
        *table(rows),
    ]


def fashion(part: Part) -> list[str]:
    """28 parties."""
    return [
        f"{part['parties']} parties, {part['rounds']} rounds of Fashion-MNIST (60 000 rows, K = 4, "
        f"D = 1) on two cores: {part['seconds_in_all']:.0f} s in all, start and sharing of data "
        f"included, {part['rounds_per_second']:.2f} rounds a second, test accuracy "
        f"{percent(part['test_accuracy'])}, {part['bytes'] / 1e9:.2f} GB sent."
    ]


def chaos(part: Part) -> list[str]:
    """Kills and forged frames."""
    return [
        f"{part['runs']} runs of 12 rounds (`tests/engine/realtime/test_chaos.py`, as the named "
        f"commit has it), with {part['kills']} kills at random, "
        f"{part['kills_of_the_server']} of them of the server, half of the kills with the newest "
        "checkpoint cut short, and "
        f"{part['frames_forged']:,} frames flipped, cut, "
        f"invented, replayed or relabelled: all runs ended with all rounds done, and "
        f"{part['accepted']} of those frames were accepted."
    ]


SECTIONS: dict[str, tuple[str, Callable[[Part], list[str]]]] = {
    "same": ("The simulation's numbers", same),
    "last": ("A party dies every ten rounds, and rounds go on with its last model", kills),
    "kills": ("A party dies every ten rounds, and rounds go on without it", kills),
    "patient": ("A party dies every ten rounds, and rounds wait for it", kills),
    "coded": ("A holder of coded_split dies every fifty rounds", coded),
    "away": ("The same losses in simulation", away),
    "lost": ("More die than are tolerated", lost),
    "drivers": ("The driver dies", drivers),
    "chaos": ("Chaos", chaos),
    "rates": ("What it costs", rates),
    "fashion": ("Twenty-eight parties", fashion),
}


def page() -> str:
    """The page."""
    content = json.loads(RESULTS.read_text())
    parts = [HEAD]
    for name, (title, section) in SECTIONS.items():
        if name in content:
            machine, commit = content[name]["machine"], content[name]["commit"]
            where = f"{machine['processor']}, {machine['cores']} cores, commit `{commit}`."
            parts.append("\n".join([f"## {title}\n", *section(content[name]), "", where, ""]))
    missing = [name for name in SECTIONS if name not in content]
    if missing:
        parts.append(f"Not measured yet: {', '.join(missing)}.\n")
    return "\n".join(parts)
