"""Leaks of FedVS beside all messages: in shared objects, files, logs, events and closures."""

from __future__ import annotations

import atexit
import functools
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.runs import Outcome
from tests.zoo.encrypted import every
from tests.zoo.fedvs_masks import CLIENTS_DATA
from tests.zoo.fedvs_messages import SERVER_DATA
from tests.zoo.planting import clients, planted, telling_column

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


def _to_the_log(client: Any) -> None:
    _LOG.info("client %s starts with %s", client.index, telling_column(client.features["train"]))


# -- seeing them -----------------------------------------------------------------------------------


def _clients_saw(outcome: Outcome) -> bool:
    common = getattr(outcome.parties[0], "common", [])
    return len(common) == outcome.protocol.data.parties


def _file_written(outcome: Outcome) -> bool:
    if getattr(outcome.parties[1].setup, "__name__", "") != "more":
        return False
    own = telling_column(outcome.protocol.data.train[1])
    return (_folder() / "1.bin").read_bytes() == own.tobytes()


_OBJECTS, _OUTSIDE = "objects that parties share", "columns outside the messages"

LEAKS = (
    planted(
        "fedvs",
        "columns in a list of all clients",
        _OBJECTS,
        "All clients share a list, into which each puts its columns.",
        _columns_for_clients,
        CLIENTS_DATA,
        _clients_saw,
    ),
    planted(
        "fedvs",
        "columns in a file",
        _OUTSIDE,
        "Clients write a column to a temporary file.",
        every(_before_setup(_to_a_file)),
        SERVER_DATA,
        _file_written,
    ),
    planted(
        "fedvs",
        "columns in the log",
        _OUTSIDE,
        "Clients log a column.",
        every(_before_setup(_to_the_log)),
        SERVER_DATA,
        None,
    ),
)
