"""Parts that all methods of split training share: batches, the server model, measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from securevfl.errors import ConfigurationError, DivergedError
from securevfl.models.evaluation import Thresholds
from securevfl.models.networks import in_units, make_centre
from securevfl.models.optimizers import make_optimizer, take_step
from securevfl.models.tensors import place, tensor
from securevfl.models.user_code import own_loss as loss_of
from securevfl.models.user_code import own_network

if TYPE_CHECKING:
    import torch

Task = Literal["binary", "multiclass", "regression"]
_ROWS = 512  # scored at once; a convolution of many test rows would need gigabytes


class Batches:
    """Training rows in K segments, and the batches drawn from them.

    The rows are shuffled once, publicly, and cut into K segments of ceil(M/K); the last places of
    the last segments are padding where K does not divide M. A coded batch B is a set of row numbers
    in [0, ceil(M/K)); its samples are these rows of every segment, stacked segment by segment. Each
    epoch is a fresh permutation of the row numbers; its incomplete last batch is left out, unless
    it is the only one.

    Parameters
    ----------
    rows : int
        Number M of true rows, at least 1.
    segments : int
        Number K of segments, at least 1.
    size : int
        Number of samples wanted per batch; |B| = max(1, size // K) coded rows, at most ceil(M/K).
    stream : callable
        Function ``stream(name, *keys)`` that returns a numpy Generator.
    short : bool
        Whether fewer rows than segments are allowed, as in a prediction of one row: segments
        without rows are padding. If False, fewer rows raise ConfigurationError.
    """

    def __init__(
        self,
        rows: int,
        segments: int,
        size: int,
        stream: Callable[..., np.random.Generator],
        *,
        short: bool = False,
    ) -> None:
        if rows < 1 or not 1 <= segments <= (segments if short else rows):
            raise ConfigurationError(
                f"batches: {rows} rows cannot be cut into {segments} segments; use 1 to {rows}"
            )
        if size < 1:
            raise ConfigurationError(f"batches: a batch needs at least 1 sample, not {size}")
        self.rows = rows
        self.segments = segments
        self.length = math.ceil(rows / segments)
        self.coded = min(max(1, size // segments), self.length)
        self.per_epoch = max(1, self.length // self.coded)
        self._stream = stream
        self._epoch = (-1, np.empty(0, np.int64))
        self._asked = (np.empty(0, np.uint32), np.empty(0, np.int64))
        order = np.full(self.length * segments, -1, np.int64)
        order[:rows] = stream("shuffle").permutation(rows)
        self._order = order.reshape(segments, self.length)

    def draw(self, round: int) -> np.ndarray:
        """Row numbers of a round's batch within segments, (|B|,) uint32; rounds count from 1."""
        epoch, place = divmod(round - 1, self.per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._stream("batches", epoch).permutation(self.length))
        batch = self._epoch[1][place * self.coded : (place + 1) * self.coded]
        return batch.astype(np.uint32)

    def samples(self, batch: np.ndarray) -> np.ndarray:
        """Training rows of a batch, (K |B|,) row numbers; -1 for padding."""
        # All parties of a simulation ask for the same batch, and more than once.
        if self._asked[0] is not batch:
            found = self._order[:, batch].reshape(-1)
            found.setflags(write=False)
            self._asked = batch, found
        return self._asked[1]

    def lay_out(self, matrix: np.ndarray) -> np.ndarray:
        """Rows of a matrix laid out in segments, (K, ceil(M/K), columns); zero rows for padding."""
        segments = np.zeros((self._order.size, *matrix.shape[1:]), matrix.dtype)
        order = self._order.reshape(-1)
        segments[order >= 0] = matrix[order[order >= 0]]
        return segments.reshape(*self._order.shape, *matrix.shape[1:])


def rows_of(features: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Rows of a matrix by number; zeros for number -1; IndexError for a row beyond the last."""
    if (last := samples.max(initial=-1)) >= len(features):  # it would be taken for the last row
        raise IndexError(f"row {last} of a matrix of {len(features)} rows")
    rows: np.ndarray = features.take(samples, axis=0, mode="clip")  # half the time of an index
    if samples.min(initial=0) < 0:
        rows[samples < 0] = 0
    return rows


class Centre:
    """Server model (top model): its network, loss and optimiser.

    Parameters
    ----------
    task : {"binary", "multiclass", "regression"}
        Learning task of the labels.
    outputs : int
        Number of classes; 1 for the other two tasks.
    width : int
        Width of the embedding, h.
    network : str
        Name in `securevfl.models.networks.CENTRES`.
    hidden : int
        Width of its hidden layers.
    optimizer : dict
        Arguments of `securevfl.models.optimizers.make_optimizer`, such as the rate.
    seed : int or numpy Generator
        Seed of the initial weights.
    own, own_loss : str
        Name of a network and of a loss of the user's (`securevfl.models.user_code`), in the place
        of `network` and of the task's loss.
    class_weights : "none", "balanced", or sequence of float
        Weights of the classes in the loss (`row_weights`); balanced ones are those of the labels
        that a step is given.
    device : str
        Name of the device that computes the network (`securevfl.models.tensors.place`).
    target : (float, float), optional
        Mean and standard deviation of a regression's training targets: the network learns targets
        of mean 0 and deviation 1, and scores are in their own unit (`target_scale`).
    rows_weigh : ndarray, (M,), optional
        Weights of the training rows, above 0. They are divided by their mean, so that a batch of
        all rows has the loss that it would have with each row as often as its weight says.
    """

    def __init__(
        self,
        task: Task,
        outputs: int,
        width: int,
        *,
        network: str,
        hidden: int,
        optimizer: dict[str, Any],
        seed: int | np.random.Generator,
        own: str = "",
        own_loss: str = "",
        class_weights: str | Sequence[float] = "none",
        device: str = "cpu",
        target: tuple[float, float] | None = None,
        rows_weigh: np.ndarray | None = None,
    ) -> None:
        self._rows_weigh = None
        if rows_weigh is not None:
            self._rows_weigh = (rows_weigh / rows_weigh.mean(dtype=np.float64)).astype(np.float32)
        self.task: Task = task
        self._unit = 1.0 if target is None else target[1]
        self.outputs, self.class_weights = outputs, class_weights
        self.network = (
            own_network(own, "own_centre", width, outputs, seed)
            if own
            else make_centre(network, width, hidden, outputs, seed=seed)
        )
        if target is not None:
            self.network = in_units(self.network, *target)
        place(self.network, device)
        self._own_loss = loss_of(own_loss) if own_loss else None
        self.optimizer = make_optimizer(list(self.network.parameters()), **optimizer)
        self._lr: float = optimizer["lr"]

    def step(
        self, embedding: np.ndarray, samples: np.ndarray, labels: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """One update of the server model; return the loss before it and dL/dH.

        Parameters
        ----------
        embedding : ndarray, (rows, h)
            H, the mean of the clients' embeddings.
        samples : ndarray, (rows,)
            Row number of each in `labels`; -1 for padding, which has no loss and no gradient.
        labels : ndarray, (M,)
            Class numbers, or real targets.

        Returns
        -------
        loss : float
            Mean over the true rows.
        gradient : ndarray, (rows, h), float32

        Raises
        ------
        DivergedError
            When the loss is not finite.
        """
        # dL/dH is that of the weights before the step, as in backpropagation through one network.
        found = self._backward(embedding, samples, labels)
        take_step(self.optimizer)
        return found

    def gradients(
        self, embedding: np.ndarray, samples: np.ndarray, labels: np.ndarray
    ) -> tuple[float, np.ndarray, dict[str, np.ndarray]]:
        """(loss, dL/dH, dL/dw by name) of embedding and labels of `samples`, without an update."""
        loss, gradient = self._backward(embedding, samples, labels)
        own = {}
        for name, parameter in self.network.named_parameters():
            assert parameter.grad is not None
            own[name] = parameter.grad.numpy(force=True).copy()
        return loss, gradient, own

    def apply(self, gradients: Mapping[str, np.ndarray]) -> None:
        """One update with gradients computed by another server model of equal shape."""

        for name, parameter in self.network.named_parameters():
            parameter.grad = tensor(gradients[name]).to(parameter.device)
        take_step(self.optimizer)

    def _backward(
        self, embedding: np.ndarray, samples: np.ndarray, labels: np.ndarray
    ) -> tuple[float, np.ndarray]:
        import torch

        true = samples >= 0
        self.network.train()
        inputs = tensor(embedding[true], np.float32).requires_grad_()
        scores, own = self.network(inputs), tensor(labels[samples[true]])
        loss = self.weighted_loss(scores, own, labels, samples[true])
        if not torch.isfinite(loss):
            raise DivergedError(
                f"the training loss became {loss.item()}; lower lr ({self._lr:g}) or momentum, or "
                "leave the columns scaled"
            )
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        gradient = np.zeros(embedding.shape, np.float32)
        assert inputs.grad is not None
        gradient[true] = inputs.grad.numpy()
        return float(loss.detach()), gradient

    @property
    def plain(self) -> bool:
        """Whether the loss is the task's own, with equal weights of classes and rows."""
        alike = self.class_weights == "none" and self._rows_weigh is None
        return self._own_loss is None and alike

    def weighted_loss(
        self,
        scores: torch.Tensor,
        own: torch.Tensor,
        labels: np.ndarray,
        samples: np.ndarray | None = None,
    ) -> torch.Tensor:
        """Mean loss of scores (rows, outputs), weighted by class and, in training, by row weights.

        `own` are the rows' labels, (rows,). The frequencies in `labels` give class weights;
        `samples` are the row numbers, given in training.
        """
        # Those of all labels that the server has, not of the batch.
        weights = row_weights(self.class_weights, labels, max(self.outputs, 2))
        alone = None if samples is None or self._rows_weigh is None else self._rows_weigh[samples]
        if weights is None and alone is None:
            return self.loss(scores, own)
        of_rows = 1.0 if weights is None else tensor(weights)[own.long()]
        of_rows = of_rows if alone is None else of_rows * tensor(alone)
        return (self.loss(scores, own, reduction="none") * of_rows).mean()

    def loss_on(self, embedding: np.ndarray, labels: np.ndarray) -> float:
        """Mean loss of rows held out of training, by the loss and class weights of training."""
        import torch

        with torch.no_grad():
            return float(self.weighted_loss(tensor(self.scores(embedding)), tensor(labels), labels))

    def scores(self, embedding: np.ndarray) -> np.ndarray:
        """Raw scores, (rows, outputs) float32, with the network in evaluation mode."""
        import torch

        self.network.eval()
        inputs = tensor(embedding, np.float32)
        with torch.no_grad():
            parts = [
                self.network(inputs[start : start + _ROWS]).numpy()
                for start in range(0, max(len(inputs), 1), _ROWS)
            ]
        return np.concatenate(parts)

    def loss(
        self, scores: torch.Tensor, labels: torch.Tensor, *, reduction: str = "mean"
    ) -> torch.Tensor:
        """Mean loss of raw scores: cross entropy, of two classes or many, or mean square error.

        Scores are (rows, outputs), labels (rows,). The square error is that of the scaled targets,
        where the model scales them. With ``reduction = "none"`` the loss of each row. A loss of the
        user's takes the place of all these: it is called with scores and labels alone.
        """
        from torch.nn import functional

        if self._own_loss is not None:
            return self._own_loss(scores, labels)
        if self.task == "multiclass":
            return functional.cross_entropy(scores, labels, reduction=reduction)
        flat = scores.reshape(-1)
        if self.task == "binary":
            return functional.binary_cross_entropy_with_logits(
                flat, labels.to(flat.dtype), reduction=reduction
            )
        error = functional.mse_loss(flat, labels.to(flat.dtype), reduction=reduction)
        return error / self._unit**2

    def state_dict(self) -> dict[str, Any]:
        """Network and optimiser state."""
        return {
            "network": dict(self.network.state_dict()),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore network and optimiser state from `state_dict`."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])


def row_weights(
    weights: str | Sequence[float], labels: np.ndarray, classes: int
) -> np.ndarray | None:
    """Weight of a row of each class in the mean loss, (classes,) float32; None if all are alike.

    Parameters
    ----------
    weights : "none", "balanced", or sequence of float
        Kind of weights, or a number for each class, which is not divided by the numbers' mean.
    labels : ndarray, (M,)
        Class numbers of all rows that the server has.
    classes : int
        Number of classes C.
    """
    if isinstance(weights, str):
        return balanced_weights(labels, classes) if weights == "balanced" else None
    return np.array(weights, np.float32)


def balanced_weights(labels: np.ndarray, classes: int) -> np.ndarray:
    """Class weights (classes,) float32: M / (C M_c) for classes that occur, else 0.

    C is the number of classes that occur and M_c the number of rows of class c, so that the mean of
    the weights over the rows is 1.

    References
    ----------
    King and Zeng, "Logistic regression in rare events data", 2001; scikit-learn's ``balanced``.

    Examples
    --------
    >>> balanced_weights(np.array([0, 0, 0, 0, 2]), 3).tolist()
    [0.625, 0.0, 2.5]
    """
    counts = np.bincount(labels.astype(np.int64), minlength=classes)
    there = np.count_nonzero(counts)
    weights = np.where(counts > 0, counts.sum() / (there * np.maximum(counts, 1)), 0.0)
    return weights.astype(np.float32)


def measure(task: Task, scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Measures of raw scores (rows, outputs) of test rows: fractions, or a regression's error.

    Returns
    -------
    dict
        ``accuracy`` and, for two classes, ``auc`` (where both occur) and ``f1``; or ``rmse`` and,
        where the labels differ, ``r2``.

    Raises
    ------
    DivergedError
        When a score is not finite.
    """
    if not np.isfinite(scores).all():
        raise DivergedError(
            f"{(~np.isfinite(scores)).any(axis=-1).sum()} of {len(scores)} test rows have a score "
            f"that is not finite: the model has diverged. Lower lr, client_lr or momentum, or "
            "leave the columns scaled"
        )
    if task == "regression":
        rmse = float(np.sqrt(np.mean((scores.reshape(-1) - labels) ** 2)))
        return {"rmse": rmse} | r_squared(rmse, labels)
    if task == "multiclass":
        return {"accuracy": float(np.mean(scores.argmax(axis=1) == labels))}
    flat = scores.reshape(-1)
    guess = (flat > 0).astype(np.int64)
    result = {"accuracy": float(np.mean(guess == labels))}
    if 0 < labels.sum() < len(labels):
        result["auc"] = Thresholds.of(labels, flat).auc
    named = labels.sum() + guess.sum()
    result["f1"] = float(2 * (guess * labels).sum() / named) if named else 0.0
    return result


def target_scale(
    task: Task, labels: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, float] | None:
    """Mean and standard deviation of a regression's targets, weighted or not; None for classes.

    Examples
    --------
    >>> target_scale("regression", np.array([1.0, 3.0], np.float32))
    (2.0, 1.0)
    """
    if task != "regression":
        return None
    if weights is not None:
        mean = np.average(labels.astype(np.float64), weights=weights)
        spread = float(np.average((labels - mean) ** 2, weights=weights) ** 0.5)
        return float(mean), spread or 1.0
    spread = float(labels.std(dtype=np.float64))
    return float(labels.mean(dtype=np.float64)), spread or 1.0


def r_squared(rmse: float, labels: np.ndarray) -> dict[str, float]:
    """R squared (``r2``): share of the labels' variance explained at this root mean square error.

    It is 0 for the mean of these labels. The result is empty if all labels are equal.

    Examples
    --------
    >>> r_squared(0.5, np.array([1.0, 3.0]))
    {'r2': 0.75}
    """
    variance = float(labels.var(dtype=np.float64))
    return {"r2": 1 - rmse**2 / variance} if variance else {}


def mean_loss(task: Task, scores: np.ndarray, labels: np.ndarray, unit: float = 1.0) -> float:
    """Mean loss of raw scores (rows, outputs) of test rows: cross entropy, or mean square error.

    Errors of a regression are divided by `unit`, the standard deviation of training targets.
    """
    if task == "regression":
        return float(np.mean(((scores.reshape(-1) - labels) / unit) ** 2))
    # Without overflow: -ln sigmoid(s) and -ln(1 - sigmoid(s)) are ln(1 + e^s) - s y, and a softmax
    # does not change when the largest score is taken from all.
    exact = scores.astype(np.float64)
    if task == "binary":
        flat = exact.reshape(-1)
        return float(np.mean(np.logaddexp(0, flat) - flat * labels))
    shifted = exact - exact.max(axis=1, keepdims=True)
    chosen = shifted[np.arange(len(labels)), labels]
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - chosen))
