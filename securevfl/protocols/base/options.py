"""Options that several protocols share."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from securevfl.models.user_code import OwnCode


class TrainingConfig(BaseModel):
    """Options of every protocol that trains a split model."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rounds: int = Field(500, ge=1, description="server steps")
    batch: int = Field(128, ge=1, description="samples of a batch, K |B|")
    lr: float = Field(0.01, gt=0, description="learning rate of the centre")
    client_lr: float | None = Field(None, gt=0, description="of the clients; that of the centre")
    momentum: float = Field(0.9, ge=0, lt=1, description="of SGD")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty of the optimisers")
    lr_decay: Literal["none", "linear"] = Field(
        "none", description="let the learning rates fall to 0 over the rounds"
    )
    optimizer: Literal["sgd", "adam"] = Field("adam", description="of the centre and the clients")
    width: int = Field(64, ge=1, description="embedding width h")
    hidden: int = Field(128, ge=1, description="width of the centre's hidden layers")
    degree: int = Field(2, ge=1, le=8, description="layers D of the clients' networks")
    centre: str = Field(
        "mlp", description="central network: mlp, batch_norm_mlp, linear, conv or vgg13"
    )
    own_centre: OwnCode = Field(
        "",
        description="module:name of your own central network in the place of centre: called with "
        "the widths of what it takes in and gives, it makes a torch module",
    )
    own_loss: OwnCode = Field(
        "",
        description="module:name of your own loss: of raw scores and labels, one number, the mean "
        "over the rows",
    )

    def centre_optimizer(self) -> dict[str, Any]:
        """Arguments of `make_optimizer` for the server."""
        return {
            "name": self.optimizer,
            "lr": self.lr,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "decay_steps": self.rounds if self.lr_decay == "linear" else 0,
        }

    def client_optimizer(self) -> dict[str, Any]:
        """Arguments of `make_optimizer` for a client."""
        return self.centre_optimizer() | {"lr": self.client_lr or self.lr}


class EmbeddingConfig(TrainingConfig):
    """Options of split methods whose server gets the clients' embeddings one by one."""

    client: Literal["pn", "mlp", "cnn", "strided_cnn"] = Field(
        "pn",
        description="the clients' networks: polynomial, Linear-ReLU, or convolutional, with a "
        "stride or without",
    )
    aggregation: Literal["mean", "concat", "max"] = Field(
        "mean", description="how the centre's input is made of the embeddings"
    )
    weight_bound: float | None = Field(None, gt=0, description="bound on |W|, as FedVS enforces it")
    embedding: int = Field(
        8, ge=1, description="numbers looked up for a column of code numbers, by client = mlp"
    )
    layers: str = Field(
        "",
        pattern=r"^([1-9][0-9]*(,[1-9][0-9]*)*)?$",
        description="widths of the hidden layers of client = mlp, such as 64,64; without them it "
        "has degree layers of the embedding's width",
    )
    own_client: OwnCode = Field(
        "",
        description="module:name of your own clients' network in the place of client: called with "
        "the widths of its rows and of the embedding, it makes a torch module",
    )

    @property
    def client_kind(self) -> str:
        """`client`, or "own" where the user brings a network."""
        return "own" if self.own_client else self.client

    def hidden_layers(self) -> tuple[int, ...]:
        """`layers` as numbers."""
        return tuple(int(word) for word in self.layers.split(",") if word)


class SegmentedConfig(EmbeddingConfig):
    """Options of those whose server draws the batches of each round, the same as FedVS's."""

    segments: int = Field(1, ge=1, description="K of the FedVS whose batches are to be drawn")
