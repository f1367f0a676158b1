"""Declaration of CVFL: one line for each kind of message, and the formula of each.

The data and the networks of all parties determine every message. The audit computes them, and
compares byte by byte. A formula uses what the sender has, and messages that were sent to it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from typing import Protocol as Interface

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.split import Batches, Centre
from securevfl.models.stale import LastEmbeddings
from securevfl.models.weights import load_weights, penalty, weights_of
from securevfl.protocols.base.messages import (
    Formula,
    MessageKey,
    MessageSpec,
    RunSecrets,
    announcement,
    last_word,
    with_formulas,
)
from securevfl.protocols.cvfl.parameters import CvflConfig
from securevfl.protocols.cvfl.slow_parties import amplified, gradient_factor, is_slow, pace_of


class Method(Interface):
    """The attributes of the protocol that the declaration reads."""

    config: CvflConfig
    aggregation: Aggregation

    @property
    def label_sets(self) -> Sequence[np.ndarray]:
        """G_l: rows whose labels each active party has."""

    def peers(self) -> range:
        """Numbers of the M parties."""

    def client_network(self, index: int) -> ClientNetwork:
        """New bottom model of a party."""

    def top(self) -> Centre:
        """New top model."""

    def batches_of(self, active: int) -> Batches:
        """Batches of an active party."""


def messages_of(protocol: Method) -> tuple[MessageSpec, ...]:
    """Every message of a run; in step, top models and the end come with the announcement."""
    config, in_step = protocol.config, protocol.config.mode == "sync"
    has_passive = len(protocol.label_sets) < len(protocol.peers())
    may_be_slow = config.q != 1 and config.slow != "none"

    def batch_of(active: int) -> tuple[int, int]:
        return min(config.batch, len(protocol.label_sets[active])), int(config.width)

    norms = MessageSpec(
        "penalty", "client", "active", "weights", source="Algorithm 1, line 9: r(theta_m)"
    )
    top = MessageSpec("top", "server", "active", "weights", source="Algorithm 3, line 4: w_0")
    end = last_word("passive" if in_step else "client")
    declared = (
        *[announcement("active", carries="weights", source="Algorithm 3, line 4: w_0")] * in_step,
        MessageSpec("request", "active", "client", "control", source="Algorithm 1, line 6"),
        MessageSpec(
            *("embedding", "client", "active", "embedding"),
            shape=lambda key: batch_of(key.receiver),
            dtype="float32",
            row_by_row=True,
            source="Algorithm 1, line 7: h_m",
        ),
        *[norms] * may_be_slow,
        MessageSpec(
            *("gradient", "active", "client", "gradient"),
            shape=lambda key: batch_of(key.sender),
            dtype="float32",
            row_by_row=True,
            source="Algorithm 1, line 12: dF_l/dh_m",
        ),
        MessageSpec(
            *("top_gradient", "active", "server", "weights"),
            source="Algorithm 1, line 14: dF_l/dw_0, and the loss",
        ),
        *[top] * (not in_step),
        *[end] * (has_passive or not in_step),
    )
    return with_formulas(declared, formulas_of(protocol))


def formulas_of(protocol: Method) -> dict[str, Formula]:
    """Formula of each kind of message."""
    formulas: dict[str, Any] = {
        ANNOUNCE: announced_top,
        "request": request,
        "embedding": embedding,
        "penalty": penalty_of_the_sender,
        "top": top_with_pace,
        "stop": nothing,
    }
    if protocol.config.patience is None:  # else it is chance which embeddings a launch has
        formulas |= {"gradient": gradient, "top_gradient": top_gradient}
    return {kind: functools.partial(formula, protocol) for kind, formula in formulas.items()}


def nothing(protocol: Method, secrets: RunSecrets, key: MessageKey) -> None:
    """Content of the end: none."""


def announced_top(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Any:
    """In step: w_0 as the collaborator has it, or the end."""
    collaborator = secrets.state(key)
    if collaborator["steps"] >= protocol.config.rounds:
        return "stop"
    return top_weights(protocol, collaborator["centre"])


def top_with_pace(protocol: Method, secrets: RunSecrets, key: MessageKey) -> tuple[Any, float]:
    """w_0 after the receiver's update, and the receiver's pace."""
    collaborator = secrets.state(key)
    pace = pace_of(collaborator["updates"], key.receiver)
    return top_weights(protocol, collaborator["centre"]), pace


def request(protocol: Method, secrets: RunSecrets, key: MessageKey) -> tuple[np.ndarray, bool]:
    """Rows of the launch, and whether the active party is slow."""
    pace = float(secrets.state(key)["pace"])
    rows = rows_of_launch(protocol, key.sender, key.round)[1]
    return rows, is_slow(protocol.config, pace, key.sender)


def embedding(
    protocol: Method, secrets: RunSecrets, key: MessageKey
) -> tuple[np.ndarray, np.ndarray]:
    """h_m of the rows that were asked for."""
    rows, _ = secrets.sent("request", key.round)[key.receiver, key.sender]
    features = secrets.data(key.sender)["train"][rows]
    return rows, bottom_at(protocol, secrets, key, key.sender).forward(features)


def penalty_of_the_sender(protocol: Method, secrets: RunSecrets, key: MessageKey) -> float:
    """r(theta_m)."""
    return penalty(bottom_at(protocol, secrets, key, key.sender))


@dataclass(frozen=True)
class Launch:
    """Everything that an active party computes in one launch.

    Attributes
    ----------
    rows : ndarray of int, (|B|,)
        Rows of the batch.
    h, present : ndarray
        Embeddings of all parties, and which of them there are, as `Aggregation` takes them.
    loss, factor : float
        Of the batch; the factor of equation 3.
    dh : ndarray
        dF_l/dh, of the aggregated embedding.
    dw : dict of str to ndarray
        dF_l/dw_0.
    """

    rows: np.ndarray
    h: np.ndarray
    present: np.ndarray
    loss: float
    factor: float
    dh: np.ndarray
    dw: dict[str, np.ndarray]


def gradient(
    protocol: Method, secrets: RunSecrets, key: MessageKey
) -> tuple[np.ndarray, np.ndarray]:
    """dF_l/dh_m of the receiver, with the rows of the batch."""
    launch = launch_at(protocol, secrets, key.sender, key.round)
    part = protocol.aggregation.gradient(launch.dh, launch.h, launch.present, key.receiver)
    return launch.rows, part


def top_gradient(protocol: Method, secrets: RunSecrets, key: MessageKey) -> tuple[Any, ...]:
    """Loss, dF_l/dw_0, the factor of equation 3, and how many embeddings there were."""
    launch = launch_at(protocol, secrets, key.sender, key.round)
    counts = {"factor": launch.factor, "fresh": len(protocol.peers()), "known": 1.0}
    return launch.loss, launch.dw, counts


def launch_at(protocol: Method, secrets: RunSecrets, active: int, round: int) -> Launch:
    """Recomputed launch of an active party (Algorithm 1, lines 6 to 14).

    From the embeddings that it was sent, and its networks when it asked for them. Every other
    party's embedding must have come.
    """
    others = [m for m in protocol.peers() if m != active]
    request_key = MessageKey("request", round, active, others[0])
    state = secrets.state(request_key)
    places, rows = rows_of_launch(protocol, active, round)
    own = bottom_at(protocol, secrets, request_key, active)
    embeddings = {active: own.forward(secrets.data(active)["train"][rows])}
    sent = secrets.sent("embedding", round)
    embeddings |= {m: sent[m, active][1] for m in others}
    no_stale = LastEmbeddings(len(protocol.peers()), 0, protocol.config.width)
    h, present = no_stale.complete(embeddings, places)
    top = protocol.top()
    if protocol.config.mode == "sync":
        load_weights(top, secrets.sent(ANNOUNCE, round)[SERVER, active])
    else:
        load_weights(top, top_weights(protocol, state["top"]))
    labels = secrets.data(SERVER)["train"][protocol.label_sets[active]]
    loss, dh, dw = top.gradients(protocol.aggregation.combine(h, present), places, labels)
    factor = 1.0
    if secrets.sent("request", round)[active, others[0]][1]:
        penalties = {active: penalty(own)}
        penalties |= {m: secrets.sent("penalty", round)[m, active] for m in others}
        factor = gradient_factor(protocol.config, float(state["pace"]), loss, penalties)
    dh, dw = amplified(factor, dh, dw)
    return Launch(rows, h, present, loss, factor, dh, dw)


def rows_of_launch(protocol: Method, active: int, round: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of a launch's batch among an active party's labels, and the rows themselves."""
    batches = protocol.batches_of(active)
    places = batches.samples(batches.draw(round))
    return places, protocol.label_sets[active][places]


def bottom_at(protocol: Method, secrets: RunSecrets, key: MessageKey, party: int) -> ClientNetwork:
    """Bottom model of a party as it was when it sent the message `key`."""
    network = protocol.client_network(party)
    network.load_state_dict(secrets.state(key)["network"])
    return network


def top_weights(protocol: Method, state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Weights of the top model in a saved state."""
    top = protocol.top()
    top.load_state_dict(dict(state))
    return weights_of(top)
