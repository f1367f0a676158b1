"""Write docs/results-organisations.md: the words of benchmarks/words/organisations.md."""

from __future__ import annotations

from pathlib import Path

PAGE = Path("docs/results-organisations.md")
WORDS = Path("benchmarks/words/organisations.md")


def page() -> str:
    """The page."""
    return WORDS.read_text()
