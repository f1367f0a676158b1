"""One second interpreter for all tests of a process.

Each verification has a second interpreter say what stands under names of modules, twice. It says of
a name the same each time, for files do not change while tests run, and takes two seconds. So each
process of tests asks once about each name. Which answers `verify` believes, and when it asks, is
its own affair, and goes through here unseen.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from securevfl.audit.following.values import _CHILD


class OneInterpreter:
    """`subprocess.run`, which keeps the answers about names of modules.

    Parameters
    ----------
    run : callable
        `subprocess.run` itself.
    """

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run
        self._known: dict[str, dict[str, Any]] = {}  # description of a module, by path

    def __call__(self, *given: Any, **options: Any) -> Any:
        """Run a process, unless it is a second interpreter that was asked the same before."""
        if not given or given[0] != [sys.executable, "-c", _CHILD]:
            return self._run(*given, **options)
        path, names = json.loads(options["input"])
        known = self._known.setdefault(json.dumps(path), {})
        new = [name for name in names if name not in known]
        if new:
            options["input"] = json.dumps([path, new])
            known.update(json.loads(self._run(*given, **options).stdout))
        answer = json.dumps({name: known[name] for name in names})
        return subprocess.CompletedProcess(given[0], 0, answer, "")


@functools.cache
def one_interpreter() -> None:
    """Let `subprocess.run` of this process be that."""
    subprocess.run = OneInterpreter(subprocess.run)
