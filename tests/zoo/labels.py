"""Leaks of labels by what dvfl and fedonce send: in hints, their number and the order of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import Outcome
from tests.zoo.planting import ACCUSED, Leak, changed, messages

GUEST, HOST = ("guest", "labels"), ("host", "labels")
CLIENT = (("client", "labels"),)


def _also(kind: str) -> Any:
    """Plant that sends labels under a kind of its own after each announcement."""

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        server = parties[SERVER]
        announce = server.announce

        def announcing(round: int, payload: Any = None, to: Any = None) -> None:
            announce(round, payload, to)
            server.broadcast(kind, np.asarray(server.labels[:8]), to=to or server.peers)

        server.announce = announcing

    return plant


def _declared(name: str, *specs: MessageSpec) -> Any:
    base: Any = get_protocol(name)
    return property(lambda self: (*base.messages.fget(self), *specs))


def _labels_sent(outcome: Outcome) -> bool:
    labels = outcome.protocol.data.train_labels[:8]
    return any(
        isinstance(one["payload"], np.ndarray) and np.array_equal(one["payload"], labels)
        for one in messages(outcome, "hint")
    )


_HINTS = {
    name: _declared(name, *(MessageSpec("hint", sender, receiver, "control", public=True)
                            for sender, receiver in links))
    for name, links in {
        "dvfl": (("owner", "guest"), ("owner", "host")),
        "fedonce": (("server", "client"),),
    }.items()
}  # fmt: skip

_CLEAR, _ORDER = "labels in a message", "labels in what surrounds a payload"


def _leak(protocol: str, name: str, cause: str, says: str, plant: Any, breaks: Any,
          shows: Any = None, **attributes: Any) -> Leak:  # fmt: skip
    made = changed(protocol, plant, **attributes)
    return Leak(f"{protocol}: {name}", protocol, cause, says, made, breaks, {}, ACCUSED, shows)


LEAKS = (
    _leak(
        "dvfl",
        "labels as a hint",
        _CLEAR,
        "A new kind, declared as public, has labels.",
        _also("hint"),
        (GUEST, HOST),
        _labels_sent,
        messages=_HINTS["dvfl"],
    ),
)
