"""Early stopping of a server model, by its loss on rows that it does not train on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from securevfl.models.split import Centre


class EarlyStopping:
    """Watches the loss on other rows and keeps the network that had the lowest one.

    Parameters
    ----------
    centre : Centre
    patience : int
        Epochs without a lower loss after which it is over, at least 1.

    Attributes
    ----------
    lowest : float
        The lowest of these losses so far.
    since : int
        Epochs since then.
    """

    def __init__(self, centre: Centre, patience: int) -> None:
        self.centre = centre
        self.patience = patience
        self.lowest = math.inf
        self.since = 0
        self._best: dict[str, Any] = {}

    @property
    def over(self) -> bool:
        """Whether it is time to stop."""
        return self.since >= self.patience

    def take(self, loss: float) -> None:
        """Take in the loss after an epoch."""
        if loss < self.lowest:
            self.lowest, self.since = loss, 0
            state = self.centre.network.state_dict()
            self._best = {name: tensor.clone() for name, tensor in state.items()}
        else:
            self.since += 1

    def restore_best(self) -> None:
        """Give the server model back the network with the lowest loss, if there was any."""
        if self._best:
            self.centre.network.load_state_dict(self._best)

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, besides the server model."""
        return {"lowest": self.lowest, "since": self.since, "best": self._best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.lowest = state["lowest"]
        self.since = state["since"]
        self._best = dict(state["best"])
