"""What the scripts that write pages of results share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def load(folder: Path) -> dict[str, Any] | None:
    """The results of a study, or None where it has not been run."""
    path = folder / "results.json"
    return json.loads(path.read_text()) if path.exists() else None


def percent(entry: dict[str, Any]) -> str:
    """Mean and half-width of its interval in per cent."""
    half = entry.get("half_width_95")
    return f"{100 * entry['mean']:.2f}" + ("" if half is None else f" ± {100 * half:.2f}")


def table(rows: list[list[str]]) -> list[str]:
    """Lines of a table whose first row is the head."""
    head, *body = rows
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]


def ours(content: dict[str, Any]) -> list[str]:
    """Values that the paper leaves open, seeds and commit."""
    seeds = len(next(iter(content["runs"].values()))["seeds"])
    values = "; ".join(f"{key}: {value}" for key, value in content["ours"].items())
    return ["", f"Ours: {values}. {seeds} seeds, commit `{content['commit']}`."]
