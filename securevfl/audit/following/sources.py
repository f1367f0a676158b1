"""Comparison of the library that runs with the library that lies in its files.

The library's own parties show what a party must do. Who replaces a function of the library replaces
it for them as well. So each function of the loaded modules is compared with what its file defines,
and all that stands under their names with what stands there in a second interpreter. What Python
calls while it collects garbage runs whoever runs, so nothing may stand there.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pydantic

from securevfl.audit.following import values

_ROOT = "securevfl."
_BESIDE = ("securevfl.testing", "securevfl.cli")  # neither parties nor verifiers run their code
_HERE = Path(__file__).parents[2]
_PYTHON, _PACKAGES = Path(os.__file__).parent, Path(pydantic.__file__).parent
_PRIMITIVES = "cryptography.hazmat.primitives"
_CIPHERS = (f"{_PRIMITIVES}.asymmetric.x25519", f"{_PRIMITIVES}.ciphers.aead")
_INNER = ("__wrapped__", "__func__", "func", "fget", "py_func")
_DEEP = 8  # layers that are looked through


def altered(within: str = "") -> list[str]:
    """Names in the loaded library, verifiers included, that are not those of its files.

    Parameters
    ----------
    within : str
        Beginning of the names to look at, such as ``"securevfl.audit."``; all if not given.
    """
    _import_late()
    loaded = sorted(sys.modules.items())
    modules = {name: one for name, one in loaded if is_compared(name)}
    chosen = [(name, one) for name, one in modules.items() if f"{name}.".startswith(within)]
    found = {path for name, module in chosen for path in _altered_in(name, module)}
    try:
        found |= set(values.unlike(tuple(modules), within))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        found.add(f"what no second interpreter could confirm ({error})")
    return sorted(found if within else found | set(_called_by_the_collector()))


def altered_unseen() -> list[str]:
    """Names that `altered` says only after all files were read and the interpreter asked anew."""
    before = altered()
    values.forget()
    for table in (_codes, _code_of_file):
        table.cache_clear()
    return sorted(set(altered()).difference(before))


def _called_by_the_collector() -> Iterator[str]:
    """Functions that Python calls at each collection of garbage; a new interpreter has none.

    Tests by hypothesis have one, which measures the time.
    """
    timer = f"{_PACKAGES.parent / 'hypothesis/internal/conjecture/junkdrawer.py'}"
    for one in gc.callbacks:
        if type(one) is not FunctionType or one.__code__ not in _code_of_file(timer):
            name = getattr(one, "__qualname__", type(one).__qualname__)
            yield f"gc.callbacks: {getattr(one, '__module__', '')}.{name}"


def is_compared(module: str) -> bool:
    """Whether `altered` compares a module with its file."""
    return module.startswith(_ROOT) and not module.startswith(_BESIDE)


def is_defined(function: Any) -> bool:
    """Whether the code of a function is in the file of a module that `altered` compares."""
    code, module = getattr(function, "__code__", None), getattr(function, "__module__", "")
    if type(function) is not FunctionType or type(module) is not str or not is_compared(module):
        return False
    here = sys.modules.get(module)
    return here is not None and function.__globals__ is vars(here) and code in _every_code(module)


def _every_code(module: str) -> set[CodeType]:
    """Code of a module's file, and of all that is defined within it."""
    spec: Any = sys.modules[module].__spec__
    return _code_of_file(spec.origin)


@functools.cache
def _code_of_file(path: str) -> set[CodeType]:
    if not Path(path).is_file():
        return set()
    waiting, found = [SourceFileLoader("", path).get_code("")], set[CodeType]()
    while waiting:
        code = waiting.pop()
        if code is not None:
            found.add(code)
            waiting += [part for part in code.co_consts if isinstance(part, CodeType)]
    return found


@functools.cache
def _import_late() -> None:
    """Import what loads at its first use: each such module would need an interpreter of its own."""
    kernels = importlib.import_module(f"{_ROOT}field.kernels")
    found = pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}.")
    for name in (*(one.name for one in found), *_CIPHERS):
        importlib.import_module(name)


def _altered_in(name: str, module: ModuleType) -> Iterator[str]:
    """Functions of a module that its file does not define so, and methods that it does not have."""
    codes = _codes(name)
    for path, defined in codes.items():
        value, known = _value_at(module, path.split("."))
        layers = _layers(value)
        from_files = all(_from_files(code.co_filename) for code in layers)
        sound = layers[-1] in defined and from_files if layers else _wraps(value)
        if known and not sound:
            yield f"{name}.{path}"
    for owner in vars(module).values():
        if isinstance(owner, type) and owner.__module__ == name:
            for attribute, value in vars(owner).items():
                made = attribute.startswith("__")  # as Python makes those of a dataclass itself
                if not all(_from_files(code.co_filename, made=made) for code in _layers(value)):
                    yield f"{name}.{owner.__qualname__}.{attribute}"


@functools.cache
def _codes(name: str) -> dict[str, set[CodeType]]:
    """Code of each function of a module by its qualified name, without those within functions."""
    spec: Any = sys.modules[name].__spec__
    whole = spec.loader.get_code(name)
    found: dict[str, set[CodeType]] = {}
    waiting = [] if whole is None else [("", whole)]
    while waiting:
        prefix, code = waiting.pop()
        for part in code.co_consts:
            if not isinstance(part, CodeType) or part.co_name.startswith("<"):
                continue
            path = f"{prefix}{part.co_name}"
            is_class = not part.co_flags & 0x2  # CO_NEWLOCALS: of functions alone
            if is_class:
                waiting.append((f"{path}.", part))
            else:
                found.setdefault(path, set()).add(part)
    return found


def _value_at(module: ModuleType, path: list[str]) -> tuple[Any, bool]:
    """The value under a name, and whether there is one."""
    value: Any = module
    for name in path:
        if name not in vars(value):
            return None, False
        value = vars(value)[name]
        if not isinstance(value, type) and name != path[-1]:
            return None, False
    return value, True


def _layers(value: Any) -> list[CodeType]:
    """Codes of a function and, from the outside in, of what it is wrapped in; none of others."""
    found: list[CodeType] = []
    for _ in range(_DEEP):
        if isinstance(value, FunctionType):
            found.append(value.__code__)
            value = vars(value).get("__wrapped__")
        else:
            inner = (getattr(value, name, None) for name in _INNER)
            value = next((one for one in inner if one is not None), None)
        if value is None:
            break
    return found


def _wraps(value: Any) -> bool:
    """Whether something without Python code of its own is a compiled kernel of the library."""
    return type(value).__module__.startswith(f"{_ROOT}field.kernels.")


@functools.cache
def _from_files(name: str, *, made: bool = False) -> bool:
    """Whether code is from a file of the library, of Python or of pydantic, or of no file.

    Parameters
    ----------
    name : str
        Of the file, as the code has it.
    made : bool
        Whether it may be of no file, as what Python makes itself.
    """
    if name.startswith("<"):
        return made
    path = Path(name)
    if path.is_relative_to(_HERE):
        return not path.is_relative_to(_HERE / "testing")
    if path.is_relative_to(_PACKAGES):
        return True
    return path.is_relative_to(_PYTHON) and "site-packages" not in path.parts
