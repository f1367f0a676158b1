"""Which module may import which: the table of CONTRIBUTING.md, read off the imports themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import securevfl

ROOT = Path(securevfl.__file__).parent

# For each part the parts that it may import besides itself. "engine.party" allows that module only.
# A part within a folder, "privacy.claims", may import of that folder only what is listed, too.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "field": {"errors"},
    "engine": {"errors"},
    "models": {"field", "errors"},
    "privacy.claims": {"field", "errors"},
    "privacy.mechanisms": {"field", "errors"},
    "privacy.accountant": {"field", "errors"},
    "privacy": {"engine.transcript", "models", "data", "field", "errors"},
    "data": {"errors", "engine.party"},
    "protocols": {
        "errors", "field", "models", "data", "privacy.claims", "privacy.mechanisms",
        "privacy.accountant", "engine.party", "engine.wire", "engine.streams",
    },
    "study": {
        "", "errors", "field", "models", "data", "privacy", "engine", "protocols.protocol",
    },
    "testing": {
        "", "errors", "field", "models", "data", "privacy", "engine", "protocols.protocol", "study",
    },
    "cli": {"", "study", "errors"},
    "__init__": {"study", "errors", "data", "engine.conditions"},
    "__main__": {"cli"},
}  # fmt: skip

CLOCKS = {"asyncio", "time", "datetime", "threading", "multiprocessing", "concurrent", "random"}
LAZY = {"torch", "numba", "pandas", "sklearn", "galois", "matplotlib", "scipy"}


def modules() -> list[str]:
    paths = sorted(ROOT.rglob("*.py"))
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]


def source(module: str) -> ast.Module:
    return ast.parse(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text())


def imports(module: str, tree: ast.AST) -> Iterator[str]:
    """Whole names of all imported modules; of ``from a import b`` both a and a.b."""
    package = ["securevfl", *module.split(".")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            home = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{home}.{alias.name}" for alias in node.names)


def of_ours(name: str) -> str | None:
    """Module within the package that an imported name stands for; "" for a public name."""
    parts = name.split(".")
    if parts[0] != "securevfl":
        return None
    while len(parts) > 1:
        path = ROOT.joinpath(*parts[1:])
        if path.is_dir() or path.with_suffix(".py").is_file():
            return ".".join(parts[1:])
        parts.pop()
    return ""


def part_of(module: str) -> str:
    """Longest entry of the table that a module belongs to."""
    parts = module.removesuffix(".__init__").split(".")
    while parts and ".".join(parts) not in ALLOWED:
        parts.pop()
    return ".".join(parts)


def permitted(module: str, target: str) -> bool:
    home = part_of(module)
    own = home.partition(".")[0]
    whole = home == own and own not in ("protocols", "__init__")
    if whole and target.partition(".")[0] == own:
        return True
    shared = ("protocols", "protocols.protocol", "protocols.base.split_training")
    method = ".".join(module.split(".")[:2])  # of a method that is a folder, the whole folder
    if own == "protocols" and (target in shared or f"{target}.".startswith(f"{method}.")):
        return True
    allowed = ALLOWED[home]
    return any(target == a or (a and target.startswith(f"{a}.")) for a in allowed)


@pytest.mark.parametrize("module", modules())
def test_imports_follow_the_table(module):
    assert part_of(module), f"{module} belongs to no part of the table"
    targets = {of_ours(name) for name in imports(module, source(module))} - {None}
    wrong = sorted(target for target in targets if not permitted(module, target))
    assert not wrong, f"{module} may not import {wrong}"


@pytest.mark.parametrize("module", [name for name in modules() if name.startswith("protocols.")])
def test_protocols_know_no_clock(module):
    found = {name.partition(".")[0] for name in imports(module, source(module))}
    assert found.isdisjoint(CLOCKS)


@pytest.mark.parametrize("module", modules())
def test_heavy_packages_are_imported_in_functions(module):
    kernels = ast.parse("")
    top = [node for node in source(module).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    kernels.body = list(top)
    found = {name.partition(".")[0] for name in imports(module, kernels)}
    allowed = {"numba"} if module.startswith("field.kernels.") else set()
    if module == "study.estimator":  # derives from a class of scikit-learn; itself loaded lazily
        allowed = {"sklearn"}
    assert found & LAZY <= allowed


@pytest.mark.parametrize(
    ("module", "target", "allowed"),
    [
        ("protocols.fedvs", "protocols.split", False),
        ("protocols.fedvs", "engine.simulation", False),
        ("protocols.fedvs", "engine.party", True),
        ("field.kernels.dispatch", "models.split", False),
        ("cli.app", "protocols.protocol", False),
        ("cli.app", "", True),
        ("study.run", "protocols.fedvs", False),
        ("data.join", "engine.simulation", False),
        ("privacy.claims", "engine.transcript", False),
        ("privacy.claims", "privacy.exact", False),
    ],
)
def test_the_table_can_refuse(module, target, allowed):
    assert permitted(module, target) is allowed


def test_imports_are_seen_in_every_form():
    text = "from . import a\nfrom ..engine import simulation\nimport securevfl.cli.app\n"
    found = {of_ours(name) for name in imports("protocols.fedvs", ast.parse(text))}
    assert found == {"protocols", "engine.simulation", "cli.app"}
