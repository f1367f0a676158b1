"""Polynomial networks: a client model that secret sharing can evaluate exactly.

A network of D layers maps x in R^d to h = sum_{i=1..D} (x^i W^i + b^i), x^i the element-wise power
(FedVS, section 3, after Livni et al. 2014). The biases add up to one row of weights, absorbed by
one column of ones, so that with ``X_pow = [X | X^2 | ... | X^D | 1]`` the network is ONE linear
map, ``H = X_pow W``, over the reals and over a field alike; its gradient is
``dL/dW = X_pow^T dL/dH``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.errors import ConfigurationError
from securevfl.models.optimizers import make_optimizer, take_step
from securevfl.models.tensors import tensor

if TYPE_CHECKING:
    import torch


def expand(features: np.ndarray, degree: int) -> np.ndarray:
    """Matrix ``[X | X^2 | ... | X^D | 1]`` of the columns' powers and ones.

    Parameters
    ----------
    features : ndarray, (rows, d), floating
        Columns of the rows.
    degree : int
        Highest power D, at least 1.

    Returns
    -------
    ndarray, (rows, d D + 1), the dtype of `features`
    """
    rows, d = features.shape
    powers = np.empty((rows, d * degree + 1), features.dtype)
    powers[:, :d] = features
    for i in range(1, degree):
        np.multiply(powers[:, (i - 1) * d : i * d], features, out=powers[:, i * d : (i + 1) * d])
    powers[:, -1] = 1
    return powers


def expanded_width(features: int, degree: int) -> int:
    """Number of columns of `expand`: d D + 1."""
    return features * degree + 1


class PolynomialNetwork:
    """Polynomial network of one client, with optimiser; gradients are in closed form.

    Parameters
    ----------
    features : int
        Number d of columns, at least 1.
    width : int
        Embedding width h, at least 1.
    degree : int
        Degree D, at least 1: the highest power of the columns (the paper's number of layers).
    stream : numpy Generator
        Source of the initial weights, uniform in +-1/sqrt(d D) as torch's Linear does; the biases
        start at zero. (The paper does not state its initialisation; this is our choice.)
    optimizer : dict
        Arguments of `securevfl.models.optimizers.make_optimizer`.
    bound : float or None
        Bound to which every weight is clipped after each update; None for no clipping.

    Attributes
    ----------
    weight : torch tensor, (d D + 1, h), float32
        The rows of X, ..., X^D one below the other; the last row is the biases.

    Raises
    ------
    ConfigurationError
        When features, width or degree is below 1.
    """

    def __init__(
        self,
        features: int,
        width: int,
        degree: int,
        *,
        stream: np.random.Generator,
        optimizer: dict[str, Any],
        bound: float | None = None,
    ) -> None:

        if min(features, width, degree) < 1:
            raise ConfigurationError(
                f"PolynomialNetwork: features, width and degree must be at least 1, they are "
                f"{features}, {width} and {degree}"
            )
        # X_pow has d D columns besides the ones, so d D is the fan-in of a linear layer on it.
        limit = 1 / math.sqrt(features * degree)
        initial = stream.uniform(-limit, limit, (expanded_width(features, degree), width))
        initial[-1] = 0
        self.degree = degree
        self.bound = bound
        self.weight = tensor(initial, np.float32).requires_grad_()
        self.optimizer: torch.optim.Optimizer = make_optimizer([self.weight], **optimizer)

    @property
    def values(self) -> np.ndarray:
        """The weights as a float32 array (a view)."""
        array: np.ndarray = self.weight.detach().numpy()
        return array

    @property
    def operations(self) -> int:
        """Multiply-adds of `forward` for each row: (d D + 1) h."""
        return self.weight.numel()

    def forward(self, features: np.ndarray) -> np.ndarray:
        """Embedding ``X_pow W`` of real rows, (rows, h) float32."""
        embedding: np.ndarray = expand(features, self.degree) @ self.values
        return embedding

    def update(self, features: np.ndarray, gradient: np.ndarray) -> int:
        """One optimiser step with ``dL/dW = X_pow^T dL/dH``; return the number of clipped weights.

        Parameters
        ----------
        features : ndarray, (rows, d), float32
            Columns of the rows.
        gradient : ndarray, (rows, h), float32
            dL/dH of this client.
        """
        self.weight.grad = tensor(expand(features, self.degree).T @ gradient)
        take_step(self.optimizer)
        if self.bound is None:
            return 0
        values = self.values
        if -self.bound <= values.min() and values.max() <= self.bound:
            return 0
        beyond = int((np.abs(values) > self.bound).sum())
        np.clip(values, -self.bound, self.bound, out=values)
        return beyond

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimiser state."""
        return {"weight": self.weight.detach(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore weights and optimiser state from `state_dict`."""
        import torch

        with torch.no_grad():
            self.weight.copy_(state["weight"])
        self.optimizer.load_state_dict(state["optimizer"])
