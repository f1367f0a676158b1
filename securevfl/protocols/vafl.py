"""VAFL: vertical asynchronous federated learning.

T. Chen, X. Jin, Y. Sun, W. Yin, "VAFL: a Method of Vertical Asynchronous Federated Learning", 2020,
arXiv 2007.06081, Algorithm 1: each client runs its own loop on its own batches and waits only for
the server; the server keeps the last embedding of every sample and client, and at each arrival
updates the server model and returns the gradient with respect to that client's embedding.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER
from securevfl.engine.streams import Secrets, keyed_stream
from securevfl.models.aggregation import Aggregation
from securevfl.models.split import Batches, Centre
from securevfl.models.stale import LastEmbeddings
from securevfl.privacy.claims import OPEN_EMBEDDINGS, Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import MessageSpec, last_word
from securevfl.protocols.base.open_embeddings import (
    OpenClient,
    OpenEmbeddings,
    OpenServer,
    joint_step,
)
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.protocols.base.split_step import aggregated, split_step
from securevfl.verified import Model, Schedule, Secret, World, usual

_UNANSWERED = 1000  # rounds in a row without an answer after which a client waits without limit


class VaflConfig(SegmentedConfig):
    """Options of VAFL; a round is one arrival at the server."""

    timeout: float | None = Field(
        None,
        gt=0,
        description=(
            "Seconds for which a client waits for its gradient before it starts again with "
            "another batch. Use it where links lose messages. Default: it waits."
        ),
    )


class Order:
    """A client's own secret batches, as input for functions of protected values."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def state_dict(self) -> dict[str, Any]:
        """State that never changes: the first batch, which identifies an order."""
        return {"first": self.batches.draw(1)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: the order has no state."""


def drawn(order: Order, round: int) -> np.ndarray:
    """Batch of a client's round, as row numbers within segments."""
    return order.batches.draw(round)


def samples_of(batch: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Samples of a coded batch, (K |B|,), from the row numbers of all segments, (K, length)."""
    return rows[:, batch].reshape(-1)


def kept(last: LastEmbeddings, client: int, samples: np.ndarray, step: int, H: np.ndarray) -> None:
    """Store a client's embedding H as the newest for these samples, made in a step."""
    last.keep(client, samples, H, step)


def known(last: LastEmbeddings, samples: np.ndarray) -> float:
    """Share of the embeddings of real samples, over all clients, that have ever arrived."""
    return float(last.at(samples)[1][:, samples >= 0].mean())


def stepped(
    centre: Centre,
    labels: np.ndarray,
    last: LastEmbeddings,
    samples: np.ndarray,
    aggregation: Aggregation,
    clients: Sequence[int],
    *_: np.ndarray,
) -> tuple[np.ndarray | np.float32, ...]:
    """Step on `clients`' newest embeddings of samples; return (loss, the sender's dL/dH_n)."""
    joint = aggregated(aggregation, *last.at(samples), clients)
    step = split_step(centre, joint, samples, labels)
    return np.float32(step.loss), *step.gradients.values()


def arrival(
    models: tuple[Model, Secret, Model],
    aggregation: Aggregation,
    sent: Mapping[int, Secret],
    samples: Secret,
    step: int,
) -> tuple[Secret, dict[int, Secret], Secret]:
    """(Loss, the sender's gradient, share of known embeddings) of a step; `sent`: {client: H}."""
    centre, labels, last = models
    ((client, H),) = sent.items()
    last.step(kept, client, samples, step, H)
    found = joint_step(centre, stepped, labels, samples, aggregation, sent, last)
    return *found, last.call(known, samples, shape=(), dtype=np.float64)


def samples_in(layout: Batches, batch: Secret) -> Secret:
    """Samples of a protected coded batch; the layout of rows is public."""
    rows = layout.samples(np.arange(layout.length)).reshape(layout.segments, -1)
    shape = (layout.segments * batch.shape[0],)
    found: Secret = batch.map(samples_of, rows, shape=shape, dtype=np.int64)
    return found


@dataclass(eq=False, repr=False)
class Client(OpenClient):
    """Client m: embeds a batch of its own, waits for its gradient, steps, and repeats."""

    kept: ClassVar[tuple[str, ...]] = ("network", "unanswered")
    protected: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        "embedding": ("real", "real"),
        "gradient": "real",
    }

    timeout: float | None
    unanswered: int = field(default=0, init=False)  # rounds in a row

    def __post_init__(self) -> None:
        super().__post_init__()
        self.order = self.own_model("order", Order(self.batches))

    async def run(self) -> None:
        """Train in own rounds until the server sends "stop"."""
        while True:
            self.safe_point()
            self.round += 1
            batch = self.order.call(drawn, self.round, shape=(self.batches.coded,), dtype=np.uint32)
            samples = samples_in(self.batches, batch)
            self.send(SERVER, "embedding", (batch, self.embed(samples)))
            try:
                gradient = await self.answer()
            except TimeoutError:
                self.unanswered += 1
                continue
            self.unanswered = 0
            if gradient is None:
                return
            self.update(samples, gradient)

    async def answer(self) -> Secret | None:
        """Gradient of this round; None at the end. Gradients of earlier rounds are dropped."""
        # After so many rounds without an answer the server is gone. A wait without end lets the
        # engine see that nothing more can happen, and end the run with an error.
        timeout = self.timeout if self.unanswered < _UNANSWERED else None
        until = None if timeout is None else self.now + timeout
        while True:
            left = None if until is None else max(0.0, until - self.now)
            gradient: Secret | None = await self.receive("gradient", "stop", timeout=left)
            assert self.envelope is not None
            if gradient is None or self.envelope.round == self.round:
                return gradient


@dataclass(eq=False, repr=False)
class Server(OpenServer):
    """Server: stores the last embedding of each sample and client; each arrival is a step."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "last")
    protected = Client.protected
    counts_rounds: ClassVar[bool] = True

    last: Any = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.last = self.own_model("last", self.last)

    async def run(self) -> None:
        """Step at every arrival; embeddings after the last step are late."""
        while self.steps < self.max_steps:
            batch, embedding = await self.receive("embedding", safe=True)
            assert self.envelope is not None
            self.train(batch, {self.envelope.sender: embedding})
        self.broadcast("stop", None)

    def samples(self, batch: Secret) -> Secret:
        """Protected sample numbers of a client's batch (of coded rows)."""
        return samples_in(self.batches, batch)

    def step(
        self, embeddings: Mapping[int, Secret], samples: Secret
    ) -> tuple[Secret, dict[int, Secret]]:
        """Loss and gradient by client (the sender's alone) of a step on the newest embeddings."""
        models = self.centre, self.labels, self.last
        found = arrival(models, self.aggregation, embeddings, samples, self.steps)
        loss, gradients, self.known = found
        return loss, gradients

    def details(self, embeddings: Mapping[int, Secret], samples: Secret) -> dict[str, Any]:
        """Fields of a step for the history: the sender, and the share of known embeddings."""
        return {"client": next(iter(embeddings)), "known": self.known}

    def answer(self, batch: Secret, gradients: Mapping[int, Secret]) -> None:
        """Send gradients, by client, in the client's round; the server's is the number of steps."""
        assert self.envelope is not None
        self.round = self.steps
        for client, gradient in gradients.items():
            self.send(client, "gradient", gradient, round=self.envelope.round)


class Vafl(OpenEmbeddings, EmbeddingProtocol):
    """VAFL on one data set."""

    name = "vafl"
    weighs_rows = True
    apart = True
    Config = VaflConfig
    card = Card(
        title="VAFL",
        paper="Chen, Jin, Sun, Yin, 2020, arXiv 2007.06081",
        roles={
            "server": "holds the labels and the server model; keeps all last embeddings",
            "client": "holds some columns and a network; trains at its own pace",
        },
        sees={
            "server": "every client's embeddings, exactly, and when each of them came",
            "client": "dL/dH_n of its own embedding, which depends on the others' last ones",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="fills",
        deviations=(
            "a sample's embeddings that never came are left out of mean and maximum, and zero in "
            "the concatenation; the history says which share of them was known",
            "ours: a timeout of the clients, for gradients that are lost on the way",
            "embeddings are not perturbed; wait_dp shows what noise costs",
            "h, the optimiser, initialisation and batch order are ours, as in FedVS; each client "
            "draws its own batches of the common layout",
            "MLP and CNN widths, and how an embedding enters VGG13, are ours",
        ),
    )

    def server(self) -> Server:
        """Create the server."""
        last = LastEmbeddings(self.data.parties, self.data.rows, self.config.width)
        return self.make_server(Server, last=last)

    def client(self, index: int) -> Client:
        """Client `index`, counted from 0, with batches of its own."""
        network = self.client_network(index)
        features, batches = self.data.train[index], self.own_batches(index)
        given = (index, self.peers(), batches, features, network, self.config.timeout)
        return Client(*given, width=self.config.width)

    def own_batches(self, index: int) -> Batches:
        """Batches of a client: the common layout in its own order."""
        stream = functools.partial(own_stream, self.seed, self.secrets, index)
        return Batches(self.data.rows, self.config.segments, self.config.batch, stream)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Message declarations: an embedding and its gradient in each client's own rounds."""
        return (*self.step_messages()[1:], last_word())

    def schedules(self) -> tuple[Schedule, ...]:
        """Schedules to trace: a client or the server is down for a time; no step waits for one."""
        return usual(len(self.peers()), waits=True)

    def ideal(self, world: World) -> None:
        """Declare outputs: batches and embeddings to the server, dL/dH_n to n, the loss to all.

        The order of arrival is public, and depends on the conditions only. Losses and gradients may
        depend only on labels and the client's own values, because others may have sent nothing yet.
        """
        ideal, last = self.inputs(world), world.the(SERVER, "last")
        sent: dict[int, tuple[Secret, Secret]] = {}
        arrivals = 0
        for m in list(world.messages):
            if m.kind == "embedding":
                batch = world.the(m.sender, "order").call(
                    drawn, m.round, shape=(self.layout.coded,), dtype=np.uint32
                )
                world.output(f"batch of party {m.sender}", batch, to=[SERVER], alone=True)
                samples = samples_in(self.layout, batch)
                sent[m.sender] = samples, ideal.embed(m.sender, samples, self.config.width)
            elif m.kind == "gradient" and m.to is not None:
                samples, H = sent[m.to]
                models = ideal.centre, ideal.labels, last
                loss, gradients, share = arrival(
                    models, self.aggregation, {m.to: H}, samples, arrivals
                )
                world.output("known", share, alone=True)
                ideal.answer(samples, (loss, gradients), alone=True)
                arrivals += 1

    def describe(self) -> dict[str, Any]:
        """Figures for summaries: parties N, batch size |B|, and the event counted as a round."""
        return {
            "N": self.data.parties,
            "batch_rows": self.batch_rows,
            "round": "one arrival at the server",
        }

    def memory(self) -> int:
        """Bytes of the base class, and of the table of embeddings with its copies."""
        row = 4 * int(self.config.width) + 8
        return super().memory() + 4 * self.data.parties * (self.data.rows + 1) * row

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of no protection: embeddings are sent unencrypted."""
        return OPEN_EMBEDDINGS


def own_stream(
    seed: int, secrets: Secrets, client: int, name: str, *keys: int
) -> np.random.Generator:
    """Stream of a client's batches: public for the layout ("shuffle"), else the client's own."""
    if name == "shuffle":
        return keyed_stream(seed, SERVER, f"train/{name}", *keys)
    return secrets.stream(client, f"train/{name}", *keys)
