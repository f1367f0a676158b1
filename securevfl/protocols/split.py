"""Split learning with averaged embeddings, the plain method that FedVS secures; its float twin.

FedVS, section 2.1: every round each client sends ``H_n = X_pow,n W_n`` of the batch, the server
takes the mean, steps its centre and returns dL/dH. With the same seed it draws the same rows,
batches and initial weights as FedVS. With ``quantized=True`` it computes on the de-quantised data
and weights of FedVS, so that the two histories are equal number for number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER, Party
from securevfl.field import FixedPoint, PrimeField
from securevfl.models.polynomial_network import PolynomialNetwork, expand
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.privacy.claims import Claim
from securevfl.protocols.protocol import Card, SplitProtocol, TrainingConfig

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class SplitConfig(TrainingConfig):
    """Options of split learning."""

    stragglers: Literal["wait"] = Field("wait", description="wait for every client")
    segments: int = Field(1, ge=1, description="K of the FedVS whose batches are to be drawn")
    weight_bound: float | None = Field(None, gt=0, description="bound on |W|, as FedVS enforces it")
    quantized: bool = Field(False, description="round data and weights as FedVS does")
    data_bits: int = Field(20, ge=1, le=52, description="lx, where quantized")
    model_bits: int = Field(24, ge=1, le=52, description="lw, where quantized")


@dataclass(frozen=True)
class Rounding:
    """Quantisers of FedVS, to compute with the values that its field elements stand for."""

    data_point: FixedPoint
    model_point: FixedPoint

    def forward(
        self, network: PolynomialNetwork, rows: np.ndarray, stream: np.random.Generator
    ) -> np.ndarray:
        """Embedding of the rounded powers by the stochastically rounded weights, float64.

        The integers are multiplied in int64, so the product is exact wherever FedVS's is.
        """
        data = self.data_point.round(expand(rows, network.degree))
        model = self.model_point.round(network.values, rng=stream)
        scale = 2.0 ** -(self.data_point.bits + self.model_point.bits)
        embedding: np.ndarray = (data @ model) * scale
        return embedding


class Client(Party):
    """Client n: embeds its rows of the batch, and steps with the gradient."""

    kept: ClassVar[tuple[str, ...]] = ("network",)

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        batches: Batches,
        features: np.ndarray,
        network: PolynomialNetwork,
        rounding: Rounding | None,
    ) -> None:
        super().__init__(index, peers)
        self.batches = batches
        self.features = features
        self.network = network
        self.rounding = rounding

    async def run(self) -> None:
        """Take part in every round."""
        async for round_ in self.rounds():
            with round_:
                own = rows_of(self.features, self.batches.samples(round_.payload))
                self.send(SERVER, "embedding", self.embed(own))
                gradient = await self.receive("gradient")
                clipped = self.network.update(own, gradient / np.float32(len(self.peers)))
                if clipped:
                    self.record("clipped", weights=clipped, bound=self.network.bound)

    def embed(self, own: np.ndarray) -> np.ndarray:
        """H_n, float32; with FedVS's rounding float64."""
        if self.rounding is None:
            return self.network.forward(own)
        return self.rounding.forward(self.network, own, self.stream("rounding", self.round))


class Server(Party):
    """Averages the embeddings of all clients and trains the centre."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps")

    def __init__(
        self,
        peers: Sequence[int],
        batches: Batches,
        centre: Centre,
        labels: np.ndarray,
        rounds: int,
    ) -> None:
        super().__init__(SERVER, peers)
        self.batches = batches
        self.centre = centre
        self.labels = labels
        self.wanted = rounds
        self.steps = 0

    async def run(self) -> None:
        """One step a round."""
        while self.steps < self.wanted:
            self.safe_point()
            batch = self.batches.draw(self.round + 1)
            self.announce(self.round + 1, batch)
            embeddings = await self.collect("embedding")
            self.train(batch, sum(embeddings.values()) / len(embeddings))
        self.conclude()

    def train(self, batch: np.ndarray, embedding: np.ndarray) -> None:
        """Update the centre and broadcast dL/dH; padded rows have no loss and no gradient."""
        samples = self.batches.samples(batch)
        loss, gradient = self.centre.step(embedding, samples, self.labels)
        self.steps += 1
        self.broadcast("gradient", gradient)
        self.record("round", step=self.steps, loss=loss, used=len(self.peers))


class Split(SplitProtocol):
    """Split learning on one data set."""

    name = "split"
    Config = SplitConfig
    card = Card(
        title="Split learning, mean aggregation",
        paper="Ceballos et al., SplitNN-driven vertical partitioning, 2020; FedVS section 2.1",
        roles={
            "server": "holds the labels and the central model",
            "client": "holds some columns and a polynomial network",
        },
        sees={
            "server": "every client's embedding of every batch, exactly",
            "client": "dL/dH and the batches",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=("h, the optimiser, initialisation and batch order are ours, as in FedVS",),
    )

    def __init__(self, config: SplitConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        self.layout = self.batches(config.segments)

    def parties(self) -> dict[int, Party]:
        """The server and N clients."""
        server = Server(
            self.peers(), self.layout, self.centre(), self.data.train_labels, self.config.rounds
        )
        return {SERVER: server} | {n: self.client(n) for n in self.peers()}

    def client(self, index: int) -> Client:
        """Client `index`, from 0."""
        network = self.network(index, bound=self.config.weight_bound)
        features = self.data.train[index]
        return Client(index, self.peers(), self.layout, features, network, self.rounding())

    def rounding(self) -> Rounding | None:
        """FedVS's quantisers, where asked for."""
        if not self.config.quantized:
            return None
        field = PrimeField(2**61 - 1)
        return Rounding(
            FixedPoint(field, bits=self.config.data_bits),
            FixedPoint(field, bits=self.config.model_bits),
        )

    @property
    def batch_rows(self) -> int:
        """|B|."""
        return self.layout.coded

    @property
    def claims(self) -> tuple[Claim, ...]:
        """None: embeddings are sent in the clear."""
        return (
            Claim("server", "features", "none", "embeddings are sent in the clear"),
            Claim("server", "model", "none", "embeddings are sent in the clear"),
            Claim("client", "labels", "none", "dL/dH depends on them"),
        )
