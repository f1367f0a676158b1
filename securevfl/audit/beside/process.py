"""State of the process, which all its parties share and in which one may leave a word for another.

No event tells of most of it: the seed of a global generator, a default of a package, a limit.
"""

from __future__ import annotations

import ctypes
import decimal
import gc
import hashlib
import locale
import logging
import os
import random
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_ANY = 7_306_151  # a seed that nobody else has
_DRAWN = "torch's generator"
_BY_PACKAGES = frozenset(
    ("the environment", "filters of warnings", "handlers of signals", "logging", "torch's defaults",
     "folders of modules", "NumPy's errors")
)  # fmt: skip
_SIGNALS = [one for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
            if (one := getattr(signal, name, None)) is not None]  # fmt: skip


def process_state() -> dict[str, Any]:
    """Settings and generators of the process by name; two are equal where nothing has changed."""
    return {
        "Python's generator": random.getstate(),
        "NumPy's generator": _numpy_generator(),
        "the environment": hash(tuple(vars(os.environ).get("_data", os.environ).items())),
        "the working folder": os.getcwd(),
        "the locale": locale.setlocale(locale.LC_ALL),
        "filters of warnings": hash(tuple(warnings.filters)),
        "the decimal context": str(decimal.getcontext()),
        "NumPy's errors": tuple(np.geterr().values()),
        "the timeout of sockets": socket.getdefaulttimeout(),
        "handlers of signals": tuple(map(signal.getsignal, _SIGNALS)),
        "the garbage collector": (gc.isenabled(), gc.get_threshold()),
        "logging": (logging.root.manager.disable, logging.root.level, logging.raiseExceptions),
        "a limit of the interpreter": _interpreter(),
        "folders of modules": tuple(sys.path),
        **_torch(),
    }


def changes(before: dict[str, Any], after: dict[str, Any], *, imported: bool) -> Iterator[str]:
    """Names of what is another one, of torch's generator with its digest: parties may draw from it.

    Parameters
    ----------
    before, after : dict
        What was not there before came with a package.
    imported : bool
        Whether modules were imported meanwhile, some of which change settings.
    """
    for name, one in before.items():
        if after[name] == one or (imported and name in _BY_PACKAGES):
            continue
        known = name == _DRAWN
        yield f"{name} {hashlib.sha256(after[name]).hexdigest()[:16]}" if known else name


@contextmanager
def other_generators() -> Iterator[None]:
    """Give the global generators other states meanwhile, so that one that is set again is seen."""
    ours, theirs = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(_ANY)
    np.random.seed(_ANY)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(theirs)  # noqa: NPY002


def _numpy_generator() -> Any:
    own: Any = vars(np.random)["get_bit_generator"]()
    if type(own) is not np.random.MT19937:
        return id(own), repr(own.state)
    # The state in C, 624 words and a place: `get_state` is a hundred times slower.
    return id(own), ctypes.string_at(own.ctypes.state_address, 4 * 625)


def _interpreter() -> tuple[Any, ...]:
    return (
        sys.getrecursionlimit(),
        sys.getswitchinterval(),
        sys.get_int_max_str_digits(),
        threading.stack_size(),
        sys.excepthook,
    )


def _torch() -> dict[str, Any]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return {}
    flags = (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.get_num_threads(),
    )
    return {
        "torch's defaults": flags,
        _DRAWN: torch.get_rng_state().numpy().tobytes(),
    }
