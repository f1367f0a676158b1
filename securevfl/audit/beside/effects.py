"""Acts of parties beside messages: files that they write, programs, other links.

Python tells an audit hook of each such act. A hook cannot be taken away, so one hook is put in when
it is needed first, and tells whoever watches.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_ACTS = frozenset({
    *("os.putenv", "os.unsetenv", "os.mkdir", "os.rename", "os.link", "os.symlink", "os.truncate"),
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen"),
    *("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "sqlite3.connect"),
    *("shutil.copyfile", "shutil.move", "tempfile.mkstemp", "tempfile.mkdtemp", "mmap.__new__"),
    *("os.utime", "os.chmod", "os.chown", "os.setxattr", "os.removexattr", "os.remove", "os.rmdir"),
    *("os.kill", "os.lockf", "fcntl.fcntl", "fcntl.flock", "fcntl.ioctl", "signal.pthread_kill"),
    *("syslog.syslog", "syslog.openlog", "os.startfile", "pty.spawn", "webbrowser.open"),
    *("socket.gethostbyname", "socket.getaddrinfo", "socket.sethostname", "urllib.Request"),
    *("socket.__new__", "sys.setswitchinterval", "resource.setrlimit"),
})  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CACHES = ("__pycache__", "securevfl-kernels")  # of Python and of compiled kernels

_watching: list[Callable[[str], object]] = []


@contextmanager
def watch_effects() -> Iterator[list[str]]:
    """Names of acts of this process that reach beyond it, in their order."""
    acts: list[str] = []
    with tell_effects(acts.append):
        yield acts


@contextmanager
def tell_effects(tell: Callable[[str], object]) -> Iterator[None]:
    """Tell the name of each act of this process that reaches beyond it, of any thread."""
    _hook()
    _watching.append(tell)
    try:
        yield
    finally:
        _watching.remove(tell)


@functools.cache
def _hook() -> None:
    """Once for all: a hook stays as long as the process."""
    sys.addaudithook(_told)


def _told(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching or not (event == "open" or event in _ACTS):
        return
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITES):
        return
    if any(name in str(arguments) for name in _CACHES) or _importing():
        return
    for tell in tuple(_watching):
        tell("a file is written" if event == "open" else event)


def _importing() -> bool:
    """Whether a module is being imported: the first run brings in what it needs."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
