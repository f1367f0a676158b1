"""Options that several protocols share."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from securevfl.models.client_networks import Kind
from securevfl.models.user_code import OwnCode

EQUAL, BALANCED = "none", "balanced"


def written(value: Any) -> str:
    """Class weights as text: "none", "balanced", or a number for each class, such as "1,2.5".

    ValueError for another word, for fewer than two numbers, and for a number that is not finite and
    above 0 as float32.

    Parameters
    ----------
    value : str, or sequence of float
        Text, or weights in the order of the classes.

    Examples
    --------
    >>> written((1, 2.5)), written("1, 2.50"), written("balanced")
    ('1,2.5', '1,2.5', 'balanced')
    """
    if isinstance(value, str) and value in (EQUAL, BALANCED):
        return value
    given = value.split(",") if isinstance(value, str) else value
    try:  # sets and mappings have no order of classes
        numbers = [*map(float, given)] if isinstance(given, (list, tuple, np.ndarray)) else []
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) < 2:
        raise ValueError(
            "write none, balanced, or a number for each class, in the order of the classes, such "
            "as 1,5"
        )
    with np.errstate(over="ignore"):
        kept = np.array(numbers, np.float64).astype(np.float32)
    for number, weight in zip(numbers, kept.tolist(), strict=True):
        if not 0 < weight < np.inf:
            raise ValueError(f"{number:g} is no weight of a class; give finite numbers above 0")
    return ",".join(repr(number).removesuffix(".0") for number in numbers)


#: Type of the option; its value is the text that `written` gives, in files as in terms.
ClassWeights = Annotated[str, BeforeValidator(written)]


def read(option: str) -> str | tuple[float, ...]:
    """Class weights of an option: "none", "balanced", or a number for each class.

    ValueError for any other text.

    Examples
    --------
    >>> read("1,2.5"), read("balanced")
    ((1.0, 2.5), 'balanced')
    """
    if option in (EQUAL, BALANCED):
        return option
    return tuple(float(word) for word in option.split(","))


# Options of several protocols that stand at different places of their lists. A common base class
# would put them first, in help pages as in config.toml.
Delta = Annotated[
    float,
    Field(
        ge=1e-9,
        lt=1,
        description=(
            "Probability delta with which the bound epsilon may fail, for one release and "
            "for all of them together. Less than 1e-9 is refused: the tail of noise that is made "
            "of 53-bit uniforms does not support it."
        ),
    ),
]
NoiseSource = Annotated[
    Literal["secure", "seeded"],
    Field(
        description=(
            "Source of the noise: the operating system (secure), or the run's seed "
            "(seeded), which repeats the run and protects nothing."
        )
    ),
]

ShareTimeout = Annotated[
    float | None,
    Field(
        gt=0,
        description=(
            "Seconds after which a round goes on with the clients that have shared. "
            "Default: it waits for all."
        ),
    ),
]

SumBudget = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description=(
            "Budget of sums: each visit of a row gives h equations about it, which stay below this "
            "share of its independent columns. Parties count and refuse more; the run then ends, "
            "with everything saved. 0: no budget, and nothing is promised of the columns. Default: "
            "1, or 0 where a width is given, which may be too wide for any."
        ),
    ),
]


_OF_A_WIDTH, _WIDEST = 8, 64  # columns for each number of an embedding; its largest width
_LEAST_BATCH, _LARGEST_BATCH = 8, 128
_PLANNED = 0.75  # of the columns as equations: a quarter of them may depend on others


class TrainingConfig(BaseModel):
    """Options of every protocol that trains a split model."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rounds: int = Field(
        500, ge=1, description="Number of rounds. The server model is updated once in each."
    )
    batch: int = Field(128, ge=1, description="Number of training rows in a batch.")
    lr: float = Field(0.01, gt=0, description="Learning rate of the server model.")
    client_lr: float | None = Field(
        None,
        gt=0,
        description=(
            "Learning rate of the clients' bottom models. Default: that of the server model."
        ),
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum, with optimizer = sgd.")
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="Weight decay of the optimisers: the factor of an L2 penalty on all weights.",
    )
    lr_decay: Literal["none", "linear"] = Field(
        "none",
        description=(
            "Schedule of the learning rates: constant (none), or falling to 0 over the "
            "rounds (linear)."
        ),
    )
    optimizer: Literal["sgd", "adam"] = Field(
        "adam", description="Optimiser of the server model and of the clients."
    )
    width: int = Field(
        64,
        ge=1,
        description="Width h of an embedding: how many numbers a bottom model makes of one row.",
    )
    hidden: int = Field(128, ge=1, description="Width of the hidden layers of the server model.")
    degree: int = Field(
        2,
        ge=1,
        le=8,
        description="Number D of layers of a bottom model. It is the degree of a polynomial one.",
    )
    centre: str = Field(
        "mlp",
        description=(
            "Server model, which makes predictions of embeddings: mlp, leaky_mlp, "
            "batch_norm_mlp, linear, conv, vgg13, or DVFL's host and owner as one (host_mlp)."
        ),
    )
    device: str = Field(
        "cpu",
        description=(
            "Device that computes the server model, and bottom models but polynomial ones: cpu, or "
            "another one of torch's, such as cuda, cuda:1 or mps. All else is computed on the CPU."
        ),
    )
    own_centre: OwnCode = Field(
        "",
        description=(
            "Your own server model, as module:name. It is called with the widths of its "
            "input and output, and returns a torch module. It replaces the option centre. "
            "Default: none."
        ),
    )
    own_loss: OwnCode = Field(
        "",
        description=(
            "Your own loss, as module:name. It takes raw scores and labels, and returns the"
            " mean over the rows. Default: cross-entropy, or the squared error of real "
            "labels."
        ),
    )

    class_weights: ClassWeights = Field(
        EQUAL,
        description=(
            "Weights of the training rows in the loss: all alike (none), such that each "
            "class counts as much as every other (balanced), or a number above 0 for each "
            "class in order, such as 1,5."
        ),
        json_schema_extra={"metavar": "none|balanced|W,W"},
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


class BudgetedConfig(TrainingConfig):
    """Options of methods whose server decodes sums, with sizes that keep a budget of sums.

    Sizes that are 0 are derived from columns, rows and rounds (`settled`). The page results-sums
    has the measurements behind the defaults.
    """

    batch: int = Field(
        0,
        ge=0,
        description=(
            "Number of training rows in a batch. 0: such that the rounds are the epochs that the "
            "budget of sums allows, 8 to 128."
        ),
    )
    lr_decay: Literal["none", "linear"] = Field(
        "linear",
        description=(
            "Schedule of the learning rates: constant (none), or falling to 0 over the "
            "rounds (linear)."
        ),
    )
    width: int = Field(
        0,
        ge=0,
        description=(
            "Width h of an embedding: how many numbers a bottom model makes of one row, and how "
            "many equations each visit of a row gives. 0: an eighth of all columns, 1 to 64."
        ),
    )
    degree: int = Field(
        1,
        ge=1,
        le=8,
        description=(
            "Number D of layers of a bottom model, which is the degree of its polynomial. From 2 "
            "on sums tell more: squares of columns stand among them."
        ),
    )
    sum_budget: SumBudget = None

    @property
    def budget(self) -> float:
        """Limit on a row's equations as a share of its unknowns; 0 for no budget."""
        return self.sum_budget or 0.0

    def settled(self, columns: int, rows: int) -> Self:
        """The options, with a width, batch and budget of sums in place of those that are not given.

        A budget that is not given is 1, or 0 (none) where a width is given. Width and batch, if 0,
        become the largest that keep it. Given ones are not checked against it here.

        Parameters
        ----------
        columns, rows : int
            Number of columns of all parties together, and of training rows.
        """
        given = self.sum_budget
        budget = (0.0 if self.width else 1.0) if given is None else given
        h = self.width or min(max(columns // _OF_A_WIDTH, 1), _WIDEST)
        room = _PLANNED * (budget or 1.0) * columns
        epochs = max(int(room) // h, 1)
        fitting = rows // -(-self.rounds // epochs)
        B = self.batch or min(max(fitting, _LEAST_BATCH), _LARGEST_BATCH)
        return self.model_copy(update={"width": h, "batch": B, "sum_budget": budget})


class EmbeddingConfig(TrainingConfig):
    """Options of split methods whose server receives the clients' embeddings one by one."""

    client: Kind = Field(
        "pn",
        description=(
            "Bottom models of the clients, which make embeddings of rows: polynomial (pn), "
            "linear layers with ReLU (mlp), the encoders of DVFL's guests, whose last "
            "activation is ReLU or leaky (encoder, leaky_encoder), or convolutional, without "
            "a stride (cnn) or with one (strided_cnn)."
        ),
    )
    aggregation: Literal["mean", "concat", "max"] = Field(
        "mean", description="How embeddings are joined to the input of the server model."
    )
    weight_bound: float | None = Field(
        None,
        gt=0,
        description=(
            "Bound on the absolute value of each weight of a bottom model, enforced after "
            "each step. Default: no bound."
        ),
    )
    embedding: int = Field(
        8,
        ge=1,
        description=(
            "Width of the learnt lookup table for a column of category codes, with client = mlp."
        ),
    )
    layers: str = Field(
        "",
        pattern=r"^([1-9][0-9]*(,[1-9][0-9]*)*)?$",
        description=(
            "Widths of the hidden layers of client = mlp, such as 64,64. Default: as many "
            "layers as degree says, of the embedding's width."
        ),
    )
    own_client: OwnCode = Field(
        "",
        description=(
            "Your own bottom model, as module:name. It is called with the widths of its "
            "rows and of the embedding, and returns a torch module. It replaces the option "
            "client. Default: none."
        ),
    )

    @property
    def client_kind(self) -> str:
        """Kind of client network: the option `client`, or "own" for the user's network."""
        return "own" if self.own_client else self.client

    def hidden_layers(self) -> tuple[int, ...]:
        """Widths of the hidden layers: the option `layers`, "64,32" for example, as numbers."""
        return tuple(int(word) for word in self.layers.split(",") if word)


class SegmentedConfig(EmbeddingConfig):
    """Options of split methods whose server draws the same batches as FedVS's server."""

    segments: int = Field(
        1,
        ge=1,
        description=(
            "Number K of segments of a FedVS run for comparison. Both then draw the same batches."
        ),
    )


def spare(config: Any, parties: int, threshold: int) -> int:
    """Number of uploads to wait for beyond R.

    It is 2A, where A is the option `tolerate_corrupt`. At level active with A = 0 it is T, so that
    T wrong uploads are detected, or less if there are not enough parties. `threshold` is R.
    """
    if config.tolerate_corrupt or config.security != "active":
        return int(2 * config.tolerate_corrupt)
    return max(0, min(int(config.privacy), parties - threshold))


def corrected_or_detected(config: Any) -> None:
    """Refuse 0 < A < T at level active (ValueError), as an honest party could be accused."""
    A, T = config.tolerate_corrupt, config.privacy
    if config.security == "active" and 0 < A < T:
        raise ValueError(
            f"security = active: with tolerate_corrupt = {A} below T = {T}, T liars can have "
            f"an honest holder named. Use 0, which detects wrong uploads, or at least {T}"
        )
