"""FedLocal SSL: every party pre-trains without labels on its own, then all train split.

The baselines FedLocalSimSiam, -BYOL and -MoCo of VFLHLP (Li et al., 2024, section 5.3, after He et
al., 2022): each client trains its encoder on all its rows by self-supervised learning, and starts
split training on the aligned rows from the result. ``method = "scarf"`` pre-trains as VFLHLP's
passive parties do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field

from securevfl.models.pretraining.trainer import Pretraining, PretrainingOptions, check_rows
from securevfl.models.weights import load_weights, weights_of
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import MessageSpec, with_formulas
from securevfl.protocols.base.options import EmbeddingConfig
from securevfl.protocols.base.split_parties import SplitClient, SplitServer
from securevfl.protocols.base.split_training import DownstreamProtocol


class SslLocalConfig(PretrainingOptions, EmbeddingConfig):
    """Options of FedLocal SSL."""

    method: Literal["simsiam", "byol", "moco", "scarf"] = Field(
        "simsiam", description="Self-supervised method by which every client pre-trains alone."
    )
    aggregation: Literal["mean", "concat", "max"] = Field(
        "concat", description="How embeddings are joined to the head's input."
    )


@dataclass(eq=False, repr=False)
class Client(SplitClient):
    """Client k: pre-trains on all its rows, then trains on the aligned ones."""

    pretraining: Pretraining = field(kw_only=True)
    method: str = field(kw_only=True)

    async def setup(self) -> None:
        """Pre-train, and start from the result."""
        losses = self.pretraining.run(self.features, self.secret_stream)
        self.record("pretrained", how=self.method, **losses)
        load_weights(self.network, weights_of(self.pretraining.encoder))


class SslLocal(DownstreamProtocol):
    """Self-supervised pre-training at each party, then split training."""

    name = "ssl_local"
    Config = SslLocalConfig
    check_options: ClassVar[dict[str, Any]] = {"pretrain_epochs": 2, "pretrain_batch": 32}
    small_options: ClassVar[dict[str, int]] = {"pretrain_epochs": 2}
    card = Card(
        title="FedLocal SSL: self-supervised pre-training at every party",
        paper="He et al., A Hybrid Self-Supervised Learning Framework for Vertical Federated "
        "Learning, 2022 (FedLocalSimSiam, -BYOL, -MoCo)",
        roles={
            "server": "holds the labels and the head",
            "client": "holds some columns and an encoder, which it pre-trains without labels",
        },
        sees={
            "server": "every client's embedding of every batch of aligned rows, exactly",
            "client": "dL/dH of its own embedding, and the batches",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=(
            "BYOL's loss is the mean of both directions, not their sum; MoCo has both directions",
            "learning rates, epochs, widths of heads and the memory's first keys are ours",
            "views replace part of the features by values of other rows, as SCARF does",
        ),
    )

    def __init__(self, config: SslLocalConfig, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        for k in self.peers():
            check_rows(self.name, f"client {k}", len(self.all_rows(k)))

    def server(self) -> SplitServer:
        """The server."""
        return self.make_server(SplitServer)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Messages of split training: pre-training sends none."""
        return with_formulas(self.step_messages(), self.step_formulas)

    def client(self, index: int) -> Client:
        """Client `index`, from 0."""
        network, features = self.client_network(index), self.data.train[index]
        return Client(
            index,
            self.peers(),
            self.layout,
            features,
            network,
            pretraining=self.pretraining(index, self.objective(index, self.config.method)),
            method=self.config.method,
        )

    def describe(self) -> dict[str, Any]:
        """Numbers of the base class, and the method."""
        return super().describe() | {"method": self.config.method}
