"""Test losses of CVFL's Figure 2 at which a run counts as done, fixed on validation rows.

    python benchmarks/stop_losses.py runs/study-figure-2-fashion-mnist runs/study-figure-2-cifar10

For each set: the lowest multiple of `GRID` that both ways reach on the validation rows of the seed
on which their rates were chosen, each with what was chosen for it, within `PART` of the updates.
Reads the folders that the studies wrote to, and writes their sets' losses into
results/cvfl/stops.json; the other sets keep theirs. No test row and no seed of a study has a say.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from securevfl.studies.jobs import stored
from securevfl.studies.study import read_study

HERE = Path(__file__).parent
OUT = HERE / "results" / "cvfl" / "stops.json"
GRID = {"mnist": 0.01, "fashion-mnist": 0.05, "cifar10": 0.05}
PART = 2 / 3


def lowest(folder: Path, label: str, chosen: dict[str, Any], rounds: int, study: Any) -> float:
    """Lowest validation loss of a run, with what was chosen for it, in time."""
    tried = dict.fromkeys(study.choice.seeds)
    candidates = study.choice.candidates(study.jobs)[label]
    for own, jobs in candidates:
        if own == chosen["options"]:
            for job in jobs:
                result = stored(folder, job)
                assert result is not None, (folder, label)
                early = [row for row in result["curve"] if row["step"] <= PART * rounds]
                tried[job.seed] = min(row["test_loss"] for row in early)
    return max(tried.values())  # type: ignore[type-var]


def stop_loss(folder: Path) -> tuple[str, dict[str, Any]]:
    """Name of a study's set, and its stop loss with what it follows from."""
    name = folder.name.split("figure-2-")[-1]
    study = read_study(HERE / "papers" / "cvfl" / f"figure-2-{name}.toml")
    content = json.loads((folder / "results.json").read_text())
    rounds = study.jobs[0].options["rounds"]
    reached = {
        label: round(lowest(folder, label, chosen, rounds, study), 5)
        for label, chosen in content["chosen"]["runs"].items()
    }
    step = GRID[name]
    return name, {"stop": round(step * math.ceil(max(reached.values()) / step), 2), **reached}


def main() -> None:
    """Write the losses of all folders, beside those of other sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    found = json.loads(OUT.read_text()) if OUT.exists() else {}
    found |= dict(stop_loss(folder) for folder in parser.parse_args().folders)
    OUT.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
