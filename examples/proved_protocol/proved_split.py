"""Split learning whose server gets only the sum of the embeddings, with a proof.

The protocol of examples/own_protocol, written with protected values: each client n cuts its
quantised embedding into N shares that are uniform but for their sum, client j adds up what it got,
and the server adds up these. ``securevfl verify proved_split`` proves that the server and N - 2
clients learn the sum and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER, Party
from securevfl.field import FixedPoint, PrimeField
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.privacy.claims import Claim
from securevfl.protocols.protocol import (
    Card,
    MessageSpec,
    SplitProtocol,
    TrainingConfig,
    announcement,
    in_rounds,
)
from securevfl.verified import Participant, Provable, Schedule, World, usual

FIELD = PrimeField(2**61 - 1)


class ProvedConfig(TrainingConfig):
    """Options; each one is `--name` on the command line."""

    fraction_bits: int = Field(24, ge=1, le=40, description="binary places of an embedding")


def embedding(
    network: PolynomialNetwork, features: np.ndarray, samples: np.ndarray, point: FixedPoint
) -> np.ndarray:
    """Quantised embedding of a batch."""
    return point.quantize(network.forward(rows_of(features, samples)))


def step(
    network: PolynomialNetwork, features: np.ndarray, samples: np.ndarray, gradient: np.ndarray
) -> None:
    """One step of a client's network."""
    network.update(rows_of(features, samples), gradient)


def loss_and_gradient(
    centre: Centre,
    total: np.ndarray,
    labels: np.ndarray,
    samples: np.ndarray,
    point: FixedPoint,
    parties: int,
) -> tuple[np.ndarray, np.ndarray]:
    """One step of the server's network on the mean embedding; the loss and dL/dH of a client."""
    mean = point.dequantize(total).astype(np.float32) / np.float32(parties)
    loss, gradient = centre.step(mean, samples, labels)
    return np.float32(loss), gradient / np.float32(parties)


class Client(Participant):
    """Holds some columns and a network."""

    kept: ClassVar[tuple[str, ...]] = ("network",)
    activities: ClassVar[Mapping[str, str]] = {"share": "share", "embedding": "upload"}
    protected: ClassVar[Mapping[str, str]] = {
        "share": "field", "embedding": "field", "gradient": "real",
    }  # fmt: skip

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        batches: Batches,
        features: np.ndarray,
        network: PolynomialNetwork,
        point: FixedPoint,
        width: int,
    ) -> None:
        super().__init__(index, peers, FIELD)
        self.batches, self.point, self.width = batches, point, width
        self.features = self.own("columns", features)
        self.network = self.own_model("network", network)

    async def run(self) -> None:
        """Take part in every round; called anew after a resume."""
        async for round_ in self.rounds():
            with round_:
                samples = self.batches.samples(round_.payload)
                own = self.features, samples
                shape = (len(samples), self.width)
                H = self.network.call(embedding, *own, self.point, shape=shape, field=FIELD)
                self.share("share", self.cut(H))
                shares = await self.collect("share", senders=self.peers)
                self.send(SERVER, "embedding", sum(shares.values()))
                self.network.step(step, *own, await self.receive("gradient"))

    def cut(self, secret: Any) -> list[Any]:
        """N shares: all but the own one uniform, and their sum the secret."""
        shares = {j: self.uniform(secret.shape) for j in self.peers if j != self.index}
        shares[self.index] = secret - sum(shares.values())
        return [shares[j] for j in self.peers]


class Server(Participant):
    """Holds the labels and the centre; sees sums of embeddings."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps")
    protected = Client.protected

    def __init__(
        self,
        peers: Sequence[int],
        batches: Batches,
        centre: Centre,
        labels: np.ndarray,
        point: FixedPoint,
        rounds: int,
    ) -> None:
        super().__init__(SERVER, peers, FIELD)
        self.batches, self.point, self.wanted, self.steps = batches, point, rounds, 0
        self.centre = self.own_model("centre", centre)
        self.labels = self.own("labels", labels)

    async def run(self) -> None:
        """Take one step a round."""
        while self.steps < self.wanted:
            self.safe_point()
            batch = self.batches.draw(self.round + 1)
            self.announce(self.round + 1, batch)
            total = sum((await self.collect("embedding", senders=self.peers)).values())
            samples, N = self.batches.samples(batch), len(self.peers)
            loss, gradient = self.centre.step(
                *(loss_and_gradient, total, self.labels, samples, self.point, N),
                shapes=[(), total.shape],
            )
            self.steps += 1
            self.broadcast("gradient", gradient)
            self.record("round", step=self.steps, loss=loss, used=N)
        self.conclude()


class ProvedSplit(Provable, SplitProtocol):
    """The method, configured for one data set: what `securevfl` looks for."""

    name = "proved_split"
    Config = ProvedConfig
    field = FIELD
    card = Card(
        title="Split learning with additive shares, with a proof",
        paper="none: an example; additive secret sharing is folklore",
        roles={
            "server": "holds the labels and the central model",
            "client": "holds some columns and a network; adds up shares",
        },
        sees={
            "server": "the sum of all embeddings of every batch, exactly",
            "client": "one uniform share of each other client's embedding, dL/dH, the batches",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
    )

    def __init__(self, config: ProvedConfig, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        self.layout = self.batches(1)
        self.point = FixedPoint(FIELD, bits=config.fraction_bits)

    def parties(self) -> dict[int, Party]:
        """Give each party its own data, and nothing else."""
        labels, rounds = self.data.train_labels, self.config.rounds
        server = Server(self.peers(), self.layout, self.centre(), labels, self.point, rounds)
        return {SERVER: server} | {n: self.client(n) for n in self.peers()}

    def client(self, index: int) -> Client:
        """Client `index`, from 0."""
        features, network = self.data.train[index], self.network(index)
        parts = features, network, self.point, self.config.width
        return Client(index, self.peers(), self.layout, *parts)

    def colluders(self) -> int:
        """N - 2 clients: the server and one more would have the last one's embedding."""
        return len(self.peers()) - 2

    def schedules(self) -> tuple[Schedule, ...]:
        """All wait for all, so nobody is late; a client, and the server, go down and come back."""
        return usual(len(self.peers()), waits=True)

    def ideal(self, world: World) -> None:
        """Each round the server may have the sum of the embeddings, and all the loss and dL/dH."""
        N = len(self.peers())
        columns = [world.the(n, "columns") for n in self.peers()]
        networks = [world.the(n, "network") for n in self.peers()]
        centre, labels = world.the(SERVER, "centre"), world.the(SERVER, "labels")
        for r in world.rounds("embedding"):
            samples = self.layout.samples(self.layout.draw(r))
            shape = (len(samples), self.config.width)
            total = sum(
                network.call(embedding, X, samples, self.point, shape=shape, field=FIELD)
                for network, X in zip(networks, columns, strict=True)
            )
            world.output(f"sum {r}", total, to=[SERVER])
            if r not in world.rounds("event round"):  # the server went down before the step
                continue
            loss, gradient = centre.step(
                *(loss_and_gradient, total, labels, samples, self.point, N), shapes=[(), shape]
            )
            world.output(f"loss {r}", loss)
            world.output(f"gradient {r}", gradient)
            for network, X in zip(networks, columns, strict=True):
                network.step(step, X, samples, gradient)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Every message that a party may send; the engine refuses all others."""
        shape, elements = (self.batch_rows, self.config.width), {
            "dtype": FIELD.dtype.name, "modulus": FIELD.modulus, "count": in_rounds,
        }  # fmt: skip
        share = ("share", "client", "client", "result_share")
        upload = ("embedding", "client", "server", "result_share")
        gradient = ("gradient", "server", "client", "gradient")
        return (
            announcement("client"),
            MessageSpec(*share, shape=lambda key: shape, **elements),
            MessageSpec(*upload, shape=lambda key: shape, row_by_row=True, **elements),
            MessageSpec(
                *gradient, shape=lambda key: shape, dtype="float32", count=in_rounds,
                row_by_row=True,
            ),
        )  # fmt: skip

    @property
    def batch_rows(self) -> int:
        """|B|."""
        return self.layout.coded

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Say what is not protected, too."""
        why = "N - 1 of N additive shares are uniform; given the sum of the embeddings"
        return (
            Claim("server", "features", "perfect", why),
            Claim("server", "model", "perfect", why),
            Claim("server + N - 1 clients", "features", "none", "the last one's is the difference"),
            Claim("client", "labels", "none", "dL/dH depends on them"),
        )
