"""Split training as the last stage of methods that pre-train: its client, its server, its facts.

It is the training of `split`, waiting for everybody: with the same seed and without pre-training it
gives the same run, bit for bit. Protocols derive from these classes what comes before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.models.aggregation import Aggregation, gather
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.pretext import Objective, make_objective
from securevfl.models.pretraining import Pretraining, own_rows, pretraining_optimizer
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.privacy.claims import OPEN_EMBEDDINGS, Claim
from securevfl.protocols.protocol import EmbeddingProtocol


class SplitClient(Party):
    """Client k: embeds its rows of the batch and steps with the gradient."""

    kept: ClassVar[tuple[str, ...]] = ("network",)
    network: Any

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        batches: Batches,
        features: np.ndarray,
        network: ClientNetwork,
    ) -> None:
        super().__init__(index, peers)
        self.batches = batches
        self.features = features
        self.network = network

    async def run(self) -> None:
        """Take part in every round."""
        async for round_ in self.rounds():
            with round_:
                await self.take_part(round_.payload)

    async def take_part(self, announced: Any) -> None:
        """Do what a round is for: a step of split training, which its batch announces."""
        await self.train(announced)

    async def train(self, batch: np.ndarray) -> None:
        """One step of split training."""
        own = rows_of(self.features, self.batches.samples(batch))
        self.send(SERVER, "embedding", self.network.forward(own))
        clipped = self.network.update(own, await self.receive("gradient"))
        if clipped:
            self.record("clipped", weights=clipped, bound=self.network.bound)

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, as FedVS counts them."""
        samples = self.batches.coded * self.batches.segments
        return samples * int(self.network.operations) if kind == "embedding" else 0


class SplitServer(Party):
    """Aggregates all embeddings and trains the centre."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps")

    def __init__(
        self,
        peers: Sequence[int],
        batches: Batches,
        aggregation: Aggregation,
        centre: Centre,
        labels: np.ndarray,
        *,
        rounds: int,
    ) -> None:
        super().__init__(SERVER, peers)
        self.batches = batches
        self.aggregation = aggregation
        self.centre = centre
        self.labels = labels
        self.wanted = rounds
        self.steps = 0

    async def run(self) -> None:
        """One step a round, with the embeddings of all."""
        while self.steps < self.wanted:
            self.safe_point()
            batch = self.batches.draw(self.steps + 1)
            self.announce(self.round + 1, self.announced(batch))
            self.train(batch, await self.collect("embedding"))
        self.conclude()

    def announced(self, batch: np.ndarray) -> Any:
        """What opens a round of split training."""
        return batch

    def train(self, batch: np.ndarray, embeddings: dict[int, np.ndarray]) -> None:
        """Update the centre and return dL/dH_k; padded rows have no loss and no gradient."""
        samples = self.batches.samples(batch)
        stack, present = gather(embeddings, len(self.peers))
        joint = self.aggregation.combine(stack, present)
        loss, gradient = self.centre.step(joint, samples, self.labels)
        self.steps += 1
        for k in embeddings:
            self.send(k, "gradient", self.aggregation.gradient(gradient, stack, present, k))
        self.record("round", step=self.steps, loss=loss, used=len(embeddings))


class DownstreamProtocol(EmbeddingProtocol):
    """A method that pre-trains, then trains split on the aligned rows."""

    def alone(self, index: int) -> np.ndarray | None:
        """Rows that client `index` holds alone; None where no party has any."""
        return self.data.alone[index] if self.data.alone else None

    def all_rows(self, index: int) -> np.ndarray:
        """All rows of client `index`, the aligned ones first."""
        return own_rows(self.data.train[index], self.alone(index))

    def labelled(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of client 0 with a label, the aligned ones first, and the labels."""
        data = self.data
        if data.alone_labels is None:
            return data.train[0], data.train_labels
        return self.all_rows(0), np.concatenate([data.train_labels, data.alone_labels])

    def pretraining_network(self, index: int, drawn: str = "init") -> ClientNetwork:
        """New network of client `index`, as it begins, with the optimiser of pre-training."""
        optimizer = pretraining_optimizer(self.config)
        return self.client_network(index, optimizer=optimizer, drawn=drawn)

    def objective(self, index: int, method: str, drawn: str = "init") -> Objective:
        """New self-supervised objective of client `index`, for a network of that stream."""
        return make_objective(
            method,
            self.config.width,
            self.config.sizes(),
            make_target=lambda: self.pretraining_network(index, drawn),
            stream=self.secret_stream(index, "heads"),
            optimizer=pretraining_optimizer(self.config),
        )

    def pretraining(self, index: int, means: Centre | Objective) -> Pretraining:
        """What client `index` trains before, by a head or an objective."""
        encoder = self.pretraining_network(index)
        return Pretraining(self.config, encoder, self.alone(index), means)

    def describe(self) -> dict[str, Any]:
        """N, |B|, and whose rows are used."""
        held = [len(self.all_rows(k)) for k in self.peers()]
        return {
            "N": self.data.parties,
            "batch_rows": self.batch_rows,
            "aligned_rows": self.data.rows,
            "rows_of_each_party": held,
        }

    @property
    def claims(self) -> tuple[Claim, ...]:
        """None: embeddings are sent in the clear."""
        return OPEN_EMBEDDINGS
