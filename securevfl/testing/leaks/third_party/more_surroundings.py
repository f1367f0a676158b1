"""The same ways past the messages for columns, and states that files of a run hold."""

from __future__ import annotations

import contextlib
import mmap
import random
import sys
import time
from collections.abc import Iterator
from multiprocessing import shared_memory
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.leaks.encrypted import HE, every
from securevfl.testing.leaks.labels import CLIENT
from securevfl.testing.leaks.noise import ROWS, SECURE
from securevfl.testing.leaks.planting import ACCUSED, messages, planted, tap
from securevfl.testing.leaks.third_party.surroundings import FOLDER, heard, outside, tell, write
from securevfl.testing.runs import Outcome


def _before(kind: str, act: Any) -> Any:
    def plant(client: Any) -> None:
        tap(client, lambda one: act(client) if one["kind"] == kind else None)

    return every(plant)


def _datagrams(client: Any) -> None:
    tell(client.features[:4].tobytes())


def _in_datagrams(outcome: Outcome) -> bool:
    clients: Any = [outcome.parties[n] for n in outcome.protocol.peers()]
    return heard() in [one.features[:4].tobytes() for one in clients]


def _sleeps(client: Any) -> None:
    own = client.features.reshape(-1)
    time.sleep(1e-3 * float(abs(own[client.round % len(own)])))


def _kept_columns(client: Any) -> None:
    """Kept attributes, which go into checkpoints and files of a run."""
    client.kept_frozen = (*client.kept_frozen, "features")


def _kept_labels(protocol: Protocol, parties: dict[int, Any]) -> None:
    server = parties[SERVER]
    server.kept_frozen = (*server.kept_frozen, "labels")


def _in_place(protocol: Protocol, parties: dict[int, Any]) -> None:
    """A request is sorted by label after it was sent, where it lies."""
    server = parties[SERVER]
    announce = server.announce

    def announcing(round: int, payload: Any = None, to: Any = None) -> None:
        announce(round, payload, to)
        if isinstance(payload, np.ndarray):
            labels = np.asarray(server.labels)
            payload[:] = payload[np.argsort(labels[payload % len(labels)], kind="stable")]

    server.announce = announcing


def _longer(protocol: Protocol, parties: dict[int, Any]) -> None:
    """A request is the beginning of a longer array, in which labels stand."""
    server = parties[SERVER]
    announce = server.announce

    def announcing(round: int, payload: Any = None, to: Any = None) -> None:
        if isinstance(payload, np.ndarray):
            labels = np.asarray(server.labels).astype(payload.dtype)
            payload = np.concatenate([payload, labels])[: len(payload)]
        announce(round, payload, to)

    server.announce = announcing


class Last:
    """An object that writes when it is forgotten."""

    def __init__(self, name: str, told: bytes) -> None:
        self.name, self.told = name, told

    def __del__(self) -> None:
        write(self.name, self.told)


def _labels(protocol: Protocol) -> bytes:
    return bytes(int(one) for one in np.asarray(protocol.data.train_labels)[:32])


def _when_made(protocol: Protocol, parties: dict[int, Any]) -> None:
    write("made", _labels(protocol))


def _printed_when_made(protocol: Protocol, parties: dict[int, Any]) -> None:
    sys.stderr.write(f"{_labels(protocol)[0]}\n")


def _when_forgotten(protocol: Protocol, parties: dict[int, Any]) -> None:
    parties[SERVER].last = Last("forgotten", _labels(protocol))


def _in_a_map(protocol: Protocol, parties: dict[int, Any]) -> None:
    """A file that was opened before the run is written through memory."""
    if not FOLDER.exists():
        return
    told = _labels(protocol)
    (FOLDER / "mapped").write_bytes(bytes(len(told)))
    with (FOLDER / "mapped").open("r+b") as file:
        there = mmap.mmap(file.fileno(), len(told))
    server = parties[SERVER]
    conclude = server.conclude

    def concluding(to: Any = None) -> None:
        there[:] = told
        conclude(to)

    server.conclude = concluding


def _in_shared_memory(protocol: Protocol, parties: dict[int, Any]) -> None:
    server = parties[SERVER]
    conclude = server.conclude

    def concluding(to: Any = None) -> None:
        told = _labels(protocol)
        with contextlib.suppress(FileExistsError):
            there: Any = shared_memory.SharedMemory(FOLDER.name, create=True, size=len(told))
            there.buf[: len(told)] = told
            there.close()
        conclude(to)

    server.conclude = concluding


@contextlib.contextmanager
def _shared() -> Iterator[None]:
    """Context after which the shared memory is gone."""
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            there = shared_memory.SharedMemory(FOLDER.name)
            there.close()
            there.unlink()


def _global_generator(protocol: Protocol, parties: dict[int, Any]) -> None:
    server = parties[SERVER]
    conclude = server.conclude

    def concluding(to: Any = None) -> None:
        random.seed(_labels(protocol))
        conclude(to)

    server.conclude = concluding


def _class_of_all(protocol: Protocol, parties: dict[int, Any]) -> None:
    server = parties[SERVER]
    conclude = server.conclude

    def concluding(to: Any = None) -> None:
        Party.operations.__dict__["told"] = _labels(protocol)
        conclude(to)

    server.conclude = concluding


@contextlib.contextmanager
def _as_seeded() -> Iterator[None]:
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def _forgotten() -> Iterator[None]:
    try:
        yield
    finally:
        Party.operations.__dict__.pop("told", None)


def _file(name: str) -> Any:
    def shown(outcome: Outcome) -> bool:
        file = FOLDER / name
        return file.exists() and file.read_bytes() == _labels(outcome.protocol)

    return shown


def _memory(outcome: Outcome) -> bool:
    told = _labels(outcome.protocol)
    try:
        there: Any = shared_memory.SharedMemory(FOLDER.name)
    except FileNotFoundError:
        return False
    found = bytes(there.buf[: len(told)])
    there.close()
    return found == told


def _seeded(outcome: Outcome) -> bool:
    return random.getstate() == random.Random(_labels(outcome.protocol)).getstate()


def _on_a_function(outcome: Outcome) -> bool:
    return Party.operations.__dict__.get("told") == _labels(outcome.protocol)


def _keeps(party: int, name: str) -> Any:
    return lambda outcome: name in outcome.parties[party].kept_frozen


def _based(outcome: Outcome) -> bool:
    labels = outcome.protocol.data.train_labels
    for one in messages(outcome, "round"):
        base = getattr(one["payload"], "base", None)
        if isinstance(base, np.ndarray) and np.array_equal(base[-len(labels) :], labels):
            return True
    return False


_BESIDE = "outside the engine"

LEAKS = (
    planted("he_split", "columns in datagrams", _BESIDE,
            "Clients send columns by a socket of their own.",
            _before("embedding", _datagrams), HE, _in_datagrams, around=outside),
    planted("he_split", "values by the clock on the wall", "time that computing takes",
            "Clients sleep, by the machine's clock, as long as a value says.",
            _before("embedding", _sleeps), HE, None),
    planted("wait_dp", "values by the clock on the wall", "time that computing takes",
            "Clients sleep, by the machine's clock, as long as a value says.",
            _before("embedding", _sleeps), ROWS, None, SECURE, ACCUSED),
    planted("he_split", "columns among what is kept", "what stands in files of a run",
            "Clients keep their columns as if they were a state, so that a run's files have them.",
            every(_kept_columns), HE[:1], _keeps(0, "features")),
    planted("fedonce", "labels among what is kept", "what stands in files of a run",
            "The server keeps its labels as if they were a state, so that a run's files have them.",
            _kept_labels, CLIENT, _keeps(SERVER, "labels"), None, ACCUSED),
    planted("fedonce", "labels in place after sending", "objects that parties share",
            "A request is sorted by label after it was sent, where it lies.",
            _in_place, CLIENT, None, None, ACCUSED),
    planted("fedonce", "labels behind an array", "objects that parties share",
            "The rows that are asked for are the beginning of a longer array, with labels.",
            _longer, CLIENT, _based, None, ACCUSED),
    planted("fedonce", "labels in a file when parties are made", _BESIDE,
            "Labels are written into a file before the run begins, where parties are made.",
            _when_made, CLIENT, _file("made"), None, ACCUSED, outside),
    planted("fedonce", "labels on the screen when parties are made", _BESIDE,
            "A label is written to the screen before the run begins, where parties are made.",
            _printed_when_made, CLIENT, None, None, ACCUSED),
    planted("fedonce", "labels when an object is forgotten", _BESIDE,
            "An object of the server writes labels into a file when it is forgotten.",
            _when_forgotten, CLIENT, None, None, ACCUSED, outside),
    planted("fedonce", "labels through a map of memory", _BESIDE,
            "A file that was opened before the run is written through memory.",
            _in_a_map, CLIENT, _file("mapped"), None, ACCUSED, outside),
    planted("fedonce", "labels in shared memory", _BESIDE,
            "Labels stand in memory that other processes can read by its name.",
            _in_shared_memory, CLIENT, _memory, None, ACCUSED, _shared),
    planted("fedonce", "labels as the seed of Python's generator", "objects that parties share",
            "Python's own generator, which all parties of a process share, is seeded by labels.",
            _global_generator, CLIENT, _seeded, None, ACCUSED, _as_seeded),
    planted("fedonce", "labels on a function of the library", "objects that parties share",
            "A function of the library, which all parties share, has labels as an attribute.",
            _class_of_all, CLIENT, _on_a_function, None, ACCUSED, _forgotten),
)  # fmt: skip
