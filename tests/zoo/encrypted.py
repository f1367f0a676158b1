"""One fault, planted in every client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from securevfl.protocols.base.protocol import Protocol
from tests.zoo.planting import Plant, clients


def every(plant: Callable[[Any], None]) -> Plant:
    """Plant one fault in every client."""

    def planting(protocol: Protocol, parties: dict[int, Any]) -> None:
        for one in clients(protocol, parties):
            plant(one)

    return planting
