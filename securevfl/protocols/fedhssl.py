"""FedHSSL: cross-party views of aligned rows, local views of all rows, shared upper layers.

Y. He, Y. Kang, X. Zhao, J. Luo, L. Fan, Y. Han, Q. Yang, "A Hybrid Self-Supervised Learning
Framework for Vertical Federated Learning", 2022. A global iteration of pre-training is

1. cross-party learning: for each batch of aligned rows client 0 and every other client exchange
   projections of their cross-party encoders, and each trains its own towards those it received;
2. local learning: each client trains its local encoder on two views of all its rows, guided by the
   cross-party encoder;
3. partial aggregation: the server averages the local encoders' upper layers and heads.

Then both encoders of each client, side by side, are its network in split training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER
from securevfl.errors import ConfigurationError
from securevfl.models.client_networks import Kind
from securevfl.models.pretraining.cross_party import (
    Cross,
    Pair,
    load_shared,
    shared_weights,
    weighted_mean,
)
from securevfl.models.pretraining.pretext import TwoViews
from securevfl.models.pretraining.trainer import (
    PretrainingOptions,
    check_rows,
    own_rows,
    pretraining_optimizer,
    self_supervise,
)
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.open_embeddings import (
    Ideal,
    OpenClient,
    OpenEmbeddings,
    OpenServer,
)
from securevfl.protocols.base.options import EmbeddingConfig
from securevfl.protocols.base.protected_values import mean_of
from securevfl.protocols.base.split_training import DownstreamProtocol
from securevfl.verified import Model, Secret, Streams, World

_DRAWN = ("init", "init local")  # streams of the first weights of both encoders


class FedHsslConfig(PretrainingOptions, EmbeddingConfig):
    """Options of FedHSSL."""

    client: Kind = Field(
        "mlp", description="Bottom models of the clients. Only mlp has upper layers of one shape."
    )
    method: Literal["simsiam", "byol", "moco"] = Field(
        "simsiam", description="Self-supervised loss of pre-training."
    )
    pretrain_epochs: int = Field(
        20, ge=0, description="Number of global iterations of pre-training, which needs no labels."
    )
    guidance: float = Field(
        0.5,
        ge=0,
        description="Weight gamma of the cross-party encoder in each client's local pre-training.",
    )
    aggregation: Literal["mean", "concat", "max"] = Field(
        "concat", description="How embeddings are joined to the head's input."
    )


# -- functions of protected values ---------------------------------------------------------------


def projection(
    cross: Cross, encoders: Pair, features: np.ndarray, samples: np.ndarray
) -> np.ndarray:
    """Projections z of a batch's rows by the cross-party encoder, (rows, projection)."""
    return cross.project(encoders.cross, rows_of(features, samples)).numpy()


def meet(
    encoders: Pair, cross: Cross, features: np.ndarray, samples: np.ndarray, *received: np.ndarray
) -> float:
    """Step of the cross-party encoder and heads towards received projections; return the loss."""
    return cross.step(encoders.cross, rows_of(features, samples), received)


def learn_alone(
    encoders: Pair,
    local: TwoViews,
    cross: Cross,
    streams: Streams,
    epoch: int,
    how: LocalLearning,
    features: np.ndarray,
    *alone: np.ndarray,
) -> float:
    """Epoch of the local encoder, guided by `cross`, and heads on all own rows; the loss."""
    rows = own_rows(features, *alone or (None,))
    local.guidance, local.guide = how.guidance, partial(cross.project, encoders.cross)
    loss = self_supervise(
        encoders.local,
        local,
        rows,
        Batches(len(rows), 1, how.batch, streams),
        range(epoch, epoch + 1),
        corruption=how.corruption,
        stream=streams,
    )
    local.guide = None
    return loss


def upper(encoders: Any, local: TwoViews) -> tuple[np.ndarray, ...]:
    """Shared weights: upper layers of the local encoder, and its heads."""
    return tuple(shared_weights(encoders.local, local).values())


def put_shared(encoders: Any, local: TwoViews, names: Sequence[str], *weights: np.ndarray) -> None:
    """Replace the shared weights, called `names`, by `weights`, the mean over all clients."""
    load_shared(encoders.local, local, dict(zip(names, weights, strict=True)))


def adopt(network: Pair, encoders: Pair) -> None:
    """Copy both pre-trained encoders into the network for split training."""
    network.adopt(encoders)


def mean_by_rows(first: np.ndarray, rows: Sequence[int], *others: np.ndarray) -> np.ndarray:
    """Mean of a weight over clients, weighted by their row counts."""
    return weighted_mean([{"": one} for one in (first, *others)], rows)[""]


# -- steps of parties, and of their trusted counterpart ------------------------------------------


@dataclass(frozen=True)
class LocalLearning:
    """Settings of step 2: batch rows, fraction of replaced values, guidance gamma."""

    batch: int
    corruption: float
    guidance: float


@dataclass
class Learner:
    """Encoders of a client in pre-training, with the heads of each.

    Attributes
    ----------
    encoders, cross, local : Model
        The two encoders (`Pair`), and their cross-party (`Cross`) and local (`TwoViews`) objective.
    streams, how : Model, LocalLearning
        The client's secret streams; settings of step 2.
    rows : tuple of Secret
        Columns of the aligned rows, and of unaligned rows if any.
    shapes : mapping of str to tuple of int
        Shapes of the shared weights, by name.
    projection : int
        Width of a projection.
    """

    encoders: Model
    cross: Model
    local: Model
    streams: Model
    rows: tuple[Secret, ...]
    how: LocalLearning
    shapes: Mapping[str, tuple[int, ...]]
    projection: int

    def project(self, samples: np.ndarray) -> Secret:
        """Projections z of a batch by the client."""
        shape = (len(samples), self.projection)
        found: Secret = self.cross.call(
            projection, self.encoders, self.rows[0], samples, shape=shape
        )
        return found

    def meet(self, samples: np.ndarray, received: Sequence[Secret]) -> Secret:
        """Step 1 of pre-training, towards others' projections; return the loss."""
        given = self.cross, self.rows[0], samples, *received
        loss: Secret
        (loss,) = self.encoders.step(meet, *given, shapes=[()], of=[np.float64], changes=2)
        return loss

    def learn_alone(self, epoch: int) -> Secret:
        """Step 2 of pre-training, an epoch on all own rows; return the loss."""
        given = self.local, self.cross, self.streams, epoch, self.how, *self.rows
        loss: Secret
        (loss,) = self.encoders.step(learn_alone, *given, shapes=[()], of=[np.float64], changes=2)
        return loss

    def upper(self) -> dict[str, Secret]:
        """Shared weights by name."""
        found = self.encoders.call(upper, self.local, shapes=list(self.shapes.values()))
        return dict(zip(self.shapes, found, strict=True))

    def take_mean(self, mean: Mapping[str, Secret], network: Model) -> None:
        """Step 3: replace the shared weights by the mean; `network` starts from both encoders."""
        self.encoders.step(put_shared, self.local, list(mean), *mean.values(), changes=2)
        network.step(adopt, self.encoders)


def mean_of_weights(
    weights: Sequence[Mapping[str, Secret]], rows: Sequence[int]
) -> dict[str, Secret]:
    """Mean of the weights by name, weighted by the clients' row counts."""
    first, *others = weights
    return {
        name: one.map(mean_by_rows, list(rows), *[w[name] for w in others])
        for name, one in first.items()
    }


# -- the parties ---------------------------------------------------------------------------------

PROTECTED: Mapping[str, Any] = {
    **OpenClient.protected,
    "projection": "real",
    "met": "number",
    "upper": ("public", "number", "real"),
    "mean": "real",
}


@dataclass(eq=False, repr=False)
class Client(OpenClient):
    """Client k: pre-trains a cross-party and a local encoder, then trains both side by side."""

    kept: ClassVar[tuple[str, ...]] = ("network", "encoders", "cross", "local")
    protected = PROTECTED

    _: KW_ONLY
    alone: Any  # an array, (m, d), or None
    encoders: Any
    cross: Any
    local: Any
    how: LocalLearning
    projection: int

    def __post_init__(self) -> None:
        super().__post_init__()
        shared = shared_weights(self.encoders.local, self.local)
        shapes = {name: weight.shape for name, weight in shared.items()}
        self.encoders = self.own_model("encoders", self.encoders)
        self.cross = self.own_model("cross-party heads", self.cross)
        self.local = self.own_model("local heads", self.local)
        self.rows = [self.features]
        if self.alone is not None:
            self.alone = self.own("columns of rows alone", self.alone)
            self.rows.append(self.alone)
        self.shapes = shapes

    @property
    def learner(self) -> Learner:
        """The client's encoders and heads in pre-training."""
        models = self.encoders, self.cross, self.local, self.streams
        return Learner(*models, tuple(self.rows), self.how, self.shapes, self.projection)

    async def take_part(self, announced: Any) -> None:
        """Do the work of the round: cross-party learning, local learning, or split training."""
        stage, what = announced
        if stage == "cross":
            await self.learn_across(what)
        elif stage == "local":
            await self.learn_locally(what)
        else:
            await self.train(what)

    async def learn_across(self, batch: np.ndarray) -> None:
        """Step 1: exchange projections of a batch between client 0 and each other client."""
        learner, samples = self.learner, self.batches.samples(batch)
        others = partners(self.index, self.peers)
        self.broadcast("projection", learner.project(samples), to=others)
        received = await self.collect("projection", senders=others)
        self.send(SERVER, "met", learner.meet(samples, list(received.values())))

    async def learn_locally(self, epoch: int) -> None:
        """Steps 2 and 3: one epoch on all own rows; upper layers and heads are averaged."""
        learner, rows = self.learner, sum(one.shape[0] for one in self.rows)
        loss = learner.learn_alone(epoch)
        self.send(SERVER, "upper", (rows, loss, learner.upper()))
        learner.take_mean(await self.receive("mean"), self.network)


def partners(client: int, clients: Sequence[int]) -> list[int]:
    """Clients with which a client exchanges projections: client 0 with all, others with 0 only."""
    return [k for k in clients if k != client] if client == 0 else [0]


@dataclass(eq=False, repr=False)
class Server(OpenServer):
    """Server: opens the rounds of pre-training, averages upper layers, then trains the head."""

    kept: ClassVar[tuple[str, ...]] = (*OpenServer.kept, "done")
    protected = PROTECTED

    epochs: int = field(kw_only=True)  # of pre-training
    done: int = field(default=0, init=False)  # rounds of pre-training

    async def run(self) -> None:
        """Open the global iterations of pre-training, then the rounds of split training."""
        meetings = self.batches.per_epoch
        while self.done < self.epochs * (meetings + 1):
            self.safe_point()
            epoch, place = divmod(self.done, meetings + 1)
            if place < meetings:
                await self.open_cross_party(epoch * meetings + place + 1)
            else:
                await self.open_local(epoch)
            self.done += 1
        await super().run()

    async def open_cross_party(self, number: int) -> None:
        """Open step 1 on one batch of aligned rows."""
        self.announce(self.round + 1, ("cross", self.batches.draw(number)))
        losses = list((await self.collect("met")).values())
        self.record("pretrained", how="cross", loss=mean_of(losses))

    async def open_local(self, epoch: int) -> None:
        """Open step 2, and average the upper layers, weighted by rows (step 3)."""
        self.announce(self.round + 1, ("local", epoch))
        answers = await self.collect("upper")
        rows = [one for one, _, _ in answers.values()]
        self.broadcast("mean", mean_of_weights([w for _, _, w in answers.values()], rows),
                       to=self.peers)  # fmt: skip
        loss = mean_of([loss for _, loss, _ in answers.values()])
        self.record("pretrained", how="local", loss=loss)

    def announced(self, batch: np.ndarray) -> Any:
        """Payload of the announcement of a round of split training."""
        return ("split", batch)


class IdealFedHssl(Ideal):
    """Ideal functionality of FedHSSL: pre-training, then split training.

    Parameters
    ----------
    world, clients, bounded
        Arguments of `Ideal`.
    learners : mapping of int to Learner
        Pre-trained encoders of each client.
    """

    def __init__(
        self,
        world: World,
        clients: Sequence[int],
        bounded: bool,
        learners: Mapping[int, Learner],
    ) -> None:
        super().__init__(world, clients, bounded)
        self.learners = learners

    def embed(self, client: int, samples: Any, width: int) -> Secret:
        """Embedding H_n, (rows, 2 width), of the rows `samples`: declared output to the server."""
        return super().embed(client, samples, 2 * width)

    def meet(self, samples: np.ndarray) -> None:
        """Step 1: projections are outputs to a client's partners, losses to the server."""
        tell, clients = self.world.output, list(self.learners)
        z = {n: learner.project(samples) for n, learner in self.learners.items()}
        for n, one in z.items():
            tell(f"projection of party {n}", one, to=partners(n, clients), alone=True)
        losses = {
            n: learner.meet(samples, [z[k] for k in partners(n, clients)])
            for n, learner in self.learners.items()
        }
        for n, loss in losses.items():
            tell(f"loss of the meeting of party {n}", loss, to=[SERVER], alone=True)
        tell("mean loss of a meeting", mean_of(list(losses.values())))

    def learn_alone(self, epoch: int) -> None:
        """Steps 2 and 3: losses and upper layers are outputs to the server, means to clients."""
        tell = self.world.output
        losses = {n: learner.learn_alone(epoch) for n, learner in self.learners.items()}
        uppers = {n: learner.upper() for n, learner in self.learners.items()}
        for n, loss in losses.items():
            tell(f"loss of local learning of party {n}", loss, to=[SERVER], alone=True)
            for weight in uppers[n].values():
                tell(f"upper layers of party {n}", weight, to=[SERVER], alone=True)
        rows = [sum(one.shape[0] for one in learner.rows) for learner in self.learners.values()]
        mean = mean_of_weights(list(uppers.values()), rows)
        for weight in mean.values():
            tell("mean of the upper layers", weight, to=list(self.learners))
        tell("mean loss of local learning", mean_of(list(losses.values())))
        for n, learner in self.learners.items():
            learner.take_mean(mean, self.networks[n])


class FedHssl(OpenEmbeddings, DownstreamProtocol):
    """FedHSSL on one data set."""

    name = "fedhssl"
    ideal_repeats = False
    apart = True
    traced_alone = 3
    Config = FedHsslConfig
    check_options: ClassVar[dict[str, Any]] = {"pretrain_epochs": 2, "pretrain_batch": 32}
    small_options: ClassVar[dict[str, int]] = {"pretrain_epochs": 2}
    traced_options: ClassVar[dict[str, Any]] = {
        "rounds": 1, "batch": 4, "width": 2, "hidden": 3, "layers": "2", "pretrain_epochs": 1,
        "pretrain_batch": 8, "projection": 2, "predictor": 2, "memory": 4,
    }  # fmt: skip
    card = Card(
        title="FedHSSL: hybrid self-supervised learning",
        paper="He, Kang, Zhao, Luo, Fan, Han, Yang, A Hybrid Self-Supervised Learning Framework "
        "for Vertical Federated Learning, 2022",
        roles={
            "server": "holds the labels and the head; averages the upper layers of local encoders",
            "client": "holds some columns and two encoders; client 0 is the active party, which "
            "exchanges projections with each other one",
        },
        sees={
            "server": "every client's embedding of every batch of aligned rows, exactly; the upper "
            "layers and heads of every local encoder in each iteration",
            "client": "client 0 the projections of all others for every aligned row, the others "
            "client 0's; the averaged upper layers; dL/dH of its own embedding; the batches",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=(
            "heads are 64 wide, with a predictor of 32, where the authors have 512 and 128; "
            "learning rates, epochs and batches are ours, all by one optimiser",
            "the upper layers are all above the first Linear layer; the mean is by rows held",
            "views replace part of the features by values of other rows, as SCARF does",
            "batch normalisation uses the moments of each batch only",
            "guides come from the cross-party projection of the same view; gamma is ours",
            "no isotropic noise on projections or gradients, which the authors study besides",
        ),
    )

    def __init__(self, config: FedHsslConfig, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        if self.layout.coded < 2:
            check_rows(self.name, "a batch", self.layout.coded)
        for k in self.peers():
            check_rows(self.name, f"client {k}", len(self.all_rows(k)))

    @classmethod
    def check_parties(cls, config: FedHsslConfig, parties: int) -> None:
        """Raise ConfigurationError for networks without upper layers, or a single party."""
        super().check_parties(config, parties)
        upper = len(config.hidden_layers()) or config.degree - 1
        if config.client_kind != "mlp" or upper < 1:
            raise ConfigurationError(
                f"fedhssl: client = {config.client_kind!r} with {config.degree} layers has no "
                "upper layers that parties could share; use client = 'mlp' with degree 2 or "
                "more, or with layers"
            )
        if parties < 2:
            raise ConfigurationError(
                "fedhssl: cross-party learning needs at least 2 parties, and there is 1; use "
                "2 or more"
            )

    def server(self) -> Server:
        """Create the server."""
        return self.make_server(Server, epochs=self.config.pretrain_epochs)

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Party numbers by role: client 0 is the active party, the others are passive."""
        return super().roles() | {"active": (0,), "passive": tuple(self.peers()[1:])}

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Message declarations: steps 1 and 3 in turn, then split training.

        A projection is of single rows, but no attack reads it yet, so it is not `row_by_row`.
        """
        met = MessageSpec("projection", "active", "passive", "embedding", dtype="float32",
                          source="step 1")  # fmt: skip
        pretraining = (
            met,
            replace(met, sender="passive", receiver="active"),
            MessageSpec("met", "client", "server", "measure", source="ours: the loss of step 1"),
            MessageSpec("upper", "client", "server", "weights", source="step 3"),
            MessageSpec("mean", "server", "client", "weights", source="step 3"),
        )
        opening, *step = self.step_messages(width=2 * self.config.width)
        first = self.config.pretrain_epochs * (self.layout.per_epoch + 1)
        split = (replace(one, count=lambda key: int(key.round > first)) for one in step)
        return (opening, *(pretraining if first else ()), *split)

    def batch_of(self, round: int) -> int:
        """Number of the batch in a round of split training."""
        return round - int(self.config.pretrain_epochs) * (self.layout.per_epoch + 1)

    def inputs(self, world: World) -> IdealFedHssl:
        """Inputs of all parties, after pre-training."""
        learners = {n: self.learner(world, n) for n in self.peers() if self.config.pretrain_epochs}
        bounded = self.config.weight_bound is not None
        ideal, meetings = (
            IdealFedHssl(world, self.peers(), bounded, learners),
            self.layout.per_epoch,
        )
        for epoch in range(self.config.pretrain_epochs):
            for place in range(meetings):
                ideal.meet(self.layout.samples(self.layout.draw(epoch * meetings + place + 1)))
            ideal.learn_alone(epoch)
        return ideal

    def learner(self, world: World, index: int) -> Learner:
        """Initial encoders and heads of a client."""
        rows = ("columns", *(("columns of rows alone",) if self.data.alone else ()))
        given = tuple(world.the(index, name) for name in rows)
        own: Any = self.objective(index, self.config.method, "init local")
        shared = shared_weights(self.pretraining_network(index), own)  # type: ignore[arg-type]
        shapes = {name: weight.shape for name, weight in shared.items()}
        return Learner(
            world.the(index, "encoders"),
            world.the(index, "cross-party heads"),
            world.the(index, "local heads"),
            world.the(index, "streams"),
            given,
            self.how,
            shapes,
            self.config.projection,
        )

    @property
    def how(self) -> LocalLearning:
        """Settings of step 2, local learning."""
        config = self.config
        return LocalLearning(config.pretrain_batch, config.corruption, config.guidance)

    def client(self, index: int) -> Client:
        """Create client `index`, counted from 0."""
        local: Any = self.objective(index, self.config.method, "init local")
        cross = Cross(
            self.config.method,
            self.config.width,
            self.config.sizes(),
            stream=self.secret_stream(index, "cross heads"),
            optimizer=pretraining_optimizer(self.config),
        )
        return Client(
            *(index, self.peers(), self.layout, self.data.train[index]),
            Pair(*(self.client_network(index, drawn=name) for name in _DRAWN)),
            width=2 * self.config.width,
            alone=self.alone(index),
            encoders=Pair(*(self.pretraining_network(index, name) for name in _DRAWN)),
            cross=cross,
            local=local,
            how=self.how,
            projection=self.config.projection,
        )

    def joint_centre(self, stream: np.random.Generator | None = None) -> Centre:
        """New head, as wide as the aggregated pairs of embeddings."""
        return self.centre(self.aggregation.width(2 * self.config.width), stream=stream)

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Row numbers of an announced batch; None if each party draws its own."""
        if isinstance(named, tuple):
            stage, batch = named
            return None if stage == "local" else super().named_rows(batch)
        return super().named_rows(named)

    def memory(self) -> int:
        """Bytes of split training, with embeddings twice as wide."""
        return 2 * super().memory()

    def describe(self) -> dict[str, Any]:
        """Numbers of the base class, and the method."""
        return super().describe() | {"method": self.config.method}
