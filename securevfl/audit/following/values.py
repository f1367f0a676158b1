"""Comparison of the library's names with what they stand for where nobody has changed anything.

Code alone does not say what a function does: its defaults, what it encloses, and the globals of its
module do as well. A second interpreter imports the same modules, and nothing else, and describes
them. So are the modules of Python that randomness and hashes come from, and numpy.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_BENEATH = ("os", "random", "hashlib", "hmac", "secrets", "numpy")
_CRYPTOGRAPHY = "cryptography.hazmat.primitives"
_PACKAGES = (  # from which arrays, keys and ciphertexts come
    *("numpy._core", "numpy.lib", "numpy.linalg", "numpy.random", "numpy.fft"),
    *("tenseal", "phe", f"{_CRYPTOGRAPHY}.ciphers", f"{_CRYPTOGRAPHY}.hashes"),
    *(f"{_CRYPTOGRAPHY}.hmac", f"{_CRYPTOGRAPHY}.kdf", f"{_CRYPTOGRAPHY}.serialization"),
    *(f"{_CRYPTOGRAPHY}.asymmetric.x25519", f"{_CRYPTOGRAPHY}.asymmetric.ed25519"),
)
# What a class gets when it is used, and what readers of documentation resolve in place.
_LATER = frozenset({"__pydantic_core_schema__", "__slotnames__", "__annotations__", "__doc__"})
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(...), Path)
_INNER = ("__wrapped__", "__func__", "func", "fget", "py_func")
# What a table or an object may come to hold: data, compiled kernels, and the library's own.
_OF_PLAIN = frozenset((
    *("securevfl", "builtins", "numpy", "ctypes", "_ctypes", "collections", "pathlib", "functools"),
    *("numba", "llvmlite", "torch", "threading", "_thread", "weakref", "_weakref", "enum", "types"),
    *("re", "typing", "decimal", "fractions", "logging", "pydantic", "pydantic_core", "contextlib"),
))  # fmt: skip
_CODE = frozenset(
    ("builtins.function", "builtins.method", "builtins.builtin_function_or_method",
     "functools.partial")
)  # fmt: skip
_DEEP = 4  # parts of parts that are described
_SECONDS = 120
_CHILD = (
    "import json, sys; sys.path[:], names = json.load(sys.stdin); "
    f"import importlib; one = importlib.import_module({__name__!r}); "
    "json.dump(one.described(names), sys.stdout)"
)
_known: dict[str, Any] = {}  # what a second interpreter says of a module


def unlike(names: Sequence[str], within: str = "") -> list[str]:
    """Names in loaded modules that stand for something else in a second interpreter.

    Parameters
    ----------
    names : sequence of str
        Of modules; those that randomness, keys and hashes come from are added.
    within : str
        Beginning of the names that are compared; all if not given.

    Raises
    ------
    OSError, subprocess.SubprocessError
        Where there is no second interpreter, or it cannot import a module.
    """
    names = [*names, *filter(_is_beneath, sorted(sys.modules))]
    new = [name for name in names if name not in _known]
    if new:
        _known.update(_elsewhere(new))
    chosen = (name for name in names if f"{name}.".startswith(within))
    return [path for name in chosen for path in _differences(name)]


def forget() -> None:
    """Let the second interpreter be asked anew: code can reach the table of its answers."""
    _known.clear()


def described(names: Sequence[str]) -> dict[str, Any]:
    """Meanings of names in modules, in words that do not depend on the process."""
    for name in names:
        importlib.import_module(name)
    return {name: _module(name) for name in names}


@functools.cache
def _is_beneath(name: str) -> bool:
    """Whether arrays, keys, randomness, hashes or ciphertexts come from a module of others."""
    within = any(name == one or name.startswith(f"{one}.") for one in _PACKAGES)
    return within or name in _BENEATH


def _elsewhere(names: Sequence[str]) -> dict[str, Any]:
    if not sys.executable:
        raise OSError("no second interpreter can be started")
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=json.dumps([sys.path, names]),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=True,
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def _differences(name: str) -> Iterator[str]:
    ours = _module(name)
    for path, wanted in _known[name].items():
        if path not in ours or not _holds(ours[path], wanted):
            yield f"{name}.{path}"
    for path in ours:
        if path not in _known[name] and (path in vars(builtins) or "." in path):
            yield f"{name}.{path}"


def _holds(ours: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; tables and objects may have come to hold more."""
    if ours == wanted:
        return True
    if isinstance(wanted, dict) and isinstance(ours, dict):
        more = (one for name, one in ours.items() if name not in wanted)
        if any(map(_acts, more)):
            return False
        return all(name in ours and _holds(ours[name], one) for name, one in wanted.items())
    return False


def _acts(words: Any) -> bool:
    """Whether something that was added later is code, or an object of another's class."""
    kind = words["type"] if isinstance(words, dict) else str(words).split(" ", 1)[0]
    return kind in _CODE or kind.split(".")[0] not in _OF_PLAIN


def _module(name: str) -> dict[str, Any]:
    module, found = sys.modules[name], dict[str, Any]()
    inner = vars(module).get("_module")  # cryptography wraps modules that have deprecated names
    module = inner if isinstance(inner, ModuleType) and inner.__name__ == name else module
    for attribute, value in list(vars(module).items()):  # imports beneath may add names
        if attribute.startswith("__") and attribute != "__getattr__":
            continue
        if _is_beneath(name) and not callable(value):  # such as the process's environment
            continue
        found[attribute] = _words(value, _DEEP)
        if isinstance(value, type) and value.__module__ == name:
            own = {n: one for n, one in vars(value).items() if n not in _LATER}
            if _is_beneath(name):  # tables of a class of numpy hold what was asked before
                own = {n: one for n, one in own.items() if not isinstance(one, dict)}
            found |= {f"{attribute}.{n}": _words(one, _DEEP) for n, one in own.items()}
    return found


def _words(value: Any, deep: int) -> Any:
    """A value in words."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, _PLAIN):
        return f"{kind} {value!r}"
    if isinstance(value, type | BuiltinFunctionType):
        return f"{kind} {value.__module__}.{value.__qualname__}{_if_it_stands_there(value)}"
    if isinstance(value, ModuleType):
        return f"{kind} {value.__name__}, {value is sys.modules.get(value.__name__)}"
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"{kind} {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if not deep or value is _known:  # it grows, and is longer than all else together
        return kind
    return {"type": kind} | {name: _words(one, deep - 1) for name, one in _parts(value).items()}


def _if_it_stands_there(value: Any) -> str:
    """Words that say whether a class of the library or numpy is what its own name stands for.

    Its module is imported if need be: numpy's classes may name one that nobody has used yet.
    """
    module = value.__module__
    if type(module) is not str or not f"{module}.".startswith(("securevfl.", "numpy.")):
        return ""
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        return ", False"
    for name in str(value.__qualname__).split("."):
        found = getattr(found, name, None)
    return f", {found is value}"


@functools.lru_cache(maxsize=1 << 15)
def _digest(code: CodeType) -> str:
    """Digest of what a code does, wherever it says that it comes from."""
    consts = [_digest(one) if isinstance(one, CodeType) else _constant(one)
              for one in code.co_consts]  # fmt: skip
    whole = repr((code.co_code, code.co_names, code.co_varnames, code.co_cellvars, consts))
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _constant(value: Any) -> str:
    if isinstance(value, frozenset):  # whose order is that of the process
        return f"frozenset {sorted(map(repr, value))}"
    return repr(value)


def _is_of_ray(function: FunctionType, value: Any) -> bool:
    """Whether an attribute is what Ray gives to methods of actors: their signature and its own."""
    if type(value) is not Signature:
        return False
    code, names = function.__code__, function.__globals__
    bare = FunctionType(code, names, code.co_name, function.__defaults__, function.__closure__)
    bare.__kwdefaults__, bare.__annotations__ = function.__kwdefaults__, function.__annotations__
    added = Parameter("_ray_trace_ctx", Parameter.KEYWORD_ONLY, default=None)
    told = [one for one in value.parameters.values() if one != added]
    return value.replace(parameters=told) == Signature.from_callable(bare)


def _parts(value: Any) -> Mapping[str, Any]:
    """Parts of an object, by name."""
    if isinstance(value, FunctionType):
        code = value.__code__
        inside = dict(zip(code.co_freevars, value.__closure__ or (), strict=False))
        cells = {name: _inside(cell) for name, cell in inside.items()}
        wrapped = {n: one for n, one in vars(value).items() if n == "__wrapped__"}
        if str(value.__module__).startswith("securevfl."):  # no more may come later
            own = (name for name, one in vars(value).items() if not _is_of_ray(value, one))
            wrapped["attributes"] = ", ".join(sorted(own))
        place = f"{code.co_filename}:{code.co_firstlineno} {code.co_name} {_digest(code)}"
        here = sys.modules.get(str(value.__globals__.get("__name__")))
        wrapped["globals"] = here is not None and value.__globals__ is vars(here)
        given = {"defaults": value.__defaults__, "by name": value.__kwdefaults__}
        return {"place": place, "of": value.__globals__.get("__name__")} | given | cells | wrapped
    if isinstance(value, MethodType):
        return {"function": value.__func__, "object": value.__self__}
    if isinstance(value, Mapping):
        return {repr(_words(key, 1)): one for key, one in value.items()}
    if isinstance(value, list | tuple):
        return {str(place): one for place, one in enumerate(value)}
    if isinstance(value, set | frozenset):
        return {repr(_words(one, 1)): True for one in value}
    inner = {name: getattr(value, name, None) for name in _INNER}
    found = {name: one for name, one in inner.items() if one is not None}
    if type(value).__module__.startswith("securevfl.") or isinstance(value, functools.partial):
        found |= getattr(value, "__dict__", {})
    return found


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None
