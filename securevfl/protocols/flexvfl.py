"""Flex-VFL: each party makes as many local steps after an exchange as its speed permits.

T. Castiglia, S. Wang, S. Patterson, "Flexible Vertical Federated Learning with Heterogeneous
Parties", 2023, arXiv 2208.12672, as its authors' published code has it. In each round all parties
embed one batch; all parties receive all embeddings, the server model and the labels of the batch;
then party n makes Q_n steps on its own part of the model, with all other parts fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER
from securevfl.errors import ConfigurationError
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.split import Centre, rows_of
from securevfl.models.weights import weights_of
from securevfl.privacy.claims import OPEN_EMBEDDINGS, Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import MessageSpec, in_rounds
from securevfl.protocols.base.open_embeddings import OpenClient, OpenEmbeddings, OpenServer
from securevfl.protocols.base.options import EmbeddingConfig
from securevfl.protocols.base.protected_values import Shapes, loaded, weights_in
from securevfl.protocols.base.split_step import gathered
from securevfl.verified import Model, Secret, World


class FlexVflConfig(EmbeddingConfig):
    """Options of Flex-VFL."""

    local_steps: str = Field(
        "5",
        pattern=r"^[1-9][0-9]*(,[1-9][0-9]*)*$",
        description=(
            "Steps Q_n of a client on each exchange: one number for all, or one for each by its "
            "speed, such as 5,5,1."
        ),
    )
    server_steps: int | None = Field(
        None, ge=1, description="Steps of the server on each exchange. Default: those of a client."
    )

    def steps_of(self, client: int) -> int:
        """Local steps Q_n of client n: the only number of the option, or that at place n."""
        numbers = self.local_steps.split(",")
        return int(numbers[client if len(numbers) > 1 else 0])

    def steps_of_server(self) -> int:
        """Local steps Q_0 of the server; by default those of the fastest client."""
        return self.server_steps or max(map(int, self.local_steps.split(",")))


def labels_of(labels: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Labels of the samples; 0 for padding."""
    return rows_of(labels, samples)


def trained(
    network: ClientNetwork,
    features: np.ndarray,
    samples: np.ndarray,
    public: tuple[int, int, Aggregation],
    head: Centre,
    labels: np.ndarray,
    *told: np.ndarray,
) -> np.float32:
    """Local steps of a client, others' embeddings `told` fixed; return the clipped weights' number.

    `public` is (the client's number, Q_n, the rule that joins embeddings).
    """
    own, steps, aggregation = public
    x, places = rows_of(features, samples), np.where(samples < 0, -1, np.arange(len(samples)))
    H, clipped = dict(enumerate(told)), 0
    for _ in range(steps):
        H[own] = network.forward(x)
        joint = gathered(aggregation, H, aggregation.parties)
        _, dH, _ = head.gradients(joint.value, places, labels)
        clipped += network.update(x, joint.backward(dH)[own])
    return np.float32(clipped)


def settled(
    centre: Centre,
    labels: np.ndarray,
    samples: np.ndarray,
    public: tuple[int, Aggregation],
    *told: np.ndarray,
) -> np.float32:
    """Local steps of the server model, all embeddings `told` fixed; return the loss before.

    `public` is (Q_0, the rule that joins embeddings); `samples` are the batch's row numbers.
    """
    steps, aggregation = public
    joint = gathered(aggregation, dict(enumerate(told)), aggregation.parties).value
    losses = [centre.step(joint, samples, labels)[0] for _ in range(steps)]
    return np.float32(losses[0])


@dataclass(frozen=True)
class Exchange:
    """Message to all parties: embeddings and labels of a batch, and the server model."""

    samples: np.ndarray
    H: dict[int, Secret]
    labels: Secret
    W: dict[str, Secret]

    @classmethod
    def of(
        cls, models: tuple[Model, Secret], shapes: Shapes, samples: np.ndarray, H: Mapping[int, Any]
    ) -> Exchange:
        """Exchange of a batch of rows `samples` with embeddings H, from (server model, labels)."""
        centre, labels = models
        own = labels.map(labels_of, samples, shape=(len(samples),), dtype=None)
        return cls(samples, dict(sorted(H.items())), own, weights_in(centre, shapes))

    def train_client(
        self, network: Model, features: Secret, head: Model, public: tuple[int, int, Aggregation]
    ) -> Secret:
        """Local steps of a client (`public`: see `trained`); the number of clipped weights."""
        head.step(loaded, tuple(self.W), *self.W.values())
        given = (features, self.samples, public, head, self.labels, *self.H.values())
        clipped: Secret
        (clipped,) = network.step(trained, *given, shapes=[()])
        return clipped

    def train_server(
        self, centre: Model, labels: Secret, public: tuple[int, Aggregation]
    ) -> Secret:
        """Local steps of the server (`public`: see `settled`); the loss before them."""
        loss: Secret
        (loss,) = centre.step(settled, labels, self.samples, public, *self.H.values(), shapes=[()])
        return loss


@dataclass(eq=False, repr=False)
class Client(OpenClient):
    """Client n: embeds its rows of a batch, then makes Q_n local steps.

    Attributes
    ----------
    steps : int
        Number Q_n of local steps.
    head : Model
        Its copy of the server model; passed as a `Centre`.
    aggregation : Aggregation
        Rule that joins the embeddings.
    """

    kept: ClassVar[tuple[str, ...]] = ("network", "head")
    protected: ClassVar[Mapping[str, Any]] = {"embedding": "real", "exchange": ("real",) * 3}

    _: KW_ONLY
    steps: int
    head: Any
    aggregation: Aggregation

    def __post_init__(self) -> None:
        super().__post_init__()
        self.head: Model = self.own_model("head", self.head)

    async def train(self, batch: np.ndarray) -> None:
        """One round: send the embedding, receive the exchange, make the local steps."""
        samples = self.batches.samples(batch)
        self.send(SERVER, "embedding", self.embed(samples))
        told = Exchange(samples, *await self.receive("exchange"))
        public = self.index, self.steps, self.aggregation
        clipped = told.train_client(self.network, self.features, self.head, public)
        self.note(clipped)

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch, and three times as many for each of Q_n steps."""
        return super().operations(kind) * (1 + 3 * self.steps)


@dataclass(eq=False, repr=False)
class Server(OpenServer):
    """Server: sends all parties the data for their steps, and makes Q_0 steps of its own."""

    protected = Client.protected

    local_steps: int = 1

    def __post_init__(self) -> None:
        self.shapes = {name: one.shape for name, one in weights_of(self.centre).items()}
        super().__post_init__()

    def train(self, batch: np.ndarray, embeddings: Mapping[int, Secret]) -> None:
        """Exchange of a round, then the server's own steps."""
        models = self.centre, self.labels
        told = Exchange.of(models, self.shapes, self.samples(batch), embeddings)
        self.broadcast("exchange", (told.H, told.labels, told.W))
        loss = told.train_server(*models, (self.local_steps, self.aggregation))
        self.steps += 1
        self.record("round", step=self.steps, loss=loss, used=len(embeddings))


class FlexVfl(OpenEmbeddings, EmbeddingProtocol):
    """Flex-VFL on one data set."""

    name = "flexvfl"
    ideal_repeats = False
    Config = FlexVflConfig
    no_class_weights: ClassVar[str] = "clients are told the labels of one batch at a time"
    traced_options: ClassVar[dict[str, Any]] = {"rounds": 2, "batch": 2, "width": 2, "hidden": 2}
    card = Card(
        title="Flex-VFL",
        paper="Castiglia, Wang, Patterson, 2023, arXiv 2208.12672",
        roles={
            "server": "holds the labels and the server model; tells all clients both",
            "client": "holds some columns and a network; makes Q_n steps on each exchange",
        },
        sees={
            "server": "every client's embedding of every batch, exactly",
            "client": "the same, the labels of every batch, and the server model before each round",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=(
            "written by the authors' published code; the paper's text was not at hand",
            "labels and server model are told in each round; in the code all parties have them",
            "optimisers keep their state from round to round; in the code they begin anew",
            "rates that adapt to changing speeds are not here",
            "Q_n are given, and do not follow from times that are measured",
        ),
    )

    @classmethod
    def check_parties(cls, config: FlexVflConfig, parties: int) -> None:
        """Raise ConfigurationError unless `local_steps` has 1 number, or one for each client."""
        super().check_parties(config, parties)
        numbers = len(config.local_steps.split(","))
        if numbers not in (1, parties):
            raise ConfigurationError(
                f"flexvfl: local_steps = {config.local_steps!r} has {numbers} numbers, and there "
                f"are {parties} clients; give one for all, or one for each"
            )

    def server(self) -> Server:
        """Create the server."""
        return self.make_server(Server, local_steps=self.config.steps_of_server())

    def client(self, index: int) -> Client:
        """Create client `index`, counted from 0."""
        network, features = self.client_network(index), self.data.train[index]
        return Client(
            *(index, self.peers(), self.layout, features, network),
            width=self.config.width,
            steps=self.config.steps_of(index),
            head=self.joint_centre(self.stream("head")),
            aggregation=self.aggregation,
        )

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Declared messages: an embedding of each client and the exchange, in each round."""
        exchange = MessageSpec(
            *("exchange", "server", "client", "labels"),
            count=in_rounds,
            source="all embeddings, the labels, the server model",
        )
        return (*self.step_messages()[:2], exchange)

    def ideal(self, world: World) -> None:
        """Declare outputs: embeddings, labels and server model to all, and the loss."""
        ideal, models = (
            self.inputs(world),
            (world.the(SERVER, "centre"), world.the(SERVER, "labels")),
        )
        shapes = {name: one.shape for name, one in weights_of(self.joint_centre()).items()}
        heads = {n: world.the(n, "head") for n in self.peers()}
        for r in world.rounds("embedding"):
            samples = self.layout.samples(self.layout.draw(r))
            H = {n: ideal.embed(n, samples, self.config.width) for n in self.peers()}
            told = Exchange.of(models, shapes, samples, H)
            world.output("labels", told.labels, to=self.peers(), alone=True)
            for value in told.W.values():
                world.output("server model", value, to=self.peers(), alone=True)
            for n, value in told.H.items():
                others = [m for m in self.peers() if m != n]
                world.output(f"embedding of party {n}", value, to=others, alone=True)
            for n in self.peers():
                public = n, self.config.steps_of(n), self.aggregation
                clipped = told.train_client(ideal.networks[n], ideal.columns[n], heads[n], public)
                if ideal.bounded:
                    world.output(f"clipped weights of party {n}", clipped, alone=True)
            loss = told.train_server(*models, (self.config.steps_of_server(), self.aggregation))
            world.output("loss", loss, alone=True)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of no protection: everything is sent to all."""
        clear = "embeddings are told to all clients in the clear"
        return (
            *OPEN_EMBEDDINGS[:2],
            Claim("client", "features", "none", clear),
            Claim("client", "model", "none", clear),
            Claim("client", "labels", "none", "they are told to all clients in the clear"),
        )
