"""What the scripts that write pages of results share."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


def load(folder: Path) -> dict[str, Any] | None:
    """The results of a study and its name, or None where it has not been run."""
    path = folder / "results.json"
    return {"name": folder.name, **json.loads(path.read_text())} if path.exists() else None


def percent(entry: dict[str, Any]) -> str:
    """Mean and half-width of its interval in per cent."""
    half = entry.get("half_width_95")
    spread = "" if half is None or math.isnan(half) else f" ± {100 * half:.2f}"
    return f"{100 * entry['mean']:.2f}{spread}"


def signed(mean: float, half: float, digits: int = 2) -> str:
    """A difference, bold where its interval leaves out 0; alone where one pair gives none."""
    if math.isnan(half):
        return f"{mean:+.{digits}f} (one pair)"
    bold = "**" if abs(mean) > half else ""
    return f"{bold}{mean:+.{digits}f}{bold} ± {half:.{digits}f}"


def table(rows: list[list[str]]) -> list[str]:
    """Lines of a table whose first row is the head."""
    head, *body = rows
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]


def ours(*contents: dict[str, Any]) -> list[str]:
    """Values that the paper leaves open, seeds and commits, of one study or of some together.

    What is not the same for all of them stands behind the study's name.
    """
    said: dict[str, list[str]] = {}
    for content in contents:
        for key, value in content["ours"].items():
            said.setdefault(f"{key}: {value}", []).append(content["name"])
    parts = []
    for value, names in said.items():
        whose = "" if len(names) == len(contents) else f" ({', '.join(names)})"
        parts.append(value + whose)
    runs = [run for each in contents for run in each["runs"].values()]
    seeds = sorted({len(run["seeds"]) + len(run.get("errors", {})) for run in runs})
    commits = sorted({content["commit"] for content in contents})
    count = f"{' or '.join(map(str, seeds))} seed{'s' * (seeds != [1])}"
    made = f"commit{'s' * (len(commits) > 1)} {', '.join(f'`{each}`' for each in commits)}"
    return ["", f"Ours: {'; '.join(parts)}. {count}, {made}."]
