"""Early stopping of models, by their loss on rows that they do not train on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from securevfl.models.weights import tensors_of


class EarlyStopping:
    """Watches the loss on other rows and keeps the networks that had the lowest one.

    Parameters
    ----------
    models : sequence of Centre and ClientNetwork
    patience : int
        Epochs without a lower loss after which it is over, at least 1.

    Attributes
    ----------
    lowest : float
        The lowest of these losses so far.
    since : int
        Epochs since then.
    epochs : int
        Epochs in all.
    """

    def __init__(self, models: Sequence[Any], patience: int) -> None:
        self.models = models
        self.patience = patience
        self.lowest = math.inf
        self.since = 0
        self.epochs = 0
        self._best: list[dict[str, Any]] = []

    @property
    def over(self) -> bool:
        """Whether it is time to stop."""
        return self.since >= self.patience

    def take(self, loss: float) -> None:
        """Take in the loss after an epoch."""
        self.epochs += 1
        self.since += 1
        if loss < self.lowest:
            self.lowest, self.since = loss, 0
            self._best = [
                {name: t.detach().clone() for name, t in tensors_of(model).items()}
                for model in self.models
            ]

    def restore_best(self) -> None:
        """Give the models back the networks with the lowest loss, if there was any."""
        import torch

        for model, best in zip(self.models, self._best, strict=False):
            with torch.no_grad():
                for name, own in tensors_of(model).items():
                    own.copy_(best[name])

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, besides the models."""
        counts = {"lowest": self.lowest, "since": self.since, "epochs": self.epochs}
        return {**counts, "best": self._best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.lowest = state["lowest"]
        self.since = state["since"]
        self.epochs = state["epochs"]
        self._best = [dict(best) for best in state["best"]]
