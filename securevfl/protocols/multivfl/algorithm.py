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

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.data.alignment.align import align
from securevfl.engine.party import ANNOUNCE, SERVER, kept_as
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.server_optimizers import ServerOptimizer, average
from securevfl.models.split import Batches, Centre
from securevfl.models.weights import load_weights, weights_of
from securevfl.privacy.mechanisms import clip_gradient
from securevfl.privacy.release_counts import after_release, refuse_exceeding, refuse_repeated
from securevfl.protocols.base.open_embeddings import (
    FIELD,
    embedding,
    joint_step,
    stepped,
    updated,
)
from securevfl.protocols.base.protected_values import Shapes, loaded, mean_of, weight, weights_in
from securevfl.protocols.multivfl.parameters import ActivationNoise
from securevfl.verified import Model, Participant, Secret, bare_of


def mean_weight(model: Any, name: str, *others: Any) -> np.ndarray:
    """Mean of several models' arrays with this name."""
    found: np.ndarray = average([{name: weight(one, name)} for one in (model, *others)])[name]
    return found


def begun_anew(model: Any, first: Any, names: Sequence[str], *weights: np.ndarray) -> None:
    """Put weights into a model, with a new optimiser like that of `first`."""
    model.load_state_dict(copy.deepcopy(first.state_dict()))
    loaded(model, names, *weights)


def aggregated(
    optimizer: ServerOptimizer, names: Sequence[str], *arrays: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Weights of the new top model (`ServerAggregation`), from W and then each W^S_k, by names."""
    every = [
        dict(zip(names, arrays[n : n + len(names)], strict=True))
        for n in range(0, len(arrays), len(names))
    ]
    made = optimizer.aggregate(every[0], every[1:])
    return tuple(made[name] for name in names)


def chosen(labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Labels of the rows with these numbers."""
    found: np.ndarray = labels[rows]
    return found


class Copies:
    """Copies W^C_{d,k} of data owner d's bottom model, one for each label owner k.

    Parameters
    ----------
    first : Model
        A bottom model with the initial weights, and a new optimiser; it does not change.
    networks : mapping of int to Model
        Such models by label owner.
    shapes : mapping
        Shape of each weight of such a model, by name.
    """

    def __init__(self, first: Model, networks: Mapping[int, Model], shapes: Shapes) -> None:
        self.first, self.networks, self.shapes = first, dict(networks), shapes

    def merge(self) -> None:
        """Replace all copies by their mean W^C_d, with new local optimisers (lines 12, 13)."""
        one, *others = self.networks.values()
        W = [one.call(mean_weight, name, *others, shape=s) for name, s in self.shapes.items()]
        for network in self.networks.values():
            network.step(begun_anew, self.first, tuple(self.shapes), *W)

    def state_dict(self) -> dict[str, Any]:
        """State of each copy."""
        return {str(k): network.state_dict() for k, network in self.networks.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the copies from `state_dict`."""
        for k, own in state.items():
            self.networks[int(k)].load_state_dict(own)


class DataOwner(Participant):
    """Data owner d: holds columns, and a copy of its bottom model for each label owner.

    Attributes
    ----------
    features : Secret, (M, d_n)
        Its columns of all training rows.
    ids : sequence of str
        Identifiers of these rows.
    copies : Copies
        W^C_{d,k} for all k.
    width, batch : int
        Width h of an activation, and rows of the largest batch.
    private : bool
        Whether samples are aligned by private set intersection.
    privacy : ActivationNoise or None
        Noise of released activations; None for none.
    limit : int
        Releases of a row that its epsilon allows.
    merged : int
        Global round that the copies have begun; 1 at first.
    released : bytes
        Number of releases of each row (`securevfl.privacy.release_counts`). Seeded noise protects
        nothing, so it is not counted.
    rows : dict of str to ndarray
        Rows of each label owner's samples, in the order agreed by all parties.
    """

    kept: ClassVar[tuple[str, ...]] = (
        *("copies", "merged"),
        *kept_as("passing", "released", ahead=True),
        *kept_as("once", "rows"),  # as setup aligned them
    )
    begins_once = True
    activities: ClassVar[Mapping[str, str]] = {"embedding": "upload"}
    protected: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        ANNOUNCE: "real",
        "embedding": ("public", "real"),
        "gradient": ("public", "real"),
        "weights": ("number", "real"),
    }

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        features: np.ndarray,
        ids: Sequence[str],
        make: Callable[[], ClientNetwork],
        owners: Sequence[int],
        *,
        width: int,
        batch: int,
        private: bool,
        privacy: ActivationNoise | None,
        limit: int,
    ) -> None:
        super().__init__(index, peers, FIELD)
        first = make()
        self.bound, self.multiply_adds = first.bound, first.operations
        shapes = {name: value.shape for name, value in weights_of(first).items()}
        copies = {k: self.own_model(f"network {k}", make()) for k in owners}
        self.copies = Copies(self.own_model("network", first), copies, shapes)
        self.features, self.ids = self.own("columns", features), ids
        self.width, self.batch, self.private = width, batch, private
        self.privacy, self.limit = privacy, limit
        self.merged, self.released = 1, b""
        self.rows: dict[str, np.ndarray] = {}

    async def setup(self) -> None:
        """Find, for each label owner, the rows that it and all data owners have."""
        for k in self.copies.networks:
            others = [n for n in (*self.peers, k) if n != self.index]
            self.rows[str(k)] = await align(self, self.ids, others, private=self.private)

    async def run(self) -> None:
        """Answer the label owners until the server sends "stop".

        The first request of a new round shows that all label owners have ended the last one, so
        the copies are merged before it is answered (lines 11 to 13).
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

    def embed(self, owner: int, rows: np.ndarray) -> Secret:
        """Activations A_{d,k} of some rows, by the copy for a label owner."""
        shape = (len(rows), self.width)
        A: Secret = self.copies.networks[owner].call(embedding, self.features, rows, shape=shape)
        return A

    def answer(self, owner: int, number: int, places: np.ndarray) -> None:
        """Send A_{d,k} of rows at `places` in batch `number` to an owner, noised if configured."""
        rows = self.rows[str(owner)][places]
        if self.privacy is not None:
            self.count_release(rows, owner)
        A = self.embed(owner, rows)  # lines 4 and 5
        if self.privacy is not None:
            A = self.release(A, self.privacy, owner, number, rows)
        self.send(owner, "embedding", ((owner, places), A), round=number)

    def release(
        self, A: Secret, noise: ActivationNoise, owner: int, number: int, rows: np.ndarray
    ) -> Secret:
        """Rows of A clipped to norm C, with Gaussian noise of standard deviation sigma."""
        seed = self.stream("noise", owner, number).bytes(32) if noise.seeded else None
        name = f"activations {number} for {owner}"
        A_: Secret = self.gaussian(A.clip(noise.clip), noise.sigma, name=name, rows=rows, seed=seed)
        return A_

    def count_release(self, rows: np.ndarray, owner: int) -> None:
        """Count a release of these rows before sending; PrivacyError beyond the budget."""
        who = f"multivfl: data owner {self.index}, by label owner {owner},"
        refuse_repeated(rows, who)
        if self.privacy is None or self.privacy.seeded:
            return
        refuse_exceeding(self.released, rows, self.limit, who)
        self.released = after_release(self.released, rows, self.features.shape[0])
        self.write_ahead()

    def back_propagate(self, owner: int, places: np.ndarray, gradient: Secret) -> None:
        """Step the copy W^C_{d,k} with the gradient dA_{d,k} (`DataOwnerBackProp`)."""
        rows = self.rows[str(owner)][places]
        if self.privacy is not None:
            # What was sent is c(A) with c(a) = a min(1, C / |a|): the chain rule has c's derivative
            # between.
            gradient = self.embed(owner, rows).map(clip_gradient, gradient, self.privacy.clip)
        network = self.copies.networks[owner]
        (clipped,) = network.step(updated, self.features, rows, gradient, shapes=[()])
        if self.bound is not None:
            count = int(self.opened(clipped, "clipped weights"))
            if count:
                self.record("clipped", weights=count, bound=self.bound)

    @property
    def network(self) -> ClientNetwork:
        """Mean W^C_d of the copies, for the experimenter's evaluation."""
        networks = [bare_of(one) for one in self.copies.networks.values()]
        merged: ClientNetwork = copy.deepcopy(networks[0])
        load_weights(merged, average([weights_of(one) for one in networks]))
        return merged

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, counted as in FedVS."""
        return self.batch * self.multiply_adds if kind == "embedding" else 0


class LabelOwner(Participant):
    """Label owner k: holds the labels of some samples, and trains a top model on them.

    Attributes
    ----------
    labels : Secret
        Labels of its samples.
    ids : sequence of str
        Identifiers of its samples.
    make : callable
        New top model, with a new local optimiser; its first weights are public.
    batch_stream : callable
        Public stream of its batches: the requests name their samples.
    batch, epochs : int
        Samples of a batch, and number E of local epochs.
    private : bool
        Whether samples are aligned by private set intersection.
    rows : ndarray of int
        Places of the aligned samples in `labels`, in the order that the data owners know.
    """

    kept: ClassVar[tuple[str, ...]] = kept_as("once", "rows")
    protected = DataOwner.protected

    def __init__(
        self,
        index: int,
        peers: Sequence[int],  # the data owners
        labels: np.ndarray,
        ids: Sequence[str],
        make: Callable[[], Centre],
        aggregation: Aggregation,
        batch_stream: Callable[..., np.random.Generator],
        *,
        batch: int,
        epochs: int,
        private: bool,
    ) -> None:
        super().__init__(index, peers, FIELD)
        self.labels, self.ids, self.make = self.own("labels", labels), ids, make
        self.aggregation, self.batch_stream = aggregation, batch_stream
        self.batch, self.epochs, self.private = batch, epochs, private
        self.rows = np.empty(0, np.int64)

    async def setup(self) -> None:
        """Find the samples in common with the data owners."""
        self.rows = await align(self, self.ids, self.peers, private=self.private)

    async def run(self) -> None:
        """Train E local epochs in each round, from the server's top model (lines 2 to 10)."""
        async for round_ in self.rounds():
            with round_:
                W = round_.payload
                centre = self.own_model("top", self.make())
                centre.step(loaded, tuple(W), *W.values())
                labels = self.labels.map(chosen, self.rows, shape=self.rows.shape)
                batches = Batches(len(self.rows), 1, self.batch, self.batch_stream)
                steps = self.epochs * batches.per_epoch
                losses = [
                    await self.step(centre, batches, labels, (self.round - 1) * steps + n)
                    for n in range(1, steps + 1)
                ]
                shapes = {name: one.shape for name, one in W.items()}
                self.send(SERVER, "weights", (mean_of(losses), weights_in(centre, shapes)))

    async def step(self, centre: Model, batches: Batches, labels: Secret, number: int) -> Secret:
        """Train on one batch: get activations, send gradients back; returns the loss."""
        places = batches.samples(batches.draw(number))
        for d in self.peers:
            self.send(d, "request", (self.round, places), round=number)
        answers = await self.collect("embedding", senders=self.peers, round=number)  # line 3
        A = {d: answers[d][1] for d in self.peers}
        loss, gradients = joint_step(  # lines 4 to 7
            centre, stepped, labels, places, self.aggregation, A
        )
        for d, gradient in gradients.items():
            self.send(d, "gradient", ((self.index, places), gradient), round=number)  # line 8
        return loss


class Server(Participant):
    """Aggregation server: combines the label owners' top models by a server optimiser.

    Attributes
    ----------
    data_owners, label_owners : sequence of int
        Numbers of the data owners and label owners.
    centre : Model
        The common top model.
    optimizer : Model
        Server optimiser, which moves the common top model towards the received ones.
    max_steps, epochs : int
        Number R of rounds, and E of local epochs.
    privacy : ActivationNoise or None
        Noise of the data owners' activations, for the cost in the history.
    steps : int
        Global rounds that are over.
    """

    kept: ClassVar[tuple[str, ...]] = ("centre", "optimizer", "steps")
    protected = DataOwner.protected

    def __init__(
        self,
        data_owners: Sequence[int],
        label_owners: Sequence[int],
        centre: Centre,
        optimizer: ServerOptimizer,
        *,
        max_steps: int,
        epochs: int,
        privacy: ActivationNoise | None,
    ) -> None:
        super().__init__(SERVER, (*data_owners, *label_owners), FIELD)
        self.data_owners, self.label_owners = data_owners, label_owners
        self.shapes = {name: value.shape for name, value in weights_of(centre).items()}
        self.centre = self.own_model("centre", centre)
        self.optimizer = self.own_model("optimizer", optimizer)
        self.max_steps, self.epochs, self.privacy, self.steps = max_steps, epochs, privacy, 0

    async def run(self) -> None:
        """Aggregate the label owners' top models in each round (lines 1, 9, 10)."""
        while self.steps < self.max_steps:
            self.safe_point()
            W = weights_in(self.centre, self.shapes)
            self.announce(self.round + 1, W, to=self.label_owners)
            answers = await self.collect("weights", senders=self.label_owners)
            trained = [own for _, own in answers.values()]
            aggregate(self.centre, self.optimizer, W, trained)
            self.steps += 1
            loss = mean_of([loss for loss, _ in answers.values()])
            self.record("round", step=self.steps, loss=loss, used=len(answers), **self.cost())
        self.conclude(to=self.label_owners)
        self.broadcast("stop", None, to=self.data_owners)

    def cost(self) -> dict[str, float]:
        """Epsilon spent so far on a row's releases; empty without noise."""
        if self.privacy is None:
            return {}
        return {"epsilon_total": self.privacy.spent(self.steps * self.epochs)}


def aggregate(
    centre: Model,
    optimizer: Model,
    W: Mapping[str, Secret],
    trained: Sequence[Mapping[str, Secret]],
) -> None:
    """Put the server optimiser's result for W and all W^S_k into the common top model."""
    names = tuple(W)
    arrays = [one[name] for one in (W, *trained) for name in names]
    shapes = [one.shape for one in W.values()]
    centre.step(loaded, names, *optimizer.step(aggregated, names, *arrays, shapes=shapes))
