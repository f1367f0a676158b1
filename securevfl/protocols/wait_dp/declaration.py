"""Declaration of Wait-DP: its three messages, the noise of two of them, and their formulas.

What the protocol's options fix has an exact formula, by which the audit computes the message. What
gets noise has a `GaussianNoise`: the release without noise, and the epsilon that is paid for it.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.models.aggregation import gather
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import (
    GaussianNoise,
    MessageKey,
    MessageSpec,
    RandomisedLabels,
    RunSecrets,
)


def messages_of(
    protocol: EmbeddingProtocol, *, embedding_noise: GaussianNoise, gradient_noise: GaussianNoise
) -> tuple[MessageSpec, ...]:
    """An embedding and its gradient a round; noise is declared where it must be.

    Parameters
    ----------
    protocol : EmbeddingProtocol
        Wait-DP in a configuration.
    embedding_noise, gradient_noise : GaussianNoise
        Declared where the option noise_on asks for them.
    """
    config = protocol.config
    opening, embedding, gradient = protocol.step_messages()
    if config.noise_on in ("embeddings", "both"):
        embedding = replace(embedding, noise=embedding_noise)
    else:
        embedding = replace(embedding, recompute=protocol.embedding_at)
    if config.noise_on in ("gradients", "both"):
        gradient = replace(gradient, noise=gradient_noise)
    elif not config.own_centre:  # which may draw at random, as dropout does
        gradient = replace(gradient, recompute=functools.partial(exact_part, protocol))

    def in_run(key: MessageKey) -> int:
        """One in every round, and none beyond the last."""
        return int(1 <= key.round <= config.rounds)

    return (
        replace(opening, recompute=functools.partial(announced_at, protocol)),
        replace(embedding, count=in_run),
        replace(gradient, count=in_run),
    )


def embedding_noise(protocol: Any) -> GaussianNoise:
    """Noise of embeddings: one release for each client, of the rows that were announced."""
    config = protocol.config
    return GaussianNoise(
        *("features", config.epsilon, config.delta, config.clip, "clip"),
        rows=functools.partial(announced_samples, protocol),
        exact=protocol.embedding_at,
        releases=protocol.limit,
    )


def gradient_noise(protocol: Any) -> GaussianNoise:
    """Noise of dL/dH: one release for all clients, who get their parts of it."""
    config = protocol.config
    return GaussianNoise(
        *("labels", config.epsilon, config.delta, config.gradient_clip, "gradient_clip"),
        rows=functools.partial(announced_samples, protocol),
        exact=functools.partial(joint_gradient, protocol),
        releases=protocol.limit,
        mean_loss=True,
        joint=True,
        whole=functools.partial(released_gradient, protocol),
        part=functools.partial(part_of, protocol),
    )


def randomised_labels(protocol: EmbeddingProtocol) -> RandomisedLabels | None:
    """The server's labels, where label_epsilon is set."""
    if protocol.config.label_epsilon is None:
        return None
    return RandomisedLabels(
        protocol.config.label_epsilon,
        protocol.data.num_classes if protocol.data.task == "multiclass" else 2,
        "server",
        true=lambda secrets: secrets.data(SERVER)["train"],
        used=lambda secrets, key: secrets.state(key)["labels"],
    )


def announced_at(protocol: Any, secrets: RunSecrets, key: MessageKey) -> Any:
    """The round's batch, or the end after the last step or before an epsilon is exceeded."""
    config, steps = protocol.config, secrets.state(key)["steps"]
    next_ = -(-(steps + 1) // protocol.layout.per_epoch)  # releases of a row, if it goes on
    spends = config.noise_on != "none" and next_ > protocol.limit
    over = steps >= config.rounds or spends
    return "stop" if over else protocol.layout.draw(key.round)


def announced_samples(
    protocol: EmbeddingProtocol, secrets: RunSecrets, key: MessageKey
) -> np.ndarray:
    """Training rows of the batch that was announced in the round of a message."""
    client = key.receiver if key.sender == SERVER else key.sender
    return protocol.layout.samples(secrets.sent(ANNOUNCE, key.round)[SERVER, client])


def joint_gradient(protocol: EmbeddingProtocol, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """dL/dH by the server's model, the labels that it kept and the embeddings that it got."""
    state = secrets.state(MessageKey(ANNOUNCE, key.round, SERVER, key.receiver))
    centre = protocol.joint_centre()
    centre.load_state_dict(state["centre"])
    joint = protocol.aggregation.combine(*received(protocol, secrets, key))
    labels = secrets.data(SERVER)["train"]
    if protocol.config.label_epsilon is not None:
        labels = state["labels"]
    return centre.step(joint, announced_samples(protocol, secrets, key), labels)[1]


def received(
    protocol: EmbeddingProtocol, secrets: RunSecrets, key: MessageKey
) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of a round as the server got them, (N, rows, h), and who was there."""
    sent = secrets.sent("embedding", key.round)
    return gather({n: payload for (n, _), payload in sent.items()}, protocol.data.parties)


def exact_part(protocol: EmbeddingProtocol, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """A client's part of dL/dH without noise."""
    return part_of(protocol, secrets, key, joint_gradient(protocol, secrets, key))


def part_of(
    protocol: EmbeddingProtocol, secrets: RunSecrets, key: MessageKey, joint: np.ndarray
) -> np.ndarray:
    """A client's part of a dL/dH."""
    return protocol.aggregation.gradient(joint, *received(protocol, secrets, key), key.receiver)


def released_gradient(
    protocol: EmbeddingProtocol, secrets: RunSecrets, key: MessageKey
) -> np.ndarray:
    """dL/dH as it was released, from the parts that were sent."""
    sent = secrets.sent("gradient", key.round)
    parts = [sent[SERVER, n] for n in protocol.peers()]
    if protocol.config.aggregation == "concat":
        return np.concatenate(parts, axis=1)
    first: np.ndarray = parts[0] * np.float32(len(parts))
    return first
