"""Server steps: checks of the sums, and the way from dL/dH to the dealt step.

The functions are passed to `securevfl.verified.Model.step` and `call`, which call them with the
state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from securevfl.errors import RangeError
from securevfl.field import PrimeField
from securevfl.models.split import Centre, measure
from securevfl.protocols.coded_split.bounds import RangeBound
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.protocols.coded_split.quantisation import wanted_step


class Steps:
    """State of the steps: rounding residual (line 7), and the bound on sums (section 7).

    Attributes
    ----------
    residual : ndarray, (K, length, h)
        Rounding residual e of line 7.

    Parameters
    ----------
    public : Parameters
        Public parameters.
    stream : callable
        Function from a step's number to the server's stream for stochastic rounding.
    """

    no_model: ClassVar[bool] = True  # for `securevfl.runs.folders.models`

    def __init__(self, public: Parameters, stream: Callable[[int], np.random.Generator]) -> None:
        self.public, self.stream = public, stream
        self.bound = RangeBound.of(public)
        shape = (public.code.segments, public.batches["train"].length, public.config.width)
        self.residual = np.zeros(shape)

    def state_dict(self) -> dict[str, np.ndarray]:
        """State for checkpoints."""
        bound = self.bound
        return {"residual": self.residual, "spent": bound.spent, "base": bound.base} | {
            "since": bound.since
        }

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state from `state_dict`."""
        self.residual = np.array(state["residual"])
        self.bound.spent = np.array(state["spent"])
        self.bound.base, self.bound.since = np.array(state["base"]), np.array(state["since"])

    def __deepcopy__(self, memo: Any) -> Steps:
        made = Steps(self.public, self.stream)
        made.load_state_dict(self.state_dict())
        return made


def note_sums(steps: Steps, sums: np.ndarray, round: int, rows: np.ndarray) -> None:
    """Use a training batch's sums (field elements) as bases of its rows; refuse too large ones."""
    signed = steps.public.field.signed(sums)
    in_range(signed, steps.bound.promised(rows), round)
    steps.bound.decoded(rows, signed)


def check_sums(steps: Steps, sums: np.ndarray, round: int) -> np.ndarray:
    """Raise RangeError if a sum of test rows exceeds its bound; else return an empty array."""
    return sums_in_range(sums, steps.public.field, steps.bound.lasting, round)


def sums_in_range(sums: np.ndarray, field: PrimeField, largest: int, round: int) -> np.ndarray:
    """Raise RangeError if a sum (field element) exceeds the bound; else return an empty array."""
    return in_range(field.signed(sums), largest, round)


def in_range(sums: np.ndarray, largest: np.ndarray | int, round: int) -> np.ndarray:
    """Raise RangeError if a signed sum exceeds `largest` in magnitude; else an empty array."""
    beyond = np.abs(sums) > largest
    if beyond.any():
        raise RangeError(
            f"coded_split: round {round}: {beyond.sum()} of {beyond.size} decoded sums "
            f"are beyond the range that the steps so far can bring them to, such as "
            f"{int(np.abs(sums[beyond]).max()):.4g}. An upload is wrong, or holders have other "
            "steps than the rest, or an owner shared longer rows or weights than options allow. "
            "tolerate_corrupt = A corrects A wrong uploads"
        )
    return np.empty(0)


def gradients(
    centre: Centre, H: np.ndarray, samples: np.ndarray, labels: np.ndarray
) -> tuple[Any, ...]:
    """(Loss, dL/dH, dL/dw of each weight of the server model) on rows `samples` (lines 6, 7)."""
    loss, G, own = centre.gradients(H, samples, labels)
    return loss, G, *own.values()


def apply(centre: Centre, *own: np.ndarray) -> None:
    """Update the server model once by its gradients."""
    names = [name for name, _ in centre.network.named_parameters()]
    centre.apply({name: one.copy() for name, one in zip(names, own, strict=True)})


def forms_of(centre: Centre, H: tuple[int, ...]) -> dict[str, Any]:
    """Shapes and dtypes of the results of `gradients`, for joint embeddings of shape H."""
    weights = [tuple(w.shape) for _, w in centre.network.named_parameters()]
    shapes: list[Any] = [(), H, *weights]
    return {"shapes": shapes, "of": [np.float64, *[np.float32] * (len(shapes) - 1)]}


def make_step(steps: Steps, G: np.ndarray, number: int, rows: np.ndarray) -> tuple[np.ndarray, int]:
    """Step Gbar, (K, |B|, h) signed (lines 7, 8), and the bits by which it was shrunk, or 0."""
    wanted = wanted_step(steps.public, number, G, steps.residual[:, rows])
    if steps.public.config.rounding == "stochastic":
        rounded = np.floor(wanted + steps.stream(number).random(wanted.shape))
    else:
        rounded = np.rint(wanted)
        steps.residual[:, rows] = wanted - rounded
    return steps.bound.admit(rounded)


def scores_of(centre: Centre, embedding: np.ndarray) -> np.ndarray:
    """Scores of rows by the server model."""
    return centre.scores(embedding)


def measures_of(centre: Centre, *rest: Any) -> np.ndarray:
    """Measures of scores in pieces, in the order of `measures_named`; NaN for a missing one.

    Parameters
    ----------
    centre : Centre
        Server model, for the task.
    *rest : objects
        Labels, the order of rows and the scores of each piece.

    Returns
    -------
    ndarray, (measures of the task,), float64
    """
    labels, order, *pieces = rest
    scores = in_order(pieces[0], order, *pieces[1:])
    found = measure(centre.task, scores, labels)
    return np.array([found.get(name, np.nan) for name in measures_named(centre.task)])


def entry(values: np.ndarray, place: int) -> np.ndarray:
    """Array entry at a place, as an array."""
    return np.array(values[place])


def measures_named(task: str) -> tuple[str, ...]:
    """Names of the measures of a task that `measures_of` returns, in its order."""
    if task == "binary":
        return ("accuracy", "auc", "f1")
    return ("rmse",) if task == "regression" else ("accuracy",)


def in_order(first: np.ndarray, order: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """Values of all rows in the order of their numbers, (rows, ...), from pieces.

    Parameters
    ----------
    first : ndarray, (rows of the piece, ...)
        The first piece.
    order : ndarray, (rows of all pieces,)
        Number of each row; -1 for padding.
    *others : ndarray
        The other pieces.
    """
    values = np.concatenate([first, *others])
    found = np.empty((int(order.max()) + 1, *values.shape[1:]), values.dtype)
    found[order[order >= 0]] = values[order >= 0]
    return found
