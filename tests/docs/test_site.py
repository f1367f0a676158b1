"""The documentation's site: it builds without a warning, and has what it promises."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import securevfl
from securevfl.protocols.base.registry import find_protocols

ROOT = Path(__file__).parents[2]


@pytest.fixture
def docs(tmp_path):
    """Pages of the site in a copy, into which the studies' pages are written; else as they are."""
    copy = tmp_path / "repository"
    shutil.copytree(ROOT / "docs", copy / "docs", ignore=shutil.ignore_patterns("results-*.md"))
    for path in ROOT.iterdir():
        if path.name not in ("docs", ".git"):
            copy.joinpath(path.name).symlink_to(path)
    return copy / "docs"


def test_the_site_builds_without_a_warning_and_has_what_it_promises(docs, tmp_path):
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package)
    site = tmp_path / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-E", "-b", "html"]
    # The list of all objects, which is a part of every page, takes a fifth of the time, and the
    # forms of quotation marks a twentieth. Pictures of studies take two minutes;
    # `test_results_pages` looks whether they can be drawn.
    command += ["-D", "toc_object_entries=0", "-D", "smartquotes=0", "-D", "study_pictures=0", "-d"]
    command += [str(tmp_path / "doctrees"), str(docs), str(site)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    every_page_is_in_the_list_of_pages(site, docs)
    the_pages_of_studies_are_there(site)
    the_literature_has_every_protocol_and_what_it_claims(site)
    the_reference_has_every_public_name(site)
    figures_are_part_of_the_page_and_follow_its_theme(site)
    the_site_asks_nobody_for_anything(site)


def every_page_is_in_the_list_of_pages(site: Path, docs: Path) -> None:
    first = site.joinpath("index.html").read_text()
    pages = {path.relative_to(docs).with_suffix("") for path in docs.glob("**/*.md")}
    for page in pages - {Path("index")}:
        assert f'href="{page}.html"' in first, page


def the_pages_of_studies_are_there(site: Path) -> None:
    page = site.joinpath("results.html").read_text().partition('id="study-pages"')[2]
    studies = {path.stem for path in site.glob("results-*.html")}
    text = ROOT.joinpath("docs", "results.md").read_text()
    assert studies == set(re.findall(r"`(results-[\w-]+)`", text))
    assert len(studies) >= 13
    for name in studies:
        assert f'href="{name}.html"' in page, name


def the_literature_has_every_protocol_and_what_it_claims(site: Path) -> None:
    page = site.joinpath("literature.html").read_text()
    for name, protocol in find_protocols().items():
        assert f'id="protocol-{name.replace("_", "-")}"' in page
        assert f'<code class="docutils literal notranslate"><span class="pre">{name}<' in page
        assert protocol.card.title.split(":")[0] in page
    assert "not protected" in page
    assert "Theorem 5.2" in page
    # Claims are those of the default options, and not of the suite's, whose noise is seeded.
    _, _, noised = page.partition('id="protocol-wait-dp"')
    assert "differential" in noised
    assert "the noise is seeded" not in page


def the_reference_has_every_public_name(site: Path) -> None:
    page = site.joinpath("api", "top.html").read_text()
    for name in set(securevfl.__all__) - {"__version__"}:
        assert f'id="securevfl.{name}"' in page, name


def figures_are_part_of_the_page_and_follow_its_theme(site: Path) -> None:
    page = site.joinpath("concepts.html").read_text()
    # Each has words for those who do not see it.
    assert len(re.findall(r'<svg class="svfl"[^>]*>\s*<title>\w', page)) == 6
    assert 'body[data-theme="dark"] .svfl' in site.joinpath("_static", "site.css").read_text()


def test_figures_are_those_that_the_script_draws(tmp_path):
    folder = ROOT / "docs" / "figures"
    script = tmp_path / "draw.py"
    script.write_bytes(folder.joinpath("draw.py").read_bytes())
    subprocess.run([sys.executable, script], check=True, timeout=60)
    drawn = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    assert drawn == {path.name: path.read_text() for path in folder.glob("*.svg")}


def test_the_shares_of_the_figure_are_those_of_the_library():
    import numpy as np

    from securevfl.field import LagrangeCode, PrimeField

    field = PrimeField(97)
    code = LagrangeCode(field, parties=8, segments=2, privacy=1)
    data, mask = np.array([[30], [71]], field.dtype), np.array([[55]], field.dtype)
    shares = code.encode(data, masks=mask).ravel().tolist()
    figure = ROOT.joinpath("docs", "figures", "share.svg").read_text()
    assert re.findall(r'font-size="12" fill="var\(--one\)">(\d+)<', figure)[::2] == [
        str(share) for share in shares
    ]


def the_site_asks_nobody_for_anything(site: Path) -> None:
    for page in site.glob("**/*.html"):
        fetched = re.findall(
            r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(https?:[^"]+)"', page.read_text()
        )
        assert not fetched, page
