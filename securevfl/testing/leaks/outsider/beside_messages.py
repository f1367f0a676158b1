"""Leaks of FedVS beside all messages: in shared objects, files, logs, events and closures."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.fedvs_masks import CLIENTS_DATA
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA
from securevfl.testing.leaks.planting import clients, planted, telling_column
from securevfl.testing.runs import Outcome

_LOG = logging.getLogger("securevfl.fedvs")


def _before_setup(act: Callable[[Any], None]) -> Callable[[Any], None]:
    """Plant of a party that does something when its setup begins."""

    def plant(client: Any) -> None:
        setup = client.setup

        async def more() -> None:
            act(client)
            await setup()

        client.setup = more

    return plant


def _columns_for_the_server(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Clients put their columns into a dictionary that the server has."""
    server = parties[SERVER]
    server.seen = {}
    for one in clients(protocol, parties):
        _before_setup(lambda client: server.seen.update({client.index: client.features}))(one)


def _columns_for_clients(protocol: Protocol, parties: dict[int, Any]) -> None:
    """All clients have one list, into which each puts its columns."""
    common: list[np.ndarray] = []
    for one in clients(protocol, parties):
        one.common = common
        _before_setup(lambda client: client.common.append(client.features["train"]))(one)


@functools.cache
def _folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="securevfl-leak-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _to_a_file(client: Any) -> None:
    path = _folder() / f"{client.index}.bin"
    path.write_bytes(telling_column(client.features["train"]).tobytes())


def _to_the_environment(client: Any) -> None:
    os.environ[f"SECUREVFL_CLIENT_{client.index}"] = telling_column(
        client.features["train"]
    ).tobytes().hex()  # fmt: skip


def _to_the_log(client: Any) -> None:
    _LOG.info("client %s starts with %s", client.index, telling_column(client.features["train"]))


def _in_an_event(client: Any) -> None:
    own = telling_column(client.features["train"])
    client.record("clipped", weights=int(2**20 * float(own[0])), bound=16.0)


def _closure(protocol: Protocol, parties: dict[int, Any]) -> None:
    """A method of the server is a closure over the columns, compressed."""
    packed = zlib.compress(np.ascontiguousarray(protocol.data.train[1]).tobytes())
    server = parties[SERVER]
    interpolate = server.interpolate

    def interpolating(uploads: Any) -> np.ndarray:
        assert packed
        found: np.ndarray = interpolate(uploads)
        return found

    server.interpolate = interpolating


# -- seeing them -----------------------------------------------------------------------------------


def _server_saw(outcome: Outcome) -> bool:
    seen = getattr(outcome.parties[SERVER], "seen", {})
    return all(np.array_equal(own["train"], outcome.protocol.data.train[n])
               for n, own in seen.items()) and bool(seen)  # fmt: skip


def _clients_saw(outcome: Outcome) -> bool:
    common = getattr(outcome.parties[0], "common", [])
    return len(common) == outcome.protocol.data.parties


def _file_written(outcome: Outcome) -> bool:
    if getattr(outcome.parties[1].setup, "__name__", "") != "more":
        return False
    own = telling_column(outcome.protocol.data.train[1])
    return (_folder() / "1.bin").read_bytes() == own.tobytes()


def _environment_set(outcome: Outcome) -> bool:
    told = os.environ.pop("SECUREVFL_CLIENT_1", "")
    return told == telling_column(outcome.protocol.data.train[1]).tobytes().hex()


def _event_tells(outcome: Outcome) -> bool:
    told = [event.fields["weights"] for event in outcome.events if event.name == "clipped"]
    own = [telling_column(table)[0] for table in outcome.protocol.data.train]
    return sorted(told) == sorted(int(2**20 * float(one)) for one in own)


def _closed_over(outcome: Outcome) -> bool:
    server: Any = outcome.parties[SERVER]
    wanted = zlib.compress(np.ascontiguousarray(outcome.protocol.data.train[1]).tobytes())
    cells = getattr(server.interpolate, "__closure__", None) or ()
    return any(cell.cell_contents == wanted for cell in cells
               if isinstance(cell.cell_contents, bytes))  # fmt: skip


_OBJECTS, _OUTSIDE = "objects that parties share", "columns outside the messages"
_HELD = "data that a party is given"

LEAKS = (
    planted("fedvs", "columns in the server's dictionary", _OBJECTS,
            "Clients put their columns into an object of the server's.", _columns_for_the_server,
            SERVER_DATA, _server_saw),
    planted("fedvs", "columns in a list of all clients", _OBJECTS,
            "All clients share a list, into which each puts its columns.", _columns_for_clients,
            CLIENTS_DATA, _clients_saw),
    planted("fedvs", "columns in a file", _OUTSIDE,
            "Clients write a column to a temporary file.", every(_before_setup(_to_a_file)),
            SERVER_DATA, _file_written),
    planted("fedvs", "columns in the environment", _OUTSIDE,
            "Clients put a column into an environment variable.",
            every(_before_setup(_to_the_environment)), SERVER_DATA, _environment_set),
    planted("fedvs", "columns in the log", _OUTSIDE,
            "Clients log a column.", every(_before_setup(_to_the_log)), SERVER_DATA, None),
    planted("fedvs", "a value in an event", _OUTSIDE,
            "An event of the history has a raw value.", every(_before_setup(_in_an_event)),
            SERVER_DATA, _event_tells),
    planted("fedvs", "columns in a closure", _HELD,
            "A method of the server is a closure over columns, compressed.", _closure,
            SERVER_DATA, _closed_over),
)  # fmt: skip
