"""Write the pages of results whose words are written by hand, benchmarks/words/NAME.md."""

from __future__ import annotations

from pathlib import Path

WORDS = Path("benchmarks/words")


def pages() -> dict[Path, str]:
    """Each page's path and text."""
    return {Path(f"docs/results-{path.name}"): path.read_text() for path in WORDS.glob("*.md")}
