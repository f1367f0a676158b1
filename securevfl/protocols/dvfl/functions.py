"""Functions of DVFL's parties on protected values: each is a step of Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.models.early_stopping import EarlyStopping
from securevfl.models.pretraining.autoencoder import AutoEncoder, Encoder
from securevfl.models.split import Batches, Centre, mean_loss
from securevfl.verified import Chance

JUDGED = 32  # newest inputs by which a host is judged


class OwnRows:
    """The owner's secret division of the aligned rows, as input of functions.

    Parameters
    ----------
    order : ndarray, (M,)
        The aligned rows in random order: first those of `batches`, then the validation rows.
    batches : Batches
        Batches of places in the training rows.
    """

    def __init__(self, order: np.ndarray, batches: Batches) -> None:
        self.training, self.validation = order[: batches.rows], order[batches.rows :]
        self.batches = batches

    def state_dict(self) -> dict[str, Any]:
        """State that never changes: order and first batch, which identify a division."""
        return {"training": self.training, "first": self.batches.draw(1)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: the rows have no state."""


def own_rows(places: np.ndarray, aligned: int, rows: int) -> np.ndarray:
    """A guest's row numbers at the positions of a batch that all guests share.

    Places below M are the aligned rows, the same for all guests. The other places are unaligned
    rows of the guest, counted from the first again where it has fewer than others; a guest without
    unaligned rows takes aligned ones.

    Parameters
    ----------
    places : ndarray of int, (B,)
        The batch's positions.
    aligned : int
        Number M of aligned rows.
    rows : int
        All rows of the guest, the aligned ones first.
    """
    unaligned = rows - aligned
    others = aligned + (places - aligned) % unaligned if unaligned else places % aligned
    chosen: np.ndarray = np.where(places < aligned, places, others)
    return chosen


def side_by_side(
    parts: Mapping[int, np.ndarray], everyone: Sequence[int], width: int
) -> np.ndarray:
    """Arrays of some parties, (rows, width), side by side; zeros for a missing one."""
    rows = len(next(iter(parts.values())))
    joint = np.zeros((rows, len(everyone) * width), np.float32)
    for place, party in enumerate(everyone):
        if party in parts:
            joint[:, place * width : (place + 1) * width] = parts[party]
    return joint


def beside(
    first: np.ndarray,
    senders: Sequence[int],
    everyone: Sequence[int],
    width: int,
    *others: np.ndarray,
) -> np.ndarray:
    """Arrays, given in the order of `senders`, side by side in the order of `everyone`."""
    return side_by_side(dict(zip(senders, (first, *others), strict=True)), everyone, width)


# -- guests and hosts ------------------------------------------------------------------------------


def of_rows(features: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Values of the rows with these numbers."""
    found: np.ndarray = features[rows]
    return found


def encoded(network: Encoder, features: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Codes of some rows, made by a guest's encoder."""
    return network.encode(features[rows])


def encoding(network: Encoder, inputs: np.ndarray) -> np.ndarray:
    """A host's encodings of inputs."""
    return network.encode(inputs)


def trained(network: Encoder, inputs: np.ndarray, chance: Chance, round: int) -> float:
    """One step of an encoder on a batch, with views of `chance`; return the loss before it."""
    return network.train(inputs, chance.stream("views", round))


def replayed(chance: Chance, round: int, items: int) -> int:
    """Random position, below `items`, in the buffer of earlier inputs that a host replays."""
    return int(chance.stream("replay", round).integers(items))


def mean_code(
    first: np.ndarray, place: int, width: int, rows: int, *others: np.ndarray
) -> np.ndarray:
    """Mean of a guest's columns, from `place` on, over all buffered inputs; one copy a row."""
    known = [inputs[:, place : place + width] for inputs in (first, *others)]
    mean = np.mean(np.concatenate(known), axis=0)
    return np.tile(mean.astype(np.float32), (rows, 1))


def dead(*codes: np.ndarray) -> int:
    """Number of columns, in all arrays together, that are constant over rows."""
    return sum(int((code == code[0]).all(axis=0).sum()) for code in codes)


def failed(network: AutoEncoder, *inputs: np.ndarray) -> tuple[float, float]:
    """Reconstruction error and variance of inputs, or two zeros if the error is no larger."""
    every = np.concatenate(inputs)
    error, variance = network.error(every), float(np.mean(np.var(every, axis=0)))
    return (error, variance) if error > variance else (0.0, 0.0)


# -- the owner -------------------------------------------------------------------------------------


def epoch(
    centre: Centre, encodings: np.ndarray, labels: np.ndarray, own: OwnRows, number: int
) -> np.ndarray:
    """Train the classifier for epoch `number` on rows `own.training`; return the mean loss."""
    losses = []
    for turn in range(own.batches.per_epoch):
        batch = own.batches.draw(number * own.batches.per_epoch + turn + 1)
        rows = own.training[own.batches.samples(batch)]
        losses.append(centre.step(encodings[rows], rows, labels)[0])
    return np.array(np.mean(losses))


def validated(centre: Centre, encodings: np.ndarray, labels: np.ndarray, own: OwnRows) -> float:
    """Mean loss of the classifier on the validation rows."""
    return mean_loss(centre.task, centre.scores(encodings[own.validation]), labels[own.validation])


def taken(stopping: EarlyStopping, centre: Centre, loss: np.ndarray) -> None:
    """Register an epoch's loss for early stopping, which stores the best classifier."""
    stopping.models = (centre,)
    stopping.take(float(loss))
    stopping.models = ()


def over(stopping: EarlyStopping) -> bool:
    """Whether early stopping ends the training now."""
    return stopping.over


def restored(centre: Centre, stopping: EarlyStopping) -> None:
    """Restore the classifier's weights with the lowest loss, if there were any."""
    stopping.models = (centre,)
    stopping.restore_best()
    stopping.models = ()
