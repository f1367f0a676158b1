"""VFLHLP: pre-train locally on everything, then train split on the few rows that are aligned.

W. Li, X. Guo, X. Jiao, T. Huang, X. Yan, Y. Yang, "Vertical Federated Learning Hybrid Local
Pre-training", 2024. Client 0 is the active party: it and the server, which holds the labels and the
head, are one organisation. Client k > 0 are the passive parties.

1. Client 0 trains an encoder and a head on all its labelled rows: Theta^1, Theta^0 (equation 4).
2. Each passive client trains its encoder on all its rows by SCARF: Theta^k (equations 5 and 6).
3. Algorithm 1, on the aligned rows: passive encoders start from Theta^k, and
   L = L_vfl + beta/2 (|theta^1 - Theta^1|^2 + |theta^0_s - Theta^0|^2)  (equations 7 and 8),
   where theta^0_s is that part of the head which reads client 0's embedding.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER
from securevfl.errors import ConfigurationError
from securevfl.models.pretraining.trainer import (
    Pretraining,
    ProximalTerm,
    SupervisedOptions,
    check_rows,
    check_stop,
    pretraining_optimizer,
)
from securevfl.models.split import Centre
from securevfl.models.weights import load_weights, weights_of
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import (
    Formula,
    MessageKey,
    MessageSpec,
    RunSecrets,
    in_setup,
    with_formulas,
)
from securevfl.protocols.base.options import EmbeddingConfig
from securevfl.protocols.base.split_parties import SplitClient, SplitServer
from securevfl.protocols.base.split_training import DownstreamProtocol

_IMAGES = ("conv", "vgg13")  # server models whose first layer is no Linear one


class VflhlpConfig(SupervisedOptions, EmbeddingConfig):
    """Options of VFLHLP."""

    variant: Literal["full", "a", "p", "none"] = Field(
        "full",
        description=(
            "Whose pre-training is used: full (everybody's), a (the active party's, "
            "VFLHLP-A), p (the passive parties', VFLHLP-P), or none, which is split "
            "learning."
        ),
    )
    beta: float = Field(
        0.1,
        ge=0,
        description=(
            "Weight of the proximal term, which holds the active party's model near the one"
            " that it trained alone."
        ),
    )
    clip: float | None = Field(
        None,
        gt=0,
        description=(
            "Largest norm of the gradient of the active party's bottom model, and of the "
            "server model, in joint training, the proximal term included. It bounds steps of "
            "optimizer = sgd; those of adam hardly depend on it. Default: no bound."
        ),
    )
    corruption: float = Field(
        0.6,
        ge=0,
        le=1,
        description="Fraction of a row's values that SCARF replaces to make a view of it.",
    )
    temperature: float = Field(
        1.0, gt=0, description="Temperature tau of the contrastive loss InfoNCE."
    )
    aggregation: Literal["mean", "concat", "max"] = Field(
        "concat", description="How embeddings are joined to the head's input."
    )

    @property
    def active(self) -> bool:
        """Whether step 1 is done."""
        return self.variant in ("full", "a")

    @property
    def passive(self) -> bool:
        """Whether step 2 is done."""
        return self.variant in ("full", "p")


@dataclass(eq=False, repr=False)
class ActiveClient(SplitClient):
    """Client 0: step 1, and the proximal term towards Theta^1 in step 3."""

    kept_once: ClassVar[tuple[str, ...]] = ("theta",)

    network: Any
    pretraining: Pretraining = field(kw_only=True)
    config: VflhlpConfig = field(kw_only=True)
    theta: dict[str, np.ndarray] | None = field(default=None, init=False)  # Theta^1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.config.active:
            config = self.config
            self.pull = ProximalTerm(self.network, config.beta, lambda: self.theta, config.clip)

    async def setup(self) -> None:
        """Step 1: minimise F(f(Theta^0; h(Theta^1; X^1)), Y); the head goes to the server."""
        if not self.config.active:
            return
        labels = await self.receive("labels")
        losses = self.pretraining.run(self.features, self.secret_stream, labels)
        self.record("pretrained", how="supervised", **losses)
        self.theta = weights_of(self.pretraining.encoder)
        self.send(SERVER, "head", weights_of(self.pretraining.means))


@dataclass(eq=False, repr=False)
class PassiveClient(SplitClient):
    """Client k > 0: step 2, and split training from its result."""

    network: Any
    pretraining: Pretraining = field(kw_only=True)
    config: VflhlpConfig = field(kw_only=True)

    async def setup(self) -> None:
        """Step 2: minimise InfoNCE of the projections of rows and their corrupted views."""
        if not self.config.passive:
            return
        losses = self.pretraining.run(self.features, self.secret_stream)
        self.record("pretrained", how="scarf", **losses)
        load_weights(self.network, weights_of(self.pretraining.encoder))


@dataclass(eq=False, repr=False)
class Server(SplitServer):
    """Server of the active party: gives its labels to step 1; its head has a proximal term, too."""

    kept_once: ClassVar[tuple[str, ...]] = ("theta",)

    alone_labels: np.ndarray | None = field(kw_only=True)
    config: VflhlpConfig = field(kw_only=True)
    theta: dict[str, np.ndarray] | None = field(default=None, init=False)  # Theta^0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.config.active:
            config = self.config
            self.pull = ProximalTerm(self.centre, config.beta, lambda: self.theta, config.clip)

    async def setup(self) -> None:
        """Send the labels to client 0 of the same organisation, and receive its head."""
        if not self.config.active:
            return
        more = [] if self.alone_labels is None else [self.alone_labels]
        self.send(0, "labels", np.concatenate([self.labels, *more]))
        self.theta = await self.receive("head")


class Vflhlp(DownstreamProtocol):
    """VFLHLP on one data set with few aligned rows."""

    name = "vflhlp"
    Config = VflhlpConfig
    check_options: ClassVar[dict[str, Any]] = {"pretrain_epochs": 2, "pretrain_batch": 32}
    small_options: ClassVar[dict[str, int]] = {"pretrain_epochs": 2}
    card = Card(
        title="VFLHLP: hybrid local pre-training for few aligned rows",
        paper="Li, Guo, Jiao, Huang, Yan, Yang, Vertical Federated Learning Hybrid Local "
        "Pre-training, 2024",
        roles={
            "server": "holds the labels and the head; one organisation with client 0, the active "
            "party",
            "client": "holds some columns and an encoder; client 0 pre-trains on labels, the "
            "others without",
        },
        sees={
            "server": "every client's embedding of every batch of aligned rows, exactly; client "
            "0's own head",
            "client": "dL/dH of its own embedding, and the batches; client 0 besides all labels of "
            "its own rows, which are its organisation's",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent, "
            "the messages between client 0 and its server among it",
        },
        absence="waits",
        deviations=(
            "beta, learning rates, epochs, the corruption rate and tau are ours, for the paper "
            "states none; SCARF's are its authors' (0.6 and 1)",
            "theta^0_s is the columns of the head's first layer that read client 0's embedding, "
            "and all of the other layers and biases; with mean or maximum the whole head",
            "the active party starts step 3 from its initial weights, as Algorithm 1 says, and "
            "pre-trains from the same ones",
            "labels and head go between client 0 and the server as two messages, which the paper "
            "has within one party",
            "InfoNCE without the factor 1/N within the logarithm, a constant",
            "the loss of the history is L_vfl",
        ),
    )

    def __init__(self, config: VflhlpConfig, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        if config.passive:
            for k in self.peers()[1:]:
                check_rows(self.name, f"client {k}", len(self.all_rows(k)))

    @classmethod
    def check_parties(cls, config: VflhlpConfig, parties: int) -> None:
        """Refuse a joint image, of which no part is the active party's."""
        super().check_parties(config, parties)
        check_stop(cls.name, config, on_labels=config.active)
        if config.clip is not None and not config.active:
            raise ConfigurationError(
                f"vflhlp: clip = {config.clip:g} has no use: with variant = {config.variant!r} no "
                "model has a proximal term. Leave it out"
            )
        if config.active and config.aggregation == "concat" and config.centre in _IMAGES:
            raise ConfigurationError(
                f"vflhlp: centre = {config.centre!r} lays all embeddings out as one image, so no "
                "part of it reads the active party's alone; use linear or mlp, or variant = 'p'"
            )

    def server(self) -> Server:
        """The server."""
        return self.make_server(Server, alone_labels=self.data.alone_labels, config=self.config)

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role; client 0 is the active party."""
        return super().roles() | {"active": (0,)}

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Messages between the active party and its server in step 1; then split training."""
        within = (
            MessageSpec("labels", "server", "active", "labels", count=in_setup, source="step 1"),
            MessageSpec("head", "active", "server", "weights", count=in_setup, source="Theta^0"),
        )
        declared = (*(within if self.config.active else ()), *self.step_messages())
        formulas: dict[str, Formula] = {
            "labels": self.labels_of_step_1,
            "head": self.head_of_step_1,
        }
        return with_formulas(declared, self.step_formulas | formulas)

    def labels_of_step_1(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """All labels of client 0's rows."""
        more = [] if self.data.alone_labels is None else [self.data.alone_labels]
        return np.concatenate([self.labels_held(secrets), *more])

    def head_of_step_1(self, secrets: RunSecrets, key: MessageKey) -> dict[str, np.ndarray]:
        """Theta^0: client 0's pre-training, done again with its secret choices."""
        own = self.pretraining(key.sender, self.own_head())
        stream = functools.partial(self.secret_stream, key.sender)
        labels = self.labels_of_step_1(secrets, key)
        own.run(self.rows_held(secrets, key.sender), stream, labels)
        return weights_of(own.means)

    def client(self, index: int) -> SplitClient:
        """Client `index`, from 0."""
        network, features = self.client_network(index), self.data.train[index]
        given = (index, self.peers(), self.layout, features, network)
        means = self.own_head() if index == 0 else self.objective(index, "scarf")
        own = self.pretraining(index, means)
        kind = ActiveClient if index == 0 else PassiveClient
        return kind(*given, pretraining=own, config=self.config)

    def own_head(self) -> Centre:
        """New head f of the active party's own model, as wide as one embedding."""
        stream = self.secret_stream(0, "head")
        return self.centre(optimizer=pretraining_optimizer(self.config), stream=stream)

    def describe(self) -> dict[str, Any]:
        """Numbers of the base class, the variant, and the labelled rows."""
        rows = len(self.labelled()[1]) if self.config.active else 0
        return super().describe() | {"variant": self.config.variant, "labelled_rows": rows}
