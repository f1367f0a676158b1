"""Cross-party parts of FedHSSL: an objective on other parties' views, and shared layers.

Y. He, Y. Kang, X. Zhao, J. Luo, L. Fan, Y. Han, Q. Yang, "A Hybrid Self-Supervised Learning
Framework for Vertical Federated Learning", 2022. A party has two encoders. The cross-party encoder
learns, on aligned rows, to agree with other parties' representations of the same samples. The local
encoder learns on all rows of the party from two views of each, guided by the cross-party encoder;
its layers above the first are averaged over the parties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.models.optimizers import make_optimizer
from securevfl.models.pretraining.contrast import nt_xent
from securevfl.models.pretraining.pretext import Objective, Sizes, learn, two_heads
from securevfl.models.pretraining.self_supervised import negative_cosine
from securevfl.models.tensors import tensor
from securevfl.models.weights import initialised, load_weights, parameters_of, weights_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from securevfl.models.client_networks import ClientNetwork, TorchNetwork


class Pair:
    """Two networks side by side as one `ClientNetwork`: H = [cross(X) | local(X)].

    Parameters
    ----------
    cross, local : ClientNetwork
        Networks on the same columns.
    """

    def __init__(self, cross: ClientNetwork, local: ClientNetwork) -> None:
        self.cross = cross
        self.local = local
        self.bound = cross.bound

    @property
    def operations(self) -> int:
        """Multiply-adds of `forward` for each row."""
        return self.cross.operations + self.local.operations

    def forward(self, features: np.ndarray) -> np.ndarray:
        """Embedding of real rows, (rows, 2 h) float32."""
        return np.concatenate([self.cross.forward(features), self.local.forward(features)], axis=1)

    def update(self, features: np.ndarray, gradient: np.ndarray) -> int:
        """One step of each network with its half of dL/dH; return the number of clipped weights."""
        half = gradient.shape[1] // 2
        own, other = np.ascontiguousarray(gradient[:, :half]), gradient[:, half:]
        return self.cross.update(features, own) + self.local.update(
            features, np.ascontiguousarray(other)
        )

    def adopt(self, other: Pair) -> None:
        """Copy the weights of another pair; the optimisers keep their state."""
        load_weights(self.cross, weights_of(other.cross))
        load_weights(self.local, weights_of(other.local))

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimiser states of both networks."""
        return {"cross": self.cross.state_dict(), "local": self.local.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore both networks from `state_dict`."""
        self.cross.load_state_dict(state["cross"])
        self.local.load_state_dict(state["local"])


class Cross:
    """Cross-party objective: compares a party's projection with those sent by others.

    SimSiam and BYOL: the mean over senders of the negative cosine similarity of prediction and
    received projection. MoCo: the mean of NT-Xent.

    Parameters
    ----------
    method : {"simsiam", "byol", "moco"}
        Loss of the objective.
    width, sizes, stream, optimizer
        Arguments of `securevfl.models.pretraining.pretext.Objective`.
    """

    def __init__(
        self,
        method: str,
        width: int,
        sizes: Sizes,
        *,
        stream: np.random.Generator,
        optimizer: dict[str, Any],
    ) -> None:
        from torch import nn

        self.temperature = sizes.temperature
        self.contrast = method == "moco"
        self.heads = initialised(
            lambda: nn.ModuleDict(two_heads(width, sizes, predicts=not self.contrast)), stream
        )
        self.optimizer = make_optimizer(list(self.heads.parameters()), **optimizer)

    def project(self, network: ClientNetwork, rows: np.ndarray) -> Tensor:
        """Projections z of rows, (B, projection), without gradient."""
        import torch

        with torch.no_grad():
            embedding = tensor(network.forward(rows), np.float32)
            projected: Tensor = self.heads["projector"](embedding)
        return projected

    def step(
        self, network: ClientNetwork, rows: np.ndarray, received: Sequence[np.ndarray]
    ) -> float:
        """Update network and heads by own rows (B, d) and what others sent; the loss before it."""
        import torch

        others = [tensor(z, np.float32) for z in received]

        def loss(embedding: Tensor) -> Tensor:
            projected = self.heads["projector"](embedding)
            if self.contrast:
                terms = [nt_xent(projected, z, self.temperature) for z in others]
            else:
                predicted = self.heads["predictor"](projected)
                terms = [negative_cosine(predicted, z) for z in others]
            return torch.stack(terms).mean()

        return learn(network, self.optimizer, rows, loss)

    def state_dict(self) -> dict[str, Any]:
        """State of the heads and their optimiser."""
        return {"heads": dict(self.heads.state_dict()), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore heads and optimiser from `state_dict`."""
        self.heads.load_state_dict(state["heads"])
        self.optimizer.load_state_dict(state["optimizer"])


# -- partial aggregation -----------------------------------------------------------------------


def upper_names(module: nn.Module) -> list[str]:
    """Names of the weights above a module's first Linear layer, equal in shape at all parties.

    Embedding tables and the first Linear layer depend on the party's own columns.
    """
    from torch import nn

    # The first Linear layer is as wide as the party's columns; what is above it has the same shape
    # at all parties and can be averaged.
    first = next(name for name, part in module.named_modules() if isinstance(part, nn.Linear))
    names = [name for name, _ in module.named_parameters()]
    own = [place for place, name in enumerate(names) if name.startswith(f"{first}.")]
    return names[own[-1] + 1 :]


def shared_weights(network: TorchNetwork, objective: Objective) -> dict[str, np.ndarray]:
    """Weights for partial aggregation: upper layers of the local encoder, and its heads.

    Layers are numbered from the first one, because parties with category codes have embedding
    tables before it.
    """
    parameters, names = weights_of(network), upper_names(network.module)
    upper = {f"encoder/{place}": parameters[name] for place, name in enumerate(names)}
    return upper | {f"heads/{n}": w for n, w in weights_of(objective.heads).items()}


def load_shared(
    network: TorchNetwork, objective: Objective, weights: Mapping[str, np.ndarray]
) -> None:
    """Put averaged weights of `shared_weights` into network and objective; all others stay."""
    import torch

    parameters, names = parameters_of(network), upper_names(network.module)
    own = {f"encoder/{place}": parameters[name] for place, name in enumerate(names)}
    own |= {f"heads/{name}": p for name, p in parameters_of(objective.heads).items()}
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(tensor(value))


def weighted_mean(
    weights: Sequence[Mapping[str, np.ndarray]], counts: Sequence[int]
) -> dict[str, np.ndarray]:
    """Mean of weights of equal shapes, weighted by the parties' row counts, float32."""
    parts = np.asarray(counts, np.float64) / sum(counts)
    return {
        name: sum(part * w[name] for part, w in zip(parts, weights, strict=True)).astype(np.float32)
        for name in weights[0]
    }
