"""What the documents show is what works: commands, examples, links."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import securevfl
from tests.docs.pages import committed_pages

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"),
    *(f"docs/{path.name}" for path in committed_pages("*.md")),
)
# Words of all pages, with code and tables. This number is only ever lowered.
MOST_WORDS = 50_948


def text(name: str) -> str:
    return ROOT.joinpath(name).read_text()


def marked(number: int) -> str:
    found = re.findall(
        rf"^<!-- command {number} -->\n```\n([^\n]+)\n```$", text("README.md"), re.MULTILINE
    )
    assert len(found) == 1
    return found[0]


def test_command_1_installs_and_runs_fedvs():
    steps = marked(1).split(" && ")
    assert steps[-2:] == ["pip install -e .", "securevfl run fedvs"]


def test_command_2_installs_and_runs_all_tests():
    assert marked(2) == "pip install -e '.[test]' && pytest"


def test_the_ci_script_reads_command_2(tmp_path):
    script = text(".ci/run")
    (awk,) = re.findall(r"command=\$\((awk '.*?' README\.md)\)", script)
    done = subprocess.run(
        ["bash", "-c", awk], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == marked(2) + "\n"
    subprocess.run(["bash", "-n", ROOT / ".ci/run"], check=True, timeout=30)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_within_the_repository_lead_somewhere(name):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text(name)):
        assert ROOT.joinpath(name).parent.joinpath(target).exists(), target


def test_pages_have_no_more_words():
    pages = {*(ROOT / name for name in DOCUMENTS), *committed_pages("**/*.md")}
    found = sum(len(page.read_text().split()) for page in pages)
    assert found <= MOST_WORDS, f"pages have {found} words, of {MOST_WORDS}: delete something"


def test_names_in_the_table_of_the_readme_are_modules():
    for name in re.findall(r"^\| `securevfl\.(\w+)`", text("README.md"), re.MULTILINE):
        assert ROOT.joinpath("securevfl", name).is_dir()


def test_versions_agree():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    (cited,) = re.findall(r"^version: (\S+)$", text("CITATION.cff"), re.MULTILINE)
    assert project["version"] == cited == securevfl.__version__
    assert f"version {cited}" in text("README.md")


def test_the_citation_file_has_what_the_format_demands():
    keys = set(re.findall(r"^([a-z-]+):", text("CITATION.cff"), re.MULTILINE))
    assert {"cff-version", "message", "title", "authors"} <= keys
