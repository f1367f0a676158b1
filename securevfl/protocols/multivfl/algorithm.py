"""Multi-VFL: split learning with several data owners and several label owners.

V. Mugunthan, P. Goyal, L. Kagal, "Multi-VFL: A Vertical Federated Learning System for Multiple Data
and Label Owners", 2021, Algorithm 1. D data owners hold columns, K label owners the labels of
different samples. In a global round every label owner trains on its own samples for E local epochs
by split learning with all data owners, each of whom has one copy of its network for each label
owner. Then an aggregation server makes one network of the label owners' by a server optimiser
(`securevfl.models.server_optimizers`), and each data owner averages its K copies.

Ours: cut-layer activations can be clipped and noised, with the cost accounted for as in Wait-DP
(one row of one data owner replaced, the weights given).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np

from securevfl.data.alignment.align import align
from securevfl.engine.party import SERVER, Party
from securevfl.field.sampling import SYSTEM, SeededSource
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.server_optimizers import ServerOptimizer, average
from securevfl.models.split import Batches, Centre
from securevfl.models.weights import load_weights, weights_of
from securevfl.privacy.mechanisms import clip_gradient, release_rows
from securevfl.privacy.release_counts import after_release, refuse_exceeding, refuse_repeated
from securevfl.protocols.base.split_step import gathered, split_step
from securevfl.protocols.multivfl.parameters import Privacy


class Copies:
    """A data owner's networks, one for each label owner: W^C_{d,k}.

    Parameters
    ----------
    make : callable
        New network with the initial weights, and a new optimiser.
    owners : sequence of int
        Numbers of the label owners.
    """

    def __init__(self, make: Callable[[], ClientNetwork], owners: Sequence[int]) -> None:
        self.make = make
        self.networks = {k: make() for k in owners}

    def merged(self) -> ClientNetwork:
        """A network with the mean of the copies' weights."""
        network = self.make()
        load_weights(network, average([weights_of(copy) for copy in self.networks.values()]))
        return network

    def merge(self) -> None:
        """Give every copy the mean of them (lines 12 and 13), and a new local optimiser."""
        weights = weights_of(self.merged())
        for k in self.networks:
            self.networks[k] = self.make()
            load_weights(self.networks[k], weights)

    def state_dict(self) -> dict[str, Any]:
        """State of each copy."""
        return {str(k): network.state_dict() for k, network in self.networks.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        for k, own in state.items():
            self.networks[int(k)].load_state_dict(own)


class DataOwner(Party):
    """Data owner d: columns, and a network for each label owner.

    Attributes
    ----------
    limit : int
        Releases of a row that its epsilon allows.
    released : bytes
        How often it has released each row (`securevfl.privacy.release_counts`). Seeded noise
        protects nothing and repeats itself, so it is not counted.
    """

    kept: ClassVar[tuple[str, ...]] = ("copies", "merged")
    kept_ahead: ClassVar[tuple[str, ...]] = ("released",)
    kept_optional: ClassVar[Mapping[str, Any]] = {"released": b""}
    kept_once: ClassVar[tuple[str, ...]] = ("rows",)  # as setup aligned them
    activities: ClassVar[Mapping[str, str]] = {"embedding": "upload"}

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        features: np.ndarray,
        ids: Sequence[str],
        copies: Copies,
        *,
        batch: int,
        private: bool,
        privacy: Privacy | None,
        limit: int,
    ) -> None:
        super().__init__(index, peers)
        self.limit = limit
        self.released = b""
        self.features = features
        self.ids = ids
        self.copies = copies
        self.batch = batch
        self.private = private
        self.privacy = privacy
        self.merged = 1  # the global round whose copies these are
        self.rows: dict[str, np.ndarray] = {}

    async def setup(self) -> None:
        """Find the samples in common with each label owner."""
        for k in self.copies.networks:
            others = [n for n in (*self.peers, k) if n != self.index]
            self.rows[str(k)] = await align(self, self.ids, others, private=self.private)

    async def run(self) -> None:
        """Serve the label owners; the first request of a new round finds the copies merged."""
        while True:
            payload = await self.receive("request", "gradient", "stop", safe=True)
            message = self.envelope
            assert message is not None
            if payload is None:
                self.copies.merge()
                return
            if message.kind == "request":
                round, places = payload
                if round > self.merged:  # the server began it when all were through with the last
                    self.copies.merge()
                    self.merged = round
                self.answer(message.sender, message.round, places)
            else:
                self.learn(message.sender, *payload)

    def answer(self, owner: int, number: int, places: np.ndarray) -> None:
        """Send the activations of a batch (`DataOwnerUpdate`), clipped and noised if asked to."""
        rows = self.rows[str(owner)][places]
        if self.privacy is not None:
            self.count(rows, owner)
        embedding = self.copies.networks[owner].forward(self.features[rows])
        if self.privacy is not None:
            seeded = self.privacy.seeded
            source = (
                SeededSource(self.stream("noise", owner, number).bytes(32)) if seeded else SYSTEM
            )
            embedding = release_rows(
                embedding, bound=self.privacy.clip, sigma=self.privacy.sigma, source=source
            )
        self.send(owner, "embedding", ((owner, places), embedding), round=number)

    def count(self, rows: np.ndarray, owner: int) -> None:
        """Count a release of these rows before it leaves; refuse what epsilon does not allow."""
        who = f"multivfl: data owner {self.index}, by label owner {owner},"
        refuse_repeated(rows, who)
        if self.privacy is None or self.privacy.seeded:
            return
        refuse_exceeding(self.released, rows, self.limit, who)
        self.released = after_release(self.released, rows, len(self.features))
        self.write_ahead()

    def learn(self, owner: int, named: tuple[int, np.ndarray], gradient: np.ndarray) -> None:
        """Step the owner's copy (`DataOwnerBackProp`)."""
        _, places = named
        own, network = self.features[self.rows[str(owner)][places]], self.copies.networks[owner]
        if self.privacy is not None:
            gradient = clip_gradient(network.forward(own), gradient, self.privacy.clip)
        clipped = network.update(own, gradient)
        if clipped:
            self.record("clipped", weights=clipped, bound=network.bound)

    @property
    def network(self) -> ClientNetwork:
        """The mean of the copies."""
        return self.copies.merged()

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, as FedVS counts them."""
        first = next(iter(self.copies.networks.values()))
        return self.batch * first.operations if kind == "embedding" else 0


@dataclass(eq=False, repr=False)
class LabelOwner(Party):
    """Label owner k: the labels of some samples, and the network beyond the cut."""

    kept_once: ClassVar[tuple[str, ...]] = ("rows",)

    index: int
    peers: Sequence[int]  # the data owners
    labels: np.ndarray
    ids: Sequence[str]
    make: Callable[[], Centre]
    aggregation: Aggregation
    public: Callable[..., np.random.Generator]
    _: KW_ONLY
    batch: int
    epochs: int
    private: bool

    def __post_init__(self) -> None:
        super().__init__(self.index, self.peers)
        self.rows = np.empty(0, np.int64)

    async def setup(self) -> None:
        """Find the samples in common with the data owners."""
        self.rows = await align(self, self.ids, self.peers, private=self.private)

    async def run(self) -> None:
        """Train locally in each global round, on the weights that the server announces."""
        async for round_ in self.rounds():
            with round_:
                centre = self.make()
                load_weights(centre, round_.payload)
                labels = self.labels[self.rows]
                batches = Batches(len(labels), 1, self.batch, self.public)
                steps = self.epochs * batches.per_epoch
                losses = [
                    await self.step(centre, batches, labels, (self.round - 1) * steps + n)
                    for n in range(1, steps + 1)
                ]
                self.send(SERVER, "weights", (float(np.mean(losses)), weights_of(centre)))

    async def step(
        self, centre: Centre, batches: Batches, labels: np.ndarray, number: int
    ) -> float:
        """One mini-batch: forward with all activations, back to all data owners; its loss."""
        places = batches.samples(batches.draw(number))
        for d in self.peers:
            self.send(d, "request", (self.round, places), round=number)
        answers = await self.collect("embedding", senders=self.peers, round=number)
        embeddings = {d: answers[d][1] for d in self.peers}
        joint = gathered(self.aggregation, embeddings, len(self.peers))
        step = split_step(centre, joint, places, labels)
        for d, gradient in step.gradients.items():
            self.send(d, "gradient", ((self.index, places), gradient), round=number)
        return step.loss


@dataclass(eq=False, repr=False)
class Server(Party):
    """The aggregation server: the label owners' common network, and the server optimiser."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "optimizer", "steps")

    data_owners: Sequence[int]
    label_owners: Sequence[int]
    centre: Centre
    optimizer: ServerOptimizer
    _: KW_ONLY
    max_steps: int
    epochs: int
    privacy: Privacy | None
    steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__init__(SERVER, (*self.data_owners, *self.label_owners))

    async def run(self) -> None:
        """Aggregate what the label owners have trained, once a round (`ServerAggregation`)."""
        while self.steps < self.max_steps:
            self.safe_point()
            weights = weights_of(self.centre)
            self.announce(self.round + 1, weights, to=self.label_owners)
            answers = await self.collect("weights", senders=self.label_owners)
            received = [trained for _, trained in answers.values()]
            load_weights(self.centre, self.optimizer.aggregate(weights, received))
            self.steps += 1
            loss = float(np.mean([own for own, _ in answers.values()]))
            self.record("round", step=self.steps, loss=loss, used=len(answers), **self.cost())
        self.conclude(to=self.label_owners)
        self.broadcast("stop", None, to=self.data_owners)

    def cost(self) -> dict[str, float]:
        """Epsilon that the releases of a row have cost so far."""
        if self.privacy is None:
            return {}
        return {"epsilon_total": self.privacy.spent(self.steps * self.epochs)}
