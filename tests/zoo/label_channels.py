"""Leaks of labels without a message of their own: in columns, in times, in the order of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.models.split import Batches
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.runs import Outcome
from tests.zoo.labels import CLIENT
from tests.zoo.planting import ACCUSED, messages, planted


def _waits(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Before each request the server waits as long as a label says."""
    server = parties[SERVER]
    ask = server.ask

    async def asking() -> None:
        await server.sleep(100.0 * float(server.labels[len(server.received)]))
        await ask()

    server.ask = asking


class _ByLabel:
    """A generator whose permutations sort by label."""

    def __init__(self, labels: np.ndarray) -> None:
        self._labels = labels

    def permutation(self, length: int) -> np.ndarray:
        """Order of the labels."""
        return np.argsort(self._labels[:length], kind="stable")


def _sorted_guests(protocol: Protocol, parties: dict[int, Any]) -> None:
    stream: Any = _ByLabel(protocol.data.train_labels)
    for n in protocol.peers():
        guest = parties[n]
        batches = guest.batches
        guest.batches = Batches(batches.rows, 1, batches.coded, lambda *names: stream)


# -- seeing them ---------------------------------------------------------------------------------


def _waits_tell(outcome: Outcome) -> bool:
    server: Any = outcome.parties[SERVER]
    asked = [one for one in messages(outcome, ANNOUNCE) if one["receiver"] == 0]
    arrived = sorted(int(one["arrived"]) for one in asked if isinstance(one["payload"], np.ndarray))
    gaps = np.diff(arrived) / 1e11
    found: bool = np.array_equal(np.rint(gaps), server.labels[1 : len(arrived)])
    return found


def _order_held(outcome: Outcome) -> bool:
    guest: Any = outcome.parties[1]
    labels = outcome.protocol.data.train_labels
    order = guest.batches.samples(np.arange(guest.batches.length))
    return bool((np.diff(labels[order[order >= 0]]) >= 0).all())


_GIVEN, _TIMES = "labels that a party is given", "labels in times"


LEAKS = (
    planted(
        "fedonce",
        "waits as long as labels say",
        _TIMES,
        "Before each request the server waits as long as a label says.",
        _waits,
        CLIENT,
        _waits_tell,
        None,
        ACCUSED,
    ),
    planted(
        "fedonce",
        "own rows in the order of labels",
        _GIVEN,
        "Guests are made with batches that are sorted by label.",
        _sorted_guests,
        CLIENT,
        _order_held,
        None,
        ACCUSED,
    ),
)
