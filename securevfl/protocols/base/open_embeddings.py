"""Split training whose server sees single embeddings, on protected values, with its outputs.

The server learns each embedding, and client n learns dL/dH_n. The declared outputs state this, and
a proof shows that nothing else is learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.field import PrimeField
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.protocols.base.split_step import gathered, split_step
from securevfl.verified import Model, Participant, Provable, Secret, World

FIELD = PrimeField(2**31 - 1)  # of the trace: no message carries elements of a field


def embedding(network: ClientNetwork, features: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Embedding H_n, (rows, h), of the rows `samples`; -1 is a row of zeros."""
    return network.forward(rows_of(features, samples))


def updated(
    network: ClientNetwork, features: np.ndarray, samples: np.ndarray, gradient: np.ndarray
) -> np.float32:
    """Step of the network with dL/dH_n of the rows `samples`; number of clipped weights."""
    return np.float32(network.update(rows_of(features, samples), gradient))


def stepped(
    centre: Centre,
    labels: np.ndarray,
    samples: np.ndarray,
    aggregation: Aggregation,
    clients: Sequence[int],
    *embeddings: np.ndarray,
) -> tuple[np.ndarray | np.float32, ...]:
    """Step of the server model on these clients' embeddings; return the loss, and each dL/dH_n."""
    joint = gathered(aggregation, dict(zip(clients, embeddings, strict=True)), aggregation.parties)
    step = split_step(centre, joint, samples, labels)
    return np.float32(step.loss), *step.gradients.values()


@dataclass(eq=False, repr=False)
class OpenClient(Participant):
    """Client n: embeds its rows of a batch and steps with the gradient.

    Attributes
    ----------
    index, peers : int, sequence of int
        Number n of the client, and the numbers of all clients.
    batches : Batches
        Layout that maps an announced batch to samples.
    features : Secret, (M, d)
        The client's columns of all training rows; passed as an array.
    network : Model
        The client's bottom model; passed as a `ClientNetwork`.
    width : int
        Width h of an embedding.
    """

    kept: ClassVar[tuple[str, ...]] = ("network",)
    protected: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        "embedding": "real",
        "gradient": "real",
    }

    index: int
    peers: Sequence[int]
    batches: Batches
    features: Any
    network: Any
    _: KW_ONLY
    width: int

    def __post_init__(self) -> None:
        super().__init__(self.index, self.peers, FIELD)
        self.bound, self.multiply_adds = self.network.bound, int(self.network.operations)
        self.features: Secret = self.own("columns", self.features)
        self.network: Model = self.own_model("network", self.network)

    async def run(self) -> None:
        """Take part in every round; leave a round that ends before its gradient comes."""
        async for round_ in self.rounds():
            with round_:
                await self.take_part(round_.payload)

    async def take_part(self, announced: Any) -> None:
        """Do the work of a round: here a step of split training on the announced batch."""
        await self.train(announced)

    async def train(self, batch: np.ndarray) -> None:
        """One step of split training."""
        samples = self.batches.samples(batch)
        self.send(SERVER, "embedding", self.embed(samples))
        self.update(samples, await self.receive("gradient"))

    def embed(self, samples: Any) -> Secret:
        """Embedding H_n of the samples, float32; padding gives zeros."""
        shape = (samples.shape[0], self.width)
        found: Secret = self.network.call(embedding, self.features, samples, shape=shape)
        return found

    def update(self, samples: Any, gradient: Secret) -> None:
        """Step with `gradient`, dL/dH_n; record the number of clipped weights as an event."""
        self.note(self.step(samples, gradient))

    def note(self, clipped: Secret) -> None:
        """Record the number of clipped weights as an event, if weights are bounded."""
        if self.bound is not None:
            count = int(self.opened(clipped, "clipped weights"))
            if count:
                self.record("clipped", weights=count, bound=self.bound)

    def step(self, samples: Any, gradient: Secret) -> Secret:
        """Step of the bottom model with dL/dH_n; returns the number of clipped weights."""
        clipped: Secret
        (clipped,) = self.network.step(updated, self.features, samples, gradient, shapes=[()])
        return clipped

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, counted as in FedVS."""
        samples = self.batches.coded * self.batches.segments
        return samples * self.multiply_adds if kind == "embedding" else 0


@dataclass(eq=False, repr=False)
class OpenServer(Participant):
    """Server of split training: aggregates all clients' embeddings, trains the server model.

    Subclasses override `step` (imputation, stale values), `details` (further fields of a history
    row) and `answer` (messages with gradients).

    Attributes
    ----------
    peers : sequence of int
        Numbers of all clients.
    batches, aggregation : Batches, Aggregation
        Layout and draw of batches, and the rule that joins embeddings.
    centre : Model
        The server model; passed as a `Centre`.
    labels : Secret, (M,)
        Labels; passed as an array.
    max_steps : int
        Number of steps after which the run ends.
    steps : int
        Number of steps so far.
    """

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps")
    protected = OpenClient.protected

    peers: Sequence[int]
    batches: Batches
    aggregation: Aggregation
    centre: Any
    labels: Any
    max_steps: int = field(kw_only=True)
    steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__init__(SERVER, self.peers, FIELD)
        self.centre: Model = self.own_model("centre", self.centre)
        self.labels: Secret = self.own("labels", self.labels)

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

    def train(self, batch: Any, embeddings: Mapping[int, Secret]) -> None:
        """One step: update the server model, send gradients, write a history row.

        Parameters
        ----------
        batch : ndarray or Secret, (|B|,), uint32
            Numbers of rows within segments, from `Batches.draw`; not rows of the table.
        embeddings : mapping of int to Secret, (K|B|, h)
            Embeddings H_n that the step uses, by client.
        """
        samples = self.samples(batch)
        loss, gradients = self.step(embeddings, samples)
        details = self.details(embeddings, samples)
        self.steps += 1
        self.answer(batch, gradients)
        self.record("round", step=self.steps, loss=loss, used=len(gradients), **details)

    def samples(self, batch: Any) -> Any:
        """Row numbers of a batch; see `Batches.samples`."""
        return self.batches.samples(batch)

    def details(self, embeddings: Mapping[int, Secret], samples: Any) -> dict[str, Any]:
        """Further fields of a step for the history; none here."""
        return {}

    def step(
        self, embeddings: Mapping[int, Secret], samples: Any
    ) -> tuple[Secret, dict[int, Secret]]:
        """Loss of a step of the server model, and the gradient of each client that gets one."""
        return joint_step(self.centre, stepped, self.labels, samples, self.aggregation, embeddings)

    def answer(self, batch: Any, gradients: Mapping[int, Secret]) -> None:
        """Send each client its gradient of the batch; `gradients` by client, (rows, h)."""
        for n, gradient in gradients.items():
            self.send(n, "gradient", gradient)


def joint_step(
    centre: Model,
    function: Callable[..., Any],
    labels: Secret,
    samples: Any,
    aggregation: Aggregation,
    embeddings: Mapping[int, Secret],
    *more: Any,
) -> tuple[Secret, dict[int, Secret]]:
    """Step of the protected server model by `function`; return the loss and each client's dL/dH_n.

    `function` has the parameters of `stepped`, with `more` after the labels.
    """
    public = (samples, aggregation, tuple(embeddings))
    shapes = [(), *(one.shape for one in embeddings.values())]
    given = (labels, *more, *public, *embeddings.values())
    loss, *gradients = centre.step(function, *given, shapes=shapes)
    return loss, dict(zip(embeddings, gradients, strict=True))


class Ideal:
    """Ideal functionality of split training: a trusted party's outputs, and who receives each.

    It trains a copy of all models on all inputs, and declares what each party may learn.
    """

    def __init__(self, world: World, clients: Sequence[int], bounded: bool) -> None:
        self.world, self.bounded, self.round = world, bounded, 0
        self.columns = {n: world.the(n, "columns") for n in clients}
        self.networks = {n: world.the(n, "network") for n in clients}
        self.centre = world.the(SERVER, "centre")
        self.labels = world.the(SERVER, "labels")

    def embed(self, client: int, samples: Any, width: int) -> Secret:
        """Embedding H_n of the samples, declared as an output to the server."""
        shape = (samples.shape[0], width)
        made: Secret = self.networks[client].call(
            embedding, self.columns[client], samples, shape=shape
        )
        return self.shown(client, made)

    def shown(self, client: int, made: Secret) -> Secret:
        """Declare an embedding as an output to the server; return it."""
        self.world.output(f"embedding of party {client}", made, to=[SERVER], alone=True)
        return made

    def answer(
        self,
        samples: Any,
        found: tuple[Secret, Mapping[int, Secret]],
        *,
        alone: bool = False,
    ) -> None:
        """Declare outputs of a step, `found`: loss to all, each client's gradient; clients step.

        With `alone`, or with one client, loss and gradients may depend only on labels and on the
        client's own values.
        """
        loss, gradients = found
        alone = alone or len(self.columns) == 1
        self.world.output("loss", loss, alone=alone)
        for n, gradient in gradients.items():
            self.world.output(f"dL/dH of party {n}", gradient, to=[n], alone=alone)
        for n, gradient in gradients.items():
            self.update(n, samples, gradient)

    def update(self, client: int, samples: Any, gradient: Secret) -> None:
        """Step of a client; with bounded weights all parties learn the number of clipped ones."""
        clipped = self.step(client, samples, gradient)
        if self.bounded:
            self.world.output(f"clipped weights of party {client}", clipped, alone=True)

    def step(self, client: int, samples: Any, gradient: Secret) -> Secret:
        """Step of a client's bottom model; returns the number of clipped weights."""
        clipped: Secret
        (clipped,) = self.networks[client].step(
            updated, self.columns[client], samples, gradient, shapes=[()]
        )
        return clipped


class OpenEmbeddings(Provable):
    """Declarations of a split method whose server sees single embeddings.

    It must be the first base class, before an `EmbeddingProtocol`.
    """

    field: ClassVar[PrimeField] = FIELD
    config: Any
    layout: Batches
    aggregation: Aggregation

    def colluders(self) -> int:
        """Number of colluding clients to prove: 1, as several learn only what each one learns."""
        return 1

    def ideal(self, world: World) -> None:
        """Declare outputs: embeddings to the server, dL/dH_n to client n, and the loss to all.

        The senders and the answered clients of a round are public, and depend on the conditions
        only.
        """
        ideal, layout = self.inputs(world), self.layout
        for r in sorted({m.round for m in world.messages if m.kind == "embedding"}):
            ideal.round, of_round = r, [m for m in world.messages if m.round == r]
            samples = layout.samples(layout.draw(self.batch_of(r)))
            sent = {
                m.sender: ideal.embed(m.sender, samples, self.config.width)
                for m in of_round
                if m.kind == "embedding"
            }
            used = {m.to: sent[m.to] for m in of_round if m.kind == "gradient" and m.to is not None}
            if used:
                ideal.answer(samples, self.ideal_step(ideal, samples, used))

    def batch_of(self, round: int) -> int:
        """Number of the batch in a round."""
        return round

    def ideal_step(
        self, ideal: Ideal, samples: np.ndarray, used: Mapping[int, Secret]
    ) -> tuple[Secret, dict[int, Secret]]:
        """A step of the server model on embeddings `used`; (loss, gradients by client)."""
        return joint_step(ideal.centre, stepped, ideal.labels, samples, self.aggregation, used)

    def inputs(self, world: World) -> Ideal:
        """Inputs of all parties, from which the declared outputs are computed."""
        return Ideal(world, self.peers(), self.config.weight_bound is not None)  # type: ignore[attr-defined]
