"""Pages name modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import committed_pages

ROOT = Path(__file__).parents[2]
PAGES = [
    *committed_pages("**/*.md"),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
]
FOLDERS = {path.name for path in ROOT.joinpath("securevfl").iterdir() if path.is_dir()}
OPTIONS = {"data.aligned", "data.alone", "data.key", "data.local"}  # of `--set`, not modules


def exists(name: str) -> bool:
    """Whether a path with folders stands in the repository or in the package."""
    return any(base.joinpath(name).exists() for base in (ROOT, ROOT / "securevfl"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_file_that_a_page_names_is_there(page):
    named = re.findall(r"`([\w./-]+/[\w.-]+\.py)`", page.read_text())
    assert [name for name in named if not exists(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_module_that_a_page_names_is_there(page):
    """Of a dotted name such as `securevfl.audit.views.cut`, the longest part that is a path."""
    text = page.read_text()
    for name in re.findall(r"`(?:securevfl\.)?([a-z_]+(?:\.[a-z_]+)+)`", text):
        parts = name.split(".")
        if (
            parts[0] not in FOLDERS
            or name in OPTIONS
            or name.endswith((".py", ".md", ".toml", ".json"))
        ):
            continue
        place = ROOT.joinpath("securevfl", *parts)
        while not (place.is_dir() or place.with_suffix(".py").is_file()):
            place = place.parent
        code = place.with_suffix(".py").read_text() if place.with_suffix(".py").is_file() else ""
        rest = parts[len(place.relative_to(ROOT / "securevfl").parts) :]
        face = place / "__init__.py"
        code = code or (face.read_text() if face.is_file() else "")
        assert not rest or re.search(rf"\b{rest[0]}\b", code), f"{name}: there is no {rest[0]}"
