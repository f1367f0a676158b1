"""Leaks by what a party does beside the contents of its messages.

They are in events, in lines on the screen and in logs, in when and in which order it sends, in the
measures of its models, and in the error with which it ends. They came with the check that finds
them, which compares all of this with what the library's own party does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.testing.runs import Outcome
from tests.zoo.encrypted import every
from tests.zoo.noise import ROWS, SECURE
from tests.zoo.planting import ACCUSED, planted, tap


def _train(client: Any) -> np.ndarray:
    found: Any = client.features
    own: np.ndarray = found["train"] if isinstance(found, dict) else found
    return own


def _value(client: Any) -> float:
    """An entry of a client's columns, another one in each round."""
    own = _train(client).reshape(-1)
    return float(own[(64 * client.round + 3) % len(own)])


def _at(kind: str, also: Callable[[Any], None]) -> Any:
    """Plant of clients that do something more before each message of a kind."""

    def plant(client: Any) -> None:
        tap(client, lambda one: also(client) if one["kind"] == kind else None)

    return every(plant)


# -- seeing them -----------------------------------------------------------------------------------


def _events(outcome: Outcome, name: str) -> list[Any]:
    return [event for event in outcome.events if event.name.startswith(name)]


def _tells(name: str) -> Callable[[Outcome], bool]:
    """Whether there are events of a name, which a small sound run has not."""
    return lambda outcome: bool(_events(outcome, name))


_EVENTS, _WRITTEN = "values in events", "values on the screen or in a log"

LEAKS = (
    planted(
        "wait_dp",
        "a value in an event",
        _EVENTS,
        "An event has a raw value.",
        _at("embedding", lambda one: one.record("clipped", weights=_value(one), bound=1.0)),
        ROWS,
        _tells("clipped"),
        SECURE,
        ACCUSED,
    ),
)


# -- sound ones ------------------------------------------------------------------------------------
