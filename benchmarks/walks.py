"""Lengths of the ways through the code, counted by one script, so that commits can be compared.

    python benchmarks/walks.py                    # this checkout
    PYTHONPATH=OTHER python benchmarks/walks.py   # another one

It counts

- ``csv to gradient``: functions of the package that see the table on its way from a CSV file to the
  first step of a client of FedVS, and the names that its array has in them. A function sees the
  table if, when it returns, one of its local variables holds an array with as many rows as the
  file, its training part, or a batch, alone or in a collection;
- ``a run option``: places that declare an option of a run: parameters with a default, fields, and
  keys in literals, for `until` and `sealed`;
- ``a claim to the page``: places where texts of claims or evidence are joined, split or compared;
- ``modules``: circles of imports, those for type checking included, and apart from them the circles
  that an import within a function closes; the largest modules; files of a folder.
"""

from __future__ import annotations

import ast
import csv
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROWS, BATCH = 211, 13  # primes, so that no other array of the run has as many rows
OPTIONS = ("until", "sealed")


def table(path: Path) -> None:
    """A small table: six numeric columns and a label."""
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*(f"x{i}" for i in range(6)), "y"])
        for i in range(ROWS):
            out.writerow([*((i * (k + 3)) % 17 / 4 for k in range(6)), "ab"[i % 3 == 0]])


def csv_to_gradient(root: Path) -> dict[str, Any]:
    """Functions that see the table before the first gradient is applied, and the array's names."""
    import numpy as np

    import securevfl as svfl

    held_out = round(ROWS * 0.25)  # by default; the split is stratified, and rounds
    sizes = {ROWS, ROWS - held_out, held_out, BATCH}
    functions: Counter[str] = Counter()
    names: set[str] = set()
    over = False

    def long(value: Any) -> bool:
        if isinstance(value, np.ndarray):
            return bool(set(value.shape) & sizes)
        if isinstance(value, (list, tuple)) and value:
            return len(value) in sizes or (isinstance(value[0], np.ndarray) and long(value[0]))
        return hasattr(value, "iloc") and len(value) in sizes

    def look(frame: Any, event: str, _: Any) -> None:
        nonlocal over
        code = frame.f_code
        if over or event != "return" or str(root) not in code.co_filename:
            return
        if code.co_name == "<module>":  # its constants may be as long as a batch
            return
        seen = [name for name, value in frame.f_locals.items() if long(value)]
        own = getattr(frame.f_locals.get("self"), "__dict__", {})
        if seen or any(long(value) for value in own.values()):
            place = Path(code.co_filename).relative_to(root)
            functions[
                f"{place}:{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name}"
            ] += 1
            names.update(seen)
        over = code.co_name == "update" and "polynomial" in code.co_filename

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        table(path)
        sys.setprofile(look)
        try:
            data = svfl.load_dataset(str(path), label="y", parties=3)
            svfl.run("fedvs", data, rounds=1, segments=1, batch=BATCH, width=4, hidden=4)
        finally:
            sys.setprofile(None)
    files = {name.partition(":")[0] for name in functions}
    return {"functions": len(functions), "files": len(files), "names": len(names)}


def sources(root: Path) -> dict[str, ast.Module]:
    """Syntax trees of all modules by path."""
    return {str(p.relative_to(root)): ast.parse(p.read_text()) for p in sorted(root.rglob("*.py"))}


def declarations(trees: dict[str, ast.Module], option: str) -> list[str]:
    """Places that declare an option of a run."""
    found = []
    for path, tree in trees.items():
        if not path.startswith(("cli", "study", "runs", "studies", "report", "audit", "planning")):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = [a.arg for a in (*node.args.args, *node.args.kwonlyargs)]
                if option in given:
                    found.append(f"{path}:{node.lineno} parameter of {node.name}")
            elif isinstance(node, ast.AnnAssign):
                if isinstance(node.target, ast.Name) and node.target.id == option:
                    found.append(f"{path}:{node.lineno} field")
            elif isinstance(node, (ast.Dict, ast.Set, ast.Tuple, ast.List)):
                keys = node.keys if isinstance(node, ast.Dict) else node.elts
                if any(isinstance(k, ast.Constant) and k.value == option for k in keys):
                    found.append(f"{path}:{node.lineno} key of a literal")
            elif isinstance(node, ast.Call) and any(k.arg == option for k in node.keywords):
                found.append(f"{path}:{node.lineno} passed on by name")
    return found


def claims_as_text(trees: dict[str, ast.Module]) -> list[str]:
    """Places that join, split or compare texts of claims and of evidence."""
    found = []
    for path, tree in trees.items():
        if not any(part in path for part in ("verify", "verdict", "report", "claims", "audit")):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                joined = node.func.attr == "join" and isinstance(node.func.value, ast.Constant)
                split = node.func.attr == "split" and bool(node.args)
                text = node.func.value if joined else node.args[0] if split else None
                if isinstance(text, ast.Constant) and text.value == "; ":
                    found.append(f"{path}:{node.lineno} {node.func.attr}")
            elif isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                if any(isinstance(s, ast.Attribute) and s.attr in ("who", "about") for s in sides):
                    found.append(f"{path}:{node.lineno} compare")
    return found


def modules(root: Path, trees: dict[str, ast.Module]) -> dict[str, Any]:
    """Circles of imports, the largest modules, and the fullest folders."""
    lazy = circles(arrows(trees, lazy=True))
    lines = {path: len((root / path).read_text().splitlines()) for path in trees}
    folders = Counter(str(Path(path).parent) for path in trees if not path.endswith("__init__.py"))
    return {
        "modules": len(trees),
        "circles": circles(arrows(trees, lazy=False)),
        "circles by imports in functions": lazy,
        "largest": dict(Counter(lines).most_common(6)),
        "fullest folders": dict(folders.most_common(6)),
    }


def arrows(trees: dict[str, ast.Module], *, lazy: bool) -> dict[str, set[str]]:
    """Module -> modules that it imports; with `lazy`, also within functions."""
    names = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in trees}
    found: dict[str, set[str]] = {}
    for path, tree in trees.items():
        own = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        found[own] = set()
        if path.endswith("__init__.py"):
            continue  # a package's face hands names on
        for node in ast.walk(tree) if lazy else at_the_top(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("securevfl."):
                base = (node.module or "").removeprefix("securevfl.")
                for alias in node.names:
                    whole = f"{base}.{alias.name}"
                    target = whole if whole in names else base
                    found[own] |= {target} & names - {own}
    return found


def at_the_top(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a module that stand in no function; ``if TYPE_CHECKING`` is among them."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from at_the_top(child)


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected parts with more than one module."""
    reach: dict[str, set[str]] = {}
    for start in arrows:
        seen, left = set(), [start]
        while left:
            for other in arrows.get(left.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    left.append(other)
        reach[start] = seen
    rings = {
        frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in arrows if a in reach[a]
    }
    return [sorted(ring) for ring in rings if len(ring) > 1]


def main() -> None:
    """Print everything as one JSON object."""
    import securevfl

    root = Path(securevfl.__file__).parent
    trees = sources(root)
    options = {name: declarations(trees, name) for name in OPTIONS}
    result = {
        "csv to gradient": csv_to_gradient(root),
        "a run option": {name: len(places) for name, places in options.items()},
        "a claim to the page": len(claims_as_text(trees)),
        "modules": modules(root, trees),
    }
    if "--places" in sys.argv:
        result |= {"places": {**options, "claims": claims_as_text(trees)}}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
