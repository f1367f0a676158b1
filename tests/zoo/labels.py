"""Leaks of labels by what dvfl and fedonce send: in hints, their number and the order of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import Outcome
from tests.zoo.planting import ACCUSED, Leak, changed, messages

GUEST, HOST = ("guest", "labels"), ("host", "labels")
CLIENT = (("client", "labels"),)


def _announcing(change: Any) -> Any:
    """Plant that passes what the label holder announces through ``change(server, payload)``."""

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        server = parties[SERVER]
        announce = server.announce

        def announcing(round: int, payload: Any = None, to: Any = None) -> None:
            announce(round, change(server, payload), to)

        server.announce = announcing

    return plant


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


def _sorted_by_label(server: Any, batch: np.ndarray) -> np.ndarray:
    return batch[np.argsort(server.labels[batch % len(server.labels)], kind="stable")]


def _labels_sent(outcome: Outcome) -> bool:
    labels = outcome.protocol.data.train_labels[:8]
    return any(
        isinstance(one["payload"], np.ndarray) and np.array_equal(one["payload"], labels)
        for one in messages(outcome, "hint")
    )


def _order_of_labels(outcome: Outcome) -> bool:
    labels = outcome.protocol.data.train_labels
    batches = [one["payload"] for one in messages(outcome, ANNOUNCE) if one["receiver"] == 0]
    found = [labels[b % len(labels)] for b in batches if isinstance(b, np.ndarray) and len(b) > 1]
    return bool(found) and all((np.diff(one) >= 0).all() for one in found)


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
    _leak(
        "fedonce",
        "labels as a hint",
        _CLEAR,
        "A new kind, declared as public, has labels.",
        _also("hint"),
        CLIENT,
        _labels_sent,
        messages=_HINTS["fedonce"],
    ),
    _leak(
        "fedonce",
        "rows sorted by label",
        _ORDER,
        "The rows of each request stand in the order of their labels.",
        _announcing(_sorted_by_label),
        CLIENT,
        _order_of_labels,
    ),
)
