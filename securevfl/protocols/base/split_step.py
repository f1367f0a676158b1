"""One step of split training at the party with the labels and the server model.

The step joins the clients' embeddings (`JointEmbedding`), updates the server model, and computes
the clients' gradients. Methods differ in the rule that joins embeddings, and in the clients that
get a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from securevfl.models.aggregation import Aggregation, gather
from securevfl.models.split import Centre


@dataclass(frozen=True, eq=False)
class JointEmbedding:
    """Input of the server model from several embeddings, and how its gradient goes back.

    Attributes
    ----------
    value : ndarray, (rows, width)
        H, one row per sample of the batch.
    backward : callable
        ``backward(dL/dH)`` returns each client's dL/dH_n by number, in the order of sending.
    """

    value: np.ndarray
    backward: Callable[[np.ndarray], Mapping[int, np.ndarray]]


@dataclass(frozen=True, eq=False)
class SplitStep:
    """Result of one training step.

    Attributes
    ----------
    loss : float
        Mean loss of the true rows before the update.
    gradients : mapping of int to ndarray
        Gradients by client number, of the clients that get one.
    """

    loss: float
    gradients: Mapping[int, np.ndarray]


def split_step(
    centre: Centre,
    joint: JointEmbedding,
    samples: np.ndarray,
    labels: np.ndarray,
) -> SplitStep:
    """Update the server model with one joint embedding; return loss and clients' gradients.

    RunError when the loss is not finite.

    Parameters
    ----------
    centre : Centre
        The server model with its optimiser, which is updated.
    joint : JointEmbedding
        Input of the server model, with the way back to the clients.
    samples : ndarray, (rows,)
        Index of each sample in `labels`; -1 for padding, which has no loss and no gradient.
    labels : ndarray, (M,)
        Class numbers, or real targets.
    """
    loss, gradient = centre.step(joint.value, samples, labels)
    return SplitStep(loss, joint.backward(gradient))


def aggregated(
    aggregation: Aggregation,
    stack: np.ndarray,
    present: np.ndarray,
    clients: Collection[int],
) -> JointEmbedding:
    """Joint embedding of an aggregation rule, with gradients for `clients`.

    Parameters
    ----------
    stack : ndarray, (N, rows, h)
        Embeddings by client; zero where one is absent.
    present : ndarray, (N, rows), bool
        Whether each client's embedding of each row is there.
    clients : collection of int
        Clients that get a gradient; an absent client's is zero.
    """

    def backward(gradient: np.ndarray) -> dict[int, np.ndarray]:
        return aggregation.gradients(gradient, stack, present, clients)

    return JointEmbedding(aggregation.combine(stack, present), backward)


def gathered(
    aggregation: Aggregation, embeddings: Mapping[int, np.ndarray], parties: int
) -> JointEmbedding:
    """Joint embedding of those received of `parties` clients; only their senders get gradients."""
    return aggregated(aggregation, *gather(embeddings, parties), embeddings.keys())
