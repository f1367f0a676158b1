"""Pages of results are those that the scripts write from the committed results."""

import importlib
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
    monkeypatch.setattr(module, "draw_exponents", lambda name: None, raising=False)
    module.main()
    written = module.PAGE.read_text()
    assert written == page, f"PYTHONPATH=. python benchmarks/{script}.py"
