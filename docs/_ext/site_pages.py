"""What the site makes of the pages: root files as pages, links out of docs/, figures, cards.

It writes the studies' pages first, which are not committed.

The pages are plain Markdown that a forge shows as well. What only a site can do is done here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from literature import cards
from sphinx.application import Sphinx
from sphinx.domains.python import PyXRefRole

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent

# Files of the root that are pages of the site; on a forge the stub in docs/project points to them.
MIRRORED = {
    f"project/{name}": ROOT / f"{name.upper()}.md"
    for name in ("changelog", "contributing", "security")
}
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")

# Study pages in the list on results.md, which a forge shows as names: the site links to them.
_STUDY = re.compile(r"`(results-[\w-]+)`")
# Numbers of rows there lead to stored results on a forge; on the site to all differences.
_NUMBER = re.compile(r"^\[(\d+)\]: \S+$", re.MULTILINE)
_PICTURE = re.compile(r"^!\[[^\]]*\]\([^)]*\)$", re.MULTILINE)
_OTHERS = "% other pages"
_CARDS = "<!-- the cards -->"
_BARS = re.compile(r"\|(\w+)\|(?!_)")


def write_studies(app: Sphinx) -> None:
    """Write the studies' pages from the stored results."""
    command = [sys.executable, str(ROOT / "benchmarks" / "build.py"), "--studies"]
    if not app.config.study_pictures:
        command.append("--no-pictures")
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})


def read_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put a root file in the place of its stub, and let links that leave docs/ lead somewhere."""
    page = DOCS / f"{docname}.md"
    origin = MIRRORED.get(docname, page)
    text = origin.read_text() if docname in MIRRORED else source[0]

    def rewritten(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        found = Path(os.path.normpath(origin.parent / target))
        mirror = {path: name for name, path in MIRRORED.items()}.get(found)
        place = DOCS / f"{mirror}.md" if mirror else found
        if place == ROOT / "README.md":
            place = DOCS / "index.md"
        if place.is_dir() or (place.suffix == ".md" and not place.is_relative_to(DOCS)):
            path = f"`{found.relative_to(ROOT)}`"
            return path if words.strip("`") == path.strip("`") else f"{words} ({path})"
        return f"[{words}]({os.path.relpath(place, page.parent)}{anchor})"

    if docname == "index":
        text = text.replace(_OTHERS, "\n".join(other_pages(text)))
    if docname == "results":
        text = _STUDY.sub(r"[\1](\1.md)", text)
        text = _NUMBER.sub(r"[\1]: results-claims.md#study-\1", text)
    if docname.startswith("results-") and not app.config.study_pictures:
        text = _PICTURE.sub("", text)
    if _CARDS in text:
        text = text.replace(_CARDS, cards())
    source[0] = _LINK.sub(rewritten, text)


def other_pages(index: str) -> list[str]:
    """Pages that the index does not name, so that a new page is never lost."""
    named = set(index.split())
    pages = sorted(path.stem for path in DOCS.glob("*.md"))
    return [name for name in pages if name not in named | {"index"} and name[:8] != "results-"]


def inline_figures(app: Sphinx, doctree: nodes.document, _docname: str) -> None:
    """Put drawn figures into the page itself, so that they follow its light or dark theme."""
    if app.builder.format != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        path = DOCS / image["uri"]
        if path.parent.name == "figures" and path.suffix == ".svg":
            figure = f'<div class="svfl-figure">{path.read_text()}</div>'
            image.replace_self(nodes.raw("", figure, format="html"))


def mend_docstring(
    _app: Sphinx, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]
) -> None:
    """Sizes such as |B| are no substitutions."""
    lines[:] = [_BARS.sub(r"\\|\1\\|", line) for line in lines]


def skip_member(
    _app: Sphinx, _what: str, name: str, _thing: Any, skip: bool, _options: Any
) -> bool | None:
    """Leave out methods that scikit-learn makes, whose texts refer to its own site."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


class Name(PyXRefRole):  # type: ignore[misc]
    """A name in backticks: a link where it says enough to be one, else the bare name.

    A lone lower-case word is mostly a parameter, and would be linked to whatever has that name.
    """

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Nodes of one name."""
        if re.fullmatch(r"[a-z_]\w*", self.text):
            return [nodes.literal(self.rawtext, self.text)], []
        self.name = "py:obj"
        return super().run()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("study_pictures", True, "env", [bool])
    app.connect("builder-inited", write_studies)
    app.connect("source-read", read_source)
    app.connect("doctree-resolved", inline_figures)
    app.add_role("name", Name())
    app.connect("autodoc-process-docstring", mend_docstring)
    app.connect("autodoc-skip-member", skip_member)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
