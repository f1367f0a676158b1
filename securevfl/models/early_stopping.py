"""Early stopping of models by their loss on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from securevfl.models.weights import tensors_of

if TYPE_CHECKING:
    import torch


class EarlyStopping:
    """Early stopping: watches the loss on held-out rows, and stores the best networks.

    Parameters
    ----------
    models : sequence of Centre and ClientNetwork
        Networks of which the best weights are stored.
    patience : int
        Number of epochs without a lower loss after which training ends, at least 1.

    Attributes
    ----------
    lowest : float
        Lowest loss so far.
    since : int
        Number of epochs since the lowest loss.
    epochs : int
        Number of all epochs; not part of the state.
    """

    def __init__(self, models: Sequence[Any], patience: int) -> None:
        self.models = models
        self.patience = patience
        self.lowest = math.inf
        self.since = 0
        self.epochs = 0
        self._best: dict[str, Any] = {}  # by name, and of a second model by its place and name

    @property
    def over(self) -> bool:
        """Whether training should end: `patience` epochs have brought no lower loss."""
        return self.since >= self.patience

    def take(self, loss: float) -> None:
        """Register an epoch's loss; if it is the lowest so far, store the networks."""
        self.epochs += 1
        self.since += 1
        if loss < self.lowest:
            self.lowest, self.since = loss, 0
            self._best = {name: one.detach().clone() for name, one in self._tensors()}

    def restore_best(self) -> None:
        """Restore the networks with the lowest loss, if there were any."""
        import torch

        with torch.no_grad():
            for name, own in self._tensors() if self._best else ():
                own.copy_(self._best[name])

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for place, model in enumerate(self.models):
            for name, own in tensors_of(model).items():
                yield f"{place}: {name}" if place else name, own

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, without the models."""
        return {"lowest": self.lowest, "since": self.since, "best": self._best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self.lowest = state["lowest"]
        self.since = state["since"]
        self._best = dict(state["best"])
