"""Leaks past every message: by the clock on the wall, sockets, processes and files of later."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaks.labels import CLIENT, GUEST, HOST
from securevfl.testing.leaks.planting import ACCUSED, messages, planted
from securevfl.testing.runs import Outcome

FOLDER = Path(tempfile.gettempdir()) / f"securevfl-leaks-{os.getpid()}"
WROTE = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
_heard: list[socket.socket] = []  # that hears what parties send past the engine
_timers: list[threading.Timer] = []


@contextmanager
def outside() -> Iterator[None]:
    """Context with a folder and a socket that hears; both are gone afterwards."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "seen").touch()
    timeout = socket.getdefaulttimeout()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.setblocking(False)
        _heard.append(one)
        try:
            yield
        finally:
            _heard.remove(one)
            for timer in _timers:
                timer.join()
            _timers.clear()
            atexit.unregister(write)
            socket.setdefaulttimeout(timeout)
            shutil.rmtree(FOLDER, ignore_errors=True)


def tell(content: bytes) -> None:
    """Send bytes to the socket that hears; nowhere if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        if _heard:
            out.sendto(content, _heard[-1].getsockname())


def heard() -> bytes:
    """Bytes of the first datagram that was heard; empty for none."""
    try:
        return _heard[-1].recv(1 << 16) if _heard else b""
    except BlockingIOError:
        return b""


def write(name: str, content: bytes) -> None:
    """Write a file into the folder, if that is there."""
    if FOLDER.exists():
        (FOLDER / name).write_bytes(content)


def _labels(server: Any) -> list[int]:
    return [int(one) for one in np.asarray(server.labels).reshape(-1)[:32]]


def _before_announcements(act: Callable[[Any], None]) -> Any:
    """Plant of a server that does something more before each announcement."""

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        server = parties[SERVER]
        announce = server.announce

        def announcing(round: int, payload: Any = None, to: Any = None) -> None:
            act(server)
            announce(round, payload, to)

        server.announce = announcing

    return plant


def _recorded(change: Callable[[Any, dict[str, Any]], None]) -> Any:
    """Plant of a server that passes the fields of what it records through `change`."""

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        server = parties[SERVER]
        record = server.record

        def recording(event: str, **fields: Any) -> None:
            change(server, fields)
            record(event, **fields)

        server.record = recording

    return plant


def _label(server: Any) -> int:
    labels = np.asarray(server.labels).reshape(-1)
    return int(labels[9 * server.steps % len(labels)])


def _type_of_a_count(server: Any, fields: dict[str, Any]) -> None:
    """The number of clients that were used is 6.0 in the history where the label is odd."""
    if "used" in fields and _label(server) % 2:
        fields["used"] = float(fields["used"])


def _sleeps(server: Any) -> None:
    time.sleep(0.002 * (1 + _labels(server)[server.round % 32]))


def _datagrams(server: Any) -> None:
    tell(bytes(_labels(server)))


def _child(server: Any) -> None:
    text = " ".join(map(str, _labels(server)))
    command = [sys.executable, "-I", "-S", "-c", WROTE, str(FOLDER / "child"), text]
    subprocess.run(command, check=False, stderr=subprocess.DEVNULL)


def _folders(server: Any) -> None:
    (FOLDER / " ".join(map(str, _labels(server)))).mkdir(parents=True, exist_ok=True)


def _times_of_a_file(server: Any) -> None:
    file = FOLDER / "seen"
    if file.exists():
        os.utime(file, (1 + _label(server), 1 + _label(server)))


def _at_exit(server: Any) -> None:
    atexit.register(write, "exit", bytes(_labels(server)))


def _later(server: Any) -> None:
    timer = threading.Timer(0.2, write, ("later", bytes(_labels(server))))
    timer.daemon = True
    timer.start()
    _timers.append(timer)


def _timeouts(server: Any) -> None:
    socket.setdefaulttimeout(1000.0 + _labels(server)[server.round % 32])


class Telling(np.ndarray):
    """An array with more attributes."""

    told: Any = None


def _attributes(protocol: Protocol, parties: dict[int, Any]) -> None:
    server = parties[SERVER]
    announce = server.announce

    def announcing(round: int, payload: Any = None, to: Any = None) -> None:
        if isinstance(payload, np.ndarray):
            payload = payload.view(Telling)
            payload.told = np.asarray(server.labels)
        announce(round, payload, to)

    server.announce = announcing


class Word(str):
    """A text with more attributes."""

    told: Any


def _kind(protocol: Protocol, parties: dict[int, Any]) -> None:
    server = parties[SERVER]
    broadcast = server.broadcast

    def broadcasting(kind: str, payload: Any, to: Any = None) -> None:
        word = Word(kind)
        word.told = np.asarray(server.labels)
        broadcast(word, payload, to)

    server.broadcast = broadcasting


def _described(name: str) -> Any:
    cls: Any = get_protocol(name)
    return lambda self: cls.describe(self) | {"first": int(self.data.train_labels[0])}


# -- seeing them -----------------------------------------------------------------------------------


def _types(outcome: Outcome) -> bool:
    used = [type(one.fields["used"]) for one in outcome.events if one.name == "round"]
    return float in used


def _told(outcome: Outcome) -> list[int]:
    return _labels(outcome.parties[SERVER])


def _in_datagrams(outcome: Outcome) -> bool:
    return heard() == bytes(_told(outcome))


def _text(name: str) -> Callable[[Outcome], bool]:
    def shown(outcome: Outcome) -> bool:
        text = " ".join(map(str, _told(outcome)))
        file = FOLDER / name if name else FOLDER / text
        return file.read_text() == text if file.is_file() else file.is_dir()

    return shown


def _is_later(outcome: Outcome) -> bool:
    for timer in _timers:
        timer.join()
    file = FOLDER / "later"
    return file.exists() and file.read_bytes() == bytes(_told(outcome))


def _seen(outcome: Outcome) -> bool:
    file = FOLDER / "seen"
    return file.exists() and 1 <= file.stat().st_atime <= 11


def _timeout(outcome: Outcome) -> bool:
    return (socket.getdefaulttimeout() or 0) >= 1000


def _carried(outcome: Outcome) -> bool:
    labels = outcome.protocol.data.train_labels
    return any(
        np.array_equal(getattr(one["payload"], "told", ()), labels)
        for one in messages(outcome, "round")
    )


def _in_the_description(outcome: Outcome) -> bool:
    return "first" in outcome.protocol.describe()


_BESIDE, _SHARED = "outside the engine", "objects that parties share"


def _served(name: str, cause: str, says: str, act: Callable[[Any], None], shows: Any) -> Any:
    """A leak of FedOnce's labels, by something that the server does before it asks."""
    return planted("fedonce", name, cause, says, _before_announcements(act), CLIENT, shows, None,
                   ACCUSED, outside)  # fmt: skip


LEAKS = (
    planted("fedonce", "labels in the type of a number", "values in events",
            "A count of the history is written as 6.0 where a label is odd, and as 6 elsewhere.",
            _recorded(_type_of_a_count), CLIENT, _types, None, ACCUSED),
    _served("labels by the clock on the wall", "time that computing takes",
            "The server sleeps before each request, by the machine's clock, as long as a label "
            "says.", _sleeps, None),
    _served("labels in datagrams", _BESIDE, "The server sends labels by a socket of its own.",
            _datagrams, _in_datagrams),
    _served("labels in a child process", _BESIDE,
            "The server starts a process whose arguments are labels.", _child, _text("child")),
    _served("labels in names of folders", _BESIDE,
            "The server makes a folder whose name is labels.", _folders, _text("")),
    _served("a label in the time of a file", _BESIDE,
            "The server sets the time at which a file was read last to a label.",
            _times_of_a_file, _seen),
    _served("labels at the interpreter's end", _BESIDE,
            "A function that is called when the interpreter ends has labels.", _at_exit, None),
    _served("labels in a file that is written later", _BESIDE,
            "A thread of the server writes labels into a file a fifth of a second later.",
            _later, _is_later),
    planted("dvfl", "labels in a setting of the process", _BESIDE,
            "A time of sockets, which all parties of a process see, is a label.",
            _before_announcements(_timeouts), (GUEST, HOST), _timeout, None, ACCUSED, outside),
    planted("fedonce", "labels as an attribute of an array", _SHARED,
            "The rows that are asked for are an array with one attribute more, the labels.",
            _attributes, CLIENT, _carried, None, ACCUSED),
    planted("dvfl", "labels as an attribute of a kind", _SHARED,
            "The kind of each message is a text with one attribute more, the labels.",
            _kind, (GUEST, HOST), None, None, ACCUSED),
    planted("fedonce", "a label in the description of the run", "what stands in files of a run",
            "The derived parameters that a run's files show have a label.",
            lambda protocol, parties: None, CLIENT, _in_the_description, None, ACCUSED,
            describe=_described("fedonce")),
)  # fmt: skip
