"""Inspection of protocols for the conformance suite.

It lists the arrays that a party object reaches, the imports and calls of a protocol's modules that
no party may use, and the states of the global random generators.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import pkgutil
import sys
import types
from collections.abc import Iterator, Mapping
from importlib.util import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from securevfl.engine.party import Party
    from securevfl.protocols.base.protocol import Protocol

_CLOCKS = {"asyncio", "time", "datetime", "threading", "multiprocessing", "concurrent", "ray"}
_GLOBAL_RANDOMNESS = {"random", "uuid"}
# What of the library a protocol may import, besides its own module or package.
_ALLOWED = (
    *("securevfl.engine.party", "securevfl.engine.wire", "securevfl.engine.streams"),
    *("securevfl.protocols.protocol", "securevfl.protocols.base"),
    *("securevfl.data", "securevfl.models", "securevfl.field", "securevfl.privacy"),
    *("securevfl.errors", "securevfl.plugins", "securevfl.verified", "securevfl.active"),
)
_LEAVES = (
    str,
    bytes,
    int,
    float,
    bool,
    type(None),
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
)


def held_arrays(party: Party) -> list[np.ndarray]:
    """Arrays that a party can reach through attributes, containers, closures and bound methods.

    Its engine is left out, which in a simulation reaches all parties.
    """
    arrays: list[np.ndarray] = []
    attributes = {name: value for name, value in vars(party).items() if name != "engine"}
    left: list[Any] = [attributes]
    seen: dict[int, Any] = {}
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, _LEAVES):
            continue
        seen[id(thing)] = thing  # kept alive, so that its id stays its own
        if isinstance(thing, np.ndarray):
            arrays.append(thing)
            if thing.dtype.hasobject:
                left.extend(thing.reshape(-1).tolist())
        elif _is_tensor(thing):
            arrays.append(thing.detach().cpu().numpy())
        elif thing is not party:
            left.extend(_referents(thing))
    return arrays


def _referents(thing: Any) -> Iterator[Any]:
    if isinstance(thing, Mapping):
        yield from thing.keys()
        yield from thing.values()
    elif isinstance(thing, (list, tuple, set, frozenset)):
        yield from thing
    elif isinstance(thing, functools.partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, types.MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, types.FunctionType):
        cells = thing.__closure__ or ()
        yield from (cell.cell_contents for cell in cells if cell != types.CellType())
        yield from (thing.__defaults__, thing.__kwdefaults__)
    else:
        yield from _attributes(thing)


def _attributes(thing: Any) -> Iterator[Any]:
    own = getattr(thing, "__dict__", None)  # wrappers of foreign functions answer anything
    yield from own.values() if isinstance(own, dict | types.MappingProxyType) else ()
    for cls in type(thing).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, name):
                yield getattr(thing, name)


def _is_tensor(thing: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.Tensor)


def forbidden_code(protocol: type[Protocol]) -> list[str]:
    """Imports and calls in a protocol's code that no protocol may use; none without source.

    The code of a protocol is its module, or all modules of its folder below `securevfl.protocols`.
    """
    return sorted({found for name in _code_of(protocol) for found in _forbidden_in_module(name)})


def _code_of(protocol: type[Protocol]) -> list[str]:
    """Names of the modules with a protocol's code: its own, or all of its package."""
    package = _package_of(protocol.__module__)
    if package is None:
        return [protocol.__module__]
    paths = importlib.import_module(package).__path__
    inside = pkgutil.walk_packages(paths, f"{package}.")
    return [package, *(module.name for module in inside)]


def _package_of(module: str) -> str | None:
    """Dotted name of the method's package, "securevfl.protocols.NAME"; else None."""
    parts = module.split(".")
    return ".".join(parts[:3]) if parts[:2] == ["securevfl", "protocols"] and parts[3:] else None


def _forbidden_in_module(name: str) -> Iterator[str]:
    try:
        source = inspect.getsource(importlib.import_module(name))
    except (OSError, TypeError):
        return
    yield from forbidden_in(ast.parse(source), name)


def forbidden_in(tree: ast.Module, module: str) -> Iterator[str]:
    """Imports and calls in a syntax tree that no protocol may use.

    `module` is the name of the tree's module, by which relative imports are read.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_refused(alias.name, module))
        elif isinstance(node, ast.ImportFrom):
            package = module.rpartition(".")[0]
            origin = resolve_name("." * node.level + (node.module or ""), package)
            names = [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
            yield from [name for name in names if _is_refused(name, module)][:1]
        elif isinstance(node, ast.Attribute):
            yield from _global_generator(ast.unparse(node))


def _is_refused(name: str, module: str) -> bool:
    parts = name.split(".")
    if parts[0] in _CLOCKS | _GLOBAL_RANDOMNESS:
        return True
    own = (module, *filter(None, [_package_of(module)]))
    for good in (*_ALLOWED, *own):  # or a folder that holds something allowed
        if f"{name}.".startswith(f"{good}.") or good.startswith(f"{name}."):
            return False
    return parts[0] == "securevfl" and len(parts) > 1 and parts[1] in _parts_of_ours()


@functools.cache
def _parts_of_ours() -> frozenset[str]:
    """Names of the library's folders and modules; other names in `securevfl` are public."""
    import securevfl

    return frozenset(module.name for module in pkgutil.iter_modules(securevfl.__path__))


def _global_generator(code: str) -> Iterator[str]:
    """`code` itself, a dotted name, if numpy's or torch's global generator is behind it."""
    parts = code.split(".")
    if len(parts) == 3 and parts[0] in ("np", "numpy") and parts[1] == "random":
        if parts[2] != "Generator":
            yield code
    elif code in ("torch.manual_seed", "torch.seed", "torch.default_generator.manual_seed"):
        yield code


def global_generators() -> dict[str, str]:
    """SHA-256 of the state of Python's, NumPy's and torch's global generators, by name."""
    import random

    import torch

    states: dict[str, Any] = {"random": random.getstate()}
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    states["numpy.random"] = (name, np.asarray(keys).tolist(), rest)
    states["torch"] = torch.get_rng_state().tolist()
    return {name: hashlib.sha256(repr(s).encode()).hexdigest() for name, s in states.items()}
