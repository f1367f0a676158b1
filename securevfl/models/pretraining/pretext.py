"""Self-supervised training steps over bottom models: SCARF, SimSiam, BYOL and MoCo.

An objective contains what its method adds to the network: heads, a moving-average copy, a queue of
negatives. Its interface to the network is that of a server in split training: it takes embeddings
of two views and returns dL/dH. So every network for split training can be used. The formulas are in
`securevfl.models.pretraining.self_supervised`, FedHSSL's part in
`securevfl.models.pretraining.cross_party`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from securevfl.errors import DivergedError, UnknownNameError
from securevfl.models.optimizers import make_optimizer, take_step
from securevfl.models.pretraining.contrast import info_nce
from securevfl.models.pretraining.self_supervised import (
    KeyQueue,
    corrupt,
    momentum_contrast,
    moving_average,
    negative_cosine,
    normalised_distance,
)
from securevfl.models.tensors import tensor
from securevfl.models.weights import initialised

if TYPE_CHECKING:
    from torch import Tensor, nn

    from securevfl.models.client_networks import ClientNetwork


@dataclass(frozen=True)
class Sizes:
    """Sizes and constants of an objective.

    Attributes
    ----------
    projection, predictor : int
        Width of the projection head, and of the predictor's hidden layer.
    temperature : float
        tau of SCARF and MoCo.
    memory : int
        Number of keys in MoCo's queue.
    momentum : float
        m of the moving averages of BYOL and MoCo.
    """

    projection: int = 64
    predictor: int = 32
    temperature: float = 1.0
    memory: int = 4096
    momentum: float = 0.999


class Objective(ABC):
    """A self-supervised method's heads and training step on a bottom model (client's network).

    Parameters
    ----------
    width : int
        Width of the network's embedding.
    sizes : Sizes
        Sizes and constants of the heads.
    stream : numpy Generator
        Draws the heads' weights; torch's global state is not touched.
    optimizer : dict
        Arguments of `make_optimizer` for the heads.
    target : ClientNetwork, optional
        A network with the same weights as the one that is trained, for BYOL and MoCo.
    """

    def __init__(
        self,
        width: int,
        sizes: Sizes,
        *,
        stream: np.random.Generator,
        optimizer: dict[str, Any],
        target: ClientNetwork | None = None,
    ) -> None:
        from torch import nn

        self.sizes = sizes
        self.target = target
        self.heads = initialised(lambda: nn.ModuleDict(self.build(width)), stream)
        self.optimizer = make_optimizer(list(self.heads.parameters()), **optimizer)

    @abstractmethod
    def build(self, width: int) -> dict[str, nn.Module]:
        """New heads by name, "projector" among them."""

    @abstractmethod
    def views(
        self, rows: np.ndarray, pool: np.ndarray, rate: float, stream: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Two random views of rows; a fraction `rate` of values is replaced by ones from `pool`."""

    @abstractmethod
    def loss(self, one: Tensor, two: Tensor, views: tuple[np.ndarray, np.ndarray]) -> Tensor:
        """Loss L, a scalar, of two views' embeddings, (B, h); `views` are the rows behind them."""

    def step(self, network: ClientNetwork, one: np.ndarray, two: np.ndarray) -> float:
        """One update of the network and heads on two views, (B, d); return the loss L before it.

        DivergedError when the loss is not finite.
        """
        rows = len(one)
        return learn(
            network,
            self.optimizer,
            np.concatenate([one, two]),
            lambda both: self.loss(both[:rows], both[rows:], (one, two)),
        )

    def state_dict(self) -> dict[str, Any]:
        """State of heads, optimiser and, for some methods, the slow copy of the network."""
        state = {"heads": dict(self.heads.state_dict()), "optimizer": self.optimizer.state_dict()}
        return state if self.target is None else state | {"target": self.target.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self.heads.load_state_dict(state["heads"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.target is not None:
            self.target.load_state_dict(state["target"])


def learn(
    network: ClientNetwork, optimizer: Any, rows: np.ndarray, loss: Callable[[Tensor], Tensor]
) -> float:
    """One update of a network, and of the heads in `optimizer`, by a loss on embeddings.

    Returns the loss before the update. DivergedError when it is not finite.
    """
    import torch

    embedding = tensor(network.forward(rows), np.float32).requires_grad_()
    value = loss(embedding)
    if not torch.isfinite(value):
        raise DivergedError(f"the loss of pre-training became {value.item()}; lower pretrain_lr")
    optimizer.zero_grad()
    value.backward()  # type: ignore[no-untyped-call]
    take_step(optimizer)
    assert embedding.grad is not None
    network.update(rows, embedding.grad.numpy())
    return float(value.detach())


def projector(width: int, hidden: int) -> nn.Module:
    """Three Linear layers with batch normalisation, ReLU between them (SimSiam, section 3)."""
    from torch import nn

    return nn.Sequential(
        *_normalised(width, hidden), nn.ReLU(), *_normalised(hidden, hidden), nn.ReLU(),
        *_normalised(hidden, hidden),
    )  # fmt: skip


def predictor(width: int, hidden: int) -> nn.Module:
    """Linear, batch normalisation, ReLU, Linear: a bottleneck (SimSiam, section 3)."""
    from torch import nn

    return nn.Sequential(*_normalised(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


def _normalised(width: int, wanted: int) -> tuple[nn.Module, nn.Module]:
    """Linear layer and batch normalisation by the batch's own moments."""
    from torch import nn

    return (
        nn.Linear(width, wanted, bias=False),
        nn.BatchNorm1d(wanted, track_running_stats=False),
    )


def two_heads(width: int, sizes: Sizes, *, predicts: bool) -> dict[str, nn.Module]:
    """Heads on embeddings (width): `projector`, and if `predicts` a `predictor` of its output."""
    heads = {"projector": projector(width, sizes.projection)}
    if predicts:
        heads["predictor"] = predictor(sizes.projection, sizes.predictor)
    return heads


class Scarf(Objective):
    """SCARF's objective: InfoNCE between rows and their corrupted views."""

    def build(self, width: int) -> dict[str, nn.Module]:
        """Projection head of two Linear layers, by the name "projector"."""
        from torch import nn

        wide = self.sizes.projection
        head = nn.Sequential(nn.Linear(width, wide), nn.ReLU(), nn.Linear(wide, wide))
        return {"projector": head}

    def views(
        self, rows: np.ndarray, pool: np.ndarray, rate: float, stream: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """(the rows (B, d), a view with a share `rate` of cells from `pool`), by `corrupt`."""
        return rows, corrupt(rows, pool, rate, stream)

    def loss(self, one: Tensor, two: Tensor, views: tuple[np.ndarray, np.ndarray]) -> Tensor:
        """InfoNCE loss, a scalar, of the projections of both views' embeddings, each (B, h)."""
        head = self.heads["projector"]
        return info_nce(head(one), head(two), self.sizes.temperature)


class TwoViews(Objective):
    """SimSiam, BYOL and MoCo: each view's query is compared with the other view's key.

    L = (C(q1, k2) + C(q2, k1)) / 2, plus, with guides, gamma (C(q1, g1) + C(q2, g2)) / 2 (FedHSSL:
    g is the cross-party network's output for the same view).

    Attributes
    ----------
    predicts : bool
        Whether a query is a prediction of the projection, or the projection itself.
    guide : callable or None
        Function that returns the guide of a view.
    guidance : float
        Weight gamma of the guides.
    """

    predicts: ClassVar[bool] = True
    guide: Callable[[np.ndarray], Tensor] | None = None
    guidance: float = 0.0

    def build(self, width: int) -> dict[str, nn.Module]:
        """Heads "projector" and, where queries are predictions, "predictor"."""
        return two_heads(width, self.sizes, predicts=self.predicts)

    def views(
        self, rows: np.ndarray, pool: np.ndarray, rate: float, stream: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Two views of the rows, each with a share `rate` of cells replaced by cells of `pool`."""
        return corrupt(rows, pool, rate, stream), corrupt(rows, pool, rate, stream)

    def loss(self, one: Tensor, two: Tensor, views: tuple[np.ndarray, np.ndarray]) -> Tensor:
        """Mean of C(q1, k2) and C(q2, k1), plus the guide's term if any; stores the keys."""
        projected = [self.heads["projector"](view) for view in (one, two)]
        queries = [self.query(z) for z in projected]
        keys = [self.key(z, view) for z, view in zip(projected, views, strict=True)]
        loss = (self.compare(queries[0], keys[1], 0) + self.compare(queries[1], keys[0], 1)) / 2
        if self.guide is not None and self.guidance:
            guided = [
                self.compare(query, self.guide(view), side)
                for side, (query, view) in enumerate(zip(queries, views, strict=True))
            ]
            loss = loss + self.guidance * (guided[0] + guided[1]) / 2
        self.seen(keys)
        return loss

    def query(self, projected: Tensor) -> Tensor:
        """Query q: the prediction of a projection, or the projection itself, (B, d)."""
        query: Tensor = self.heads["predictor"](projected) if self.predicts else projected
        return query

    @abstractmethod
    def key(self, projected: Tensor, view: np.ndarray) -> Tensor:
        """Key k with which the other view's query is compared, (B, d), without gradient."""

    @abstractmethod
    def compare(self, query: Tensor, key: Tensor, side: int) -> Tensor:
        """Comparison C(query, key), a mean over (B, d) rows; `side` 0 or 1 is the query's view.

        It only reads a memory of keys; `seen` writes it.
        """

    def seen(self, keys: Sequence[Tensor]) -> None:
        """Register the keys of both views; only methods with a memory of keys do so."""


class SimSiam(TwoViews):
    """Negative cosine of predictions and projections; the stopped gradient prevents collapse."""

    def key(self, projected: Tensor, view: np.ndarray) -> Tensor:
        """Key of a view: its projection, without gradient."""
        return projected.detach()

    def compare(self, query: Tensor, key: Tensor, side: int) -> Tensor:
        """Negative cosine similarity of query and key, (B, d), a mean; `side` is not used."""
        return negative_cosine(query, key)


class _Slow(TwoViews):
    """Base of BYOL and MoCo: keys come from slowly moving copies of network and projector."""

    def __init__(self, width: int, sizes: Sizes, **options: Any) -> None:
        import copy

        super().__init__(width, sizes, **options)
        self.slow = copy.deepcopy(self.heads["projector"])

    def key(self, projected: Tensor, view: np.ndarray) -> Tensor:
        """Key of a view: projection by the slow copies of network and projector, no gradient."""
        import torch

        assert self.target is not None
        with torch.no_grad():
            key: Tensor = self.slow(tensor(self.target.forward(view)))
        return key

    def step(self, network: ClientNetwork, one: np.ndarray, two: np.ndarray) -> float:
        """One update by two views (B, d) as in all objectives, then one of the slow copies."""
        value = super().step(network, one, two)
        moving_average(self.target, network, self.sizes.momentum)
        moving_average(self.slow, self.heads["projector"], self.sizes.momentum)
        return value

    def state_dict(self) -> dict[str, Any]:
        """State of the objective and the slow projector."""
        return super().state_dict() | {"slow": dict(self.slow.state_dict())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        super().load_state_dict(state)
        self.slow.load_state_dict(state["slow"])


class Byol(_Slow):
    """Distance of predictions to the slow copy's projections."""

    def compare(self, query: Tensor, key: Tensor, side: int) -> Tensor:
        """Normalised distance of query and key, (B, d), a mean; `side` is not used."""
        return normalised_distance(query, key)


class Moco(_Slow):
    """Contrast with the slow copy's keys of earlier batches, one memory for each direction."""

    predicts = False

    def __init__(self, width: int, sizes: Sizes, **options: Any) -> None:
        super().__init__(width, sizes, **options)
        stream = options["stream"]
        self.memories = [KeyQueue(sizes.memory, sizes.projection, stream) for _ in range(2)]

    def compare(self, query: Tensor, key: Tensor, side: int) -> Tensor:
        """`momentum_contrast` of query and key, with the memory of keys of this direction."""
        memory = self.memories[side].keys.clone()  # it changes before the backward pass
        return momentum_contrast(query, key, memory, self.sizes.temperature)

    def seen(self, keys: Sequence[Tensor]) -> None:
        """Store the keys with which each direction's queries were compared."""
        for memory, key in zip(self.memories, reversed(keys), strict=True):
            memory.push(key)

    def state_dict(self) -> dict[str, Any]:
        """State of the base class, with the memories of keys."""
        kept = {
            str(side): {"keys": memory.keys.clone(), "next": memory.next}
            for side, memory in enumerate(self.memories)
        }
        return super().state_dict() | {"memories": kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        super().load_state_dict(state)
        for side, memory in enumerate(self.memories):
            kept = state["memories"][str(side)]
            memory.keys.copy_(kept["keys"])
            memory.next = int(kept["next"])


_OBJECTIVES: dict[str, type[Objective]] = {
    "scarf": Scarf,
    "simsiam": SimSiam,
    "byol": Byol,
    "moco": Moco,
}


def make_objective(
    method: str,
    width: int,
    sizes: Sizes,
    *,
    make_target: Callable[[], ClientNetwork],
    stream: np.random.Generator,
    optimizer: dict[str, Any],
) -> Objective:
    """Self-supervised objective by its name.

    Parameters
    ----------
    method : {"scarf", "simsiam", "byol", "moco"}
        Name of the method.
    width, sizes, stream, optimizer
        Arguments of `Objective`.
    make_target : callable
        Function that returns a copy of the network that will be trained.

    Raises
    ------
    UnknownNameError
        When no method has that name.
    """
    if method not in _OBJECTIVES:
        raise UnknownNameError("self-supervised method", method, _OBJECTIVES)
    target = make_target() if method in ("byol", "moco") else None
    made = _OBJECTIVES[method]
    return made(width, sizes, stream=stream, optimizer=optimizer, target=target)
