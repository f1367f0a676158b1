"""Centralised training of the networks of a split method: the baseline without any partition.

All columns and labels are in one place, and one backward pass goes through the server model and all
bottom models. Only the networks are shared with the split protocols, so this is the reference for
tests of them; split learning that waits for all parties computes the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.models.optimizers import take_step
from securevfl.models.polynomial_network import PolynomialNetwork, expand
from securevfl.models.tensors import tensor

if TYPE_CHECKING:
    import torch

    from securevfl.models.client_networks import ClientNetwork
    from securevfl.models.split import Centre


class Centralised:
    """All bottom models and a server model on their joined outputs, as one model.

    Parameters
    ----------
    networks : sequence of ClientNetwork
        One network per party, in order; they are trained in place.
    centre : Centre
    joined : {"concat", "mean", "max", "sum"}
        Rule that joins their outputs to the input of the server model.
    """

    def __init__(
        self, networks: Sequence[ClientNetwork], centre: Centre, *, joined: str = "concat"
    ) -> None:
        self.networks = networks
        self.centre = centre
        self.joined = joined

    def forward(self, columns: Sequence[np.ndarray]) -> torch.Tensor:
        """Raw scores of rows, (rows, outputs)."""
        import torch

        parts = [_output(n, rows) for n, rows in zip(self.networks, columns, strict=True)]
        if self.joined == "concat":
            joint = torch.cat(parts, 1)
        elif self.joined == "mean":
            joint = torch.stack(parts).mean(0)
        elif self.joined == "sum":
            joint = torch.stack(parts).sum(0)
        else:
            joint = torch.stack(parts).max(0).values
        scores: torch.Tensor = self.centre.network(joint)
        return scores

    def step(self, columns: Sequence[np.ndarray], labels: np.ndarray) -> float:
        """One update of the server model and all networks; return the loss before it.

        Parameters
        ----------
        columns : sequence of ndarray, (rows, d_n)
            Columns of each party.
        labels : ndarray, (rows,)
        """

        optimizers: list[Any] = [n.optimizer for n in self.networks]  # type: ignore[attr-defined]
        optimizers.append(self.centre.optimizer)
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.centre.network.train()
        loss = self.centre.loss(self.forward(columns), tensor(labels))
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            take_step(optimizer)
        return float(loss.detach())


def _output(network: Any, rows: np.ndarray) -> torch.Tensor:
    """A network's output with its autograd graph, which `ClientNetwork.forward` omits."""

    if isinstance(network, PolynomialNetwork):
        return tensor(expand(np.asarray(rows), network.degree)) @ network.weight
    output: torch.Tensor = network.module(tensor(rows, np.float32))
    return output
