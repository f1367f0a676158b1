"""Other secrets of honest parties, for the second run of a proof that compares views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.shared_models import SharedModels

Remake = Callable[[Mapping[int, np.ndarray], "np.ndarray | None"], SharedModels]


def exchanged(protocol: SharedModels, honest: Sequence[int], seed: int) -> Other:
    """Honest owners' columns, exchanged at random among them all, with the weights of each."""
    parties: Mapping[int, Any] = protocol.parties()
    stream = np.random.Generator(np.random.Philox(seed))
    widths = [next(iter(parties[n].features.values())).shape[1] for n in honest]
    order = stream.permutation(sum(widths))
    turned = np.roll(stream.permutation(len(honest)), 1)  # whose weights of the column of ones
    cuts = np.cumsum(widths)[:-1]
    data = {
        part: np.split(_side_by_side(parties, honest, part)[:, order], cuts, axis=1)
        for part in parties[honest[0]].features
    }
    weights = [parties[n].weights for n in honest]
    powers = [w[:-1].reshape(-1, d, w.shape[1]) for w, d in zip(weights, widths, strict=True)]
    moved = np.split(np.concatenate(powers, axis=1)[:, order], cuts, axis=1)
    given = {}
    for place, n in enumerate(honest):
        flat = moved[place].reshape(-1, moved[place].shape[2])
        own = np.concatenate([flat, weights[turned[place]][-1:]])
        given[n] = ({part: np.ascontiguousarray(x[place]) for part, x in data.items()}, own)
    return Other(given)


def _side_by_side(parties: Mapping[int, Any], owners: Sequence[int], part: str) -> np.ndarray:
    return np.concatenate([parties[n].features[part] for n in owners], axis=1)


def replaced(protocol: SharedModels, honest: Sequence[int], seed: int) -> Other:
    """Random columns and weights of honest owners, and other labels at the server."""
    parties: Mapping[int, Any] = protocol.parties()
    stream = np.random.Generator(np.random.Philox(seed))
    given = {}
    for n in honest:
        own, weights = parties[n].features, parties[n].weights
        high = max(float(np.abs(x).max()) for x in own.values()) or 1.0
        data = {part: (high * stream.random(x.shape)).astype(x.dtype) for part, x in own.items()}
        given[n] = data, (0.2 * stream.uniform(-1, 1, weights.shape)).astype(weights.dtype)
    labels = {part: other_labels(y, stream) for part, y in parties[SERVER].labels.items()}
    return Other(given, labels)


def other_labels(labels: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Labels of the same kind: other ones, in other numbers of each class."""
    if labels.dtype.kind == "f":
        turned = (labels.min() + labels.max() - labels) * stream.uniform(0.5, 0.9)
        return stream.permutation(turned).astype(labels.dtype)
    classes = np.unique(labels)
    shares = stream.dirichlet(np.ones(len(classes)))
    drawn: np.ndarray = stream.choice(classes, len(labels), p=shares).astype(labels.dtype)
    return drawn


@dataclass(frozen=True)
class Other:
    """Other secrets of honest parties.

    Attributes
    ----------
    owners : mapping
        Prepared columns by part, and weights, of each owner that has others.
    labels : mapping or None
        Labels by part, where they are others.
    """

    owners: Mapping[int, tuple[Mapping[str, np.ndarray], np.ndarray]]
    labels: Mapping[str, np.ndarray] | None = None

    def __call__(self, parties: Mapping[int, Any]) -> None:
        """Give them to those of the parties that have others."""
        for n, (features, weights) in self.owners.items():
            if n in parties:
                parties[n].features, parties[n].weights = features, weights
        if self.labels is not None and SERVER in parties:
            parties[SERVER].labels = self.labels

    def remade(self, make: Remake) -> SharedModels:
        """The protocol on data that has them from the beginning, so that every party is made so."""
        columns = {n: features["train"] for n, (features, _) in self.owners.items()}
        return make(columns, None if self.labels is None else self.labels["train"])
