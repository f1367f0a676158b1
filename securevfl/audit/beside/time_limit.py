"""A limit of the time that one check takes: a subject may loop or wait for ever.

The check runs in the process that asks for it. When its time is over a second thread raises an
error in it, again and again, since code that loops may catch errors. Compiled code that never comes
back to Python cannot be ended so.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

LIMIT = 3600.0  # seconds of one check
_AGAIN = 1.0  # seconds after which an error that was caught is raised again


class TimeLimitError(BaseException):
    """The time of a check is over. It is no `Exception`, which the code that runs may catch."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise a TimeLimitError here, and in threads that were started since, when the time is over.

    Parameters
    ----------
    seconds : float
        On the machine's clock.
    """
    message = f"it took more than {seconds:g} s, the limit of one check"
    over, before, here = threading.Event(), set(threading.enumerate()), threading.current_thread()

    def watch() -> None:
        left = seconds
        while not over.wait(left):
            left = _AGAIN
            new = (one for one in threading.enumerate() if one not in before and not one.daemon)
            for one in (here, *new):
                _raise_in(one)

    watcher = threading.Thread(target=watch, name="time limit", daemon=True)
    with _signalled(message):
        watcher.start()
        try:
            yield
        except TimeLimitError:
            raise TimeLimitError(message) from None
        finally:
            over.set()
            watcher.join()
            _settle(here)


def _by_signal(thread: threading.Thread) -> bool:
    """Whether a thread is told by a signal, which ends waiting and sleeping, too."""
    return thread is threading.main_thread() and hasattr(signal, "pthread_kill")


def _raise_in(thread: threading.Thread) -> None:
    if _by_signal(thread):
        signal.pthread_kill(thread.ident or 0, signal.SIGALRM)
    else:
        _set_in(thread, ctypes.py_object(TimeLimitError))


def _set_in(thread: threading.Thread, error: ctypes.py_object[Any]) -> None:
    ident = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, error)


def _settle(here: threading.Thread) -> None:
    """Take what was raised here and not delivered, and end Python's wish to deliver.

    Up to CPython 3.11 all threads share one flag, which only a delivery takes back. A request that
    nobody takes leaves it set for ever, and with a profile or trace function the interpreter then
    loops without an end.
    """
    try:
        _set_in(here, ctypes.py_object(TimeLimitError))
        while True:
            pass
    except TimeLimitError:
        return


@contextmanager
def _signalled(message: str) -> Iterator[None]:
    """Let the signal raise the error, where this is the main thread."""
    if not _by_signal(threading.current_thread()):
        yield
        return

    def ended(*_: Any) -> NoReturn:
        raise TimeLimitError(message)

    before = signal.signal(signal.SIGALRM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
