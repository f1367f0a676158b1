"""Server optimisers: rules that combine the weights that several parties trained.

Multi-VFL (Mugunthan, Goyal, Kagal), Algorithm 1, `ServerAggregation`, with t the mean over the
parties of what their training changed. FedDemonAdam is as printed there, except that each round's
b1 is computed from its first value (J. Chen et al., "Demon", 2019), not from that of the round
before. FedAdam and FedYogi are those of S. Reddi et al., "Adaptive federated optimization", 2020,
Algorithm 2, whose v is of ``t^2`` where line 6 prints ``m^2``. The bias correction, which Reddi et
al. leave out, is that of D. Kingma and J. Ba, "Adam", 2015; the paper's mixes rounds and exponents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.errors import UnknownNameError

Weights = Mapping[str, np.ndarray]


def average(weights: Sequence[Weights]) -> dict[str, np.ndarray]:
    """Entry-wise mean of weights of equal shapes, float32; a single set stays as it is."""
    first = weights[0]
    if len(weights) == 1:
        return {name: np.array(value) for name, value in first.items()}
    return {
        name: np.mean([w[name] for w in weights], axis=0, dtype=np.float64).astype(value.dtype)
        for name, value in first.items()
    }


class ServerOptimizer(ABC):
    """Rule by which a server computes the next weights from those that several parties trained."""

    @abstractmethod
    def aggregate(self, weights: Weights, received: Sequence[Weights]) -> dict[str, np.ndarray]:
        """Weights of the next round, from the present and the received ones.

        Parameters
        ----------
        weights : mapping of str to ndarray of float32
            Weights W of all parties at the beginning of the round.
        received : sequence of such mappings
            Weights of each party at the end of the round.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""


class FedAvg(ServerOptimizer):
    """Mean of the parties' weights (McMahan et al., 2017), computed without W + t's rounding."""

    def aggregate(self, weights: Weights, received: Sequence[Weights]) -> dict[str, np.ndarray]:
        """Mean of `received`."""
        return average(received)

    def state_dict(self) -> dict[str, Any]:
        """Empty: this rule has no state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: this rule has no state."""


class Adaptive(ServerOptimizer):
    """Adaptive step with moments m, v of the update t: ``W + lr m' / (sqrt(v') + tau)``, float64.

    t is the mean of the received weights less W. ``v' = v / (1 - b2^r)`` in round r = 1, 2, ...;
    each rule defines m'. Both moments start at 0.

    Parameters
    ----------
    lr : float
        Learning rate eta_s, positive.
    beta1, beta2 : float
        Decay rates of the moments, in [0, 1).
    tau : float
        Bound on the adaptivity, positive.
    rounds : int
        Number R of rounds, which Demon's decay needs.
    """

    def __init__(self, *, lr: float, beta1: float, beta2: float, tau: float, rounds: int) -> None:
        self.lr = lr
        self.beta1 = beta1
        self.beta2 = beta2
        self.tau = tau
        self.rounds = rounds
        self.taken = 0  # rounds so far
        self.m: dict[str, np.ndarray] = {}
        self.v: dict[str, np.ndarray] = {}

    def aggregate(self, weights: Weights, received: Sequence[Weights]) -> dict[str, np.ndarray]:
        """Weights after one step of the rule from W."""
        mean = average(received)
        self.taken += 1
        return {name: self._step(name, value, mean[name]) for name, value in weights.items()}

    def _step(self, name: str, weight: np.ndarray, trained: np.ndarray) -> np.ndarray:
        # The parties' mean step is a gradient in disguise: -t takes its place in Adam's rules
        # (Reddi et al., "Adaptive federated optimization", 2021, algorithm 2).
        t = trained.astype(np.float64) - weight
        m = self.m.get(name, np.zeros_like(t))
        v = self.v.get(name, np.zeros_like(t))
        m = self.first_moment(m, t)
        v = self.second_moment(v, t, m)
        self.m[name], self.v[name] = m, v
        spread = np.sqrt(v / (1 - self.beta2**self.taken)) + self.tau
        stepped: np.ndarray = weight + self.lr * self.unbiased(m) / spread
        return stepped.astype(weight.dtype)

    def first_moment(self, m: np.ndarray, t: np.ndarray) -> np.ndarray:
        """New first moment m from the last one and the update t: ``b1 m + (1 - b1) t``."""
        return self.beta1 * m + (1 - self.beta1) * t

    def unbiased(self, m: np.ndarray) -> np.ndarray:
        """Bias-corrected first moment ``m / (1 - b1^r)``."""
        corrected: np.ndarray = m / (1 - self.beta1**self.taken)
        return corrected

    @abstractmethod
    def second_moment(self, v: np.ndarray, t: np.ndarray, m: np.ndarray) -> np.ndarray:
        """New second moment v, from the last one, the update t, and the new m."""

    def state_dict(self) -> dict[str, Any]:
        """Moments and the number of rounds taken."""
        return {"taken": self.taken, "m": dict(self.m), "v": dict(self.v)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self.taken = state["taken"]
        self.m, self.v = dict(state["m"]), dict(state["v"])


class FedAdam(Adaptive):
    """Second moment ``v = b2 v + (1 - b2) t^2``: torch's Adam with gradient -t and eps = tau."""

    def second_moment(self, v: np.ndarray, t: np.ndarray, m: np.ndarray) -> np.ndarray:
        """New second moment v: decaying mean of t^2."""
        return self.beta2 * v + (1 - self.beta2) * t**2


class FedYogi(Adaptive):
    """Moment ``v = v - (1 - b2) t^2 sign(v - t^2)``: the change of v is bounded, up or down."""

    def second_moment(self, v: np.ndarray, t: np.ndarray, m: np.ndarray) -> np.ndarray:
        """New second moment v: a step of size (1 - b2) t^2 from v towards t^2."""
        moved: np.ndarray = v - (1 - self.beta2) * t**2 * np.sign(v - t**2)
        return moved


class FedDemonAdamT2(FedAdam):
    """FedAdam with ``m = b1_r m + t``, ``b1_r = b1 (1 - r/R) / ((1 - b1) + b1 (1 - r/R))``.

    r counts from 0, so that the first momentum is b1 and the last close to 0 (Chen et al., 2019).
    Line 7 of `ServerAggregation` divides m by ``1 - b1_r^r``, its r from 1, which Chen et al. do
    not. m sums the t without a factor 1 - b1, so the first steps are 1 / (1 - b1) times as long as
    FedAdam's.
    """

    def first_moment(self, m: np.ndarray, t: np.ndarray) -> np.ndarray:
        """New first moment m: ``b1_r m + t``, b1_r the decayed b1 of the round."""
        moved: np.ndarray = self._decayed() * m + t
        return moved

    def unbiased(self, m: np.ndarray) -> np.ndarray:
        """Bias-corrected first moment ``m / (1 - b1_r^r)``."""
        corrected: np.ndarray = m / (1 - self._decayed() ** self.taken)
        return corrected

    def _decayed(self) -> float:
        """Decay rate b1_r of the present round."""
        left = 1 - min(self.taken - 1, self.rounds) / self.rounds
        return self.beta1 * left / ((1 - self.beta1) + self.beta1 * left)


class FedDemonAdam(FedDemonAdamT2):
    """Demon's m, and ``v = b2 v + (1 - b2) m^2``: line 6 of `ServerAggregation` as printed."""

    def second_moment(self, v: np.ndarray, t: np.ndarray, m: np.ndarray) -> np.ndarray:
        """New second moment v: decaying mean of m^2."""
        return super().second_moment(v, m, m)


SERVER_OPTIMIZERS: dict[str, type[Adaptive] | type[FedAvg]] = {
    "fedavg": FedAvg,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "feddemonadam": FedDemonAdam,
    "feddemonadam_t2": FedDemonAdamT2,
}


def make_server_optimizer(
    name: str,
    *,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    rounds: int = 1,
) -> ServerOptimizer:
    """Server optimiser by its name; defaults from Multi-VFL, Table 2, parameters of `Adaptive`.

    Raises
    ------
    UnknownNameError
        When none has that name.

    Examples
    --------
    >>> rule = make_server_optimizer("fedavg")
    >>> rule.aggregate({"w": np.zeros(2)}, [{"w": np.ones(2)}, {"w": np.full(2, 3.0)}])
    {'w': array([2., 2.])}
    """
    if name not in SERVER_OPTIMIZERS:
        raise UnknownNameError("server optimiser", name, SERVER_OPTIMIZERS)
    rule = SERVER_OPTIMIZERS[name]
    if issubclass(rule, FedAvg):
        return rule()
    return rule(lr=lr, beta1=beta1, beta2=beta2, tau=tau, rounds=rounds)
