"""A copy of the package in a temporary folder, and processes that import the copy."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mutants import Mutant

ROOT = Path(__file__).parents[1]
# What all processes import; nothing of the package, which is another one in each.
PRELOADED = (
    *(
        "torch",
        "torch._dynamo",
        "numba",
        "scipy.stats",
        "scipy.linalg",
        "pandas",
        "sklearn.datasets",
    ),
    *(
        "sympy",
        "galois",
        "pydantic",
        "yaml",
        "rich",
        "flint",
        "joblib",
        "cryptography.fernet",
        "pytest",
    ),
    *("cryptography.hazmat.primitives.ciphers", "sklearn.preprocessing", "sklearn.metrics"),
)
_WAITS = 6  # times the seconds of the processor that a process may last


class Tree:
    """A copy of the package in a temporary folder, changed by one mutant at a time."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="mutations-"))
        leave = shutil.ignore_patterns("*.json.gz")
        shutil.copytree(ROOT / "securevfl", self.home / "securevfl", ignore=leave)
        self._tick = 10**9  # compiled files are known by times, which must not repeat

    def put(self, mutant: Mutant | None, source: bytes, file: str = "") -> None:
        """Write the changed file; or the one as it was."""
        path = self.home / "securevfl" / (mutant.file if mutant else file)
        path.write_bytes(mutant.apply(source) if mutant else source)
        self._tick += 10
        os.utime(path, (self._tick, self._tick))

    def add_tests(self) -> None:
        """The tests, and what they read."""
        if not (self.home / "tests").exists():
            shutil.copytree(ROOT / "tests", self.home / "tests")
            for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
                shutil.copy(ROOT / name, self.home / name)
            for name in ("docs", "benchmarks", "examples"):
                (self.home / name).symlink_to(ROOT / name)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.home, ignore_errors=True)


def _child(home: str, function: Callable[..., Any], arguments: tuple[Any, ...],
           answer: Connection, limit: int) -> None:  # fmt: skip
    sys.path.insert(0, home)

    def over(number: int, frame: Any) -> None:
        answer.send(("raised", f"no end within {limit} s"))
        os._exit(1)

    signal.signal(signal.SIGXCPU, over)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    try:
        import securevfl

        assert securevfl.__file__.startswith(home)
        answer.send(("done", function(*arguments)))
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        answer.send(("raised", f"{type(error).__name__}: {error} ({last.name})"[:300]))


def apart(home: Path, function: Callable[..., Any], *arguments: Any, limit: float) -> Any:
    """Result of a function in a process that imports the copy; ("raised", why) if it has none.

    The limit is in seconds of the processor; a process that waits is ended later.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    ours, theirs = context.Pipe(duplex=False)
    given = (str(home), function, arguments, theirs, int(limit))
    process = context.Process(target=_child, args=given)
    process.start()
    theirs.close()
    try:
        found = (
            ours.recv() if ours.poll(_WAITS * limit) else ("raised", f"no end within {limit:g} s")
        )
    except EOFError:
        found = ("raised", "the process ended")
    process.kill()
    process.join()
    return found
