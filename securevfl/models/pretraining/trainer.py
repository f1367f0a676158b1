"""Pre-training on a party's own rows, with or without labels, and proximity to its result.

The result is initial weights; networks trained afterwards have their own optimisers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from securevfl.errors import ConfigurationError, DivergedError
from securevfl.models.early_stopping import EarlyStopping
from securevfl.models.pretraining.pretext import Objective, Sizes
from securevfl.models.split import Batches, Centre
from securevfl.models.tensors import tensor
from securevfl.models.weights import parameters_of

if TYPE_CHECKING:
    from securevfl.models.client_networks import ClientNetwork

Stream = Callable[..., np.random.Generator]


class PretrainingOptions(BaseModel):
    """Options of protocols with pre-training; each protocol may have other defaults."""

    pretrain_epochs: int = Field(
        20,
        ge=0,
        description="Epochs of pre-training, in which each party learns alone on all its rows.",
    )
    pretrain_batch: int = Field(256, ge=2, description="Number of rows in a batch of pre-training.")
    pretrain_lr: float = Field(0.001, gt=0, description="Learning rate of pre-training.")
    pretrain_optimizer: Literal["sgd", "adam"] = Field(
        "adam",
        description="Optimiser of pre-training, with the clients' momentum and weight decay.",
    )
    corruption: float = Field(
        0.3,
        ge=0,
        le=1,
        description="Fraction of a row's values that are replaced to make a view of it.",
    )
    temperature: float = Field(0.5, gt=0, description="Temperature tau of contrastive losses.")
    projection: int = Field(
        64, ge=1, description="Width of the projection heads, which only pre-training uses."
    )
    predictor: int = Field(
        32,
        ge=1,
        description="Width of the hidden layer of the predictors, which only pre-training uses.",
    )
    memory: int = Field(
        4096, ge=1, description="Length of MoCo's queue of keys, the views of earlier rows."
    )
    ema: float = Field(
        0.999,
        ge=0,
        le=1,
        description="Factor m of the moving averages of weights in BYOL and MoCo.",
    )

    def sizes(self) -> Sizes:
        """Sizes of heads and memories, in the form for objectives."""
        return Sizes(self.projection, self.predictor, self.temperature, self.memory, self.ema)


class SupervisedOptions(PretrainingOptions):
    """Options of pre-training, and of its early stopping, where a party pre-trains on labels."""

    pretrain_stop: int | None = Field(
        None,
        ge=1,
        description=(
            "Early stopping of pre-training on labels: number of epochs without a lower loss "
            "on held-out rows, after which it ends. The weights of the lowest loss remain. How "
            "long it takes then depends on the labels. Default: no early stopping."
        ),
    )
    pretrain_held_out: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="Fraction of the labelled rows that pretrain_stop holds out.",
    )


def pretraining_optimizer(config: Any) -> dict[str, Any]:
    """Arguments of `make_optimizer` for pre-training: a client's, with own rule and rate."""
    own: dict[str, Any] = config.client_optimizer()
    rule = {"name": config.pretrain_optimizer, "lr": config.pretrain_lr}
    return own | rule | {"decay_steps": 0}


def check_rows(protocol: str, party: str, rows: int) -> None:
    """Raise ConfigurationError for pre-training on fewer than two rows, which are compared.

    The message names the `protocol` and the `party`.
    """
    if rows < 2:
        raise ConfigurationError(
            f"{protocol}: {party} has {rows} rows to pre-train on, and views are compared between "
            "at least 2; give it more rows"
        )


def own_rows(aligned: np.ndarray, alone: np.ndarray | None) -> np.ndarray:
    """All rows of a party: aligned ones, then those that only it holds."""
    return aligned if alone is None else np.concatenate([aligned, alone])


def batches_of(rows: int, config: PretrainingOptions, stream: Stream) -> Batches:
    """Batches of row numbers below `rows`, of `config.pretrain_batch` each, drawn by `stream`."""
    return Batches(rows, 1, config.pretrain_batch, stream)


@dataclass
class HeldOut:
    """Labelled rows held out from training, and early stopping by the loss on them.

    Parameters
    ----------
    features : ndarray, (m, d)
        Columns of the rows.
    labels : ndarray, (m,)
        Class numbers, or real targets.
    stopping : EarlyStopping
        Early stopping of the networks that `take` is given.
    """

    features: np.ndarray
    labels: np.ndarray
    stopping: EarlyStopping

    def take(self, network: ClientNetwork, centre: Centre) -> None:
        """Pass the loss on held-out rows after an epoch to early stopping.

        Parameters
        ----------
        network : ClientNetwork
            The party's network in training, which embeds `features`.
        centre : Centre
            The server model in training, which computes the loss from the embeddings.

        Raises
        ------
        DivergedError
            When the loss is not finite.
        """
        loss = centre.loss_on(network.forward(self.features), self.labels)
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss of pre-training on held-out rows became {loss}; lower pretrain_lr"
            )
        self.stopping.take(loss)


def supervise(
    network: ClientNetwork,
    centre: Centre,
    features: np.ndarray,
    labels: np.ndarray,
    batches: Batches,
    epochs: int,
    held: HeldOut | None = None,
) -> float:
    """Train a bottom and a server model on one party's labelled rows.

    Returns the mean loss of the last epoch. DivergedError when a loss is not finite.

    Parameters
    ----------
    network, centre : ClientNetwork, Centre
        The two models, which are trained.
    features : ndarray, (M, d)
        Columns of the rows.
    labels : ndarray, (M,)
        Class numbers, or real targets.
    batches, epochs : Batches, int
        Batches of the M rows, and number of epochs.
    held : HeldOut, optional
        Held-out rows, which may end training early and select the final weights.
    """
    losses = [0.0]
    for epoch in range(epochs):
        losses = []
        for place in range(batches.per_epoch):
            samples = batches.samples(batches.draw(1 + epoch * batches.per_epoch + place))
            own = features[samples]
            loss, gradient = centre.step(network.forward(own), samples, labels)
            network.update(own, gradient)
            losses.append(loss)
        if held is not None:
            held.take(network, centre)
            if held.stopping.over:
                break
    if held is not None:
        held.stopping.restore_best()
    return float(np.mean(losses))


def self_supervise(
    network: ClientNetwork,
    objective: Objective,
    features: np.ndarray,
    batches: Batches,
    epochs: range,
    *,
    corruption: float,
    stream: Stream,
) -> float:
    """Train a network and an objective's heads on one party's rows.

    Returns the mean loss of the last epoch. DivergedError when a loss is not finite.

    Parameters
    ----------
    features : ndarray, (M, d)
        Columns of the rows.
    epochs : range
        Numbers of the epochs; each draws batches and views of its own.
    corruption : float
        Fraction of features that a corrupted view replaces, in [0, 1].
    stream : callable
        ``stream(name, *keys)`` returns a generator; "views" is used for every batch.
    """
    losses = [0.0]
    for epoch in epochs:
        losses = []
        for place in range(batches.per_epoch):
            number = 1 + epoch * batches.per_epoch + place
            rows = features[batches.samples(batches.draw(number))]
            views = objective.views(rows, features, corruption, stream("views", number))
            losses.append(objective.step(network, *views))
    return float(np.mean(losses))


class Pretraining:
    """Pre-training of one party's encoder on all its rows, before joint training.

    Parameters
    ----------
    config : PretrainingOptions
        Options of pre-training.
    encoder : ClientNetwork
        Network to be trained, with an optimiser of its own.
    alone : ndarray, (m, d), optional
        Unaligned rows of the party.
    means : Centre or Objective
        A server model that learns the labels, or a self-supervised objective.
    """

    def __init__(
        self,
        config: PretrainingOptions,
        encoder: ClientNetwork,
        alone: np.ndarray | None,
        means: Centre | Objective,
    ) -> None:
        self.config = config
        self.encoder = encoder
        self.alone = alone
        self.means = means

    @property
    def supervised(self) -> bool:
        """Whether pre-training uses labels."""
        return isinstance(self.means, Centre)

    @property
    def told(self) -> tuple[str, ...]:
        """Names of the figures that `run` returns besides the number of rows."""
        stops = self.supervised and getattr(self.config, "pretrain_stop", None) is not None
        more = ("epochs", "held_out_loss") if stops and self.config.pretrain_epochs else ()
        return ("loss", *more)

    def state_dict(self) -> dict[str, Any]:
        """State of the encoder and its training head."""
        return {"encoder": self.encoder.state_dict(), "means": self.means.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self.encoder.load_state_dict(state["encoder"])
        self.means.load_state_dict(state["means"])

    def run(
        self, aligned: np.ndarray, stream: Stream, labels: np.ndarray | None = None
    ) -> dict[str, Any]:
        """Train the encoder; return the number of rows, and figures by the names in `told`.

        Parameters
        ----------
        aligned : ndarray, (M, d)
            Aligned rows, which come first among all rows and in `labels`.
        stream : callable
            Random streams of the party.
        labels : ndarray, optional
            Labels of the first rows; without them all rows are used.
        """
        rows = own_rows(aligned, self.alone)
        rows = rows if labels is None else rows[: len(labels)]
        if isinstance(self.means, Centre):
            assert labels is not None
            return {"rows": len(rows), **self._on_labels(self.means, rows, labels, stream)}
        loss = self_supervise(
            self.encoder,
            self.means,
            rows,
            batches_of(len(rows), self.config, stream),
            range(self.config.pretrain_epochs),
            corruption=self.config.corruption,
            stream=stream,
        )
        return {"rows": len(rows), "loss": loss}

    def _on_labels(
        self, head: Centre, rows: np.ndarray, labels: np.ndarray, stream: Stream
    ) -> dict[str, Any]:
        """Train with a classification head; return the figures.

        ``loss`` is that of the last epoch; with early stopping, ``epochs`` is the number of epochs,
        and ``held_out_loss`` the loss of the final weights. ConfigurationError for too few rows.
        """
        config = self.config
        assert isinstance(config, SupervisedOptions)
        held = None
        if config.pretrain_stop is not None:
            other = max(1, int(config.pretrain_held_out * len(rows)))
            if len(rows) - other < 2:
                raise ConfigurationError(
                    f"pretrain_stop: of {len(rows)} labelled rows {other} are held out, and at "
                    "least 2 must remain; give more, or leave pretrain_stop out"
                )
            order = stream("held out").permutation(len(rows))
            stopping = EarlyStopping([self.encoder, head], config.pretrain_stop)
            held = HeldOut(rows[order[:other]], labels[order[:other]], stopping)
            rows, labels = rows[order[other:]], labels[order[other:]]
        batches = batches_of(len(rows), config, stream)
        loss = supervise(self.encoder, head, rows, labels, batches, config.pretrain_epochs, held)
        if held is None or not held.stopping.epochs:
            return {"loss": loss}
        stopped = held.stopping
        return {"loss": loss, "epochs": stopped.epochs, "held_out_loss": stopped.lowest}


@dataclass(frozen=True)
class ProximalTerm:
    """Gradient beta (theta - Theta) of the proximal term beta/2 |theta - Theta|^2.

    Attributes
    ----------
    names : tuple of str
        Names of the weights of Theta, in order. A smaller tensor of Theta is compared with the
        first entries of theta's: the columns of a head's first layer that read the first party's
        embedding.
    beta : float
        Weight beta of the term.
    clip : float or None
        Largest norm of the whole gradient with the term; longer gradients are scaled down to it.
    """

    names: tuple[str, ...]
    beta: float
    clip: float | None = None

    @contextlib.contextmanager
    def pulling(
        self, model: Centre | ClientNetwork, target: Sequence[np.ndarray]
    ) -> Iterator[None]:
        """Context manager that adds the term's gradient before each step of the model's optimiser.

        Parameters
        ----------
        model : Centre or ClientNetwork
            Model in training.
        target : sequence of ndarray
            Weights Theta to which the term pulls, in the order of `names`.
        """
        import torch

        own = parameters_of(model)
        pairs = [
            (own[name], tuple(slice(n) for n in wanted.shape), tensor(wanted).to(own[name].device))
            for name, wanted in zip(self.names, target, strict=True)
        ]

        def add(*_: Any) -> None:
            with torch.no_grad():
                for parameter, region, wanted in pairs:
                    if parameter.grad is None:
                        raise AssertionError("a weight has no gradient")
                    parameter.grad[region] += self.beta * (parameter[region] - wanted)
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(list(own.values()), self.clip)

        trained: Any = model
        hook = trained.optimizer.register_step_pre_hook(add)
        try:
            yield
        finally:
            hook.remove()


def check_stop(protocol: str, config: SupervisedOptions, *, on_labels: bool) -> None:
    """Raise ConfigurationError for options of early stopping that have no effect.

    These are `pretrain_stop` where no party pre-trains on labels (`on_labels` False), and
    `pretrain_held_out` without `pretrain_stop`. `protocol` is named in the message.
    """
    if config.pretrain_stop is not None and not on_labels:
        raise ConfigurationError(
            f"{protocol}: pretrain_stop has no use: nobody pre-trains on labels. Leave it out"
        )
    default = type(config).model_fields["pretrain_held_out"].default
    if config.pretrain_stop is None and config.pretrain_held_out != default:
        raise ConfigurationError(
            f"{protocol}: pretrain_held_out has no use without pretrain_stop, which decides when "
            "to stop by these rows. Set it, or leave pretrain_held_out out"
        )
