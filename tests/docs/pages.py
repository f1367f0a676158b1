"""Pages of docs/ that are committed."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def committed_pages(pattern: str) -> list[Path]:
    """Pages by a pattern, without those of studies, which building the site writes beside them."""
    return [path for path in sorted(DOCS.glob(pattern)) if not path.name.startswith("results-")]


def files_of(text: str) -> dict[str, str]:
    """Files that a page shows whole, by name."""
    return dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", text, re.DOTALL))
