"""Options of DVFL, and refused combinations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from securevfl.errors import ConfigurationError

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class DvflConfig(BaseModel):
    """Options of DVFL."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rounds: int = Field(60, ge=1, description="Largest number of epochs of the label owner.")
    guest_epochs: int = Field(20, ge=1, description="Epochs of the guests over all their rows.")
    host_epochs: int = Field(
        40, ge=1, description="Epochs of the hosts, including those on their replay buffers."
    )
    hosts: int = Field(
        3, ge=1, description="Number |K| of hosts. Each does the same task, so that one may fail."
    )
    comm_period: int = Field(
        1,
        ge=1,
        description=(
            "Number of guest epochs from one whose activations are written for the hosts to"
            " the next."
        ),
    )
    batch: int = Field(64, ge=1, description="Rows of a batch, for guests, hosts and the owner.")
    objective: Literal["autoencoder", "simclr"] = Field(
        "autoencoder",
        description=(
            "What guests learn without labels: to reconstruct their columns (autoencoder), "
            "or to tell views of a row from views of other rows (simclr)."
        ),
    )
    temperature: float = Field(
        0.5, gt=0, description="Temperature tau of the loss, with objective = simclr."
    )
    width: int = Field(
        40, ge=1, description="Width d_g of a guest's code, the output of its encoder for one row."
    )
    guest_activation: Literal["relu", "leaky_relu"] = Field(
        "relu",
        description=(
            "Last activation of the guests' encoders: relu, as in the paper's models of MNIST, "
            "whose codes are at least 0, or leaky_relu, as in those of its other data sets."
        ),
    )
    guest_hidden: int | None = Field(
        None,
        ge=1,
        description=(
            "Width of the hidden layer of the guests' encoders. Default: half-way between "
            "input and output, (d + d_g) / 2."
        ),
    )
    host_width: int = Field(
        120, ge=1, description="Width d_k of a host's encoding, from which the owner learns."
    )
    host_activation: Literal["relu", "leaky_relu"] = Field(
        "leaky_relu",
        description=(
            "Last activation of the hosts' encoders: leaky_relu, as in the paper's models of "
            "MNIST and Credit Card, or relu, as in those of its other data sets."
        ),
    )
    host_hidden: int | None = Field(
        None,
        ge=1,
        description=(
            "Width of the hidden layer of the hosts' encoders. Default: half-way between "
            "input and output, (N d_g + d_k) / 2."
        ),
    )
    hidden: int = Field(128, ge=1, description="Width of the hidden layers of the owner's network.")
    centre: str = Field(
        "mlp",
        description=(
            "Network of the label owner: mlp, leaky_mlp, as in the paper, batch_norm_mlp or linear."
        ),
    )
    guest_lr: float = Field(
        3e-3, gt=0, description="Learning rate of the guests, whose optimiser is Adam."
    )
    host_lr: float = Field(
        3e-3, gt=0, description="Learning rate of the hosts, whose optimiser is Adam."
    )
    optimizer: Literal["sgd", "adam"] = Field("adam", description="Optimiser of the label owner.")
    lr: float = Field(2e-3, gt=0, description="Learning rate of the label owner.")
    momentum: float = Field(
        0.5, ge=0, lt=1, description="Momentum of the owner, with optimizer = sgd."
    )
    lr_decay: Literal["none", "linear"] = Field(
        "linear",
        description=(
            "Schedule of the owner's learning rate: constant, or falling linearly to 0 over"
            " its epochs."
        ),
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="Weight decay of guests and hosts: the factor of an L2 penalty on all weights.",
    )
    buffer: int | None = Field(
        None,
        ge=1,
        description="Largest number of inputs in a host's replay buffer. Default: all of them.",
    )
    replay: bool = Field(
        True, description="Whether hosts train on their buffer when nothing new has come."
    )
    stop_after: int | None = Field(
        None,
        ge=1,
        description=(
            "Early stopping: number of epochs without a lower loss on held-out rows after "
            "which the owner stops and takes its best network. Default: no early stopping."
        ),
    )
    held_out: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="Fraction of the aligned rows that is held out for early stopping.",
    )
    interval: float = Field(0.1, ge=1e-3, description="Seconds from one round to the next.")
    patience: float = Field(
        300.0,
        gt=0,
        description=(
            "Seconds for which hosts wait for the guests' final codes. Then they take the "
            "mean of what a guest wrote before."
        ),
    )


def check_schedule(config: DvflConfig) -> None:
    """Raise ConfigurationError for schedules in which hosts learn nothing new.

    The message names the option to change.
    """
    if config.centre == "host_mlp":
        raise ConfigurationError(
            "dvfl: centre = 'host_mlp' is a host and an owner as one, and hosts are parties here; "
            "use leaky_mlp"
        )
    if config.comm_period > config.guest_epochs:
        raise ConfigurationError(
            f"dvfl: comm_period = {config.comm_period} is longer than guest_epochs = "
            f"{config.guest_epochs}, so nothing would be written; lower it"
        )
    if config.replay and config.host_epochs < config.guest_epochs:
        raise ConfigurationError(
            f"dvfl: host_epochs = {config.host_epochs} must be at least guest_epochs = "
            f"{config.guest_epochs}, or inputs would be left unused; raise it, or set replay=false"
        )


def check_data(config: DvflConfig, data: VerticalDataset) -> None:
    """Raise ConfigurationError for too few rows for early stopping, or category codes as columns.

    The message names the option to change.
    """
    if config.stop_after is not None and int(config.held_out * data.rows) < 1:
        raise ConfigurationError(
            f"dvfl: held_out = {config.held_out} of {data.rows} aligned rows leaves no row for "
            f"early stopping, which needs at least 1; raise it, or leave stop_after out"
        )
    for n, counts in enumerate(data.cardinalities):
        if any(counts):
            raise ConfigurationError(
                f"dvfl: {sum(c > 0 for c in counts)} columns of party {n} hold category "
                f"codes, which an auto-encoder would take for sizes; load the data with "
                f"coding='onehot' (--set data.coding=onehot)"
            )
