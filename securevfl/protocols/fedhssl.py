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

from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import ANNOUNCE, SERVER
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
    Stream,
    batches_of,
    check_rows,
    own_rows,
    pretraining_optimizer,
    self_supervise,
)
from securevfl.models.split import Centre, rows_of
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import (
    Formula,
    MessageKey,
    MessageSpec,
    RunSecrets,
    with_formulas,
)
from securevfl.protocols.base.options import EmbeddingConfig
from securevfl.protocols.base.split_parties import SplitClient, SplitServer
from securevfl.protocols.base.split_training import DownstreamProtocol

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


@dataclass(eq=False, repr=False)
class Client(SplitClient):
    """Client k: pre-trains a cross-party and a local encoder, then trains both side by side."""

    kept: ClassVar[tuple[str, ...]] = ("network", "encoders", "cross", "local")

    network: Any
    _: KW_ONLY
    alone: InitVar[np.ndarray | None]
    encoders: Pair
    cross: Cross
    local: TwoViews
    config: FedHsslConfig

    def __post_init__(self, alone: np.ndarray | None) -> None:
        super().__post_init__()
        self.rows = own_rows(self.features, alone)
        self.local.guidance = self.config.guidance
        cross, encoders = self.cross, self.encoders
        self.local.guide = lambda view: cross.project(encoders.cross, view)

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
        """Step 1: exchange projections of a batch; client 0 does so with each of the others."""
        own = rows_of(self.features, self.batches.samples(batch))
        others = [k for k in self.peers if k != self.index] if self.index == 0 else [0]
        projected = self.cross.project(self.encoders.cross, own).numpy()
        self.broadcast("projection", projected, to=others)
        received = await self.collect("projection", senders=others)
        loss = self.cross.step(self.encoders.cross, own, list(received.values()))
        self.send(SERVER, "met", loss)

    async def learn_locally(self, epoch: int) -> None:
        """Steps 2 and 3: one epoch on all own rows; upper layers and heads are averaged."""
        encoder: Any = self.encoders.local
        loss = self.learn_alone(epoch, self.secret_stream)
        self.send(SERVER, "upper", (len(self.rows), loss, shared_weights(encoder, self.local)))
        load_shared(encoder, self.local, await self.receive("mean"))
        self.network.adopt(self.encoders)

    def learn_alone(self, epoch: int, stream: Stream) -> float:
        """Step 2: an epoch on all own rows; the loss."""
        return self_supervise(
            self.encoders.local,
            self.local,
            self.rows,
            batches_of(len(self.rows), self.config, stream),
            range(epoch, epoch + 1),
            corruption=self.config.corruption,
            stream=stream,
        )


@dataclass(eq=False, repr=False)
class Server(SplitServer):
    """Server: opens the rounds of pre-training, averages upper layers, then trains the head."""

    kept: ClassVar[tuple[str, ...]] = (*SplitServer.kept, "done")

    epochs: int = field(kw_only=True)  # of pre-training
    done: int = field(default=0, init=False)  # rounds of pre-training

    async def run(self) -> None:
        """Global iterations of pre-training, then split training."""
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
        losses = await self.collect("met")
        self.record("pretrained", how="cross", loss=float(np.mean(list(losses.values()))))

    async def open_local(self, epoch: int) -> None:
        """Open step 2, and average the upper layers, weighted by rows (step 3)."""
        self.announce(self.round + 1, ("local", epoch))
        answers = list((await self.collect("upper")).values())
        mean = weighted_mean([own for _, _, own in answers], [rows for rows, _, _ in answers])
        self.broadcast("mean", mean, to=self.peers)
        self.record(
            "pretrained", how="local", loss=float(np.mean([loss for _, loss, _ in answers]))
        )

    def announced(self, batch: np.ndarray) -> Any:
        """Payload of the announcement of a round of split training."""
        return ("split", batch)


class FedHssl(DownstreamProtocol):
    """FedHSSL on one data set."""

    name = "fedhssl"
    Config = FedHsslConfig
    check_options: ClassVar[dict[str, Any]] = {"pretrain_epochs": 2, "pretrain_batch": 32}
    small_options: ClassVar[dict[str, int]] = {"pretrain_epochs": 2}
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
        """Refuse networks without upper layers, and a party without another one."""
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
        """The server."""
        return self.make_server(Server, epochs=self.config.pretrain_epochs)

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role: client 0 is the active party, the others are passive."""
        return super().roles() | {"active": (0,), "passive": tuple(self.peers()[1:])}

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Messages of steps 1 and 3 by turns; then those of split training.

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
        formulas: dict[str, Formula] = {
            "projection": self.projection_at,
            "met": self.loss_of_step_1,
            "upper": self.result_of_step_2,
            "mean": self.mean_of_step_3,
        }
        declared = (opening, *(pretraining if first else ()), *split)
        return with_formulas(declared, self.step_formulas | formulas)

    def announced_at(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """Stage and batch or epoch of the round: steps 1 and 2 by turns, then split training."""
        server, meetings = secrets.state(key), self.layout.per_epoch
        epoch, place = divmod(server["done"], meetings + 1)
        if epoch < self.config.pretrain_epochs:
            cross = ("cross", self.layout.draw(epoch * meetings + place + 1))
            return cross if place < meetings else ("local", epoch)
        over = server["steps"] >= self.config.rounds
        return "stop" if over else ("split", self.layout.draw(server["steps"] + 1))

    def batch_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """Coded rows of a round of step 1 or of split training."""
        batch: np.ndarray = super().batch_at(secrets, key)[1]
        return batch

    def bottom_model(self, index: int) -> Any:
        """Both encoders of a client, side by side."""
        return Pair(*(self.client_network(index, drawn=name) for name in _DRAWN))

    def client_at(self, secrets: RunSecrets, key: MessageKey) -> Client:
        """A client with what it pre-trains as it was when it sent a message."""
        made, state = self.client(key.sender), secrets.state(key)
        for name in ("encoders", "cross", "local"):
            getattr(made, name).load_state_dict(state[name])
        return made

    def aligned_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """Own rows of the batch of step 1."""
        samples = self.layout.samples(self.batch_at(secrets, key))
        return rows_of(self.rows_held(secrets, key.sender), samples)

    def projection_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """Projections of the own rows of a batch."""
        client = self.client_at(secrets, key)
        own = self.aligned_at(secrets, key)
        projected: np.ndarray = client.cross.project(client.encoders.cross, own).numpy()
        return projected

    def loss_of_step_1(self, secrets: RunSecrets, key: MessageKey) -> float:
        """Loss of one step towards the projections that a client was sent."""
        n, sent = key.sender, sorted(secrets.sent("projection", key.round).items())
        received = [one for (_, to), one in sent if to == n]
        before = next(
            MessageKey("projection", key.round, *ends) for ends, _ in sent if ends[0] == n
        )
        client = self.client_at(secrets, before)
        return client.cross.step(client.encoders.cross, self.aligned_at(secrets, key), received)

    def result_of_step_2(self, secrets: RunSecrets, key: MessageKey) -> tuple[Any, ...]:
        """Rows, loss and shared weights after an epoch of local learning, which is done again."""
        before = MessageKey("met", key.round - 1, key.sender, SERVER)
        epoch = secrets.sent(ANNOUNCE, key.round)[SERVER, key.sender][1]
        client, stream = self.client_at(secrets, before), partial(self.secret_stream, key.sender)
        loss = client.learn_alone(epoch, stream)
        weights = shared_weights(client.encoders.local, client.local)  # type: ignore[arg-type]
        return len(client.rows), loss, weights

    def mean_of_step_3(self, secrets: RunSecrets, key: MessageKey) -> dict[str, np.ndarray]:
        """Mean of the clients' upper layers, weighted by rows."""
        answers = [one for _, one in sorted(secrets.sent("upper", key.round).items())]
        return weighted_mean([own for _, _, own in answers], [rows for rows, _, _ in answers])

    def client(self, index: int) -> Client:
        """Client `index`, from 0."""
        local: Any = self.objective(index, self.config.method, "init local")
        cross = Cross(
            self.config.method,
            self.config.width,
            self.config.sizes(),
            stream=self.secret_stream(index, "cross heads"),
            optimizer=pretraining_optimizer(self.config),
        )
        return Client(
            index,
            self.peers(),
            self.layout,
            self.data.train[index],
            self.bottom_model(index),
            alone=self.alone(index),
            encoders=Pair(*(self.pretraining_network(index, name) for name in _DRAWN)),
            cross=cross,
            local=local,
            config=self.config,
        )

    def joint_centre(self, stream: np.random.Generator | None = None) -> Centre:
        """New head, as wide as the aggregated pairs of embeddings."""
        return self.centre(self.aggregation.width(2 * self.config.width), stream=stream)

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Sample indices of an announced batch; None where each party draws its own."""
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
