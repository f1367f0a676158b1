"""Leaks of multivfl: noise that is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.privacy.mechanisms import clip_rows
from securevfl.testing.runs import Outcome
from tests.zoo.encrypted import every
from tests.zoo.planting import ACCUSED, Leak, changed, messages

SECURE = {"noise": "secure", "epsilon": 5.0}
OWNERS = (("label owner", "features"),)


def _owner_noise(new: Callable[[Any, np.ndarray, int], np.ndarray]) -> Any:
    """Plant that replaces what a data owner of multivfl answers."""

    def plant(client: Any) -> None:
        def answer(owner: int, number: int, places: np.ndarray) -> None:
            own = client.features[client.rows[str(owner)][places]]
            rows = new(client, client.copies.networks[owner].forward(own), number)
            client.send(owner, "embedding", ((owner, places), rows.astype(np.float32)),
                        round=number)  # fmt: skip

        client.answer = answer

    return every(plant)


# -- seeing them ---------------------------------------------------------------------------------


def _quiet(outcome: Outcome) -> bool:
    """Whether the first activations of each data owner vary less than their noise must."""
    party: Any = outcome.parties[0]
    first = [one["payload"][1] for one in messages(outcome, "embedding", 1)]
    return all(float(one.std()) < 0.7 * party.privacy.sigma for one in first)


_MISSING = "noise left out"


def _leak(protocol: str, name: str, cause: str, says: str, plant: Any, breaks: Any,
          options: Any, shows: Any = None) -> Leak:  # fmt: skip
    made = changed(protocol, plant)
    return Leak(f"{protocol}: {name}", protocol, cause, says, made, breaks, options, ACCUSED, shows)


LEAKS = (
    _leak(
        "multivfl",
        "no noise",
        _MISSING,
        "Activations are clipped and not noised.",
        _owner_noise(lambda c, rows, n: clip_rows(rows, c.privacy.clip)),
        OWNERS,
        SECURE,
        _quiet,
    ),
)
