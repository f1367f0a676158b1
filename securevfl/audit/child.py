"""Work in a child process with a time limit.

The verified code may loop, wait for ever or end its process, which must not affect the calling
process.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from securevfl.errors import ConfigurationError, SecureVFLError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Called with a function that takes progress in words.
Work = Callable[[Callable[[str], None]], Any]


class ChildEndedError(Exception):
    """A child process ended without a result; the text says why."""


def in_child(work: Work, limit: float, progress: Callable[[str], None]) -> Any:
    """Return the result of `work`, run in a process of its own.

    Parameters
    ----------
    work : callable
        Function that gets a progress callback. The child imports it, so it must be a function of a
        module, or a partial of one, with picklable arguments.
    limit : float
        Seconds after which the process is ended.
    progress : callable
        Called in this process with each line of progress.

    Raises
    ------
    ConfigurationError
        If another process cannot import `work`.
    SecureVFLError
        If `work` raises it.
    ChildEndedError
        If the time limit was reached, or the process ended by itself.
    """
    _refuse_unpicklable(work)
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(there, work), daemon=True)
    child.start()
    there.close()  # else its end would not be seen here
    try:
        return _result(here, time.monotonic() + limit, limit, progress)
    finally:
        child.kill()
        child.join()
        here.close()


def _refuse_unpicklable(work: Work) -> None:
    try:
        ForkingPickler.dumps(work)
    except Exception as error:
        raise ConfigurationError(
            f"verify: limit needs a protocol and data that another process can import: {error}; "
            "leave limit out, or put the class at the top of a module"
        ) from None


def _result(channel: Connection, end: float, limit: float, progress: Callable[[str], None]) -> Any:
    while channel.poll(max(0.0, end - time.monotonic())):
        try:
            kind, value = channel.recv()
        except EOFError:
            raise ChildEndedError("its process ended by itself") from None
        if kind == "progress":
            progress(value)
        elif kind == "error":
            raise value
        else:
            return value
    raise ChildEndedError(f"it took more than {limit:g} s, the limit")


def _work(channel: Connection, work: Work) -> None:
    """Main function of the child process: send progress, then the result or the error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is asked to end, and ends this one
    try:
        channel.send(("result", work(lambda words: channel.send(("progress", words)))))
    except SecureVFLError as error:
        channel.send(("error", _sendable(error)))


def _sendable(error: SecureVFLError) -> SecureVFLError:
    """The error, or a plain one with its text if its class needs more arguments."""
    try:
        type(error)(str(error))  # as the other process makes it
    except Exception:
        return ConfigurationError(str(error))
    return error
