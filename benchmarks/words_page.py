"""Pages of results whose text is written by hand, benchmarks/words/NAME.md."""

from __future__ import annotations

from pathlib import Path

WORDS = Path("benchmarks/words")


def pages() -> dict[Path, str]:
    """Markdown of each page, by path."""
    return {Path(f"docs/results-{path.name}"): path.read_text() for path in WORDS.glob("*.md")}
