"""Write the pages of results from the stored results, and draw the pictures that they show.

    PYTHONPATH=. python benchmarks/build.py [--studies] [--no-pictures] [PAGE ...]

A page is written by ``PAGE_page.py``; without words all are. Pages of studies, docs/results-*.md,
are not committed: building the site writes them. A picture that is there is not drawn again.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.stem.removesuffix("_page") for path in ROOT.glob("benchmarks/*_page.py"))
_PICTURE = re.compile(r"!\[[^\]]*\]\(\.\./(benchmarks/results/[^)]+\.png)\)")


def texts(names: Sequence[str] = PAGES) -> Iterator[tuple[Path, str]]:
    """Path, relative to the repository's root, and Markdown of each page of the scripts `names`.

    The working directory must be the root.
    """
    for name in names:
        module = importlib.import_module(f"{name}_page")
        written = module.pages() if hasattr(module, "pages") else {module.PAGE: module.page()}
        yield from written.items()


def shown(text: str) -> list[Path]:
    """Paths of the pictures of results to which a page's Markdown refers."""
    return [Path(found) for found in _PICTURE.findall(text)]


def main() -> None:
    """Parse the command line, write the pages, and draw their missing pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=", ".join(PAGES))
    parser.add_argument("--studies", action="store_true", help="leave committed pages as they are")
    parser.add_argument("--no-pictures", action="store_true", help="leave pictures as they are")
    given = parser.parse_args()
    unknown = sorted(set(given.pages) - set(PAGES))
    if unknown:
        parser.error(f"no such page: {', '.join(unknown)}; there are {', '.join(PAGES)}")
    os.chdir(ROOT)
    for path, text in texts(given.pages or PAGES):
        if given.studies and not path.name.startswith("results-"):
            continue
        path.write_text(text)
        if given.no_pictures:
            continue
        from pictures import draw

        for picture in shown(text):
            if not picture.exists():
                draw(picture)


if __name__ == "__main__":
    sys.exit(main())
