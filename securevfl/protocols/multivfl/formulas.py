"""Formulas of Multi-VFL's messages: the content of each, computed from all secrets of a run.

A label owner's top model is no part of its state between two global rounds, so it is trained again
from the weights that the server announced and the activations that the label owner was sent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from typing import Protocol as Interface

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.models.aggregation import Aggregation
from securevfl.models.server_optimizers import ServerOptimizer
from securevfl.models.split import Centre
from securevfl.models.weights import load_weights, weights_of
from securevfl.protocols.base.messages import Formula, MessageKey, RunSecrets
from securevfl.protocols.base.split_step import gathered, split_step


class Method(Interface):
    """The attributes of the protocol that formulas read."""

    config: Any
    aggregation: Aggregation

    @property
    def owners(self) -> range:
        """Numbers of the label owners."""

    def peers(self) -> range:
        """Numbers of the data owners."""

    def held_rows(self, owner: int) -> np.ndarray:
        """Training rows of a label owner's samples, in the order that all know."""

    def requested(self, owner: int, number: int) -> tuple[int, np.ndarray]:
        """Global round and places of a label owner's request."""

    def last_request(self, owner: int, round: int) -> int:
        """Number of the last request of a label owner in a global round."""

    def exact_activations(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """Activations by the data owner's copy for the label owner."""

    def centre_maker(self) -> Callable[[], Centre]:
        """Factory of new top models."""

    def joint_centre(self) -> Centre:
        """New top model of the server, with its first weights."""

    def server_optimizer(self) -> ServerOptimizer:
        """New server optimiser."""


def formulas_of(protocol: Method) -> dict[str, Formula]:
    """Formula of each kind of message of Algorithm 1."""
    made: dict[str, Any] = {
        ANNOUNCE: announced_weights,
        "request": request,
        "embedding": activations,
        "gradient": gradient,
        "weights": trained_weights,
    }
    return {kind: functools.partial(formula, protocol) for kind, formula in made.items()}


def announced_weights(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Any:
    """The server's first weights, or those that it makes of the label owners'; then the end."""
    if secrets.state(key)["steps"] >= protocol.config.rounds:
        return "stop"

    def aggregated() -> dict[str, np.ndarray]:
        if key.round == 1:
            return weights_of(protocol.joint_centre())
        before = MessageKey(ANNOUNCE, key.round - 1, SERVER, key.receiver)
        optimizer = protocol.server_optimizer()
        optimizer.load_state_dict(secrets.state(before)["optimizer"])
        weights = secrets.sent(ANNOUNCE, before.round)[SERVER, key.receiver]
        sent = secrets.sent("weights", before.round)
        return optimizer.aggregate(weights, [sent[k, SERVER][1] for k in protocol.owners])

    return secrets.once(key, "weights", aggregated)


def request(protocol: Method, secrets: RunSecrets, key: MessageKey) -> tuple[int, np.ndarray]:
    """The global round, and the batch's places among the label owner's samples."""
    return protocol.requested(key.sender, key.round)


def activations(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Any:
    """A_{d,k} of the batch, which it names (lines 4 and 5)."""
    places = protocol.requested(key.receiver, key.round)[1]
    return (key.receiver, places), protocol.exact_activations(secrets, key)


def gradient(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Any:
    """dA_{d,k} of the batch, which it names (line 8)."""
    round, places = protocol.requested(key.sender, key.round)
    model = _top_model(protocol, secrets, key.sender, round)
    return (key.sender, places), model.gradients(secrets, key.round)[key.receiver]


def trained_weights(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Any:
    """The mean loss of the round, and the top model's weights after it (lines 9 and 10)."""
    model = _top_model(protocol, secrets, key.sender, key.round)
    model.gradients(secrets, protocol.last_request(key.sender, key.round))
    return float(np.mean(model.losses)), weights_of(model.centre)


class TopModel:
    """A label owner's top model in one global round, trained again step by step.

    Parameters
    ----------
    protocol : Method
    owner : int
        Number of the label owner.
    weights : mapping
        With which the round begins.
    first : int
        Number of the first request of the round.
    """

    def __init__(self, protocol: Method, owner: int, weights: Any, first: int) -> None:
        self.protocol, self.owner, self.next = protocol, owner, first
        self.centre = protocol.centre_maker()()
        load_weights(self.centre, weights)
        self.losses: list[float] = []
        self._gradients: dict[int, Any] = {}

    def gradients(self, secrets: RunSecrets, number: int) -> Any:
        """The gradient of each data owner of a request; all steps up to it are made."""
        # A local optimiser has moments: a step can be repeated only after all steps before it.
        while self.next <= number:
            self._gradients[self.next] = self._step(secrets, self.next)
            self.next += 1
        return self._gradients[number]

    def _step(self, secrets: RunSecrets, number: int) -> Any:
        """Lines 3 to 7 with the activations that were sent."""
        protocol, sent = self.protocol, secrets.sent("embedding", number)
        places = protocol.requested(self.owner, number)[1]
        labels = secrets.data(SERVER)["train"][protocol.held_rows(self.owner)]
        received = {d: sent[d, self.owner][1] for d in protocol.peers()}
        joint = gathered(protocol.aggregation, received, len(protocol.peers()))
        step = split_step(self.centre, joint, places, labels)
        self.losses.append(step.loss)
        return step.gradients


def _top_model(protocol: Method, secrets: RunSecrets, owner: int, round: int) -> TopModel:
    """The label owner's model of a global round, made once; it forgets with the announcement."""
    opened = MessageKey(ANNOUNCE, round, SERVER, owner)

    def made() -> TopModel:
        weights = secrets.sent(ANNOUNCE, round)[SERVER, owner]
        return TopModel(protocol, owner, weights, protocol.last_request(owner, round - 1) + 1)

    return secrets.once(opened, f"top model of {owner}", made)
