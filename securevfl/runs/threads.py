"""Computing on one thread, so that float sums do not depend on the number of cores."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: float sums then do not depend on the number of cores.

    Threads of small products cost more than they bring, most of all where others use the machine.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _libraries(len(sys.modules)).limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@functools.lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """The libraries of this process that have threads of their own.

    To look for them takes 2 ms, as long as a small run. It is done again whenever the number of
    imported modules has changed, for a library comes with a module that is imported.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
