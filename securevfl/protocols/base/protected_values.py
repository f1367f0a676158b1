"""Functions of protected values that several methods need: weights of models, and means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.models.weights import load_weights, weights_of
from securevfl.verified import Model, Secret

Shapes = Mapping[str, tuple[int, ...]]  # of weights by name: these are public


def weight(model: Any, name: str) -> np.ndarray:
    """Array of a model's weights with this name."""
    found: np.ndarray = weights_of(model)[name]
    return found


def loaded(model: Any, names: Sequence[str], *weights: np.ndarray) -> None:
    """Put weights, in the order of their names, into a model; its optimiser state stays."""
    load_weights(model, dict(zip(names, weights, strict=True)))


def weights_in(model: Model, shapes: Shapes) -> dict[str, Secret]:
    """Weights of a protected model by name, with the given shapes."""
    return {name: model.call(weight, name, shape=shape) for name, shape in shapes.items()}


def mean(*losses: np.ndarray) -> np.ndarray:
    """Mean of losses, float64; `mean_of` applies it to protected values."""
    return np.array(np.mean([float(loss) for loss in losses]))


def mean_of(losses: Sequence[Secret]) -> Secret:
    """Mean of losses that are protected values."""
    found: Secret = losses[0].map(mean, *losses[1:], shape=(), dtype=np.float64)
    return found
