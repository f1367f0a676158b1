"""Pages of results are those that the scripts write from the committed results."""

import importlib
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.stem for path in ROOT.glob("benchmarks/*_page.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_page_is_what_its_script_writes(script, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module(script)
    page = module.PAGE.read_text()
    assert f"benchmarks/{script}.py" in page  # it says what to change instead
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    for picture in ("draw_exponents", "draw_losses"):
        monkeypatch.setattr(module, picture, lambda name: None, raising=False)
    module.main()
    written = module.PAGE.read_text()
    assert written == page, f"PYTHONPATH=. python benchmarks/{script}.py"


def git(*words, **options):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, **options)


@pytest.mark.skipif(
    shutil.which("git") is None or git("rev-parse", "--is-shallow-repository").stdout != "false\n",
    reason="needs the whole history",
)
def test_the_commits_that_results_name_can_be_looked_at():
    named = {}
    for path in ROOT.glob("benchmarks/results/**/*.json"):
        content = json.loads(path.read_text())
        told = content.get("commit") if isinstance(content, dict) else None
        named |= dict.fromkeys(re.findall(r"\b[0-9a-f]{7,12}\b", told or ""), path)
    assert len(named) > 20
    told = git("cat-file", "--batch-check=%(objecttype)", input="\n".join(named)).stdout
    found = dict(zip(named, told.splitlines(), strict=True))
    assert {one: named[one] for one, kind in found.items() if kind != "commit"} == {}


STUDIES = {
    f"{file.parent.name}-{file.stem}": (file, results)
    for file in sorted(ROOT.glob("benchmarks/papers/*/*.toml"))
    for results in (ROOT / "benchmarks/results" / file.parent.name).glob(
        f"{file.stem}/results.json"
    )
}


@pytest.mark.parametrize("name", STUDIES)
def test_results_say_of_themselves_what_their_study_says(name):
    """Pages print what results hold: a correction in the study's file must stand there, too."""
    file, results = STUDIES[name]
    study, told = tomllib.loads(file.read_text()), json.loads(results.read_text())
    assert told.get("ours", {}) == study.get("ours", {})
