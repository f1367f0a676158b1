"""A process beside the one that judges, which makes results one after the other."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from securevfl.errors import RunError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Makes names and results; what it is given is told to the other process.
Results = Callable[[Callable[[str], None]], Iterator[tuple[str, Any]]]

_WAIT = 5.0  # seconds that the process has to end


class SecondProcess:
    """A process that begins at once, and ends with the context.

    Parameters
    ----------
    results : callable
        Called in the process, which imports it anew.
    progress : callable
        Told what the process told, whenever its results are waited for.
    """

    def __init__(self, results: Results, progress: Callable[[str], None]) -> None:
        context = get_context("spawn")
        self._results, own = context.Pipe(duplex=False)
        self._progress = progress
        self._found: dict[str, Any] = {}
        self._process = context.Process(target=_work, args=(own, results), daemon=True)
        self._process.start()
        own.close()  # else its end would not be seen here

    def __enter__(self) -> SecondProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join(_WAIT)
        self._results.close()

    def result(self, wanted: str) -> Any:
        """Return the result of a name, once it is made.

        Raises
        ------
        RunError
            If the process ended before, with its error.
        """
        while wanted not in self._found:
            try:
                name, value = self._results.recv()
            except EOFError:
                name, value = "error", "it ended by itself, most likely for want of memory"
            if name == "progress":
                self._progress(value)
            elif name == "error":
                raise RunError(f"the second process of the verification: {value}")
            else:
                self._found[name] = value
        return self._found[wanted]


def _work(channel: Connection, results: Results) -> None:
    """Send all results, or the error in which one ended; the beginning of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the judge is asked to end, and ends this
    try:
        for result in results(lambda words: channel.send(("progress", words))):
            channel.send(result)
    except BrokenPipeError:  # nobody waits any more
        return
    except BaseException as error:  # whatever it is, the judge must be told
        channel.send(("error", f"{type(error).__name__}: {error}"))
