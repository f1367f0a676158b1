"""The public names: there, lazy, fast to import, and without effects."""

from __future__ import annotations

import doctest
import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import securevfl

WITH_EXAMPLES = {f"securevfl.field.{x}" for x in ("prime_field", "lagrange_code", "fixed_point")}
HEAVY = (
    "torch", "numba", "pandas", "sklearn", "galois", "matplotlib", "pydantic", "numpy", "scipy",
    "cryptography", "typer", "rich",
)  # fmt: skip


def python(code: str, *arguments: str) -> str:
    """Standard output of a fresh interpreter."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def modules() -> list[str]:
    walked = pkgutil.walk_packages(securevfl.__path__, "securevfl.")
    return [module.name for module in walked if not module.name.endswith("__main__")]


def test_every_public_name_can_be_imported():
    for name in securevfl.__all__:
        assert getattr(securevfl, name) is not None


def test_public_names_are_listed_before_they_are_used():
    assert set(securevfl.__all__) <= set(python("import securevfl; print(*dir(securevfl))").split())


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'securevfl' has no attribute 'runn'"):
        _ = securevfl.runn


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, securevfl; print(*sorted(sys.modules))"
    loaded = {name.partition(".")[0] for name in python(code).split()}
    assert loaded.isdisjoint(HEAVY)


def test_importing_the_package_loads_few_modules():
    code = "import sys; had = set(sys.modules); import securevfl; print(*{*sys.modules} - had)"
    loaded = python(code).split()
    assert len([name for name in loaded if name.startswith("securevfl")]) < 10
    assert len(loaded) < 100


def test_importing_the_package_reads_no_arguments_and_prints_nothing():
    assert python("import securevfl, securevfl.cli", "--help", "--version") == ""


def test_importing_the_command_line_imports_no_torch():
    loaded = python("import sys, securevfl.cli.app; print(*sorted(sys.modules))").split()
    assert {"torch", "numba", "pandas", "sklearn"}.isdisjoint(loaded)


def test_help_imports_no_torch():
    code = """
import sys
from securevfl.cli.app import app
try:
    app(["run", "fedvs", "--help"])
except SystemExit:
    print(*sorted(sys.modules))
"""
    loaded = set(python(code).rstrip().rpartition("\n")[2].split())
    assert "securevfl.cli.app" in loaded
    assert {"torch", "numba", "pandas", "sklearn"}.isdisjoint(loaded)


def test_the_list_of_commands_imports_no_command():
    code = """
import sys
from securevfl.cli.app import app
try:
    app(["--help"])
except SystemExit:
    print(*sorted(sys.modules))
"""
    loaded = python(code).rstrip().rpartition("\n")[2].split()
    assert {"numpy", "pydantic", "securevfl.cli.commands"}.isdisjoint(loaded)
    assert len([name for name in loaded if name.startswith("securevfl")]) < 15
    assert len(loaded) < 375


def test_a_first_run_imports_no_more_than_it_needs(tmp_path):
    """Besides torch and what it imports, whose number differs between its builds and Pythons."""
    code = f"""
import sys
import torch
before = set(sys.modules)
from securevfl.cli.app import app
try:
    app(["run", "split", "--rounds", "1", "--out", {str(tmp_path / "run")!r}])
except SystemExit:
    pass
print()
print(*sorted(sys.modules.keys() - before))
"""
    loaded = python(code).rstrip().rpartition("\n")[2].split()
    assert "securevfl.protocols.split" in loaded
    heavy = {"numba", "pandas", "sklearn", "scipy", "galois", "matplotlib", "ray"}
    assert heavy.isdisjoint(loaded)
    assert {"securevfl.engine.cluster.supervisor", "securevfl.active"}.isdisjoint(loaded)
    assert len(loaded) < 416


def with_examples() -> list[str]:
    """Modules with a prompt in their text; doctest takes its time over those without."""
    found = {name: importlib.util.find_spec(name) for name in modules()}
    return [name for name, spec in found.items() if ">>>" in Path(spec.origin).read_text()]


@pytest.mark.parametrize("name", with_examples())
def test_examples_in_docstrings(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
    assert results.attempted > 0


def test_modules_with_examples_are_found():
    assert set(with_examples()) >= WITH_EXAMPLES
