"""The one way in which kernels are compiled: lazily, without the lock, kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import extending

_Function = TypeVar("_Function", bound=Callable[..., object])


def kernel(function: _Function) -> _Function:
    """Compile `function` at its first call, release the interpreter lock, cache the machine code.

    A cached kernel does not notice an edit in another file, so helpers that a kernel inlines
    stand in its own file.
    """
    return cast(_Function, numba.njit(cache=True, nogil=True, boundscheck=False)(function))


def inlined(function: _Function) -> _Function:
    """Compile a helper of kernels in the same file; it is inlined into each of them."""
    return cast(_Function, numba.njit(inline="never", nogil=True)(function))


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a code generator into a function that kernels of the same file may call."""
    return cast(Callable[..., Any], extending.intrinsic(function))
