"""Parties of split training whose server learns sums of embeddings, in provable form.

Each method hides the sum in its own way: secagg_split by masks, he_split by encryption. This module
has the common parts: the client's embedding and step, the server's rounds, and the sums that a
trusted party would release (`SummedEmbeddings.ideal`). A new method that hides sums in another way
writes `SummedClient.train` (docs/own-protocol.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.errors import RangeError
from securevfl.field import FixedPoint, PrimeField
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.verified import Element, Participant, Provable, Schedule, Secret, World, usual


class SummedConfig(SegmentedConfig):
    """Options of methods whose server learns sums of embeddings."""

    aggregation: Literal["mean"] = Field(
        "mean",
        description="How embeddings are joined. Only sums are possible here, so it is their mean.",
    )
    bits: int = Field(
        24,
        ge=1,
        le=52,
        description=(
            "Number of fractional bits of an embedding's values, which are rounded to integers."
        ),
    )


def embedding(
    network: ClientNetwork,
    features: np.ndarray,
    samples: np.ndarray,
    point: FixedPoint,
    limit: int,
    refusal: str,
) -> np.ndarray:
    """Quantised embedding of the rows `samples` (-1: of zeros), field elements, (rows, h).

    RangeError with the text `refusal` if a magnitude exceeds `limit`, because a sum could then
    overflow. The error reveals one bit about the client's data, as the method's card states.
    """
    x = point.quantize(network.forward(rows_of(features, samples)))
    largest = int(np.abs(point.field.signed(x)).max(initial=0))
    if largest > limit:
        raise RangeError(refusal.replace("LARGEST", str(largest)))
    return x


def update(
    network: ClientNetwork,
    features: np.ndarray,
    samples: np.ndarray,
    gradient: np.ndarray,
    divisor: int,
) -> np.ndarray:
    """Step of a client's network with dL/dH / `divisor` on `samples`; number of clipped weights."""
    clipped = network.update(rows_of(features, samples), gradient / np.float32(divisor))
    return np.array(clipped, np.float32)


def loss_and_gradient(
    centre: Centre,
    total: np.ndarray,
    labels: np.ndarray,
    samples: np.ndarray,
    point: FixedPoint,
    summands: int,
    divisor: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Step of the server's model on the mean embedding; return the loss and dL/dH / `divisor`.

    `total` is the sum of integers 2^bits H_n of so many `summands`, (rows, h): field elements, or
    int64. `samples` are indices into `labels`, -1 for padding. RunError when the loss is not
    finite.
    """
    exact = total.dtype == np.int64
    mean = (total * 2.0**-point.bits if exact else point.dequantize(total)) / summands
    loss, gradient = centre.step(mean, samples, labels)
    return np.array(loss, np.float32), gradient / np.float32(divisor)


def some(clipped: np.ndarray) -> np.ndarray:
    """Truth value, a NumPy array: True if any weight was clipped."""
    return clipped > 0


class SummedClient(Participant):
    """Client n (`index`): holds some columns and a network of output `width`.

    It rounds embeddings to the fixed-point numbers `point`.

    Attributes
    ----------
    batches : Batches
        Layout that maps an announced batch to samples.
    features : Secret, (M, d)
        Columns of all training rows.
    network : Model
        The client's bottom model, a `ClientNetwork`.
    limit : int
        Largest magnitude of a quantised embedding.
    refusal : str
        Text of the error for a larger one, with placeholders {round} and {client}.
    """

    kept: ClassVar[tuple[str, ...]] = ("network",)
    protected: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        "embedding": "field",
        "gradient": "real",
    }

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        batches: Batches,
        features: np.ndarray,
        network: ClientNetwork,
        point: FixedPoint,
        limit: int,
        refusal: str,
        width: int,
    ) -> None:
        super().__init__(index, peers, point.field)
        self.batches, self.point, self.limit, self.refusal = batches, point, limit, refusal
        self.width, self.bound, self.multiply_adds = width, network.bound, int(network.operations)
        self.features = self.own("columns", features)
        self.network = self.own_model("network", network)

    async def run(self) -> None:
        """Take part in every round; leave a round that ends before its gradient comes."""
        async for round_ in self.rounds():
            with round_:
                await self.train(self.batches.samples(round_.payload))

    async def train(self, samples: np.ndarray) -> None:
        """One training step: send the hidden embedding, then `update` with dL/dH (abstract)."""
        raise NotImplementedError

    def quantised(self, samples: np.ndarray) -> Element:
        """Quantised embedding x_n; RangeError if a sum of such values could wrap."""
        text = self.refusal.format(round=self.round, client=self.index)
        rest = self.point, self.limit, text
        shape = (len(samples), self.width)
        x: Element = self.network.call(
            embedding, self.features, samples, *rest, shape=shape, field=self.field
        )
        return x

    def update(self, samples: np.ndarray, gradient: Any, divisor: int = 1) -> None:
        """Step with dL/dH_n; a number of clipped weights is recorded as an event."""
        (clipped,) = self.network.step(
            update, self.features, samples, gradient, divisor, shapes=[()]
        )
        if self.bound is not None and self.opened(clipped.map(some, dtype=bool), "clipped"):
            self.record("clipped", weights=clipped.map(np.rint, dtype=np.int64), bound=self.bound)

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, counted as in FedVS."""
        samples = self.batches.coded * self.batches.segments
        return samples * self.multiply_adds if kind == "embedding" else 0


class SummedServer(Participant):
    """Server: holds the labels and the server model, of input `width`.

    It reads sums as fixed-point numbers `point`; `batches` has the layout and draw of batches.

    Attributes
    ----------
    centre : Model
        The server model, a `Centre`.
    labels : Secret, (M,)
        Labels of all training rows.
    max_steps, steps : int
        Number of steps after which the run ends, and so far.
    answered : ndarray, (N,)
        Number of rounds in which each client was in the sum.
    """

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "answered")
    protected = SummedClient.protected
    divides: ClassVar[bool] = True  # dL/dH among the clients, or leaves that to them

    def __init__(
        self,
        peers: Sequence[int],
        batches: Batches,
        centre: Centre,
        labels: np.ndarray,
        point: FixedPoint,
        width: int,
        max_steps: int,
    ) -> None:
        super().__init__(SERVER, peers, point.field)
        self.batches, self.point, self.width, self.max_steps = batches, point, width, max_steps
        self.centre = self.own_model("centre", centre)
        self.labels = self.own("labels", labels)
        self.steps, self.answered = 0, np.zeros(len(self.peers), np.int64)

    async def run(self) -> None:
        """Make one step in each round in which `aggregate` gives a sum."""
        while self.steps < self.max_steps:
            self.safe_point()
            batch = self.next_batch()
            self.announce(self.round + 1, batch)
            found = await self.aggregate()
            if found is not None:
                self.train(self.batches.samples(batch), *found)
        self.conclude()

    def next_batch(self) -> np.ndarray:
        """Row numbers, within segments, of the next round's batch."""
        return self.batches.draw(self.round + 1)

    async def aggregate(self) -> tuple[Any, Sequence[int]] | None:
        """Sum of all embeddings, and the clients in it; None, in subclasses, gives up the round."""
        uploads = await self.collect("embedding", senders=self.peers)
        return sum(uploads.values()), tuple(uploads)

    def details(self) -> dict[str, Any]:
        """Further fields of a round for the history; none here."""
        return {}

    def train(self, samples: np.ndarray, total: Any, summed: Sequence[int]) -> None:
        """One step on `total`, the sum over clients `summed`: update, send gradients, record."""
        loss, gradient = self.centre.step(
            *(loss_and_gradient, total, self.labels, samples, self.point, len(summed)),
            len(summed) if self.divides else 1,
            shapes=[(), (len(samples), self.width)],
        )
        self.steps += 1
        self.answered[list(summed)] += 1
        self.answer(gradient, summed)
        self.record("round", step=self.steps, loss=loss, used=len(summed), **self.details())

    def answer(self, gradient: Secret, summed: Sequence[int]) -> None:
        """Send dL/dH to the clients in the sum."""
        self.broadcast("gradient", gradient, to=summed)


def usual_of(made: Any) -> tuple[Schedule, ...]:
    """Usual schedules for a proof; if sharing has a timeout, some leave late clients out."""
    shares = getattr(made.config, "share_timeout", None) is not None
    return usual(len(made.peers()), waits=False, shares=shares)


class SummedEmbeddings(Provable, EmbeddingProtocol):
    """A method whose server, or the party that decrypts for it, learns only sums of embeddings.

    Attributes
    ----------
    limit : int
        Largest magnitude of a quantised embedding.
    refusal : str
        Text of the error for a larger one, with {round}, {client} and LARGEST.
    client_kind, server_kind : type
        Classes of the parties, derived from `SummedClient` and `SummedServer`.
    told_to : tuple of int
        Parties that learn the sums.
    """

    tells_sums = True
    weighs_rows = True
    apart = True
    Config: ClassVar[type[BaseModel]] = SummedConfig
    traced_options: ClassVar[Mapping[str, Any]] = {"rounds": 2, "batch": 2, "width": 2, "hidden": 3}
    client_kind: ClassVar[type[SummedClient]] = SummedClient
    server_kind: ClassVar[type[SummedServer]] = SummedServer
    told_to: tuple[int, ...] = (SERVER,)

    def __init__(self, config: Any, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        p, N = getattr(config, "prime", 2**61 - 1), data.parties
        self.point = FixedPoint(PrimeField(p), bits=config.bits)
        # N terms of at most (p-1)/(2N) sum to at most (p-1)/2 in magnitude, which the signed range
        # holds.
        self.limit = (p - 1) // (2 * N)
        self.refusal = (
            f"{self.name}: in round {{round}} client {{client}} has a quantised embedding of "
            f"LARGEST, and floor((p-1)/(2N)) = {self.limit}. Lower bits ({config.bits}) or bound "
            "the weights, or use a larger prime"
        )

    @property
    def field(self) -> PrimeField:
        """Prime field F_p in which embeddings are summed."""
        return self.point.field

    def server(self) -> Any:
        """Create the server."""
        return self.made_server()

    def client(self, index: int) -> Any:
        """Create client `index`, counted from 0."""
        return self.made_client(index)

    def made_client(self, index: int, *more: Any) -> Any:
        """Client `index` of class `client_kind`; `more` are that class's own parameters."""
        return self.client_kind(
            *(index, self.peers(), self.layout, self.data.train[index]),
            *(self.client_network(index), self.point, self.limit, self.refusal),
            *(self.config.width, *more),
        )

    def made_server(self, *more: Any) -> Any:
        """Server of class `server_kind`; `more` are that class's own parameters."""
        return self.server_kind(
            *(self.peers(), self.layout, self.joint_centre(), self.data.train_labels),
            *(self.point, self.config.width, self.config.rounds, *more),
        )

    def summed(self, world: World) -> Mapping[int, Sequence[int]]:
        """Clients in the sum of each round that gave a sum, by the traced messages."""
        return dict.fromkeys(world.rounds("embedding"), self.peers())

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Message declarations: announcement, summed upload (elements of F_p), gradient."""
        opening, upload, gradient = self.step_messages("masked_result", self.field.dtype.name)
        return opening, replace(upload, modulus=self.field.modulus), gradient

    def told_sum(self, total: Element) -> Any:
        """A sum in the form in which the server learns it."""
        return total

    def open_values(self, world: World, embeddings: Mapping[int, Element], round: int) -> None:
        """Declare who may see single embeddings; here nobody."""

    def told_all(self, world: World, name: str, value: Any) -> None:
        """Declare a value as an output to all parties."""
        openers = [n for n in self.told_to if n != SERVER]
        others = [n for n in (SERVER, *self.peers()) if n not in openers]
        world.output(name, value, to=others if openers else None)
        for n in openers:
            world.output(f"{name} of {n}", value, to=[n], alone=True)

    def ideal(self, world: World) -> None:
        """Declare each round's sum over the clients in time, and to all the loss and dL/dH."""
        columns = [world.the(n, "columns") for n in self.peers()]
        networks = [world.the(n, "network") for n in self.peers()]
        centre, labels = world.the(SERVER, "centre"), world.the(SERVER, "labels")
        announced, summed = world.told(ANNOUNCE), self.summed(world)
        for r in world.rounds("embedding"):
            samples = self.layout.samples(announced[r])
            shape = (len(samples), self.config.width)
            embeddings = {
                n: networks[n].call(
                    *(embedding, columns[n], samples, self.point, self.limit),
                    self.refusal.format(round=r, client=n),
                    shape=shape,
                    field=self.field,
                )
                for n in sorted(
                    {m.sender for m in world.messages if (m.kind, m.round) == ("embedding", r)}
                )
            }
            self.open_values(world, embeddings, r)
            if r not in summed:
                continue
            clients = summed[r]
            total = sum(embeddings[n] for n in clients)
            world.output(f"sum {r}", total, to=self.told_to)
            if r not in world.told("gradient"):
                continue
            among = (len(clients), 1) if self.server_kind.divides else (1, len(clients))
            loss, gradient = centre.step(
                *(loss_and_gradient, self.told_sum(total), labels, samples, self.point),
                *(len(clients), among[0]),
                shapes=[(), shape],
            )
            self.told_all(world, f"loss {r}", loss)
            self.told_all(world, f"gradient {r}", gradient)
            for n in sorted(n for n, _ in world.took("gradient").get(r, ())):  # nobody who is down
                (clipped,) = networks[n].step(
                    update, columns[n], samples, gradient, among[1], shapes=[()]
                )
                if self.config.weight_bound is not None:
                    world.output(f"clipped {n} {r}", clipped, alone=True)
