"""Server networks of FedVS (section 3, appendix C) and similar ones; all return raw scores.

The paper ends its networks in LogSoftmax or Sigmoid; here these belong to the loss (cross entropy
and binary cross entropy on raw scores), which is the same function, computed more accurately.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np

from securevfl.errors import UnknownNameError
from securevfl.models.tensors import tensor
from securevfl.models.weights import initialised

if TYPE_CHECKING:
    import numpy as np
    from torch import nn


Activation = Literal["relu", "leaky_relu", "sigmoid", "none"]

SLOPE = 0.01  # of a leaky ReLU below 0 (DVFL, appendix D.1.1)


def two_layers(features: int, hidden: int, outputs: int, last: Activation) -> nn.Module:
    """Linear, leaky ReLU and Linear (features - hidden - outputs), then the activation `last`."""
    from torch import nn

    ends: dict[Activation, list[nn.Module]] = {
        "relu": [nn.ReLU()],
        "leaky_relu": [nn.LeakyReLU(SLOPE)],
        "sigmoid": [nn.Sigmoid()],
        "none": [],
    }
    inner = [nn.Linear(features, hidden), nn.LeakyReLU(SLOPE), nn.Linear(hidden, outputs)]
    return nn.Sequential(*inner, *ends[last])


def mlp(width: int, hidden: int, outputs: int) -> nn.Module:
    """2 x Linear-ReLU (width - hidden - hidden), then Linear: Parkinson, image, multi-view sets."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


def batch_norm_mlp(width: int, hidden: int, outputs: int) -> nn.Module:
    """Linear-BatchNorm-Linear-ReLU-BatchNorm-WeightNorm-Linear: FedVS's network for Credit Card."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(width, hidden),
        nn.BatchNorm1d(hidden),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.BatchNorm1d(hidden),
        nn.utils.parametrizations.weight_norm(nn.Linear(hidden, outputs)),
    )


def leaky_mlp(width: int, hidden: int, outputs: int) -> nn.Module:
    """`mlp` with leaky ReLUs: the label owner of DVFL (appendix D.1.1)."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(width, hidden),
        nn.LeakyReLU(SLOPE),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(SLOPE),
        nn.Linear(hidden, outputs),
    )


def host_mlp(width: int, hidden: int, outputs: int) -> nn.Module:
    """DVFL's host encoder and label owner network as one: the server model of its SplitNN.

    The encoder's output is as wide as the hidden layers of `leaky_mlp`, which follows it.
    """
    from torch import nn

    encoder = two_layers(width, (width + hidden) // 2, hidden, "leaky_relu")
    return nn.Sequential(encoder, leaky_mlp(hidden, hidden, outputs))


def linear(width: int, hidden: int, outputs: int) -> nn.Module:
    """One linear layer, width - outputs: logistic regression; `hidden` is ignored."""
    from torch import nn

    return nn.Linear(width, outputs)


def in_units(network: nn.Module, mean: float, spread: float) -> nn.Module:
    """The network with outputs mean + spread y: in units of targets of this mean and deviation.

    Both are buffers, ``target_mean`` and ``target_spread``: stored and exported, but not trained.
    """
    import torch
    from torch import nn

    class InUnits(nn.Module):
        target_mean: torch.Tensor
        target_spread: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.scaled = network
            self.register_buffer("target_mean", tensor(mean, np.float32))
            self.register_buffer("target_spread", tensor(spread, np.float32))

        def forward(self, embedding: torch.Tensor) -> torch.Tensor:
            scaled: torch.Tensor = self.scaled(embedding)
            return scaled * self.target_spread + self.target_mean

    return InUnits()


_VGG13 = (64, 128, 256, 512, 512)  # channels of each pair of convolutions


def square_side(width: int) -> int:
    """Side of the smallest square image that holds so many pixels, at least 1."""
    return math.isqrt(width - 1) + 1


def vgg13(width: int, hidden: int, outputs: int) -> nn.Module:
    """VGG13 with batch normalisation, from an embedding (width,) as a square image to `outputs`.

    Ten convolutions in five pairs, each pair followed by 2 x 2 max pooling (Simonyan and Zisserman,
    2014, configuration B), then the mean over the remaining image and one Linear layer. The paper
    does not say how an embedding enters: here its h entries, padded with zeros to the next square,
    are one channel, so h = 784 or 1024 gives images of the usual size. Pooling ends at one pixel.
    `hidden` is ignored.
    """
    from torch import nn

    side = square_side(width)
    layers: list[nn.Module] = [
        nn.ConstantPad1d((0, side * side - width), 0.0),
        nn.Unflatten(1, (1, side, side)),
    ]
    channels = 1
    for wanted in _VGG13:
        for _ in range(2):
            layers += [
                nn.Conv2d(channels, wanted, kernel_size=3, padding=1, bias=False),
                nn.BatchNorm2d(wanted),
                nn.ReLU(),
            ]
            channels = wanted
        if side > 1:
            layers.append(nn.MaxPool2d(2))
            side //= 2
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs)]
    return nn.Sequential(*layers)


_CONV = 16  # channels of `conv`


def conv(width: int, hidden: int, outputs: int) -> nn.Module:
    """Convolution (3 x 3, stride 2), ReLU, then two Linear layers: the label owners of Multi-VFL.

    The paper gives the layers and not their sizes. The embedding enters as in `vgg13`: its entries,
    padded with zeros to the next square, are one channel.
    """
    from torch import nn

    side = square_side(width)
    left = (side + 1) // 2
    return nn.Sequential(
        nn.ConstantPad1d((0, side * side - width), 0.0),
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, _CONV, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(_CONV * left * left, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


CENTRES: dict[str, Callable[[int, int, int], nn.Module]] = {
    "mlp": mlp,
    "batch_norm_mlp": batch_norm_mlp,
    "linear": linear,
    "leaky_mlp": leaky_mlp,
    "host_mlp": host_mlp,
    "vgg13": vgg13,
    "conv": conv,
}


def training_bytes(name: str, width: int, rows: int) -> int:
    """Bytes that a step of server model `name` needs, on (rows, width); 0 for all but VGG13.

    VGG13 stores the outputs of convolution, normalisation and ReLU of each layer for the backward
    pass, and 9.4 million weights with their gradients and an optimiser's two moments; other server
    models need very little.
    """
    if name != "vgg13":
        return 0
    side, values = square_side(width), 0
    for channels in _VGG13:
        values += 2 * 3 * channels * side * side
        side = max(side // 2, 1)
    return 4 * (rows * values + 4 * 9_400_000)


def make_centre(
    name: str, width: int, hidden: int, outputs: int, *, seed: int | np.random.Generator
) -> nn.Module:
    """Server model by name, from `width` inputs to `outputs`, with weights drawn from `seed`.

    torch's global generator is not touched. UnknownNameError if no server model has that name.
    """
    if name not in CENTRES:
        raise UnknownNameError("central network", name, CENTRES)
    return initialised(lambda: CENTRES[name](width, hidden, outputs), seed)
