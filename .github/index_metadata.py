"""Make pyproject.toml and README.md fit for an index, in the checkout that a release is built from.

Links within the repository lead nowhere on an index's page. They become addresses at the commit
that is built; the forge says its own address and the repository's. Nothing of this is committed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path


def absolute(text: str, repository: str, commit: str) -> str:
    """A page whose links and pictures within the repository are addresses at a commit."""

    def address(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/{commit}/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)", address, text)


def with_urls(text: str, repository: str) -> str:
    """The project's file with the addresses that an index shows."""
    pages = {"Repository": "", "Documentation": "/tree/main/docs", "Issues": "/issues"}
    pages["Changelog"] = "/blob/main/CHANGELOG.md"
    lines = "".join(f'{name} = "{repository}{page}"\n' for name, page in pages.items())
    return f"{text}\n[project.urls]\n{lines}"


if __name__ == "__main__":
    place = os.environ["GITHUB_SERVER_URL"] + "/" + os.environ["GITHUB_REPOSITORY"]
    readme, project = Path("README.md"), Path("pyproject.toml")
    readme.write_text(absolute(readme.read_text(), place, os.environ["GITHUB_SHA"]))
    project.write_text(with_urls(project.read_text(), place))
