"""Encoders that learn without labels: auto-encoders, and SimCLR's contrastive objective.

An encoder has two Linear layers with a leaky ReLU between them, and a head for training only: the
mirrored decoder, or a projector. DVFL trains guests and hosts in this way (appendix D.1), FedOnce
its guests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.errors import DivergedError
from securevfl.models.networks import Activation, two_layers
from securevfl.models.optimizers import make_optimizer, take_step
from securevfl.models.pretraining.augmentations import ImageShape, two_views
from securevfl.models.tensors import tensor
from securevfl.models.weights import initialised

if TYPE_CHECKING:
    import torch
    from torch import nn

_ROWS = 4096  # encoded at once


class Encoder(ABC):
    """A torch module that maps rows to codes, and a head with which it is trained.

    Parameters
    ----------
    module : nn.Module
        Maps (rows, d) to (rows, h).
    head : nn.Module
        Second module, used in training only.
    optimizer : dict
        Arguments of `securevfl.models.optimizers.make_optimizer`, for both.
    operations : int
        Multiply-adds of `encode` for each row.
    """

    def __init__(
        self, module: nn.Module, head: nn.Module, *, optimizer: dict[str, Any], operations: int
    ) -> None:
        self.module = module
        self.head = head
        self.operations = operations
        self.optimizer: torch.optim.Optimizer = make_optimizer(
            [*module.parameters(), *head.parameters()], **optimizer
        )

    @abstractmethod
    def loss(self, rows: np.ndarray, stream: np.random.Generator) -> torch.Tensor:
        """Loss of a batch (rows, d) float32; `stream` gives the objective's random choices."""

    def train(self, rows: np.ndarray, stream: np.random.Generator) -> float:
        """One optimiser step on rows (B, d); return the loss before it.

        DivergedError when the loss is not finite.
        """
        self.optimizer.zero_grad()
        loss = self.loss(rows, stream)
        value = float(loss.detach())
        if not np.isfinite(value):
            lr = self.optimizer.param_groups[0]["lr"]
            raise DivergedError(f"the loss of an encoder became {value}; lower its lr ({lr:g})")
        loss.backward()  # type: ignore[no-untyped-call]
        take_step(self.optimizer)
        return value

    def encode(self, rows: np.ndarray) -> np.ndarray:
        """Codes of rows, (rows, d) to (rows, h) float32."""
        import torch

        with torch.no_grad():
            parts = [
                self.module(tensor(rows[start : start + _ROWS], np.float32)).numpy()
                for start in range(0, max(len(rows), 1), _ROWS)
            ]
        return np.concatenate(parts)

    def state_dict(self) -> dict[str, Any]:
        """Weights of module and head, and the optimiser's state."""
        return {
            "module": dict(self.module.state_dict()),
            "head": dict(self.head.state_dict()),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self.module.load_state_dict(state["module"])
        self.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])


class AutoEncoder(Encoder):
    """Encoder whose head decodes; the loss is the mean square error of the reconstruction."""

    def loss(self, rows: np.ndarray, stream: np.random.Generator) -> torch.Tensor:
        """Mean of |decode(encode(x)) - x|^2 / d over the rows; deterministic."""
        from torch.nn import functional

        wanted = tensor(rows, np.float32)
        return functional.mse_loss(self.head(self.module(wanted)), wanted)

    def error(self, rows: np.ndarray) -> float:
        """Mean square error of the reconstruction of rows, (rows, d)."""
        import torch

        total = 0.0
        with torch.no_grad():
            for start in range(0, len(rows), _ROWS):
                wanted = tensor(rows[start : start + _ROWS], np.float32)
                wrong = self.head(self.module(wanted)) - wanted
                total += float((wrong.double() ** 2).sum())
        return total / rows.size


class ContrastiveEncoder(Encoder):
    """Encoder with a projection head: two views of a row attract, other rows repel (SimCLR).

    Parameters
    ----------
    module, head, optimizer, operations
        Arguments of `Encoder`.
    temperature : float
        tau > 0 of `securevfl.models.pretraining.contrast.nt_xent`.
    image_shape : (channels, height, width) or None
        Shape of the party's strip of an image, from which views are made; None for a table.
    """

    def __init__(
        self,
        module: nn.Module,
        head: nn.Module,
        *,
        optimizer: dict[str, Any],
        operations: int,
        temperature: float,
        image_shape: ImageShape | None = None,
    ) -> None:
        super().__init__(module, head, optimizer=optimizer, operations=operations)
        self.temperature = temperature
        self.image_shape = image_shape

    def loss(self, rows: np.ndarray, stream: np.random.Generator) -> torch.Tensor:
        """NT-Xent of the projections of two random views of each row."""
        from securevfl.models.pretraining.contrast import nt_xent

        one, two = (tensor(view, np.float32) for view in two_views(rows, stream, self.image_shape))
        project = self.head
        return nt_xent(project(self.module(one)), project(self.module(two)), self.temperature)


def make_autoencoder(
    features: int,
    hidden: int,
    width: int,
    *,
    stream: np.random.Generator,
    optimizer: dict[str, Any],
    output: Activation = "relu",
    decoded: Activation = "sigmoid",
) -> AutoEncoder:
    """New auto-encoder with layer widths d - hidden - h - hidden - d.

    Parameters
    ----------
    features, hidden, width : int
        d, the hidden layer of encoder and decoder, and h.
    stream : numpy Generator
        Draws the initial weights; torch's global state is not touched.
    optimizer : dict
        Arguments of `securevfl.models.optimizers.make_optimizer`.
    output : Activation
        Activation of the code: "relu", "leaky_relu", "sigmoid" or "none".
    decoded : Activation
        Activation of the reconstruction: "sigmoid" for rows in [0, 1], "relu" for rows of at least
        0.

    Examples
    --------
    >>> from numpy.random import Generator, Philox
    >>> rows = np.random.Generator(Philox(1)).random((8, 6)).astype(np.float32)
    >>> learner = make_autoencoder(
    ...     6, 4, 3, stream=Generator(Philox(2)), optimizer={"name": "adam", "lr": 0.01}
    ... )
    >>> loss = learner.train(rows, Generator(Philox(3)))
    >>> learner.encode(rows).shape
    (8, 3)
    """
    module, head = initialised(
        lambda: (
            two_layers(features, hidden, width, output),
            two_layers(width, hidden, features, decoded),
        ),
        stream,
    )
    operations = hidden * (features + width)
    return AutoEncoder(module, head, optimizer=optimizer, operations=operations)


def make_contrastive(
    features: int,
    hidden: int,
    width: int,
    *,
    stream: np.random.Generator,
    optimizer: dict[str, Any],
    output: Activation = "relu",
    temperature: float = 0.5,
    image_shape: ImageShape | None = None,
) -> ContrastiveEncoder:
    """New encoder (widths d - hidden - h) with projector (h - h - h); see `make_autoencoder`."""
    module, head = initialised(
        lambda: (
            two_layers(features, hidden, width, output),
            two_layers(width, width, width, "none"),
        ),
        stream,
    )
    return ContrastiveEncoder(
        module,
        head,
        optimizer=optimizer,
        operations=hidden * (features + width),
        temperature=temperature,
        image_shape=image_shape,
    )
