"""VAFL: vertical asynchronous federated learning.

T. Chen, X. Jin, Y. Sun, W. Yin, "VAFL: a Method of Vertical Asynchronous Federated Learning", 2020,
arXiv 2007.06081, Algorithm 1: each client runs its own loop on its own batches and waits only for
the server; the server keeps the last embedding of every sample and client, and at each arrival
updates the server model and returns the gradient with respect to that client's embedding.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER
from securevfl.engine.streams import Secrets, keyed_stream
from securevfl.models.split import Batches
from securevfl.models.stale import LastEmbeddings
from securevfl.privacy.claims import OPEN_EMBEDDINGS, Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import (
    Formula,
    MessageKey,
    MessageSpec,
    RunSecrets,
    last_word,
    with_formulas,
)
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.protocols.base.split_parties import SplitClient, SplitServer
from securevfl.protocols.base.split_step import JointEmbedding, SplitStep, aggregated

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


@dataclass(eq=False, repr=False)
class Client(SplitClient):
    """Client m: embeds a batch of its own, waits for its gradient, steps, and begins anew."""

    kept: ClassVar[tuple[str, ...]] = ("network", "unanswered")

    timeout: float | None
    unanswered: int = field(default=0, init=False)  # rounds in a row

    async def run(self) -> None:
        """Train in rounds of its own until the server says stop."""
        while True:
            self.safe_point()
            self.round += 1
            batch = self.batches.draw(self.round)
            own = self.rows_of(batch)
            self.send(SERVER, "embedding", (batch, self.embed(own)))
            try:
                gradient = await self.answer()
            except TimeoutError:
                self.unanswered += 1
                continue
            self.unanswered = 0
            if gradient is None:
                return
            self.update(own, gradient)

    async def answer(self) -> np.ndarray | None:
        """Gradient of this round, None at the end; one of an earlier round is dropped."""
        # After so many rounds without an answer the server is gone. A wait without end lets the
        # engine see that nothing more can happen, and end the run with an error.
        timeout = self.timeout if self.unanswered < _UNANSWERED else None
        until = None if timeout is None else self.now + timeout
        while True:
            left = None if until is None else max(0.0, until - self.now)
            gradient: np.ndarray | None = await self.receive("gradient", "stop", timeout=left)
            assert self.envelope is not None
            if gradient is None or self.envelope.round == self.round:
                return gradient


@dataclass(eq=False, repr=False)
class Server(SplitServer):
    """Server: keeps the last embedding of every sample and client; each arrival is a step."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "last")
    counts_rounds: ClassVar[bool] = True

    width: int = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.last = LastEmbeddings(len(self.peers), len(self.labels), self.width)

    async def run(self) -> None:
        """Step at every arrival; embeddings that come after the last step are late."""
        while self.steps < self.max_steps:
            batch, embedding = await self.receive("embedding", safe=True)
            assert self.envelope is not None
            self.train(batch, (self.envelope.sender, embedding))
        self.broadcast("stop", None)

    def join(self, uploads: tuple[int, np.ndarray], samples: np.ndarray) -> JointEmbedding:
        """Aggregate the newest embeddings of the samples; only their sender gets a gradient."""
        client, embedding = uploads
        self.last.keep(client, samples, embedding, self.steps)
        stack, present = self.last.at(samples)
        # Padded rows have no embeddings; they would make the share of known ones too small.
        known = float(present[:, samples >= 0].mean())
        return aggregated(self.aggregation, stack, present, (client,), client=client, known=known)

    def answer(self, batch: np.ndarray, step: SplitStep) -> None:
        """Answer in the client's own round; the server's is the number of steps."""
        assert self.envelope is not None
        self.round = self.steps
        for client, gradient in step.gradients.items():
            self.send(client, "gradient", gradient, round=self.envelope.round)


class Vafl(EmbeddingProtocol):
    """VAFL on one data set."""

    name = "vafl"
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
        """The server."""
        return self.make_server(Server, width=self.config.width)

    def client(self, index: int) -> Client:
        """Client `index`, from 0, with batches of its own."""
        network = self.client_network(index)
        features, batches = self.data.train[index], self.own_batches(index)
        return Client(index, self.peers(), batches, features, network, self.config.timeout)

    def own_batches(self, index: int) -> Batches:
        """Batches of a client: the common layout, in an order of its own."""
        stream = functools.partial(own_stream, self.seed, self.secrets, index)
        return Batches(self.data.rows, self.config.segments, self.config.batch, stream)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """An embedding and its gradient in each client's own rounds; nothing is announced."""
        formulas: dict[str, Formula] = {"embedding": self.sent_embedding,
                                        "gradient": self.gradient_of_arrival}  # fmt: skip
        return (*with_formulas(self.step_messages()[1:], formulas), last_word())

    def sent_embedding(self, secrets: RunSecrets, key: MessageKey) -> tuple[np.ndarray, np.ndarray]:
        """The client's own batch of its round, and H_n of it."""
        return self.batch_at(secrets, key), self.embedding_at(secrets, key)

    def batch_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """Coded rows that the client drew for its round."""
        client = key.receiver if key.sender == SERVER else key.sender
        return self.own_batches(client).draw(key.round)

    def gradient_of_arrival(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """dL/dH_n with the newest embeddings, by the server's model before that step."""
        server, before = secrets.state(key), secrets.state_before(key, "steps")
        batch, embedding = secrets.sent("embedding", key.round)[key.receiver, SERVER]
        last = LastEmbeddings(self.data.parties, self.data.rows, self.config.width)
        last.load_state_dict(server["last"])
        stack, present = last.complete({key.receiver: embedding}, self.layout.samples(batch))
        joint = self.aggregation.combine(stack, present)
        centre = None if before is None else before["centre"]
        whole = self.step_at(secrets, key, centre, joint)
        return self.aggregation.gradient(whole, stack, present, key.receiver)

    def describe(self) -> dict[str, Any]:
        """N, |B|, and what a round is."""
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
        """No protection: embeddings are sent in the clear."""
        return OPEN_EMBEDDINGS


def own_stream(
    seed: int, secrets: Secrets, client: int, name: str, *keys: int
) -> np.random.Generator:
    """Stream of a client's batches: the layout is public, for the server; the order is its own."""
    if name == "shuffle":
        return keyed_stream(seed, SERVER, f"train/{name}", *keys)
    return secrets.stream(client, f"train/{name}", *keys)
