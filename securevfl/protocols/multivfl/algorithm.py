"""Multi-VFL: split learning with several data owners and several label owners.

V. Mugunthan, P. Goyal, L. Kagal, "Multi-VFL: A Vertical Federated Learning System for Multiple Data
and Label Owners", 2021. Line numbers are those of its Algorithm 1, letters those of its Table 1: D
data owners d hold columns, K label owners k hold the labels of different samples. Data owner d has
one bottom model W^C_{d,k} for each label owner, and sends it activations A_{d,k}; label owner k has
a top model W^S_k. In each of R global rounds every label owner trains on its own samples for E
local epochs. Then an aggregation server makes one top model of the K by a server optimiser
(`securevfl.models.server_optimizers`), and each data owner averages its K copies.

Ours: activations can be clipped and noised, with the cost accounted for as in Wait-DP (one row of
one data owner replaced, the weights given).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np

from securevfl.data.alignment.align import align
from securevfl.engine.party import SERVER, Party
from securevfl.field.sampling import SYSTEM, SeededSource, SystemSource
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.server_optimizers import ServerOptimizer, average
from securevfl.models.split import Batches, Centre
from securevfl.models.weights import load_weights, weights_of
from securevfl.privacy.mechanisms import clip_gradient, release_rows
from securevfl.privacy.release_counts import after_release, refuse_exceeding, refuse_repeated
from securevfl.protocols.base.split_step import gathered, split_step
from securevfl.protocols.multivfl.parameters import ActivationNoise


class Copies:
    """Copies of a data owner's bottom model, one for each label owner: W^C_{d,k}.

    Parameters
    ----------
    make : callable
        New bottom model with the initial weights, and a new optimiser.
    owners : sequence of int
        Numbers of the label owners.
    """

    def __init__(self, make: Callable[[], ClientNetwork], owners: Sequence[int]) -> None:
        self.make = make
        self.networks = {k: make() for k in owners}

    def merged(self) -> ClientNetwork:
        """W^C_d: a bottom model with the mean of the copies' weights (line 12)."""
        network = self.make()
        load_weights(network, average([weights_of(copy) for copy in self.networks.values()]))
        return network

    def merge(self) -> None:
        """W^C_{d,k} = W^C_d for every k (line 13), with a new local optimiser."""
        weights = weights_of(self.merged())
        for k in self.networks:
            self.networks[k] = self.make()
            load_weights(self.networks[k], weights)

    def state_dict(self) -> dict[str, Any]:
        """State of each copy."""
        return {str(k): network.state_dict() for k, network in self.networks.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        for k, copy in state.items():
            self.networks[int(k)].load_state_dict(copy)


@dataclass(eq=False, repr=False)
class DataOwner(Party):
    """Data owner d: holds columns, and a copy of its bottom model for each label owner.

    Attributes
    ----------
    features : ndarray, (M, d_n)
        Its columns of all training rows.
    ids : sequence of str
        Identifiers of these rows.
    copies : Copies
        W^C_{d,k} for all k.
    batch : int
        Rows of the largest batch.
    private : bool
        Whether samples are aligned by private set intersection.
    privacy : ActivationNoise or None
        Of released activations; None for none.
    limit : int
        Releases of a row that its epsilon allows.
    merged : int
        The global round that the copies are of.
    released : bytes
        How often it has released each row (`securevfl.privacy.release_counts`). Seeded noise
        protects nothing and repeats itself, so it is not counted.
    rows : dict of str to ndarray
        By label owner, the rows of its samples, in the order that both know.
    """

    kept: ClassVar[tuple[str, ...]] = ("copies", "merged")
    kept_ahead: ClassVar[tuple[str, ...]] = ("released",)
    begins_once = True
    kept_optional: ClassVar[Mapping[str, Any]] = {"released": b""}
    kept_once: ClassVar[tuple[str, ...]] = ("rows",)  # as setup aligned them
    activities: ClassVar[Mapping[str, str]] = {"embedding": "upload"}

    index: int
    peers: Sequence[int]  # the data owners
    features: np.ndarray
    ids: Sequence[str]
    copies: Copies
    _: KW_ONLY
    batch: int
    private: bool
    privacy: ActivationNoise | None
    limit: int
    merged: int = field(default=1, init=False)
    released: bytes = field(default=b"", init=False)
    rows: dict[str, np.ndarray] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        super().__init__(self.index, self.peers)

    async def setup(self) -> None:
        """Find the samples in common with each label owner."""
        for k in self.copies.networks:
            others = [n for n in (*self.peers, k) if n != self.index]
            self.rows[str(k)] = await align(self, self.ids, others, private=self.private)

    async def run(self) -> None:
        """Serve the label owners until the server says stop.

        A request of a new round says that all label owners are through with the last one: the
        copies are merged before it is answered (lines 11 to 13).
        """
        while True:
            payload = await self.receive("request", "gradient", "stop", safe=True)
            message = self.envelope
            assert message is not None
            if payload is None:
                self.copies.merge()
                return
            if message.kind == "request":
                round, places = payload
                if round > self.merged:
                    self.copies.merge()
                    self.merged, self.round = round, round - 1
                    self.safe_point()  # the last round is whole
                self.answer(message.sender, message.round, places)
            else:
                (_, places), gradient = payload
                self.back_propagate(message.sender, places, gradient)

    def answer(self, owner: int, number: int, places: np.ndarray) -> None:
        """Send A_{d,k} of a batch (`DataOwnerUpdate`), clipped and noised if that is wanted."""
        rows = self.rows[str(owner)][places]
        if self.privacy is not None:
            self.count_release(rows, owner)
        A = self.copies.networks[owner].forward(self.features[rows])  # lines 4 and 5
        if self.privacy is not None:
            A = self.release(A, self.privacy, owner, number)
        self.send(owner, "embedding", ((owner, places), A), round=number)

    def release(self, A: np.ndarray, noise: ActivationNoise, owner: int, number: int) -> np.ndarray:
        """Rows of A clipped to norm C, with Gaussian noise of standard deviation sigma."""
        source: SystemSource | SeededSource = SYSTEM
        if noise.seeded:
            source = SeededSource(self.stream("noise", owner, number).bytes(32))
        return release_rows(A, bound=noise.clip, sigma=noise.sigma, source=source)

    def count_release(self, rows: np.ndarray, owner: int) -> None:
        """Count a release of these rows before they are sent; refuse more than epsilon allows."""
        who = f"multivfl: data owner {self.index}, by label owner {owner},"
        refuse_repeated(rows, who)
        if self.privacy is None or self.privacy.seeded:
            return
        refuse_exceeding(self.released, rows, self.limit, who)
        self.released = after_release(self.released, rows, len(self.features))
        self.write_ahead()

    def back_propagate(self, owner: int, places: np.ndarray, gradient: np.ndarray) -> None:
        """Step W^C_{d,k} with dA_{d,k} (`DataOwnerBackProp`)."""
        network = self.copies.networks[owner]
        batch = self.features[self.rows[str(owner)][places]]
        if self.privacy is not None:
            # What was sent is c(A) with c(a) = a min(1, C / |a|): the chain rule has c's derivative
            # between.
            gradient = clip_gradient(network.forward(batch), gradient, self.privacy.clip)
        clipped = network.update(batch, gradient)
        if clipped:
            self.record("clipped", weights=clipped, bound=network.bound)

    @property
    def network(self) -> ClientNetwork:
        """The mean of the copies, W^C_d."""
        return self.copies.merged()

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, as FedVS counts them."""
        first = next(iter(self.copies.networks.values()))
        return self.batch * first.operations if kind == "embedding" else 0


@dataclass(eq=False, repr=False)
class LabelOwner(Party):
    """Label owner k: holds the labels of some samples, and trains a top model on them.

    Attributes
    ----------
    labels : ndarray
        Labels of its samples.
    ids : sequence of str
        Identifiers of its samples.
    make : callable
        New top model, with a new local optimiser.
    batch_stream : callable
        Public stream of its batches: the requests name their samples.
    batch, epochs : int
        Samples of a batch, and E.
    private : bool
        Whether samples are aligned by private set intersection.
    rows : ndarray of int
        Places of the aligned samples in `labels`, in the order that the data owners know.
    """

    kept_once: ClassVar[tuple[str, ...]] = ("rows",)

    index: int
    peers: Sequence[int]  # the data owners
    labels: np.ndarray
    ids: Sequence[str]
    make: Callable[[], Centre]
    aggregation: Aggregation
    batch_stream: Callable[..., np.random.Generator]
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
        """Train for E local epochs in each round, from the server's top model (lines 2 to 10)."""
        async for round_ in self.rounds():
            with round_:
                centre = self.make()
                load_weights(centre, round_.payload)
                labels = self.labels[self.rows]
                batches = Batches(len(labels), 1, self.batch, self.batch_stream)
                steps = self.epochs * batches.per_epoch
                losses = [
                    await self.step(centre, batches, labels, (self.round - 1) * steps + n)
                    for n in range(1, steps + 1)
                ]
                self.send(SERVER, "weights", (float(np.mean(losses)), weights_of(centre)))

    async def step(
        self, centre: Centre, batches: Batches, labels: np.ndarray, number: int
    ) -> float:
        """One batch: activations from all data owners, gradients back to them; the loss."""
        places = batches.samples(batches.draw(number))
        for d in self.peers:
            self.send(d, "request", (self.round, places), round=number)
        answers = await self.collect("embedding", senders=self.peers, round=number)  # line 3
        activations = {d: answers[d][1] for d in self.peers}
        joint = gathered(self.aggregation, activations, len(self.peers))  # line 4
        step = split_step(centre, joint, places, labels)  # lines 5 to 7
        for d, gradient in step.gradients.items():
            self.send(d, "gradient", ((self.index, places), gradient), round=number)  # line 8
        return step.loss


@dataclass(eq=False, repr=False)
class Server(Party):
    """Aggregation server: makes one top model of the label owners' by a server optimiser.

    Attributes
    ----------
    data_owners, label_owners : sequence of int
        Their numbers.
    centre : Centre
        The common top model.
    optimizer : ServerOptimizer
        `opt` of `ServerAggregation`.
    max_steps, epochs : int
        R and E.
    privacy : ActivationNoise or None
        Of the data owners' activations, for the cost in the history.
    steps : int
        Global rounds that are over.
    """

    kept: ClassVar[tuple[str, ...]] = ("centre", "optimizer", "steps")

    data_owners: Sequence[int]
    label_owners: Sequence[int]
    centre: Centre
    optimizer: ServerOptimizer
    _: KW_ONLY
    max_steps: int
    epochs: int
    privacy: ActivationNoise | None
    steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__init__(SERVER, (*self.data_owners, *self.label_owners))

    async def run(self) -> None:
        """Aggregate the label owners' top models once a round (lines 1, 9, 10)."""
        while self.steps < self.max_steps:
            self.safe_point()
            weights = weights_of(self.centre)
            self.announce(self.round + 1, weights, to=self.label_owners)
            answers = await self.collect("weights", senders=self.label_owners)
            trained = [one for _, one in answers.values()]
            load_weights(self.centre, self.optimizer.aggregate(weights, trained))
            self.steps += 1
            loss = float(np.mean([loss for loss, _ in answers.values()]))
            self.record("round", step=self.steps, loss=loss, used=len(answers), **self.cost())
        self.conclude(to=self.label_owners)
        self.broadcast("stop", None, to=self.data_owners)

    def cost(self) -> dict[str, float]:
        """Epsilon that the releases of a row have cost so far."""
        if self.privacy is None:
            return {}
        return {"epsilon_total": self.privacy.spent(self.steps * self.epochs)}
