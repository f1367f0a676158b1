"""States of FedVS's models, followed from their first weights: what formulas take for them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from securevfl.engine import wire
from securevfl.engine.party import SERVER
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.models.pretraining.trainer import Pretraining
from securevfl.models.split import rows_of
from securevfl.models.weights import load_weights, weights_of
from securevfl.protocols.base.messages import MessageKey, RunSecrets
from securevfl.protocols.base.succession import HELD, successor
from securevfl.protocols.fedvs.declaration import last_training_round
from securevfl.protocols.fedvs.messages import Batch


def network_at(protocol: Any, secrets: RunSecrets, key: MessageKey) -> PolynomialNetwork:
    """Network of a client when it shared its model, from its first weights and its gradients."""
    client, found = key.sender, secrets.state(key)["network"]
    state = successor(
        secrets.memory(f"network {client}"),
        key.round,
        found,
        lambda: first_network(protocol, secrets, client).state_dict(),
        functools.partial(_stepped, protocol, secrets, client),
        punctual=last_training_round(protocol.public) is not None,
    )
    return _network(protocol, client, state)


def _network(protocol: Any, client: int, state: Any = None) -> PolynomialNetwork:
    made: PolynomialNetwork = protocol.network(client, bound=protocol.config.weight_bound)
    if state is not None:
        made.load_state_dict(state)
    return made


def first_network(protocol: Any, secrets: RunSecrets, client: int) -> PolynomialNetwork:
    """Network of a client before the first round, after its pre-training if there is one."""
    network = _network(protocol, client)
    own = pretrained(protocol, secrets, client)
    if own is not None:
        load_weights(network, weights_of(own.encoder))
    return network


def pretrained(protocol: Any, secrets: RunSecrets, client: int) -> Pretraining | None:
    """A client's pre-training, done again with its secret choices; None for none."""
    own: Pretraining | None = protocol.pretraining(client)
    if own is not None:
        labels = secrets.sent("labels", 0)[SERVER, client] if own.supervised else None
        rows = secrets.data(client)["train"]
        own.run(rows, functools.partial(protocol.secret_stream, client), labels)
    return own


def _stepped(protocol: Any, secrets: RunSecrets, client: int, round: int, state: Any) -> Any:
    """State of a client's network after the gradient of a round, if it got one and stepped."""
    gradient = secrets.sent("gradient", round).get((SERVER, client))
    if gradient is None:
        return state
    attempt = secrets.sent("attempt", round)[SERVER, client]
    if client not in attempt.sharers:
        return state
    batch: Batch = secrets.sent("round", round)[SERVER, client]
    samples = protocol.public.batches["train"].samples(batch.rows)
    network = _network(protocol, client, state)
    own = rows_of(secrets.data(client)["train"], samples)
    network.update(own, gradient / np.float32(len(attempt.sharers)))
    return network.state_dict()


def centre_at(protocol: Any, secrets: RunSecrets, opened: MessageKey) -> Any:
    """Server model when it opened a round: as its last step left it, or its first weights.

    `centre_after` is told of each step.
    """
    memory = secrets.memory("centre")
    earlier = [round for round in memory if round < opened.round]
    if not earlier:
        return _first_centre(protocol, secrets)
    return wire.decode(memory[max(earlier)])


def centre_after(secrets: RunSecrets, round: int, centre: Any) -> None:
    """Remember the server model after the step of a round.

    The states before it are kept for a while: the same step may be asked for again.
    """
    memory = secrets.memory("centre")
    memory[round] = wire.encode(centre.state_dict())
    for old in sorted(memory)[:-HELD]:
        del memory[old]


def _first_centre(protocol: Any, secrets: RunSecrets) -> Any:
    centre = protocol.centre()
    if protocol.config.pretrain == "full":
        head = secrets.sent("head", 0)[0, SERVER]
        first = next(name for name, weight in head.items() if weight.ndim > 1)
        load_weights(centre, head | {first: len(protocol.peers()) * head[first]})
    return centre.state_dict()


def head(protocol: Any, secrets: RunSecrets, key: MessageKey) -> dict[str, np.ndarray]:
    """Theta^0 of client 0: its pre-training, done again."""
    own = pretrained(protocol, secrets, key.sender)
    return {} if own is None else weights_of(own.means)
