"""The layers: which package may import which, how large a folder may be, where a test lies.

The table is that of docs/design.md. Every import counts, also one inside a function and one for
type checking alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import securevfl
from securevfl.protocols.base.defaults import DEFAULT, SHOWN
from securevfl.protocols.base.registry import find_protocols

ROOT = Path(securevfl.__file__).parent
TESTS = Path(__file__).parent

# Each package, from the ground up, and what it may import besides itself. "engine.party" allows
# that module only. An entry within a package ("protocols.base") is a room of its own.
_BELOW_DATA = {"engine.party", "plugins", "errors", "reading", "writing"}
_METHOD = {
    *("data", "models", "privacy", "field", "plugins", "errors", "protocols.base", "verified"),
    *("engine.party", "engine.wire", "engine.streams"),
}
_PLANNING = {"protocols.base", "data", "models", "privacy", "field", "engine", "errors"}
_RUNS = _PLANNING | {
    *("planning", "machine", "plugins", "reading", "writing", "_version", "verified", "active"),
}
_STUDIES = _RUNS | {"runs"}
_AUDIT = _STUDIES | {"studies"}
_TESTING = _AUDIT | {"audit", "bench", "studies", ""}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "_version": set(),
    "plugins": {"errors"},
    "machine": {"errors"},
    "doctor": {"machine", "field.kernels", "_version", "errors"},
    "reading": {"errors"},
    "writing": set(),
    "field": {"errors"},
    "engine": {"errors", "reading", "writing", "engine.conditions", "field.packing"},
    "engine.conditions": {"errors", "plugins", "engine"},
    "models": {"field", "errors"},
    "privacy": {"field", "errors"},
    "data": _BELOW_DATA | {"field.binary"},
    "active": {"field", "engine.wire", "errors", "verified", "writing"},
    "protocols.base": _METHOD - {"protocols.base"},
    "protocols.base.levels": _METHOD | {"active"},
    "protocols.protocol": {"protocols.base"},
    "protocols": _METHOD | {"active"},
    "planning": _PLANNING,
    "runs": _RUNS,
    "studies": _STUDIES,
    "bench": _AUDIT,
    "audit": _AUDIT | {"verified"},
    "verified": {
        *("field", "privacy", "errors", "engine.party", "engine.wire", "engine.streams"),
        *("engine.conditions", "engine.delays", "engine.faults", "engine.network"),
    },
    "verified.traced": {
        *("verified", "data", "engine", "runs", "protocols.base", "errors", "_version"),
    },
    "report": {
        *("runs", "studies.intervals", "protocols.base", "engine.network", "engine.names"),
        *("engine.conditions",),
        *("machine", "_version", "errors", "reading", "writing", "verified"),
    },
    "testing": _TESTING,
    "cli": {
        *("report", "audit", "studies", "bench", "planning", "runs", "errors", "machine", ""),
        "verified",
        *("data.source", "_version", "protocols.base.defaults", "doctor", "writing"),
    },
    "__init__": {
        *("audit", "runs", "planning", "data", "engine.conditions", "errors", "_version"),
        "verified.traced",
    },
    "__main__": {"cli"},
}


CLOCKS = {"asyncio", "time", "datetime", "threading", "multiprocessing", "concurrent", "random"}
LAZY = {"torch", "numba", "pandas", "sklearn", "galois", "matplotlib", "scipy"}


@cache
def modules() -> list[str]:
    paths = sorted(ROOT.rglob("*.py"))
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]


@cache
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


@cache
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


@cache
def targets(module: str) -> set[str]:
    """Modules of ours that a module imports in whatever way."""
    found = {of_ours(name) for name in imports(module, source(module))}
    return {target for target in found if target is not None}


@cache
def room_of(module: str) -> str:
    """Longest entry of the table that a module belongs to."""
    parts = module.removesuffix(".__init__").split(".")
    while parts and ".".join(parts) not in ALLOWED:
        parts.pop()
    return ".".join(parts)


def method_of(module: str) -> str:
    """The file or folder of a method below `protocols`; "" elsewhere."""
    parts = module.removesuffix(".__init__").split(".")
    return ".".join(parts[:2]) if room_of(module) == "protocols" else ""


def within(target: str, room: str) -> bool:
    return target == room if not room else f"{target}.".startswith(f"{room}.")


def permitted(module: str, target: str) -> bool:
    room, method = room_of(module), method_of(module)
    if method:  # never another method
        if within(target, method) or target == "protocols":
            return True
    elif room != "__init__" and room_of(target) == room:
        return True
    return any(within(target, allowed) for allowed in ALLOWED[room])


def test_imports_follow_the_table():
    assert [module for module in modules() if not room_of(module)] == []  # in no room of the table
    arrows = ((module, target) for module in modules() for target in targets(module))
    assert [f"{one} imports {other}" for one, other in arrows if not permitted(one, other)] == []


@cache
def graph() -> dict[str, set[str]]:
    """Module -> modules that it imports, function bodies and type checking included."""
    names = {name.removesuffix(".__init__") for name in modules()} - {"__main__", "__init__"}
    arrows: dict[str, set[str]] = {}
    for module in modules():
        home = module.removesuffix(".__init__")
        if home not in names:
            continue
        arrows[home] = {target for target in targets(module) if target in names and target != home}
    return arrows


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected parts with more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(arrows.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = []
            while not part or part[-1] != node:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return found


def test_no_module_imports_itself_in_a_circle():
    assert circles(graph()) == []


# Packages whose folders import each other in a circle; this list only becomes shorter.
CIRCULAR = {"audit"}


def folders() -> dict[str, set[str]]:
    """Folder -> folders that its modules import; the modules of a folder itself count as one."""
    arrows: dict[str, set[str]] = {}
    for module, found in graph().items():
        home = module.rpartition(".")[0]
        if home:  # what lies at the root is no folder of a package
            others = {target.rpartition(".")[0] for target in found}
            arrows.setdefault(home, set()).update(others - {home, ""})
    return arrows


def test_no_folder_imports_itself_in_a_circle():
    found = {part[0].partition(".")[0] for part in circles(folders())}
    assert found == CIRCULAR


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def roots(module: str, tree: ast.AST) -> set[str]:
    """Packages that a tree imports."""
    return {name.partition(".")[0] for name in imports(module, tree)}


def test_protocols_know_no_clock():
    methods = [name for name in modules() if method_of(name)]
    assert len(methods) > 50
    assert set().union(*(roots(name, source(name)) for name in methods)).isdisjoint(CLOCKS)


def test_heavy_packages_are_imported_in_functions():
    wrong = {}
    for module in modules():
        top = ast.parse("")
        kinds = (ast.Import, ast.ImportFrom)
        top.body = [node for node in source(module).body if isinstance(node, kinds)]
        # They derive from classes of scikit-learn, and are themselves loaded lazily.
        allowed = {"sklearn"} if module.startswith("runs.estimators.") else set()
        wrong[module] = (roots(module, top) & LAZY) - allowed
    assert {module: found for module, found in wrong.items() if found} == {}


# Names of protocols that are ordinary words, too: only a text that is such a name as a whole, or
# begins with it and a colon, counts. These texts mean something else.
WORDS = {"split", "local"}
MEANT_OTHERWISE = {
    ("cli.app", "local"): "option of data: rows that a party has alone",
    ("cli.output", "split"): "how the test rows of a data set were chosen",
    ("data.base.partition", "split"): "name of a stream",
    ("engine.cluster.ray_connection", "local"): "Ray's word for a cluster on this machine",
    ("models.pretraining.cross_party", "local"): "key of saved weights",
}


@cache
def protocol_names() -> tuple[set[str], set[str]]:
    """Names and class names of this package's protocols."""
    found = [cls for cls in find_protocols().values() if cls.__module__.startswith("securevfl.")]
    return {cls.name for cls in found}, {cls.__name__ for cls in found}


def named_protocols(text: str, tree: ast.AST | None = None) -> set[str]:
    """Protocols that a module names: in code, in texts, in comments and docstrings.

    Three things are no names: a method in the capitals of its paper in a sentence ("FedVS, section
    3"), which cites the paper; a longer word with a hyphen ("cvfl-mnist", a published partition of
    labels); and the words "split" and "local", unless they are a whole text or begin a variant.
    """
    names, classes = protocol_names()
    clear = "|".join(sorted(names - WORDS))
    found = set(re.findall(rf"(?<![\w-])(?:{clear})(?![\w-])", text))
    for node in ast.walk(tree or ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value.partition(":")[0]} & WORDS
        elif isinstance(node, ast.alias):
            found |= {node.name.rpartition(".")[2]} & (classes | names)
        elif isinstance(node, (ast.Name, ast.Attribute)):
            found |= {node.id if isinstance(node, ast.Name) else node.attr} & classes
    return found


def test_no_module_outside_protocols_names_a_protocol():
    """Where one does, it should ask the protocol for a property instead."""
    found = set()
    for module in modules():
        if not module.startswith("protocols"):
            text = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text()
            found |= {(module, name) for name in named_protocols(text, source(module))}
    assert found - set(MEANT_OTHERWISE) == set()


def test_no_template_of_a_page_names_a_protocol():
    clear = "|".join(sorted(protocol_names()[0] - WORDS))
    paths = [path for path in ROOT.rglob("templates/*") if path.is_file()]
    assert len(paths) >= 5
    for path in paths:
        assert not re.search(rf"(?<![\w-])(?:{clear})(?![\w-])", path.read_text()), path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('run("fedvs")', "fedvs"),
        ("x = 1  # as he_split does", "he_split"),
        ('"""What wait_dp needs."""', "wait_dp"),
        ('get_protocol("split")', "split"),
        ('"split:quantized=true"', "split"),
        ("from securevfl.protocols.fedvs.protocol import FedVS", "FedVS"),
        ("isinstance(made, FedVS)", "FedVS"),
        ("from securevfl.protocols import local", "local"),
    ],
)
def test_a_named_protocol_is_found(text, name):
    assert name in named_protocols(text)


@pytest.mark.parametrize(
    "text", ['"""FedVS, section 3."""', 'x = "cvfl-mnist"', "split = 'the split'", "a.local = 1"]
)
def test_what_is_no_name_of_a_protocol(text):
    assert named_protocols(text) == set()


def test_what_is_shown_where_the_user_names_no_protocol():
    found = find_protocols()
    assert set(SHOWN.values()) <= set(found)
    assert SHOWN["default"] == DEFAULT
    assert found[DEFAULT].twin == SHOWN["baseline"]
    assert {cls.twin for cls in found.values()} - {None} <= set(found)


def test_a_folder_can_be_taken_in_at_a_glance():
    for folder in {path.parent for path in ROOT.rglob("*.py")}:
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        most = {"protocols": 25, "base": 22}.get(folder.name, 20)  # one file a method
        assert len(files) <= most, folder


# Lines that each package may have. A number is only ever lowered: who adds to a package deletes in
# it. "" is the modules beside the packages.
MOST_LINES = {
    "active": 2005,
    "": 1155,
    "audit": 7716,
    "bench": 2448,
    "cli": 5384,
    "data": 8780,
    "engine": 13153,
    "field": 9244,
    "models": 5007,
    "planning": 1766,
    "privacy": 1256,
    "protocols": 20912,
    "report": 2649,
    "runs": 8842,
    "studies": 1608,
    "testing": 1607,
    "verified": 9597,
}


def lines_of(package: str) -> int:
    folder = ROOT / package
    paths = folder.rglob("*.py") if package else folder.glob("*.py")
    return sum(len(path.read_text().splitlines()) for path in paths)


def test_the_table_of_lines_names_every_package():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(MOST_LINES) == {"", *packages}


@pytest.mark.parametrize("package", MOST_LINES)
def test_a_package_grows_no_longer(package):
    found = lines_of(package)
    assert found <= MOST_LINES[package], (
        f"{package or 'the root'} has {found} lines, of {MOST_LINES[package]}: delete something"
    )


# Uses of `Any` in each of these packages, imports aside. A number is only ever lowered.
MOST_ANY = {"data": 28, "engine": 109, "runs": 82}


def uses_of_any(module: str) -> int:
    return sum(isinstance(n, ast.Name) and n.id == "Any" for n in ast.walk(source(module)))


@pytest.mark.parametrize("package", MOST_ANY)
def test_a_package_uses_any_no_more(package):
    found = {m: uses_of_any(m) for m in modules() if m.partition(".")[0] == package}
    assert sum(found.values()) <= MOST_ANY[package], (
        f"{package} uses Any {sum(found.values())} times, of {MOST_ANY[package]}: name the type"
    )


def test_uses_of_any_are_counted():
    assert uses_of_any("runs.options") > 0
    assert uses_of_any("errors") == 0


def test_tests_lie_where_their_modules_lie():
    """A folder of tests is a folder of the package, or one of the few that test no one module."""
    extra = {"vectors", "docs", "golden", "fuzz", "oracles", "lies", "outsider", "."}
    for path in TESTS.rglob("test_*.py"):
        folder = path.parent.relative_to(TESTS)
        if folder.parts[:1] and folder.parts[0] in extra:
            continue
        assert ROOT.joinpath(folder).is_dir(), f"{path}: there is no securevfl/{folder}"


@pytest.mark.parametrize(
    ("module", "target", "allowed"),
    [
        ("protocols.fedvs.algorithm", "protocols.split", False),
        ("protocols.fedvs.algorithm", "protocols.fedvs.parameters", True),
        ("protocols.fedvs.algorithm", "engine.simulation", False),
        ("protocols.fedvs.algorithm", "engine.party", True),
        ("protocols.base.split_training", "protocols.split", False),
        ("field.dispatch", "models.split", False),
        ("cli.app", "protocols.protocol", False),
        ("cli.app", "", True),
        ("runs.engines.run", "protocols.fedvs", False),
        ("runs.engines.run", "studies.study", False),
        ("data.alignment.join", "engine.simulation", False),
        ("privacy.claims", "engine.transcript", False),
        ("privacy.claims", "audit.proof", False),
    ],
)
def test_the_table_can_refuse(module, target, allowed):
    assert permitted(module, target) is allowed


def test_imports_are_seen_in_every_form():
    text = "from . import a\nfrom ..engine import simulation\nimport securevfl.cli.app\n"
    found = {of_ours(name) for name in imports("protocols.split", ast.parse(text))}
    assert found == {"protocols", "engine.simulation", "cli.app"}
