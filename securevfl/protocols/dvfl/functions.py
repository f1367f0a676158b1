"""Functions of DVFL's parties on protected values: each is a step of Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.models.early_stopping import EarlyStopping
from securevfl.models.pretraining.autoencoder import AutoEncoder, Encoder
from securevfl.models.split import Batches, Centre, mean_loss
from securevfl.verified import Chance


class OwnRows:
    """The owner's division of the aligned rows: a secret choice, as an input of functions.

    Parameters
    ----------
    order : ndarray, (M,)
        The aligned rows in random order: those of `batches` train, the rest validates.
    batches : Batches
        Batches of places in the training rows.
    """

    def __init__(self, order: np.ndarray, batches: Batches) -> None:
        self.training, self.validation = order[: batches.rows], order[batches.rows :]
        self.batches = batches

    def state_dict(self) -> dict[str, Any]:
        """Order and first batch, by which two divisions are told apart; they never change."""
        return {"training": self.training, "first": self.batches.draw(1)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing: it has no state."""


def own_rows(places: np.ndarray, aligned: int, rows: int) -> np.ndarray:
    """A guest's rows at the places of a batch that all guests draw alike.

    Places below M are the aligned rows, the same for all guests. The other places are unaligned
    rows of the guest, counted from the first again where it has fewer than others; a guest without
    unaligned rows takes aligned ones.

    Parameters
    ----------
    places : ndarray of int, (B,)
    aligned : int
        M.
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
    """Arrays of some parties, (rows, width), side by side; zeros in the place of a missing one."""
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
    """`side_by_side` of arrays in the order of `senders`, whose they are."""
    return side_by_side(dict(zip(senders, (first, *others), strict=True)), everyone, width)


# -- guests and hosts ------------------------------------------------------------------------------


def of_rows(features: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Values of some rows."""
    found: np.ndarray = features[rows]
    return found


def encoded(network: Encoder, features: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Codes that a guest's encoder makes of some of its rows."""
    return network.encode(features[rows])


def encoding(network: Encoder, inputs: np.ndarray) -> np.ndarray:
    """A host's encodings of inputs."""
    return network.encode(inputs)


def trained(network: Encoder, inputs: np.ndarray, chance: Chance, round: int) -> float:
    """Step of an encoder on a batch; returns the loss before it."""
    return network.train(inputs, chance.stream("views", round))


def replayed(chance: Chance, round: int, items: int) -> int:
    """Place in the buffer of the earlier input on which a host trains again, drawn at random."""
    return int(chance.stream("replay", round).integers(items))


def mean_code(
    first: np.ndarray, place: int, width: int, rows: int, *others: np.ndarray
) -> np.ndarray:
    """Mean of a guest's columns, from `place` on, over a buffer's inputs; repeated for each row."""
    known = [inputs[:, place : place + width] for inputs in (first, *others)]
    mean = np.mean(np.concatenate(known), axis=0)
    return np.tile(mean.astype(np.float32), (rows, 1))


def dead(*codes: np.ndarray) -> int:
    """Number of columns, in all arrays together, that are the same for all rows."""
    return sum(int((code == code[0]).all(axis=0).sum()) for code in codes)


def failed(network: AutoEncoder, *inputs: np.ndarray) -> tuple[float, float]:
    """Reconstruction error of inputs and their variance, or two zeros if the error is no larger."""
    every = np.concatenate(inputs)
    error, variance = network.error(every), float(np.mean(np.var(every, axis=0)))
    return (error, variance) if error > variance else (0.0, 0.0)


# -- the owner -------------------------------------------------------------------------------------


def epoch(
    centre: Centre, encodings: np.ndarray, labels: np.ndarray, own: OwnRows, number: int
) -> np.ndarray:
    """Train the classifier for one epoch; returns the mean loss."""
    losses = []
    for turn in range(own.batches.per_epoch):
        batch = own.batches.draw(number * own.batches.per_epoch + turn + 1)
        rows = own.training[own.batches.samples(batch)]
        losses.append(centre.step(encodings[rows], rows, labels)[0])
    return np.array(np.mean(losses))


def validated(centre: Centre, encodings: np.ndarray, labels: np.ndarray, own: OwnRows) -> float:
    """Loss of the classifier on the rows held out for validation."""
    return mean_loss(centre.task, centre.scores(encodings[own.validation]), labels[own.validation])


def taken(stopping: EarlyStopping, centre: Centre, loss: np.ndarray) -> None:
    """Tell early stopping the loss after an epoch; it keeps the classifier with the lowest."""
    stopping.models = (centre,)
    stopping.take(float(loss))
    stopping.models = ()


def over(stopping: EarlyStopping) -> bool:
    """Whether early stopping says that it is time to stop."""
    return stopping.over


def restored(centre: Centre, stopping: EarlyStopping) -> None:
    """Give the classifier back the weights with the lowest loss, if there was any."""
    stopping.models = (centre,)
    stopping.restore_best()
    stopping.models = ()
