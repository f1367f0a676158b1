"""FedLocal SSL: each party pre-trains alone without labels, then all train together.

The baselines FedLocalSimSiam, -BYOL and -MoCo of VFLHLP (Li et al., 2024, section 5.3, after He et
al., 2022): each client trains its encoder on all its rows by self-supervised learning, and starts
split training on the aligned rows from the result. ``method = "scarf"`` pre-trains as VFLHLP's
passive parties do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field

from securevfl.models.pretraining.trainer import PretrainingOptions, check_rows
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.open_embeddings import Ideal, OpenClient, OpenEmbeddings, OpenServer
from securevfl.protocols.base.options import EmbeddingConfig
from securevfl.protocols.base.pretraining import Beginning, take_over, tell
from securevfl.protocols.base.split_training import DownstreamProtocol
from securevfl.verified import World


class SslLocalConfig(PretrainingOptions, EmbeddingConfig):
    """Options of FedLocal SSL."""

    method: Literal["simsiam", "byol", "moco", "scarf"] = Field(
        "simsiam", description="Self-supervised method by which every client pre-trains alone."
    )
    aggregation: Literal["mean", "concat", "max"] = Field(
        "concat", description="How embeddings are joined to the head's input."
    )


@dataclass(eq=False, repr=False)
class Client(OpenClient):
    """Client k: pre-trains on all its rows, then trains on the aligned ones."""

    pretraining: Any = field(kw_only=True)
    method: str = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pretraining = Beginning(self, self.pretraining)

    async def setup(self) -> None:
        """Pre-train, then start from the result."""
        await self.pretraining.make(self.features, how=self.method)
        self.network.step(take_over, self.pretraining.own)


class SslLocal(OpenEmbeddings, DownstreamProtocol):
    """Each client pre-trains alone on all its rows, then all train split on the aligned ones.

    All parties learn the losses of pre-training.
    """

    name = "ssl_local"
    ideal_repeats = False
    traced_alone = 3
    Config = SslLocalConfig
    check_options: ClassVar[dict[str, Any]] = {"pretrain_epochs": 2, "pretrain_batch": 32}
    small_options: ClassVar[dict[str, int]] = {"pretrain_epochs": 2}
    traced_options: ClassVar[dict[str, Any]] = {
        "rounds": 2, "batch": 4, "width": 2, "pretrain_epochs": 1, "pretrain_batch": 4,
    }  # fmt: skip
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

    def server(self) -> OpenServer:
        """Create the server."""
        return self.make_server(OpenServer)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Messages of split training: pre-training sends none."""
        return self.step_messages()

    def client(self, index: int) -> Client:
        """Create client `index`, counted from 0."""
        network, features = self.client_network(index), self.data.train[index]
        return Client(
            index,
            self.peers(),
            self.layout,
            features,
            network,
            width=self.config.width,
            pretraining=self.pretraining(index, self.objective(index, self.config.method)),
            method=self.config.method,
        )

    def inputs(self, world: World) -> Ideal:
        """Inputs of all parties after pre-training, whose losses are outputs to all."""
        ideal = super().inputs(world)
        for n, network in ideal.networks.items():
            network.step(take_over, tell(world, n, ("loss",)))
        return ideal

    def describe(self) -> dict[str, Any]:
        """Numbers of the base class, and the method."""
        return super().describe() | {"method": self.config.method}
