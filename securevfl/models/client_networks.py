"""Networks of clients: polynomial, multilayer perceptron, convolutional (FedVS, Table 1).

All have the interface of `ClientNetwork`, so any method in which the server receives single
embeddings can use each. The paper does not describe the last two further; widths, kernels and
initialisation are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from securevfl.errors import ConfigurationError
from securevfl.models.networks import Activation, two_layers
from securevfl.models.optimizers import make_optimizer, take_step
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.models.tabular import tabular_front
from securevfl.models.tensors import place, tensor
from securevfl.models.user_code import check_rows_apart, own_network
from securevfl.models.weights import initialised

if TYPE_CHECKING:
    import torch
    from torch import nn

Kind = Literal["pn", "mlp", "encoder", "leaky_encoder", "cnn", "strided_cnn"]
ImageShape = tuple[int, int, int]

CHANNELS = 16  # of every convolution


class ClientNetwork(Protocol):
    """Interface of a bottom model (a client's network)."""

    bound: float | None

    @property
    def operations(self) -> int:
        """Multiply-adds of `forward` for each row."""

    def forward(self, features: np.ndarray) -> np.ndarray:
        """Embedding of real rows, (rows, d) to (rows, h) float32."""

    def update(self, features: np.ndarray, gradient: np.ndarray) -> int:
        """One training step with dL/dH, (rows, h) float32; return the number of clipped weights."""

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimiser state."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore weights and optimiser state from `state_dict`."""


class TorchNetwork:
    """A torch module as a bottom model (a client's network).

    Parameters
    ----------
    module : nn.Module
        Module from (rows, d) to (rows, h); rows must not influence each other.
    operations : int
        Multiply-adds of a forward pass per row.
    optimizer : dict
        Arguments of `securevfl.models.optimizers.make_optimizer`.
    bound : float or None
        Bound to which every weight is clipped after each update; None for no clipping.
    device : str
        Name of the device that computes the module (`securevfl.models.tensors.place`).
    """

    def __init__(
        self,
        module: nn.Module,
        operations: int,
        *,
        optimizer: dict[str, Any],
        bound: float | None = None,
        device: str = "cpu",
    ) -> None:
        place(module, device)
        self.module = module
        self.operations = operations
        self.bound = bound
        self.optimizer: torch.optim.Optimizer = make_optimizer(
            list(module.parameters()), **optimizer
        )

    def forward(self, features: np.ndarray) -> np.ndarray:
        """Embedding of real rows, (rows, h) float32."""
        import torch

        with torch.no_grad():
            embedding: np.ndarray = self.module(tensor(features, np.float32)).numpy()
        return embedding

    def update(self, features: np.ndarray, gradient: np.ndarray) -> int:
        """One optimiser step with dL/dH; return the number of clipped weights.

        Parameters
        ----------
        features : ndarray, (rows, d), float32
            Columns of the rows.
        gradient : ndarray, (rows, h), float32
            dL/dH of this client.
        """

        self.optimizer.zero_grad()
        embedding = self.module(tensor(features, np.float32))
        embedding.backward(tensor(gradient, np.float32))
        take_step(self.optimizer)
        return 0 if self.bound is None else _clip(self.module, self.bound)

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimiser state."""
        return {
            "module": dict(self.module.state_dict()),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore weights and optimiser state from `state_dict`."""
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])


def _clip(module: nn.Module, bound: float) -> int:
    import torch

    beyond = 0
    with torch.no_grad():
        for weight in module.parameters():
            beyond += int((weight.abs() > bound).sum())
            weight.clamp_(-bound, bound)
    return beyond


def mlp(features: int, widths: Sequence[int]) -> tuple[nn.Module, int]:
    """Linear layers of these widths with ReLU between, and their multiply-adds for a row."""
    from torch import nn

    layers: list[nn.Module] = [nn.Linear(features, widths[0])]
    operations = features * widths[0]
    for before, width in itertools.pairwise(widths):
        layers += [nn.ReLU(), nn.Linear(before, width)]
        operations += before * width
    return nn.Sequential(*layers), operations


def cnn(shape: ImageShape, width: int, depth: int) -> tuple[nn.Module, int]:
    """D convolutions (3 x 3, 16 channels, padded) with ReLU, then Linear; multiply-adds of a row.

    Parameters
    ----------
    width, depth : int
        Width h of the embedding, and number D of convolutions.
    shape : (channels, height, width)
        The client's strip of the image. It keeps its size, since strips can be one pixel high.
    """
    from torch import nn

    channels, pixels = shape[0], shape[1] * shape[2]
    layers: list[nn.Module] = [nn.Unflatten(1, shape)]
    operations = 0
    for _ in range(depth):
        layers += [nn.Conv2d(channels, CHANNELS, kernel_size=3, padding=1), nn.ReLU()]
        operations += pixels * 9 * channels * CHANNELS
        channels = CHANNELS
    layers += [nn.Flatten(), nn.Linear(channels * pixels, width)]
    return nn.Sequential(*layers), operations + channels * pixels * width


def strided_cnn(shape: ImageShape, width: int, depth: int) -> tuple[nn.Module, int]:
    """D = `depth` convolutions of stride 2 with ReLU, then Linear; and multiply-adds of a row.

    The first is 5 x 5 with 16 channels, the others are 3 x 3 and double the channels. It is for
    studies of many epochs on one core: at 28 x 7 pixels it costs a third of `cnn`.
    """
    from torch import nn

    channels, height, breadth = shape
    layers: list[nn.Module] = [nn.Unflatten(1, shape)]
    operations, wanted = 0, CHANNELS
    for layer in range(depth):
        side = 3 if layer else 5
        height, breadth = (height + 1) // 2, (breadth + 1) // 2
        layers.append(nn.Conv2d(channels, wanted, side, stride=2, padding=side // 2))
        layers.append(nn.ReLU())
        operations += height * breadth * side * side * channels * wanted
        channels, wanted = wanted, 2 * wanted
    flat = channels * height * breadth
    layers += [nn.Flatten(), nn.Linear(flat, width)]
    return nn.Sequential(*layers), operations + flat * width


def encoder(features: int, width: int, last: Activation) -> tuple[nn.Module, int]:
    """A guest's encoder of DVFL (appendix D.1), two Linear layers; and multiply-adds of a row.

    The width of the hidden layer is the mean of `features` and `width`; `last` is the activation
    of the output.
    """
    hidden = (features + width + 1) // 2
    return two_layers(features, hidden, width, last), hidden * (features + width)


_LAYERS = 2  # of an encoder
_LAST: dict[str, Activation] = {"encoder": "relu", "leaky_encoder": "leaky_relu"}
_CONVOLUTIONS = {"cnn": cnn, "strided_cnn": strided_cnn}


def make_client_network(
    kind: Kind,
    features: int,
    width: int,
    depth: int,
    *,
    image_shape: ImageShape | None,
    stream: np.random.Generator,
    optimizer: dict[str, Any],
    bound: float | None = None,
    cardinalities: Sequence[int] = (),
    embedding: int = 8,
    layers: Sequence[int] = (),
    own: str = "",
    device: str = "cpu",
) -> ClientNetwork:
    """New network of a client.

    Parameters
    ----------
    kind : {"pn", "mlp", "encoder", "leaky_encoder", "cnn", "strided_cnn"}
        Architecture; "pn" is the polynomial network.
    features, width, depth : int
        Number d of columns, width h of an embedding, and depth D.
    image_shape : (channels, height, width) or None
        Shape of the client's strip of an image; required by convolutional networks.
    stream : numpy Generator
        Source of the initial weights; torch's global state is not touched.
    optimizer : dict
        Arguments of `securevfl.models.optimizers.make_optimizer`.
    bound : float or None
        Bound to which every weight is clipped after each update; None for no clipping.
    cardinalities : sequence of int
        Number of category codes of each column, 0 for numeric columns; empty if all are numeric.
    embedding : int
        Width of the embedding that "mlp" looks up for each column of category codes.
    layers : sequence of int
        Widths of the hidden layers of "mlp"; replaces `depth`.
    own : str
        Name of the user's network (`securevfl.models.user_code`); replaces `kind`.
    device : str
        Name of the device for computing (`securevfl.models.tensors.place`); "pn" always uses the
        CPU.

    Raises
    ------
    ConfigurationError
        If a convolutional network has no image, category codes or `layers` are used with a kind
        other than "mlp", an encoder has another depth than 2, or `own` names no usable network.
    """
    options: dict[str, Any] = {"optimizer": optimizer, "bound": bound, "device": device}
    if own:
        made = own_network(own, "own_client", features, width, stream)
        check_rows_apart(made, f"own_client = {own!r}", features)
        weights = sum(p.numel() for p in made.parameters())  # what Linear layers multiply
        return TorchNetwork(made, weights, **options)
    if layers and kind != "mlp":
        raise ConfigurationError(
            f"client = {kind!r} has no hidden layers of chosen widths; use client = 'mlp', or "
            "leave layers out"
        )
    coded = sum(count > 0 for count in cardinalities)
    if coded and kind != "mlp":
        refuse_codes(kind, coded)
    if kind == "pn":
        return PolynomialNetwork(
            features, width, depth, stream=stream, optimizer=optimizer, bound=bound
        )
    if kind == "mlp":
        tables = cardinalities if coded else ()
        widths = (*layers, width) if layers else (width,) * depth
        module, operations = initialised(lambda: _mlp(features, widths, tables, embedding), stream)
        return TorchNetwork(module, operations, **options)
    if kind in _LAST:
        if depth != _LAYERS:
            raise ConfigurationError(
                f"client = {kind!r} has two layers, as in DVFL, and degree = {depth} has no use; "
                "leave degree out"
            )
        last = _LAST[kind]
        module, operations = initialised(lambda: encoder(features, width, last), stream)
        return TorchNetwork(module, operations, **options)
    if image_shape is None:
        raise ConfigurationError(
            f"client = {kind!r} needs image data whose parties own whole strips of pixel rows or "
            "columns; use 'mlp' or 'pn' for other columns"
        )
    shape = image_shape
    build = _CONVOLUTIONS[kind]
    module, operations = initialised(lambda: build(shape, width, depth), stream)
    return TorchNetwork(module, operations, **options)


def refuse_codes(kind: str, coded: int) -> None:
    """Raise ConfigurationError: network `kind` takes codes of `coded` columns for magnitudes."""
    raise ConfigurationError(
        f"client = {kind!r} takes numbers for sizes, and {coded} columns of a party hold "
        "category codes; load the data with coding='onehot' (--set data.coding=onehot), or "
        "use client = 'mlp' where the protocol has it"
    )


def _mlp(
    features: int, widths: Sequence[int], cardinalities: Sequence[int], embedding: int
) -> tuple[nn.Module, int]:
    """(network of `mlp` after embedding tables for category codes, multiply-adds of a row)."""
    from torch import nn

    if not cardinalities:
        return mlp(features, widths)
    front, inner = tabular_front(cardinalities, embedding)
    module, operations = mlp(inner, widths)
    return nn.Sequential(front, module), operations
