"""Central networks of FedVS, appendix C, and their like. All return raw scores.

The paper ends its networks in LogSoftmax or Sigmoid; here these belong to the loss (cross entropy
and binary cross entropy on raw scores), which is the same function, computed more accurately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from securevfl.errors import UnknownNameError

if TYPE_CHECKING:
    from torch import nn


def mlp(width: int, hidden: int, outputs: int) -> nn.Module:
    """2 x Linear-ReLU, then Linear: Parkinson, the image and the multi-view sets."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


def batch_norm_mlp(width: int, hidden: int, outputs: int) -> nn.Module:
    """Linear-BatchNorm-Linear-ReLU-BatchNorm-WeightNorm-Linear: Credit Card."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(width, hidden),
        nn.BatchNorm1d(hidden),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.BatchNorm1d(hidden),
        nn.utils.parametrizations.weight_norm(nn.Linear(hidden, outputs)),
    )


def linear(width: int, hidden: int, outputs: int) -> nn.Module:
    """One Linear layer: logistic regression on the embedding; `hidden` is not used."""
    from torch import nn

    return nn.Linear(width, outputs)


CENTRES: dict[str, Callable[[int, int, int], nn.Module]] = {
    "mlp": mlp,
    "batch_norm_mlp": batch_norm_mlp,
    "linear": linear,
}


def make_centre(name: str, width: int, hidden: int, outputs: int, *, seed: int) -> nn.Module:
    """Central network by name, initialised from `seed` without touching torch's global state.

    Raises
    ------
    UnknownNameError
        When no centre has that name.
    """
    import torch

    if name not in CENTRES:
        raise UnknownNameError("central network", name, CENTRES)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CENTRES[name](width, hidden, outputs)
