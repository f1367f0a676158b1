"""Lines that a party writes on the screen and into logs, its warnings, and its other acts.

Other acts are those that reach beyond the process or its turn: files, links, programs, threads,
sleeping, what is to be called when the interpreter ends, and states of the process.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pydantic

from securevfl.audit.beside.effects import tell_effects
from securevfl.audit.beside.process import changes, process_state
from securevfl.audit.following.acts import LINE, Act
from securevfl.audit.following.stand_ins import in_place_of

_LIBRARY, _PACKAGES = Path(__file__).parents[2], Path(pydantic.__file__).parents[1]
_ALL = 100  # steps of a run in which the process is looked at; then in one of eight
_COMPILERS = ("numba", "llvmlite")  # they log pages when the first party needs a kernel


class Lines:
    """Takes what is written while a party's code runs; everything else goes its way.

    Lines of a log count at every level, since whoever runs the experiment chooses what is shown.
    """

    def __init__(self) -> None:
        self._taken: list[Act] | None = None
        self._thread = 0
        self._at_exit = _calls_at_exit()
        self._process: tuple[dict[str, Any], int] | None = None
        self._steps, self._looks = 0, True
        self._chance = np.random.Generator(np.random.PCG64())  # of the operating system's entropy

    def to(self, taken: list[Act] | None) -> list[Act] | None:
        """Take lines into another list, or none from now on; where they went before."""
        (calls, modules), now = self._at_exit, _calls_at_exit()
        if self._taken is not None and calls != now[0] and modules == now[1]:
            self._note("something to be called when the interpreter ends")
        self._at_exit, self._thread = now, threading.get_ident()
        before, self._taken = self._taken, taken
        return before

    def begins(self, taken: list[Act]) -> None:
        """Take lines of a step, and what it changes of the process, into a list.

        After some steps the process is looked at in one of eight, by chance, for it takes a quarter
        of a run's time.
        """
        self._steps += 1
        self._looks = self._steps <= _ALL or not self._chance.integers(8)
        self._takes(taken)

    def _takes(self, taken: list[Act]) -> None:
        self._process = (process_state(), len(sys.modules)) if self._looks else None
        self.to(taken)

    def ends(self) -> None:
        """The step is over: take no more."""
        if self._process is not None and self._taken is not None:
            before, modules = self._process
            imported = modules != len(sys.modules)
            for name in changes(before, process_state(), imported=imported):
                self._note(f"state of the process: {name}")
        self._process = None
        self.to(None)

    @contextmanager
    def step(self, taken: list[Act]) -> Iterator[None]:
        """Take lines meanwhile, and what is changed of the process if it is in the newest step."""
        self._takes(taken)
        try:
            yield
        finally:
            self.ends()

    @contextmanager
    def into(self, taken: list[Act] | None) -> Iterator[None]:
        """Take lines into another list, or none, meanwhile."""
        before = self.to(taken)
        try:
            yield
        finally:
            self.to(before)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Stand between parties and the screen, logs and warnings."""
        handle, enabled = logging.Logger.handle, logging.Logger.isEnabledFor
        show, write, sleep = vars(warnings)["_showwarnmsg"], os.write, time.sleep
        start = threading.Thread.start
        warn, explicit = warnings.warn, warnings.warn_explicit

        def handling(logger: logging.Logger, record: logging.LogRecord) -> None:
            self._note(f"log: {record.levelname} {record.name}: {record.getMessage()}")
            with self.into(None):  # a handler writes it to the screen
                if enabled(logger, record.levelno):
                    handle(logger, record)

        def is_enabled(logger: logging.Logger, level: int) -> bool:
            known = self._taken is None or logger.name.startswith(_COMPILERS)
            return enabled(logger, level) if known else True

        def warning(
            message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **more: Any
        ) -> None:
            self._note(f"warning: {message}")
            with self.into(None):
                warn(message, category, stacklevel + 1, source, **more)

        def warning_explicitly(message: Any, *rest: Any, **more: Any) -> None:
            self._note(f"warning: {message}")
            with self.into(None):
                explicit(message, *rest, **more)

        def showing(message: Any) -> None:
            # NumPy's and torch's are shown once, to whichever party comes first.
            with self.into(None if _from_library(message.filename) else self._taken):
                show(message)

        def writing(descriptor: int, data: Any) -> int:
            self._note(f"descriptor {descriptor}: {bytes(data)!r}")
            return write(descriptor, data)

        def sleeping(seconds: float) -> None:  # not every Python tells of these
            self._effect("time.sleep")
            sleep(seconds)

        def starting(thread: threading.Thread) -> None:
            self._effect("threading.Thread.start")
            start(thread)

        screens = ("stdout", "stderr", "__stdout__", "__stderr__")
        # Other threads are not a party's, such as one that shows how far a command is.
        with (
            tell_effects(self._effect),
            in_place_of(
                (logging.Logger, "handle", handling),
                (logging.Logger, "isEnabledFor", is_enabled),
                (warnings, "warn", warning),
                (warnings, "warn_explicit", warning_explicitly),
                (warnings, "_showwarnmsg", showing),
                (os, "write", writing),
                (time, "sleep", sleeping),
                (threading.Thread, "start", starting),
                *((sys, name, _Screen(getattr(sys, name), self._written)) for name in screens),
            ),
        ):
            yield

    def _effect(self, name: str) -> None:
        if threading.get_ident() == self._thread:
            self._note(f"act of the process: {name}")

    def _note(self, text: str) -> None:
        if self._taken is not None:
            self._taken.append(Act(LINE, text))

    def _written(self, text: Any, write: Callable[[Any], Any]) -> Any:
        if self._taken is None:
            return write(text)
        self._note(f"screen: {text}")
        return len(text)


class _Screen:
    """A stream of the screen, of which what is written is taken."""

    def __init__(self, stream: Any, written: Callable[[Any, Callable[[Any], Any]], Any]) -> None:
        self._stream, self._written = stream, written

    def write(self, text: Any) -> Any:
        """Write, or have it taken."""
        return self._written(text, self._stream.write)

    def writelines(self, texts: Any) -> None:
        """Write each of them."""
        for text in texts:
            self.write(text)

    @property
    def buffer(self) -> Any:
        """The stream of bytes below."""
        return _Screen(self._stream.buffer, self._written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _calls_at_exit() -> tuple[int, int]:
    """Number of functions that are called at the end, and of modules, some of which add one."""
    return atexit._ncallbacks(), len(sys.modules)


def _from_library(name: str) -> bool:
    path = Path(name)
    ours = path.is_relative_to(_LIBRARY) and not path.is_relative_to(_LIBRARY / "testing")
    return ours or path.is_relative_to(_PACKAGES)
