"""Client and server of split training, from which the split methods derive theirs.

Their attributes are fields of dataclasses: a subclass that needs more declares more fields. ``eq``
and ``repr`` stay those of an object, for two parties are never equal, and neither data nor keys may
appear in a traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.protocols.base.split_step import JointEmbedding, SplitStep, gathered, split_step


@dataclass(eq=False, repr=False)
class SplitClient(Party):
    """Client n: embeds its rows of a batch and steps with the gradient.

    Attributes
    ----------
    index, peers : int, sequence of int
        n, and the numbers of all clients.
    batches : Batches
        Which samples an announced batch stands for.
    features : ndarray, (M, d)
        Its columns of all training rows.
    network : ClientNetwork
        Its bottom model.
    """

    kept: ClassVar[tuple[str, ...]] = ("network",)

    index: int
    peers: Sequence[int]
    batches: Batches
    features: np.ndarray
    network: ClientNetwork

    def __post_init__(self) -> None:
        super().__init__(self.index, self.peers)

    async def run(self) -> None:
        """Take part in every round; leave one that ends before its gradient comes."""
        async for round_ in self.rounds():
            with round_:
                await self.take_part(round_.payload)

    async def take_part(self, announced: Any) -> None:
        """Do the work of a round: here a step of split training on the announced batch."""
        await self.train(announced)

    async def train(self, batch: np.ndarray) -> None:
        """One step of split training."""
        own = self.rows_of(batch)
        self.send(SERVER, "embedding", self.embed(own))
        self.update(own, await self.receive("gradient"))

    def rows_of(self, batch: np.ndarray) -> np.ndarray:
        """Own columns of the samples of a coded batch; padding is all zero."""
        return rows_of(self.features, self.batches.samples(batch))

    def embed(self, own: np.ndarray) -> np.ndarray:
        """H_n, float32."""
        return self.network.forward(own)

    def update(self, own: np.ndarray, gradient: np.ndarray) -> None:
        """Step with dL/dH_n; clipped weights are recorded as an event."""
        clipped = self.network.update(own, gradient)
        if clipped:
            self.record("clipped", weights=clipped, bound=self.network.bound)

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, as FedVS counts them."""
        samples = self.batches.coded * self.batches.segments
        return samples * int(self.network.operations) if kind == "embedding" else 0


@dataclass(eq=False, repr=False)
class SplitServer(Party):
    """Server of split training: aggregates all clients' embeddings, trains the server model.

    Three hooks make other methods of it: `join` (imputation, stale values, a decrypted sum),
    `release` (noise on the gradient) and `answer` (receivers and messages of the gradients).

    Attributes
    ----------
    peers : sequence of int
        Numbers of all clients.
    batches : Batches
    aggregation : Aggregation
    centre : Centre
        The server model.
    labels : ndarray, (M,)
    max_steps : int
        Steps after which the run ends.
    steps : int
        Steps so far.
    """

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps")

    peers: Sequence[int]
    batches: Batches
    aggregation: Aggregation
    centre: Centre
    labels: np.ndarray
    max_steps: int = field(kw_only=True)
    steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__init__(SERVER, self.peers)

    async def run(self) -> None:
        """Do one step a round, with the embeddings of all clients."""
        while self.steps < self.max_steps:
            self.safe_point()
            # The batch follows from `steps`, so that a server that is resumed here draws the same
            # one.
            batch = self.batches.draw(self.steps + 1)
            self.announce(self.round + 1, self.announced(batch))
            self.train(batch, await self.collect("embedding"))
        self.conclude()

    def announced(self, batch: np.ndarray) -> Any:
        """Payload of the announcement that opens a round."""
        return batch

    def train(self, batch: np.ndarray, uploads: Any) -> None:
        """One step: join the uploads, update the server model, answer, write a row of the history.

        Parameters
        ----------
        batch : ndarray, (|B|,), uint32
            Coded rows.
        uploads
            Argument of `join`; here the embeddings by client.
        """
        samples = self.batches.samples(batch)
        joint = self.join(uploads, samples)
        step = split_step(self.centre, joint, samples, self.labels, release=self.release)
        self.steps += 1
        self.answer(batch, step)
        self.record("round", step=self.steps, loss=step.loss, used=step.used, **joint.details)

    def join(self, uploads: Any, samples: np.ndarray) -> JointEmbedding:
        """Input of the server model, and how its gradient returns to the clients."""
        return gathered(self.aggregation, uploads, len(self.peers))

    def release(self, gradient: np.ndarray, samples: np.ndarray) -> np.ndarray:
        """Part of dL/dH that clients may see: here all of it."""
        return gradient

    def answer(self, batch: np.ndarray, step: SplitStep) -> None:
        """Send each client its gradient."""
        for n, gradient in step.gradients.items():
            self.send(n, "gradient", gradient)
