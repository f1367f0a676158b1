"""A small pool for kernels that release the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from securevfl.errors import ConfigurationError


def share(threads: int, length: int, work: Callable[[slice], None], multiple: int = 1) -> None:
    """Call `work` on slices that cover range(length), on at most `threads` threads.

    Parameters
    ----------
    threads : int
        Number of threads, at least 1 (else ConfigurationError); limited to the processors that this
        process may use.
    length : int
        The number of rows or columns to divide.
    work : callable
        Function of one slice; slices do not overlap.
    multiple : int
        Slices start at multiples of this number.
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ConfigurationError(f"threads must be a positive integer, got {threads!r}.")
    count = min(threads, processors(), -(-length // multiple))
    if count <= 1:
        work(slice(0, length))
        return
    step = -(-length // (count * multiple)) * multiple
    slices = [slice(start, min(start + step, length)) for start in range(0, length, step)]
    # A pool of its own per call survives a fork and costs about 0.1 ms.
    with ThreadPoolExecutor(len(slices)) as pool:
        for done in [pool.submit(work, part) for part in slices]:
            done.result()


def processors() -> int:
    """Number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
