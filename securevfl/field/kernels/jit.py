"""The one way in which kernels are compiled: lazily, without the lock, kept on disk."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import extending

_Function = TypeVar("_Function", bound=Callable[..., object])


def kernel(function: _Function) -> _Function:
    """Compile `function` at its first call, release the interpreter lock, cache the machine code.

    numba's cache notices an edit in the file of a kernel only; here one in any file of this folder
    or below that kernels may inline counts. Where no folder can be written, each process compiles
    anew.
    """
    compiled = numba.njit(nogil=True, boundscheck=False)(function)
    try:
        compiled.enable_caching()
    except RuntimeError:  # numba: "no locator available".
        _say_uncached()
    index: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, folder_stamp())
    return cast(_Function, compiled)


@lru_cache(maxsize=1)
def _say_uncached() -> None:
    warnings.warn(
        f"Compiled loops of the field are not kept, and each process takes seconds to make them: "
        f"neither {Path(__file__).parent} nor the user's cache folder can be written. Set "
        f"NUMBA_CACHE_DIR to a folder that you, and nobody else, can write.",
        RuntimeWarning,
        stacklevel=4,
    )


@lru_cache(maxsize=1)
def folder_stamp() -> tuple[tuple[str, int, int], ...]:
    """Return name, time of change and size of each file with parts of kernels."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return tuple((f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in files)


def inlined(function: _Function) -> _Function:
    """Compile a helper of kernels, which is inlined into each of them."""
    return cast(_Function, numba.njit(inline="never", nogil=True)(function))


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a code generator into a function that kernels may call."""
    return cast(Callable[..., Any], extending.intrinsic(function))
