"""Process settings while a run computes: one thread, rare garbage collections."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def one_thread() -> Iterator[None]:
    """Context that computes on one thread: float sums are independent of the core count.

    For small products threads cost more than they save, above all on a busy machine.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _libraries(len(sys.modules)).limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


_OBJECTS = 10_000  # between two searches for cycles; Python's default is 700 to 2,000
_lock = threading.Lock()
_callers: list[tuple[int, int, int]] = []  # thresholds that they found; the first one's return


@contextmanager
def few_collections() -> Iterator[None]:
    """Context with rare garbage collections, since a run holds millions of objects.

    A round of FedVS with 256 parties creates 200,000 objects, and a sixth of its time was spent on
    garbage collection. Runs in several threads share the setting.
    """
    with _lock:
        _callers.append(gc.get_threshold())
        gc.set_threshold(max(_OBJECTS, _callers[0][0]), *_callers[0][1:])
    try:
        yield
    finally:
        with _lock:
            first = _callers[0]
            _callers.pop()
            if not _callers:
                gc.set_threshold(*first)


@functools.lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """The libraries of this process that have thread pools.

    The search takes 2 ms, as long as a small run. It is repeated when the number of imported
    modules has changed, because importing a module may load a library.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
