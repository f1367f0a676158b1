"""Pre-training of clients on their own rows, before round 1, with protected values.

FedVS, VFLHLP and others begin so. A client that learns from labels is one organisation with the
server, which sends it all labels of its rows; it sends the head back that it learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.pretraining.trainer import Pretraining
from securevfl.models.weights import load_weights, weights_of
from securevfl.protocols.base.messages import MessageSpec, in_setup
from securevfl.verified import Model, Participant, Secret, Streams, World

#: Messages within the organisation of client 0 and the server.
WITHIN: Mapping[str, str] = {"labels": "real", "head": "real"}


def pretrain(
    own: Pretraining, streams: Streams, features: np.ndarray, names: list[str], *labels: np.ndarray
) -> tuple[Any, ...]:
    """Pre-train on all own rows; return the named figures of `Pretraining.run`."""
    told = own.run(features, streams, *labels)
    return tuple(told[name] for name in names)


def take_over(network: ClientNetwork, own: Pretraining) -> None:
    """Put the weights of the pre-trained encoder into a network."""
    load_weights(network, weights_of(own.encoder))


def weights_in(own: Pretraining, part: str) -> tuple[np.ndarray, ...]:
    """Trained weights of the encoder or head."""
    return tuple(weights_of(own.encoder if part == "encoder" else own.means).values())


def joined(labels: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Labels of aligned rows, followed by those of rows that only client 0 has."""
    return np.concatenate([labels, more])


def all_labels(labels: Secret, more: Secret | None) -> Secret:
    """Labels of all rows of client 0, aligned ones first, (M + m,), m the number of others."""
    if more is None:
        return labels
    found: Secret = labels.map(joined, more, shape=(labels.shape[0] + more.shape[0],))
    return found


def learnt(
    own: Model, streams: Model, features: Secret, names: Sequence[str], *labels: Secret
) -> dict[str, Secret]:
    """Pre-train the model `own`; return its figures called `names`, such as the last loss."""
    kinds = [np.int64 if name == "epochs" else np.float64 for name in names]
    shapes = [()] * len(kinds)
    told = own.step(pretrain, streams, features, list(names), *labels, shapes=shapes, of=kinds)
    return dict(zip(names, told, strict=True))


def weights_learnt(own: Model, part: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, Secret]:
    """Weights of the trained encoder or head by name, with the given `shapes`."""
    found = own.call(weights_in, part, shapes=list(shapes.values()))
    return dict(zip(shapes, found, strict=True))


class Beginning:
    """Pre-training of a client on all its rows, before the first round."""

    def __init__(self, client: Participant, own: Pretraining) -> None:
        self.client, self.own = client, client.own_model("pretraining", own)
        self.names, self.alone = own.told, 0 if own.alone is None else len(own.alone)
        self.supervised = own.supervised
        self.shapes = shapes_of(own)

    async def make(self, features: Secret, **said: Any) -> None:
        """Pre-train, record an event with `said` and the figures, and send a head to the server.

        Labels are received before, and a head is sent after, if the client learns from labels.
        """
        client = self.client
        labels = [await client.receive("labels", sender=SERVER)] if self.supervised else []
        rows = [one.shape[0] for one in labels] or [features.shape[0] + self.alone]
        told = learnt(self.own, client.streams, features, self.names, *labels)
        client.record("pretrained", **said, rows=rows[0], **told)
        if self.supervised:
            client.send(SERVER, "head", self.weights("head"))

    def weights(self, part: str) -> dict[str, Secret]:
        """Weights of the encoder, or of the head, by name."""
        return weights_learnt(self.own, part, self.shapes[part])


def shapes_of(own: Pretraining) -> dict[str, dict[str, tuple[int, ...]]]:
    """Shapes of the weights of an encoder, and of a head that learns labels."""
    parts = {"encoder": own.encoder} | ({"head": own.means} if own.supervised else {})
    return {
        part: {name: weight.shape for name, weight in weights_of(one).items()}
        for part, one in parts.items()
    }


def tell(world: World, client: int, names: Sequence[str], *labels: Secret) -> Model:
    """Ideal pre-training of a client: declares its figures as outputs to all; returns the model."""
    own: Model = world.the(client, "pretraining")
    streams = world.the(client, "streams")
    for name, value in learnt(own, streams, world.the(client, "columns"), names, *labels).items():
        world.output(f"{name} of pre-training of party {client}", value, alone=True)
    return own


def pretraining_messages(source: str = "ours", head: str = "") -> tuple[MessageSpec, ...]:
    """Declarations of "labels", to client 0, and "head", back to the server: one organisation."""
    return (
        MessageSpec("labels", "server", "active", "labels", count=in_setup, source=source),
        MessageSpec("head", "active", "server", "weights", count=in_setup, source=head or source),
    )
