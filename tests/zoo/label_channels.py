"""Leaks of labels without a message of their own: in columns, in times, in the order of rows."""

from __future__ import annotations

from typing import Any

from securevfl.engine.party import SERVER
from securevfl.protocols.base.protocol import Protocol


def _waits(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Before each request the server waits as long as a label says."""
    server = parties[SERVER]
    ask = server.ask

    async def asking() -> None:
        await server.sleep(100.0 * float(server.labels[len(server.received)]))
        await ask()

    server.ask = asking


# -- seeing them ---------------------------------------------------------------------------------


_GIVEN, _TIMES = "labels that a party is given", "labels in times"


LEAKS = ()
