"""What packages, sites and forges read agrees with pyproject.toml."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("setuptools", minversion="77")  # which builds; the extra test brings it
yaml = pytest.importorskip("yaml")  # myst-parser of the extra docs brings it

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
# Names of conda-forge that are not those of PyPI; the base of matplotlib has no windows.
CONDA = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def read(name: str) -> Any:
    """A file of YAML."""
    return yaml.safe_load(ROOT.joinpath(name).read_text())


def steps(workflow: Path) -> list[str]:
    """All commands of a workflow."""
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def uses(content: Any) -> list[str]:
    """All actions of a workflow."""
    return [s["uses"] for job in content["jobs"].values() for s in job["steps"] if "uses" in s]


def test_the_conda_recipe_asks_for_what_the_project_asks_for():
    recipe = read("conda/recipe.yaml")
    assert recipe["context"]["version"] == PROJECT["version"]
    asked = {}
    for requirement in PROJECT["dependencies"]:
        name, bounds = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
        asked[CONDA.get(name, name)] = bounds
    found = dict(line.split() for line in recipe["requirements"]["run"])
    assert found.pop("python") == PROJECT["requires-python"]
    assert found == asked


def test_every_interpreter_that_is_named_is_tested():
    named = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if ":: Python :: 3." in c}
    matrix = read(".github/workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    assert set(matrix["python"]) == named
    assert f">={min(named, key=lambda v: int(v[2:]))}" == PROJECT["requires-python"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_only_read_and_end(workflow):
    content = yaml.safe_load(workflow.read_text())
    assert content["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 60 for job in content["jobs"].values())
    more = {
        name: job["permissions"] for name, job in content["jobs"].items() if "permissions" in job
    }
    publishing = ("rehearse", "publish") if workflow.stem == "wheels" else ()
    assert more == {name: {"id-token": "write"} for name in publishing}
    assert all(re.search(r"@(v\d+|release/v\d+)$", action) for action in uses(content))
    assert "secrets." not in workflow.read_text()
    # What a forge puts in, such as the title of a request, could be a command.
    assert not any("${{" in command for command in steps(workflow))


def test_the_workflows_run_the_commands_of_the_documents():
    commands = {command for workflow in WORKFLOWS for command in steps(workflow)}
    assert "sphinx-build -W -b html docs site" in commands
    assert "sphinx-build -W -b html docs site" in ROOT.joinpath("CONTRIBUTING.md").read_text()
    assert {"pip install -e '.[test]'", "pytest", "ruff check .", "mypy"} <= commands


def test_what_was_built_and_tried_is_published_on_a_candidate_and_on_a_release():
    content = read(".github/workflows/wheels.yml")
    jobs = content["jobs"]
    assert content[True]["release"] == {"types": ["published"]}  # YAML 1.1 reads `on` as a truth
    assert jobs["publish"]["if"] == (
        "github.event_name == 'release' && !github.event.release.prerelease"
    )
    assert "contains(github.ref_name, 'rc')" in jobs["rehearse"]["if"]
    for name, index in (("rehearse", "testpypi"), ("publish", "pypi")):
        assert (jobs[name]["needs"], jobs[name]["environment"]) == ("build", index)
        assert [step["uses"].partition("@")[0] for step in jobs[name]["steps"]] == [
            "actions/download-artifact",
            "pypa/gh-action-pypi-publish",
        ]
    assert "test.pypi.org" in jobs["rehearse"]["steps"][1]["with"]["repository-url"]
    assert "with" not in jobs["publish"]["steps"][1]
    assert "twine check --strict dist/*" in steps(ROOT / ".github/workflows/wheels.yml")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and source distribution of this checkout, as an installer's front end builds them."""
    tree = tmp_path_factory.mktemp("built")
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    left_out = shutil.ignore_patterns("__pycache__", "results", "golden")
    for folder in ("securevfl", "tests", "docs", "examples", "benchmarks"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=left_out)
    for folder in ("tests/golden", "benchmarks/results"):
        (tree / folder).mkdir()
        (tree / folder / "record.json").write_text("{}")
    lines = "from setuptools import build_meta as b; b.build_sdist('d'); b.build_wheel('d')"
    subprocess.run([sys.executable, "-c", lines], cwd=tree, check=True, capture_output=True)
    (wheel,), (source,) = tree.glob("d/*.whl"), tree.glob("d/*.tar.gz")
    return wheel, source


def of_package() -> set[str]:
    """Files of the package in this checkout."""
    paths = (path for path in ROOT.joinpath("securevfl").rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in paths if path.parent.name != "__pycache__"}


def test_the_wheel_holds_the_package_and_no_more(built):
    wheel = zipfile.ZipFile(built[0])
    mark = f"securevfl-{PROJECT['version']}.dist-info/"
    assert {name for name in wheel.namelist() if not name.startswith(mark)} == of_package()
    assert {f"{mark}licenses/LICENSE", f"{mark}entry_points.txt"} <= set(wheel.namelist())
    told = Parser().parsestr(wheel.read(f"{mark}METADATA").decode())
    assert told["Name"] == PROJECT["name"]
    assert told["Version"] == PROJECT["version"]
    assert told["Requires-Python"] == PROJECT["requires-python"]
    assert told["Description-Content-Type"] == "text/markdown"
    core = [line for line in told.get_all("Requires-Dist") if "extra ==" not in line]
    assert len(core) == len(PROJECT["dependencies"])
    assert set(told.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])


def test_the_source_distribution_can_be_built_and_tested(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert of_package() <= names
    assert {"pyproject.toml", "LICENSE", "README.md", "tests/test_packaging.py"} <= names
    assert not any(name.startswith(("tests/golden/", "benchmarks/results/")) for name in names)
    assert built[1].stat().st_size < 4_000_000


def test_an_index_gets_addresses_in_the_place_of_links_within_the_repository():
    made = runpy.run_path(str(ROOT / ".github/index_metadata.py"))
    place = "https://forge.example/securevfl"
    page = made["absolute"](ROOT.joinpath("README.md").read_text(), place, "abc")
    assert f"]({place}/raw/abc/docs/_static/equal-time.png)" in page
    assert f"]({place}/blob/abc/docs/sums.md)" in page
    assert re.findall(r"\]\((?!https?:)", page) == []
    text = made["with_urls"](ROOT.joinpath("pyproject.toml").read_text(), place)
    assert tomllib.loads(text)["project"]["urls"]["Repository"] == place


def test_read_the_docs_builds_what_the_workflow_builds():
    content = read(".readthedocs.yaml")
    assert ROOT.joinpath(content["sphinx"]["configuration"]).is_file()
    assert content["sphinx"]["fail_on_warning"] is True
    (install,) = content["python"]["install"]
    assert set(install["extra_requirements"]) <= set(PROJECT["optional-dependencies"])


def test_the_image_gets_what_the_build_needs():
    kept = [
        line[1:]
        for line in ROOT.joinpath(".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    needed = {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"], "securevfl"}
    assert set(kept) == needed
    assert "USER securevfl" in ROOT.joinpath("Dockerfile").read_text()


def test_the_container_of_editors_installs_the_tests():
    content = json.loads(ROOT.joinpath(".devcontainer/devcontainer.json").read_text())
    assert content["postCreateCommand"].endswith("pip install -e '.[test]'")


def test_the_source_distribution_has_no_results():
    """What MANIFEST.in takes, less what it takes out again, is small."""
    lines = [line.split() for line in ROOT.joinpath("MANIFEST.in").read_text().splitlines()]
    pruned = [ROOT / line[1] for line in lines if line[:1] == ["prune"]]
    excluded = [pattern for line in lines if line[:1] == ["global-exclude"] for pattern in line[1:]]
    assert ROOT / "benchmarks" / "results" in pruned
    size = 0
    for folder in [line[1] for line in lines if line[:1] == ["graft"]]:
        for path in ROOT.joinpath(folder).rglob("*"):
            if path.is_file() and not any(path.is_relative_to(p) for p in pruned):
                parts = path.relative_to(ROOT).parts
                if not any(fnmatch(part, pattern) for part in parts for pattern in excluded):
                    size += path.stat().st_size
    assert 1_000_000 < size < 5_000_000


def test_everything_says_the_same_licence():
    licence = PROJECT["license"]
    assert f"license: {licence}\n" in ROOT.joinpath("CITATION.cff").read_text()
    assert read("conda/recipe.yaml")["about"]["license"] == licence
    assert f'image.licenses="{licence}"' in ROOT.joinpath("Dockerfile").read_text()
    marked = [
        *WORKFLOWS,
        *(ROOT / n for n in ("Dockerfile", ".readthedocs.yaml", "conda/recipe.yaml")),
    ]
    for path in marked:
        assert path.read_text().startswith(f"# SPDX-License-Identifier: {licence}\n"), path
    assert "Apache License" in ROOT.joinpath("LICENSE").read_text()[:300]
    for path in ROOT.glob("examples/*/pyproject.toml"):
        assert tomllib.loads(path.read_text())["project"]["license"] == licence, path
