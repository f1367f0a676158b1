"""Write docs/results-fedvs-twins.md from the committed results of benchmarks/papers/fedvs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pages import load, percent, table

RESULTS = Path("benchmarks/results/fedvs")
PAGE = Path("docs/results-fedvs-twins.md")
ORDER = (
    "handwritten",
    "credit-card",
    "parkinson-person",
    "parkinson-row",
    "caltech-7",
    "fashion-mnist",
    "emnist",
)

HEAD = """# FedVS beside its unprotected baseline, and the paper

FedVS and plain split learning (`split`, the *unprotected baseline*) train the same networks from
the same initial weights on the same batches; FedVS computes on secret shares of rounded data and
weights, the baseline in float32 on unrounded ones. Each figure is the held-out accuracy after the
last round: mean and 95 % t interval over seeds, each seed with its own split, batches and weights.
Differences are paired by seed. The paper states no intervals; its figures are those that the DVFL
paper read off its plots. Settings that the paper leaves open are ours and are listed in each study
file under `benchmarks/papers/fedvs/`; the raw results with machine, versions, commit and times are
under `benchmarks/results/fedvs/`.
To repeat one: `securevfl study benchmarks/papers/fedvs/NAME.toml`.
`benchmarks/twins_page.py` writes this page.

No rows were held out for validation in these studies: no rate, length or beta was chosen by them.
What is called ours was set by hand, and where one value was the best of several, by test rows.

"""
COLUMNS = ["study", "seeds", "FedVS %", "baseline %", "FedVS - baseline, points", "paper %",
           "AUC of FedVS %", "virtual s, FedVS / baseline", "real s a run", "commit"]  # fmt: skip


def row(name: str, content: dict[str, Any]) -> list[str]:
    fedvs, twin = content["runs"]["fedvs"], content["runs"]["twin"]
    difference = content["differences"]["fedvs"]["test_accuracy"]
    paper = content["paper"].get("accuracy")
    return [
        f"[{name}](../benchmarks/papers/fedvs/{name}.toml)",
        str(len(fedvs["seeds"])),
        percent(fedvs["test_accuracy"]),
        percent(twin["test_accuracy"]),
        percent(difference),
        "-" if paper is None else f"{paper:.2f}",
        percent(fedvs["test_auc"]) if "test_auc" in fedvs else "-",
        f"{fedvs['virtual_seconds']['mean']:.0f} / {twin['virtual_seconds']['mean']:.0f}",
        f"{fedvs['wall_seconds']['mean']:.0f} / {twin['wall_seconds']['mean']:.0f}",
        f"`{content['commit']}`",
    ]


def page() -> str:
    """The page."""
    results = {name: content for name in ORDER if (content := load(RESULTS / name))}
    lines = [
        HEAD,
        *table([COLUMNS, *(row(name, content) for name, content in results.items())]),
        "",
    ]
    machine = next(iter(results.values()))["machine"]
    lines += [
        "Machine: " + ", ".join(f"{key} {value}" for key, value in machine.items()) + ".",
        "Real times were taken while other work shared the machine. On Parkinson FedVS is",
        "slower than waiting: with |B| = 8 rows the paper's delay of sharing a model,",
        "log2(N)^2 / |B| times that of an upload, is longer than the upload it saves.",
        "",
    ]
    for content in results.values():
        lines += [f"## {content['title']}", "", *notes(content), ""]
    return "\n".join(lines)


def notes(content: dict[str, Any]) -> list[str]:
    paper = "; ".join(f"{key}: {value}" for key, value in content["paper"].items())
    ours = [f"- {key}: {value}" for key, value in content["ours"].items()]
    return [f"Paper: {paper}.", "", "Ours:", "", *ours]
