"""One step of split training at the party that has the labels and the server model.

The step is the same in every split method: make one embedding of the clients' (a `JointEmbedding`),
update the server model with it, and carry the gradient back to the clients. Methods differ in three
places only, so these are arguments of `split_step` and hooks of
`securevfl.protocols.base.split_parties.SplitServer`: the join of the embeddings, the release of the
gradient (clipping, noise), and the choice of the clients that get one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.models.aggregation import Aggregation, gather
from securevfl.models.split import Centre

Release = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class JointEmbedding:
    """Input of the server model, made of several clients' embeddings, and its gradient's way back.

    Attributes
    ----------
    value : ndarray, (rows, width)
        H, one row a sample of the batch.
    backward : callable
        ``backward(dL/dH)`` is the gradient of each client that gets one, by its number, in the
        order in which they are answered.
    details : mapping
        Fields about the join for the history, such as how many embeddings were imputed.
    """

    value: np.ndarray
    backward: Callable[[np.ndarray], Mapping[int, np.ndarray]]
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SplitStep:
    """Result of one step.

    Attributes
    ----------
    loss : float
        Mean loss of the true rows before the update.
    gradients : mapping of int to ndarray
        The gradient of each client that gets one.
    """

    loss: float
    gradients: Mapping[int, np.ndarray]

    @property
    def clients(self) -> tuple[int, ...]:
        """Clients that get a gradient."""
        return tuple(self.gradients)

    @property
    def used(self) -> int:
        """Number of clients that get a gradient."""
        return len(self.gradients)


def split_step(
    centre: Centre,
    joint: JointEmbedding,
    samples: np.ndarray,
    labels: np.ndarray,
    *,
    release: Release | None = None,
) -> SplitStep:
    """Update the server model with one joint embedding; the loss and the clients' gradients.

    Parameters
    ----------
    centre : Centre
        The server model with its optimiser; it changes.
    joint : JointEmbedding
    samples : ndarray, (rows,)
        Row of each in `labels`; -1 for padding, which has no loss and no gradient.
    labels : ndarray, (M,)
        Class numbers, or real targets.
    release : callable, optional
        ``release(dL/dH, samples)`` is the part of the gradient that clients may see, such as
        clipped rows with noise. It is called once, before the gradient is divided among clients.
        Without it they see the gradient as it is.

    Raises
    ------
    RunError
        When the loss is not finite.
    """
    loss, gradient = centre.step(joint.value, samples, labels)
    # Once, and before it is divided: what is made of a released gradient costs no more privacy.
    if release is not None:
        gradient = release(gradient, samples)
    return SplitStep(loss, joint.backward(gradient))


def aggregated(
    aggregation: Aggregation,
    stack: np.ndarray,
    present: np.ndarray,
    clients: Collection[int],
    **details: Any,
) -> JointEmbedding:
    """Joint embedding of an aggregation rule, with gradients for `clients`.

    Parameters
    ----------
    aggregation : Aggregation
    stack : ndarray, (N, rows, h)
    present : ndarray, (N, rows), bool
        As the rule takes them.
    clients : collection of int
        Clients that get a gradient; an absent client's is zero.
    details
        Fields for the history.
    """

    def backward(gradient: np.ndarray) -> dict[int, np.ndarray]:
        return {n: aggregation.gradient(gradient, stack, present, n) for n in clients}

    return JointEmbedding(aggregation.combine(stack, present), backward, details)


def gathered(
    aggregation: Aggregation, embeddings: Mapping[int, np.ndarray], parties: int
) -> JointEmbedding:
    """Joint embedding of those that came; an absent client is left out and gets no gradient."""
    return aggregated(aggregation, *gather(embeddings, parties), embeddings.keys())


def summed(
    value: np.ndarray,
    clients: Collection[int],
    backward: Callable[[np.ndarray], np.ndarray] = lambda gradient: gradient,
    **details: Any,
) -> JointEmbedding:
    """Joint embedding of which only a sum is known; all clients in it get the same gradient.

    Parameters
    ----------
    value : ndarray, (rows, width)
        H, computed from the sum.
    clients : collection of int
        Clients in the sum.
    backward : callable
        dL/dH -> the gradient that each of them gets; dL/dH itself if not given.
    details
        Fields for the history.
    """
    return JointEmbedding(value, lambda dH: dict.fromkeys(clients, backward(dH)), details)
